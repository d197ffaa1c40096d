//! A headless Chromium, driven over its own protocol through two pipes: without a Chromium, tests that need one are
//! skipped.

use std::{
    env,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use base64::Engine;
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Limit of the wait for a state; far above what any state takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two checks of a state without an event.
const LOOK: Duration = Duration::from_millis(25);
/// Variable with the folder for screenshots.
const SCREENSHOTS: &str = "HOSTLER_SCREENSHOTS";

/// A browser with one page; it ends when it is dropped.
pub struct Browser {
    process: Child,
    commands: File,
    messages_rx: Receiver<Value>,
    next: u64,
    session: String,
    /// Complaints of the page: errors, violations of its policy, messages on the console.
    complaints: Vec<String>,
    _folder: TempDir,
}

/// Keeps an account of what the page's policy did not let happen.
const WATCH_POLICY: &str = "window.violations = []; addEventListener('securitypolicyviolation', \
                            (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`))";

impl Browser {
    /// Starts one; `None` where there is no Chromium.
    pub fn start() -> Option<Self> {
        let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| is_there(name));
        let Some(program) = found else {
            println!("skipped: there is no Chromium here (Debian: apt-get install chromium)");
            return None;
        };
        let folder = TempDir::new().expect("a folder for the profile");
        let [commands, messages] = ["commands", "messages"].map(|name| folder.path().join(name));
        for path in [&commands, &messages] {
            mkfifo(path, Mode::S_IRWXU).expect("a pipe");
        }
        let process = spawn(program, folder.path());
        let commands = OpenOptions::new().write(true).open(commands).expect("the browser opens its pipe");
        let messages = File::open(messages).expect("the browser opens its pipe");
        let (messages_tx, messages_rx) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(messages).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if messages_tx.send(message).is_err() {
                    return;
                }
            }
        });
        let (session, complaints) = (String::new(), Vec::new());
        let mut browser = Self { process, commands, messages_rx, next: 0, session, complaints, _folder: folder };
        browser.open();
        Some(browser)
    }

    fn open(&mut self) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = self.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        self.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": WATCH_POLICY }));
        self.resize(1440, 900);
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut command = json!({ "id": self.next, "method": method, "params": params });
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).expect("the browser lives");
        loop {
            let message = self.messages_rx.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{method}: no answer"));
            if message["id"] == self.next {
                assert_eq!(message.get("error"), None, "{method}");
                return message["result"].clone();
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, message: &Value) {
        let params = &message["params"];
        let complaint = match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => params["exceptionDetails"].to_string(),
            "Runtime.consoleAPICalled" => params["args"].to_string(),
            // That an answer was a no is what the browser says, and not the page.
            "Log.entryAdded" if params["entry"]["source"] != "network" => params["entry"]["text"].to_string(),
            _ => return,
        };
        self.complaints.push(complaint);
    }

    /// The size of the window.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sets whether the system has dark colours.
    pub fn prefer_dark(&mut self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Opens an address, and waits until everything is loaded.
    pub fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.until(&format!("location.href.startsWith({url:?}) && document.readyState === 'complete'"));
    }

    /// Evaluates an expression; promises are waited for.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", asked);
        assert_eq!(answer.get("exceptionDetails"), None, "{expression}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.evaluate(expression) != true {
            if begin.elapsed() > PATIENCE {
                let shown = self.evaluate("document.body.innerText");
                panic!("waited in vain for {expression}; the page shows {shown}; {:?}", self.complaints);
            }
            thread::sleep(LOOK);
        }
    }

    /// Presses a key, as a user at a keyboard does.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "Home" => 36,
            "End" => 35,
            "Tab" => 9,
            _ => 0,
        };
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }));
    }

    /// Everything that the page complained about so far.
    pub fn complaints(&mut self) -> Vec<String> {
        let violations = self.evaluate("window.violations");
        while let Ok(message) = self.messages_rx.try_recv() {
            self.hear(&message);
        }
        let violations = violations.as_array().cloned().unwrap_or_default();
        self.complaints.iter().cloned().chain(violations.iter().map(Value::to_string)).collect()
    }

    /// Takes a screenshot, if a folder for them is set.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = env::var_os(SCREENSHOTS) else { return };
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().expect("a picture"));
        let path = Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(path, bytes.expect("base64")).expect("the folder can be written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The protocol's pipes are descriptors 3 and 4, which only a shell gives to a child without further ado.
fn spawn(program: &str, folder: &Path) -> Child {
    // Tests run as root in containers, where Chromium's own sandbox cannot be had; the page is ours.
    let options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                   --disable-background-networking --remote-debugging-pipe";
    let line = format!("exec {program} {options} --user-data-dir=profile about:blank 3<commands 4>messages");
    Command::new("sh")
        .args(["-c", &line])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell")
}

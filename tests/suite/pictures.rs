//! The machine as users see it: live, once, as a drawing, and lists that are watched; with the real binary.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
};

use hostler_linux::testkit::{CpuLayout, MachineTree};
use hostler_testing::{
    binary::binary,
    host::{Host, SCRIPT, http, wait_for},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

/// Eight cards and a pool, on a made-up machine of two nodes with four threads each, of which a claim has a part.
fn host() -> Host {
    let mut host = Host::bare(SCRIPT);
    let tree = MachineTree::new();
    CpuLayout { nodes: 2, cores: 2, threads: 2, blocks: 1 }.plug(&tree);
    let copied = Command::new("cp").arg("-a").arg(tree.path(".")).arg(host.path("machine")).status().unwrap();
    assert!(copied.success());
    host.start();
    host.manifest(
        "train",
        "u1",
        &[("a", "fake", "pool", json!({"units": "12"})), ("b", "fake", "card-0", Value::Null)],
    );
    host.run_ok(&["claim", "prepare", "train"]);
    host
}

#[test]
fn the_daemon_says_what_the_machine_looks_like_and_who_has_what_of_it() {
    let host = host();
    let usage = host.get("/v1/usage");
    assert_eq!(usage["machine"]["packages"].as_array().unwrap().len(), 2, "{usage}");
    assert_eq!(usage["machine"]["cores"][0]["cpus"], "0,4", "threads are numbered as on x86");
    assert_eq!(usage["machine"]["is_here"], false, "it is not the machine that the daemon runs on");
    let pool = usage["devices"].as_array().unwrap().iter().find(|device| device["name"] == "pool").unwrap();
    assert_eq!(pool["amounts"]["units"], json!({"capacity": "64", "held": "12", "free": "52"}));
    assert_eq!(usage["holders"][pool["holds"][0]["holder"].as_u64().unwrap() as usize]["name"], "train");
}

#[test]
fn every_picture_shows_the_claim_that_holds_something() {
    let host = host();
    let page = host.run_ok(&["top", "--once"]);
    assert!(page.contains("a default/train  prepared") && page.contains("units 52/64 free"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert!(!page.contains('\x1b'), "{page}");
    assert!(host.run_ok(&["top", "--once", "--by", "namespace"]).contains("a default    1"));
    let drawing = host.run_ok(&["top", "-o", "svg"]);
    assert!(drawing.starts_with("<svg xmlns=") && drawing.contains("held by default/train"), "{drawing:.300}");
    // With the daemon the inventory draws the same.
    assert_eq!(host.run_ok(&["inventory", "-o", "svg"]), drawing);
}

#[test]
fn what_is_free_and_held_is_said_wherever_devices_are_listed() {
    let host = host();
    assert!(host.run_ok(&["device", "list"]).contains("fake/pool    in use  units=52/64"));
    assert!(host.run_ok(&["device", "list", "-o", "wide"]).contains("units=52/64  units=12"));
    assert!(
        host.run_ok(&["inventory", "-o", "tree"]).contains("▪ fake/pool  units=64 (52 free)  held by default/train")
    );
    assert!(host.run_ok(&["inventory", "-o", "wide"]).contains("units=64 (52 free)"));
    let document: Value = serde_json::from_str(&host.run_ok(&["inventory", "-o", "json"])).unwrap();
    let pool = document["devices"].as_array().unwrap().iter().find(|device| device["name"] == "pool").unwrap();
    assert_eq!((&pool["held"]["units"], &pool["free"]["units"]), (&"12".into(), &"52".into()));
    assert_eq!(pool["holders"], json!(["default/train"]));
    let (_, figures) = host.metrics("/metrics");
    for line in [
        "hostler_device_capacity{backend=\"fake\",numa_node=\"none\",capacity=\"units\"} 64.0",
        "hostler_device_allocated{backend=\"fake\",numa_node=\"none\",capacity=\"units\",namespace=\"default\"} 12.0",
        "hostler_device_allocated{backend=\"fake\",numa_node=\"none\",capacity=\"devices\",namespace=\"default\"} 2.0",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line} is not in {figures}");
    }
}

#[test]
fn without_the_daemon_the_inventory_says_nothing_of_holders() {
    let mut host = host();
    host.stop();
    let document: Value = serde_json::from_str(&host.run_ok(&["inventory", "-o", "json"])).unwrap();
    assert!(document["devices"].as_array().unwrap().iter().all(|device| device.get("held").is_none()));
    assert!(host.run_ok(&["inventory", "-o", "svg"]).contains("fake/pool"));
}

/// Returns lines of a command, as they come.
fn lines(stdout: ChildStdout) -> impl Iterator<Item = String> {
    BufReader::new(stdout).lines().map(Result::unwrap)
}

#[test]
fn a_list_that_is_watched_tells_each_change_and_outlives_the_daemon() {
    let mut host = host();
    let mut watching = host.spawn_command(&["device", "list", "--watch", "-o", "name"]);
    let mut lines = lines(watching.stdout.take().unwrap());
    assert_eq!(lines.by_ref().take(9).collect::<Vec<_>>()[8], "fake/pool");
    host.run_ok(&["device", "drain", "fake/card-3"]);
    assert_eq!(lines.next().unwrap(), "fake/card-3");
    host.stop();
    host.start();
    host.run_ok(&["device", "undrain", "fake/card-3"]);
    assert_eq!(lines.next().unwrap(), "fake/card-3");
    kill(Pid::from_raw(i32::try_from(watching.id()).unwrap()), Signal::SIGTERM).unwrap();
    watching.wait().unwrap();
}

#[test]
fn documents_of_a_watched_list_follow_each_other() {
    let host = host();
    let mut watching = host.spawn_command(&["claim", "list", "--watch", "-o", "json"]);
    let stdout = watching.stdout.take().unwrap();
    let mut documents = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>();
    let first = documents.next().unwrap().unwrap();
    assert_eq!((first["kind"].as_str(), first["items"].as_array().unwrap().len()), (Some("ClaimList"), 1));
    host.run_ok(&["claim", "delete", "train"]);
    // Intermediate states may be seen too.
    let gone = documents.map(Result::unwrap).find(|document| document["items"].as_array().unwrap().is_empty());
    assert!(gone.is_some());
    watching.kill().unwrap();
    watching.wait().unwrap();
}

#[test]
fn so_many_wait_for_changes_and_nobody_is_locked_out() {
    let host = host();
    let socket = host.path("run/admin.sock");
    let version = host.get("/v1/changes")["version"].as_str().unwrap().to_owned();
    let path = format!("/v1/changes?after={version}&timeout=60s");
    let waiting: Vec<_> = (0..17)
        .map(|_| {
            let (socket, path) = (socket.clone(), path.clone());
            thread::spawn(move || http(&socket, "GET", &path, "").unwrap().0)
        })
        .collect();
    // A command that finds no free place is told so at once; the others still wait.
    wait_for("the refusal", || waiting.iter().any(thread::JoinHandle::is_finished).then_some(()));
    host.run_ok(&["device", "drain", "fake/card-1"]);
    let mut codes: Vec<u16> = waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!((codes[0], codes[15], codes[16]), (200, 200, 503));
    let (code, answer) = host.request("GET", "/v1/changes?after=x&timeout=never", "");
    assert_eq!(code, 400, "{answer}");
}

/// `hostler top` on a terminal that script(1) makes, and what it writes there.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    written: PathBuf,
    socket: PathBuf,
}

impl Terminal {
    fn start(host: &Host, name: &str) -> Option<Self> {
        let (written, socket) = (host.path(name), host.path("run/admin.sock"));
        let line = format!("stty rows 40 cols 100; exec {} top --socket {}", binary().display(), socket.display());
        let mut command = Command::new("script");
        command.args(["-qefc", &line]).arg(&written).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::null());
        let Ok(mut script) = command.spawn() else {
            println!("skipped: there is no script(1) here to make a terminal");
            return None;
        };
        let keys = script.stdin.take().unwrap();
        let terminal = Self { script, keys, written, socket };
        terminal.shows("default/train");
        Some(terminal)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.written).unwrap_or_default()).into_owned()
    }

    fn shows(&self, text: &str) {
        wait_for(text, || self.text().contains(text).then_some(()));
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(running(&self.socket).unwrap()).unwrap()), signal).unwrap();
    }

    /// Ends the view; returns true if the terminal is as it was before.
    fn gives_the_terminal_back(mut self) -> bool {
        wait_for("the end", || self.script.try_wait().unwrap());
        let text = self.text();
        let (left, entered) = (text.rfind("\x1b[?1049l"), text.rfind("\x1b[?1049h"));
        left.is_some() && left > entered && text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
    }
}

/// Returns the process that shows the daemon behind `socket`.
fn running(socket: &Path) -> Option<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|pid: &u32| {
        let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&&b"top"[..]) && words.contains(&socket.as_os_str().as_encoded_bytes())
    })
}

#[test]
fn the_terminal_gives_the_terminal_back_however_the_live_view_ends() {
    let host = host();
    for (index, signal) in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT].into_iter().enumerate() {
        let Some(terminal) = Terminal::start(&host, &format!("terminal-{index}")) else { return };
        terminal.signal(signal);
        assert!(terminal.gives_the_terminal_back(), "{signal}");
    }
    for (name, keys) in [("q", "q"), ("control-c", "\x03")] {
        let Some(mut terminal) = Terminal::start(&host, name) else { return };
        terminal.press(keys);
        assert!(terminal.gives_the_terminal_back(), "{name}");
    }
}

#[test]
fn keys_change_what_is_shown_and_a_daemon_that_went_away_is_waited_for() {
    let mut host = host();
    let Some(mut terminal) = Terminal::start(&host, "terminal") else { return };
    // Of a frame only those characters are written that differ from the one before; all of these do.
    terminal.press("n");
    terminal.shows("NAMESPACE");
    terminal.press("u");
    terminal.shows("HOLDERS");
    host.stop();
    terminal.shows("no daemon");
    host.start();
    terminal.press("c");
    host.manifest("zulu", "u2", &[("a", "fake", "card-7", Value::Null)]);
    host.run_ok(&["claim", "prepare", "zulu"]);
    terminal.shows("default/zulu");
    terminal.press("q");
    assert!(terminal.gives_the_terminal_back());
}

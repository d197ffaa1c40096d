//! A cluster controller that runs: its configuration, what it logs, and what it answers.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::{net::TcpStream, time::sleep};

/// Limit of the wait for a state; far above what any state takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two checks of a state without an event.
const LOOK: Duration = Duration::from_millis(10);

/// A controller in a process of its own; it is killed when it is dropped.
#[derive(Debug)]
pub struct RunningController {
    process: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    _folder: TempDir,
}

/// Options of a controller's start.
#[derive(Clone, Debug, Default)]
pub struct ControllerOptions {
    /// The binary.
    pub binary: PathBuf,
    /// The kubeconfig for its API server.
    pub kubeconfig: PathBuf,
    /// More lines of its configuration.
    pub config: String,
    /// The address that it listens on; empty for a loopback one. The kernel chooses its port.
    pub listen: String,
    /// Additional variables of its environment.
    pub environment: Vec<(&'static str, String)>,
}

impl ControllerOptions {
    /// Options for figures: the binary of `HOSTLER_CONTROLLER_BIN`, or the one beside the examples.
    pub fn as_deployed(kubeconfig: PathBuf, config: &str) -> Self {
        let example = env::current_exe().expect("the path of this program");
        let beside = || example.ancestors().nth(2).expect("a folder of binaries").join("hostler-controller");
        let binary = env::var_os("HOSTLER_CONTROLLER_BIN").map_or_else(beside, PathBuf::from);
        Self { binary, kubeconfig, config: config.to_owned(), ..Self::default() }
    }
}

impl RunningController {
    /// Starts it, and waits until it serves.
    pub async fn start(options: &ControllerOptions) -> Self {
        let folder = TempDir::new().expect("a folder for the configuration");
        let file = folder.path().join("controller.toml");
        // Which port is free is for the kernel to say.
        let host = if options.listen.is_empty() { "127.0.0.1" } else { &options.listen };
        let config = format!("kubeconfig = {:?}\nlisten = '{host}:0'\n{}", options.kubeconfig, options.config);
        fs::write(&file, config).expect("the configuration is written");
        let mut process = spawn(options, &file);
        let log = Arc::new(Mutex::new(Vec::new()));
        let (stderr, lines) = (process.stderr.take().expect("it is a pipe"), log.clone());
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut controller = Self { process, address: nowhere, log, _folder: folder };
        controller.address = controller.until("it serves", async |it| it.served_address()).await;
        controller
    }

    fn served_address(&self) -> Option<SocketAddr> {
        let log = self.log();
        let line = log.iter().find(|line| line.contains("serving"))?;
        line.split_whitespace().find_map(|word| word.strip_prefix("address=")?.parse().ok())
    }

    /// Everything that it has logged.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the address that it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    /// Processor time that it has used, in hundredths of a second.
    pub fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        // After the name in parentheses, user and system time are the 12th and 13th field.
        let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace().skip(11).take(2);
        Duration::from_millis(10) * fields.map(|field| field.parse::<u32>().expect("a number")).sum::<u32>()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is our process");
    }

    /// Waits until `look` gives something.
    pub async fn until<T>(&self, what: &str, look: impl AsyncFn(&Self) -> Option<T>) -> T {
        let wait = async {
            loop {
                if let Some(found) = look(self).await {
                    return found;
                }
                sleep(LOOK).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, wait).await;
        found.unwrap_or_else(|_| panic!("waited in vain until {what}; its log:\n{}", self.log().join("\n")))
    }

    /// Waits until a path is answered with this status; gives what stands there.
    pub async fn until_answers(&self, path: &str, code: u16) -> String {
        let what = format!("{path} is answered with {code}");
        self.until(&what, async |it| it.get(path).await.filter(|(found, _)| *found == code).map(|(_, body)| body)).await
    }

    /// Waits until a line stands in its figures.
    pub async fn until_figure(&self, line: &str) {
        let is_there = async |it: &Self| {
            let (_, figures) = it.get("/metrics").await?;
            figures.lines().any(|found| found == line).then_some(())
        };
        self.until(&format!("its figures say {line}"), is_there).await;
    }

    /// Returns status and body of its answer; `None` if it does not answer.
    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        let request = Request::get(path).header(HOST, self.address.to_string()).body(Empty::<Bytes>::new()).ok()?;
        let exchange = async {
            let response = sender.send_request(request).await.ok()?;
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.ok()?.to_bytes();
            Some((code, String::from_utf8_lossy(&body).into_owned()))
        };
        // The connection ends with the exchange.
        tokio::select! {
            answer = exchange => answer,
            _ = connection => None,
        }
    }

    /// Asks it to stop; gives its exit code.
    pub async fn stop(mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        let process = Mutex::new(&mut self.process);
        let wait = async {
            loop {
                let ended = process.lock().unwrap_or_else(PoisonError::into_inner).try_wait().expect("our process");
                if let Some(status) = ended {
                    return status.code();
                }
                sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("it stops when it is told to")
    }
}

impl Drop for RunningController {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(options: &ControllerOptions, config: &Path) -> Child {
    Command::new(&options.binary)
        .args(["run", "--config"])
        .arg(config)
        // The service account of a pod that tests run in is not the controller's, and their service manager neither.
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("NOTIFY_SOCKET")
        .envs(options.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the controller starts")
}

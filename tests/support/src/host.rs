//! The real binary on a temporary root: started, watched, stopped, killed and started again.

use std::{
    ffi::OsString,
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use hostler_linux::archive::UnpackedCapture;
use hostler_proto::dra_v1::{Claim, Device};
use nix::{sys::signal::Signal, unistd::Pid};
use tokio::task::JoinHandle;

use crate::{binary::binary, kubelet::KubeletPlugin};

/// Longer than anything here takes on a busy machine; only a test that fails waits this long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Eight cards, each for one claim, and a pool of units for many.
pub const SCRIPT: &str = r#"
[[device]]
name = "card"
count = 8
edits = { env = ["CARD={n}"] }

[[device]]
name = "pool"
sharing = "shared"
capacity.units = { value = 64, min = 1, step = 1, default = 1 }
"#;

/// [`SCRIPT`] with something added.
pub fn script_with(more: &str) -> String {
    format!("{SCRIPT}\n{more}\n")
}

/// Waits until `condition` gives something.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The machine of the daemon of a [`Host`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HostHardware {
    /// This machine, with all backends.
    Real,
    /// A boot id and nothing else, with the fake backend alone.
    Bare,
    /// Files of the test, with the fake backend and CPUs.
    MadeUp,
    /// A machine that was captured, with all backends.
    Captured,
}

/// Membership of the daemon of a [`Host`] in a cluster.
#[derive(Clone, Debug)]
pub struct ClusterMembership {
    /// Name of the node.
    pub node: String,
    /// Name of the driver.
    pub driver: String,
    /// The kubeconfig for the API server.
    pub kubeconfig: PathBuf,
    /// The kubelet's root folder, where it is not the host's own.
    pub kubelet: Option<PathBuf>,
    /// The folder of CDI files, where it is not the host's own.
    pub cdi: Option<PathBuf>,
}

/// A host: a temporary root with a configuration, and at most one daemon that is called its own.
pub struct Host {
    root: tempfile::TempDir,
    machine: HostHardware,
    daemon: Option<DaemonProcess>,
    env: Vec<(&'static str, OsString)>,
    /// Lines of the configuration behind those that every test needs.
    extra: String,
    cluster: Option<ClusterMembership>,
    /// The most descriptors that a daemon may have.
    descriptors: Option<u32>,
    /// The machine's files, where it was captured.
    capture: Option<UnpackedCapture>,
}

impl Host {
    /// A host whose fake backend follows `script`, beside the real hardware. The daemon is not started yet.
    pub fn new(script: &str) -> Self {
        Self::make(HostHardware::Real, script, "", None)
    }

    /// Does the same as [`Host::new`], with more configuration; it begins inside `[backends.fake]`.
    pub fn with(script: &str, extra: &str) -> Self {
        Self::make(HostHardware::Real, script, extra, None)
    }

    /// A host that has the scripted devices and nothing else, and a boot id that [`Host::boot`] changes.
    pub fn bare(script: &str) -> Self {
        Self::make(HostHardware::Bare, script, "", None)
    }

    /// Does the same as [`Host::bare`], with more configuration; it begins inside `[backends.fake]`.
    pub fn bare_with(script: &str, extra: &str) -> Self {
        Self::make(HostHardware::Bare, script, extra, None)
    }

    /// A host that has the scripted devices, a boot id, and the CPUs that the test puts into its folder `machine`.
    pub fn made_up(script: &str) -> Self {
        Self::make(HostHardware::MadeUp, script, "", None)
    }

    /// Does the same as [`Host::bare_with`], as a node of a cluster.
    pub fn in_cluster(script: &str, extra: &str, cluster: ClusterMembership) -> Self {
        Self::make(HostHardware::Bare, script, extra, Some(cluster))
    }

    /// Uses this whole machine as a node of a cluster; `extra` is as for [`Host::with`].
    pub fn real_node(extra: &str, cluster: ClusterMembership) -> Self {
        Self::make(HostHardware::Real, "", extra, Some(cluster))
    }

    /// A captured machine as a node of a cluster, with the scripted devices beside its own.
    pub fn captured(archive: &Path, script: &str, cluster: ClusterMembership) -> Self {
        let capture = UnpackedCapture::open(archive).unwrap();
        let mut host = Self::make(HostHardware::Captured, script, "", Some(cluster));
        host.capture = Some(capture);
        host.boot("00000000-0000-4000-8000-000000000001");
        host.configure("");
        host
    }

    fn make(machine: HostHardware, script: &str, extra: &str, cluster: Option<ClusterMembership>) -> Self {
        // Short, since sockets are below it: their paths hold 107 bytes.
        let root = tempfile::Builder::new().prefix("h").tempdir_in("/tmp").unwrap();
        let host = Self {
            root,
            machine,
            daemon: None,
            env: Vec::new(),
            extra: extra.to_owned(),
            cluster,
            descriptors: None,
            capture: None,
        };
        host.script(script);
        host.boot("00000000-0000-4000-8000-000000000001");
        // A kubelet works here: every kubelet makes this folder.
        fs::create_dir_all(host.kubelet_root().join("pods")).unwrap();
        fs::write(host.path("hostler.toml"), host.config()).unwrap();
        host
    }

    fn config(&self) -> String {
        let root = self.root.path().display();
        let off: &[&str] = match self.machine {
            HostHardware::Real | HostHardware::Captured => &[],
            HostHardware::Bare => &["cpu", "memory", "fpga", "cxl"],
            HostHardware::MadeUp => &["memory", "fpga", "cxl"],
        };
        let real = self.machine == HostHardware::Real;
        let machine = if real { String::new() } else { format!("root = {:?}\n", self.machine_root()) };
        let backends: String = off.iter().map(|name| format!("[backends.{name}]\nenabled = false\n")).collect();
        let cluster = self.cluster.as_ref().map_or_else(
            || format!("manifests = \"{root}/manifests\"\n"),
            |cluster| format!("mode = \"kubernetes\"\nkubeconfig = \"{}\"\n", cluster.kubeconfig.display()),
        );
        format!(
            "node_name = \"{node}\"\ndriver = \"{driver}\"\nhook = \"{hook}\"\n\
             [paths]\nstate = \"{root}/state\"\nrun = \"{root}/run\"\ncdi = \"{cdi}\"\nkubelet = \"{kubelet}\"\n{machine}\
             [cluster]\n{cluster}{backends}\
             [backends.fake]\nenabled = true\nscript = \"{root}/fake.toml\"\nstate_dir = \"{root}/hardware\"\n{extra}",
            node = self.cluster.as_ref().map_or("node", |cluster| &cluster.node),
            driver = self.driver(),
            hook = binary().display(),
            cdi = self.cdi_folder().display(),
            kubelet = self.kubelet_root().display(),
            extra = self.extra,
        )
    }

    /// The folder whose files describe the machine, where it is not the real one.
    fn machine_root(&self) -> PathBuf {
        self.capture.as_ref().map_or_else(|| self.path("machine"), |capture| capture.root().path(""))
    }

    /// Name of the driver.
    pub fn driver(&self) -> &str {
        self.cluster.as_ref().map_or("hostler.dev", |cluster| &cluster.driver)
    }

    /// The kubelet's root folder.
    pub fn kubelet_root(&self) -> PathBuf {
        let named = self.cluster.as_ref().and_then(|cluster| cluster.kubelet.clone());
        named.unwrap_or_else(|| self.path("kubelet"))
    }

    /// The folder of CDI files.
    pub fn cdi_folder(&self) -> PathBuf {
        self.cluster.as_ref().and_then(|cluster| cluster.cdi.clone()).unwrap_or_else(|| self.path("cdi"))
    }

    /// The socket by which the kubelet finds the daemon: that of the one that answers, where one follows another.
    pub fn registration_socket(&self) -> PathBuf {
        self.socket_in("plugins_registry", &format!("@{}-reg.sock", self.driver()))
    }

    /// The socket on which the kubelet calls the daemon.
    pub fn service_socket(&self) -> PathBuf {
        self.socket_in(&format!("plugins/{}", self.driver()), "@service.sock")
    }

    /// Each start of the daemon has another name for it; those of the killed lie around until the next one has started.
    fn socket_in(&self, folder: &str, suffix: &str) -> PathBuf {
        let folder = self.kubelet_root().join(folder);
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let ours: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(suffix)).collect();
        let live = ours.iter().find(|path| UnixStream::connect(path).is_ok());
        live.or(ours.first()).cloned().unwrap_or_else(|| folder.join(format!("dra{suffix}")))
    }

    /// A path below the root.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    /// Replaces the fake backend's script, in one step.
    pub fn script(&self, script: &str) {
        fs::write(self.path("fake.toml.new"), script).unwrap();
        fs::rename(self.path("fake.toml.new"), self.path("fake.toml")).unwrap();
    }

    /// Gives a machine that is not the real one another boot id.
    pub fn boot(&self, id: &str) {
        let folder = self.machine_root().join("proc/sys/kernel/random");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("boot_id"), format!("{id}\n")).unwrap();
    }

    /// Sets a variable in the environment of every daemon from now on.
    pub fn env(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.env.push((name, value.into()));
    }

    /// Limits the descriptors of every daemon from now on.
    pub fn limit_descriptors(&mut self, limit: u32) {
        self.descriptors = Some(limit);
    }

    /// Adds lines to the configuration, or replaces those that were added.
    pub fn configure(&mut self, extra: &str) {
        extra.clone_into(&mut self.extra);
        fs::write(self.path("hostler.toml"), self.config()).unwrap();
    }

    /// Starts the daemon and waits until its sockets are served.
    pub fn start(&mut self) {
        self.spawn();
        self.wait_until_served();
    }

    /// Starts the daemon and waits for nothing.
    pub fn spawn(&mut self) {
        assert!(self.daemon.is_none(), "a daemon runs already");
        self.daemon = Some(self.spawn_beside());
    }

    /// Starts a daemon beside the one that may run.
    pub fn spawn_beside(&self) -> DaemonProcess {
        DaemonProcess(self.command(&["run"]).spawn().unwrap())
    }

    /// Does the same as [`Host::spawn_beside`], with the log on a pipe.
    pub fn spawn_with_piped_log(&self) -> (DaemonProcess, ChildStderr) {
        let mut child = self.command(&["run"]).stderr(Stdio::piped()).spawn().unwrap();
        let log = child.stderr.take().unwrap();
        (DaemonProcess(child), log)
    }

    /// Calls a daemon its own that was started with [`Host::spawn_beside`].
    pub fn adopt(&mut self, daemon: DaemonProcess) {
        assert!(self.daemon.is_none(), "a daemon runs already");
        self.daemon = Some(daemon);
    }

    /// Waits until all sockets are served. The kubelet's are opened last; those of a killed daemon lie around until
    /// then.
    pub fn wait_until_served(&mut self) {
        wait_for("the daemon's sockets", || {
            self.assert_alive();
            (UnixStream::connect(self.registration_socket()).is_ok() && self.try_get("/v1/status").is_some())
                .then_some(())
        });
    }

    /// The binary with this host's configuration; its log goes to a file below the root.
    fn command(&self, args: &[&str]) -> Command {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = match self.descriptors {
            None => Command::new(binary()),
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"]).arg(binary());
                shell
            }
        };
        command.args(args).arg("--config").arg(self.path("hostler.toml")).stdin(Stdio::null());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    /// Runs a subcommand of the binary, with this host's configuration where it has one.
    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(binary());
        command.args(args);
        if !args.starts_with(&["cdi", "validate"]) {
            command.arg("--config").arg(self.path("hostler.toml"));
        }
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Starts a subcommand of the binary with this host's configuration and a pipe for what it says; waits for nothing.
    pub fn spawn_command(&self, args: &[&str]) -> Child {
        let mut command = Command::new(binary());
        command.args(args).arg("--config").arg(self.path("hostler.toml")).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Does the same as [`Host::run`]; returns the standard output of a run that must succeed.
    pub fn run_ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(output.status.success(), "{args:?}: {out}{err}");
        out
    }

    /// Does the same as [`Host::run`]; returns the standard error of a run that must fail with code 1.
    pub fn run_refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{args:?}: {out}{err}");
        err.into_owned()
    }

    fn daemon(&self) -> &DaemonProcess {
        self.daemon.as_ref().expect("the daemon was started")
    }

    /// Process id of the daemon.
    pub fn pid(&self) -> u32 {
        self.daemon().pid()
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// Waits for the daemon's end.
    pub fn wait(&mut self) -> ExitStatus {
        self.daemon.take().expect("the daemon was started").wait()
    }

    /// Returns true if the daemon, which was told to end, has ended.
    pub fn has_ended(&mut self) -> bool {
        self.daemon.as_mut().expect("the daemon was started").0.try_wait().unwrap().is_some()
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        self.daemon().signal(signal);
    }

    fn assert_alive(&mut self) {
        let status = self.daemon.as_mut().expect("the daemon was started").0.try_wait().unwrap();
        assert!(status.is_none(), "the daemon ended: {status:?}");
    }

    /// Everything that the daemons of this host have logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// A request on the admin socket: status code and JSON body.
    pub fn request(&self, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
        let answer = http(&self.path("run/admin.sock"), method, path, body);
        let (code, body) = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        (code, serde_json::from_str(&body).unwrap_or(serde_json::Value::Null))
    }

    /// A GET that must succeed.
    pub fn get(&self, path: &str) -> serde_json::Value {
        let (code, body) = self.request("GET", path, "");
        assert_eq!(code, 200, "{path}: {body}");
        body
    }

    fn try_get(&self, path: &str) -> Option<String> {
        let (code, body) = http(&self.path("run/admin.sock"), "GET", path, "").ok()?;
        (code == 200).then_some(body)
    }

    /// Figures and probes: status code and text.
    pub fn metrics(&self, path: &str) -> (u16, String) {
        http(&self.path("run/metrics.sock"), "GET", path, "").unwrap()
    }

    /// Returns a figure of whole numbers, given with its labels; 0 where it is not there.
    pub fn figure(&self, series: &str) -> u64 {
        let (_, figures) = self.metrics("/metrics");
        let value = figures.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().expect("a whole number"))
    }

    /// Prepares a claim while the daemon cannot read it, and waits until the daemon has asked for it again.
    pub fn prepare_in_vain(&self, plugin: &KubeletPlugin, claim: &Claim) -> JoinHandle<Result<Vec<Device>, String>> {
        const REPEATS: &str = "hostler_api_retries_total{kind=\"claim\"}";
        let before = self.figure(REPEATS);
        let (mut plugin, claim) = (plugin.clone(), claim.clone());
        let answer = tokio::spawn(async move {
            plugin.prepare(std::slice::from_ref(&claim)).await.unwrap().remove(&claim.uid).unwrap()
        });
        wait_for("the claim to be asked for again", || (self.figure(REPEATS) > before).then_some(()));
        answer
    }

    /// Puts a manifest of claim `default/<name>` there: results are (request, pool's backend, device, capacities).
    pub fn manifest(&self, name: &str, uid: &str, results: &[(&str, &str, &str, serde_json::Value)]) {
        let results: Vec<_> = results
            .iter()
            .map(|(request, backend, device, consumed)| {
                let mut result = serde_json::json!({
                    "request": request, "driver": "hostler.dev", "pool": format!("node/{backend}"), "device": device,
                });
                if !consumed.is_null() {
                    result["consumedCapacity"] = consumed.clone();
                }
                result
            })
            .collect();
        let manifest = serde_json::json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "status": {"allocation": {"devices": {"results": results}}},
        });
        fs::create_dir_all(self.path("manifests")).unwrap();
        fs::write(self.path(&format!("manifests/default_{name}.json")), manifest.to_string()).unwrap();
    }

    /// Names in a folder below the root, sorted, without those that begin with a dot; empty if it is not there.
    pub fn files(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }

    /// Permission bits of a path below the root.
    pub fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.path(path)).unwrap().permissions().mode() & 0o777
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.daemon = None;
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- end of the daemon's log ---\n{}", lines[lines.len().saturating_sub(100)..].join("\n"));
        }
    }
}

/// A process of the daemon; killed when this is dropped.
pub struct DaemonProcess(Child);

impl DaemonProcess {
    /// A daemon that was started otherwise than by its host.
    pub fn of(child: Child) -> Self {
        Self(child)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
        // A thread that runs when the signal comes may go on for a moment.
        if signal == Signal::SIGSTOP {
            wait_for("the daemon's stop", || Some(self.is_stopped()).filter(|is_stopped| *is_stopped));
        }
    }

    /// True if none of its threads can run.
    fn is_stopped(&self) -> bool {
        let state = |task: fs::DirEntry| fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks.flatten().map(state).all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
    }

    /// Waits for its end.
    pub fn wait(mut self) -> ExitStatus {
        wait_for("the daemon's end", || self.0.try_wait().unwrap())
    }
}

impl Drop for DaemonProcess {
    /// A process that has ended already is fine.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes one HTTP/1.1 exchange over a unix socket: returns status code and body.
pub fn http(socket: &Path, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| std::io::Error::other("no HTTP answer"))?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.ok_or_else(|| std::io::Error::other("no status code"))?, body.to_owned()))
}

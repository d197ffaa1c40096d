//! Containers as a runtime makes them: a bundle with this machine's programs in it, a cgroup of its own, and `runc`.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

#[cfg(feature = "runtimes")]
use container_device_interface::{cache::Cache, spec_dirs::with_spec_dirs};
use hostler_linux::{
    IdSet, SysRoot,
    cgroup::{CgroupVersion, CpusetCgroup},
};
use serde_json::{Value, json};

use crate::skip::skipped;

/// Ends what a container says about itself; the container waits behind it where it is told to.
const END: &str = "that-is-all";

/// Folders of a host that hold its programs and their libraries.
const PROGRAMS: [&str; 9] = ["bin", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "sbin", "usr"];

/// Returns true if containers can be made and bound here; prints the reason if not.
pub fn containers_work_here() -> bool {
    let obstacle = obstacle();
    obstacle.iter().for_each(|obstacle| skipped(obstacle));
    obstacle.is_none()
}

fn obstacle() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("containers need root".into());
    }
    if let Err(error) = Command::new("runc").arg("--version").output() {
        return Some(format!("runc cannot be run ({error})"));
    }
    let top = match CpusetHierarchy::find() {
        Ok(top) => top,
        Err(reason) => return Some(reason),
    };
    let probe = top.mount.join(unique("probe"));
    fs::create_dir(&probe)
        .and_then(|()| fs::remove_dir(&probe))
        .err()
        .map(|error| format!("{} cannot be made ({error})", probe.display()))
}

/// A name that no other test has.
fn unique(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("hostler-test-{}-{what}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The hierarchy of cpusets.
struct CpusetHierarchy {
    version: CgroupVersion,
    mount: PathBuf,
}

impl CpusetHierarchy {
    fn find() -> Result<Self, String> {
        let own = CpusetCgroup::of_process(&SysRoot::host(), std::process::id()).map_err(|error| error.to_string())?;
        let mounted = |mount: &&Path| match own.version() {
            CgroupVersion::V1 => mount.join("cpuset.cpus").exists() && !above(mount).join("cpuset.cpus").exists(),
            CgroupVersion::V2 => !above(mount).join("cgroup.controllers").exists(),
        };
        let path = own.path();
        let mount = path.ancestors().find(mounted).ok_or("the cpuset cgroups have no top")?.to_owned();
        let hierarchy = Self { version: own.version(), mount };
        let controllers = fs::read_to_string(hierarchy.mount.join("cgroup.controllers")).unwrap_or_default();
        if hierarchy.version == CgroupVersion::V2 && !controllers.split_whitespace().any(|name| name == "cpuset") {
            return Err("the cpuset controller is not delegated to us".into());
        }
        Ok(hierarchy)
    }
}

fn above(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// A cgroup below which a test has its containers, removed with all that is in it.
pub struct ParentCgroup {
    name: String,
}

impl ParentCgroup {
    fn new() -> Self {
        Self { name: unique("containers") }
    }

    /// Makes the cgroup before the runtime does, with a part of this machine's CPUs.
    fn narrow(&self, cpus: &IdSet) {
        let top = CpusetHierarchy::find().unwrap();
        if top.version == CgroupVersion::V2 {
            fs::write(top.mount.join("cgroup.subtree_control"), "+cpuset").unwrap();
        }
        let own = top.mount.join(&self.name);
        fs::create_dir(&own).unwrap();
        if top.version == CgroupVersion::V1 {
            fs::write(own.join("cpuset.mems"), fs::read(top.mount.join("cpuset.mems")).unwrap()).unwrap();
        }
        fs::write(own.join("cpuset.cpus"), cpus.to_string()).unwrap();
    }
}

impl Drop for ParentCgroup {
    /// A runtime makes it in every hierarchy there is.
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        for mount in mounts.lines().filter(|line| line.contains(" - cgroup")) {
            remove_cgroup(&Path::new(mount.split(' ').nth(4).unwrap()).join(&self.name));
        }
    }
}

fn remove_cgroup(path: &Path) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_cgroup(&entry.path());
    }
    if let Err(error) = fs::remove_dir(path) {
        let _ = writeln!(io::stderr(), "{} stays behind: {error}", path.display());
    }
}

/// A container that says what it may use and which variables it has.
pub struct Container {
    dir: tempfile::TempDir,
    id: String,
    parent: ParentCgroup,
    /// The container's configuration, for edits before the start.
    pub spec: Value,
    /// Programs, and their arguments, in whose midst `runc` is started.
    wrapper: Vec<String>,
}

impl Container {
    /// A container with this machine's programs, which has not run yet.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (id, parent) = (unique("container"), ParentCgroup::new());
        let spec = spec(&dir.path().join("rootfs"), &format!("/{}/{id}", parent.name));
        Self { dir, id, parent, spec, wrapper: Vec::new() }
    }

    /// Gives the container CDI devices, as a runtime does: by their names, from the files in a folder.
    #[cfg(feature = "runtimes")]
    pub fn inject(mut self, cdi: &Path, ids: &[String]) -> Self {
        self.try_inject(cdi, ids).unwrap();
        self
    }

    /// Does the same as [`inject`](Self::inject); fails with the reason if it cannot be done.
    #[cfg(feature = "runtimes")]
    pub fn try_inject(&mut self, cdi: &Path, ids: &[String]) -> Result<(), String> {
        inject(&mut self.spec, cdi, ids)
    }

    /// Puts it below a cgroup with these CPUs.
    pub fn below(self, cpus: &IdSet) -> Self {
        self.parent.narrow(cpus);
        self
    }

    /// Starts the runtime by way of this program.
    pub fn started_by(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Changes the configuration as JSON.
    pub fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.spec);
        self
    }

    /// Runs it to its end.
    pub fn run(&self) -> ContainerReport {
        let output = self.runc_run(Stdio::null()).output().unwrap();
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{err}");
        ContainerReport::parse(&out)
    }

    /// Runs it; what the runtime complains of when it refuses, and nothing of the program may have run.
    pub fn refused(&self) -> String {
        let output = self.runc_run(Stdio::null()).output().unwrap();
        let (out, err) = texts(&output);
        assert!(!output.status.success(), "the container ran: {out}");
        assert_eq!(out, "", "the program ran");
        err
    }

    /// Starts it; it runs until it is dropped.
    pub fn start(self) -> RunningContainer {
        let mut runc = self.runc_run(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdin = runc.stdin.take();
        let mut said = String::new();
        for line in BufReader::new(runc.stdout.take().unwrap()).lines() {
            said.push_str(&line.unwrap());
            said.push('\n');
            if said.ends_with(&format!("{END}\n")) {
                return RunningContainer { said: ContainerReport::parse(&said), runc, stdin, container: self };
            }
        }
        let mut err = String::new();
        runc.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        runc.wait().unwrap();
        panic!("the container ended: {said}{err}");
    }

    fn runc_run(&self, stdin: Stdio) -> Command {
        fs::create_dir_all(self.dir.path().join("rootfs")).unwrap();
        fs::write(self.dir.path().join("config.json"), self.spec.to_string()).unwrap();
        let mut command = self.runc("run");
        command.arg("--bundle").arg(self.dir.path()).arg(&self.id).stdin(stdin);
        command
    }

    fn runc(&self, verb: &str) -> Command {
        let mut words = self.wrapper.iter().map(String::as_str).chain(["runc", "--root"]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg(self.dir.path().join("runc")).arg(verb);
        command
    }
}

impl Default for Container {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Container {
    /// Deleting one that is not there, or has never been, is fine.
    fn drop(&mut self) {
        let _ = self.runc("delete").args(["--force", &self.id]).output();
    }
}

/// A container that runs.
pub struct RunningContainer {
    /// The report of the container's program at its start.
    pub said: ContainerReport,
    runc: Child,
    stdin: Option<ChildStdin>,
    container: Container,
}

impl RunningContainer {
    /// Returns the container's id.
    pub fn id(&self) -> &str {
        &self.container.id
    }

    /// Starts another program in it, and gives what that one says.
    pub fn exec(&self) -> ContainerReport {
        let mut command = self.container.runc("exec");
        let output = command.arg(&self.container.id).args(program()).stdin(Stdio::null()).output().unwrap();
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{err}");
        ContainerReport::parse(&out)
    }

    /// Changes its resources by the runtime's options.
    pub fn update(&self, options: &[&str]) {
        let output = self.container.runc("update").args(options).arg(&self.container.id).output().unwrap();
        assert!(output.status.success(), "{}", texts(&output).1);
    }
}

impl Drop for RunningContainer {
    /// The program ends with its input; one that does not is killed with its container.
    fn drop(&mut self) {
        self.stdin.take();
        if std::thread::panicking() {
            let _ = self.container.runc("kill").args([&self.container.id, "KILL"]).output();
        }
        let _ = self.runc.wait();
    }
}

/// Gives a container CDI devices, as a runtime does: by their names, from the files in a folder.
///
/// # Errors
/// When a device is not there.
#[cfg(feature = "runtimes")]
pub fn inject(spec: &mut Value, cdi: &Path, ids: &[String]) -> Result<(), String> {
    let mut container = serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
    let mut cache = Cache::default();
    with_spec_dirs(&[cdi.to_str().unwrap()])(&mut cache);
    cache.refresh().map_err(|error| error.to_string())?;
    cache.inject_devices(Some(&mut container), ids.to_owned()).map_err(|error| error.to_string())?;
    *spec = serde_json::to_value(container).map_err(|error| error.to_string())?;
    Ok(())
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The report of a program in a container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContainerReport {
    /// CPUs that it may run on.
    pub cpus: IdSet,
    /// NUMA nodes whose memory it may use.
    pub mems: IdSet,
    /// The environment of the program.
    pub env: BTreeMap<String, String>,
}

impl ContainerReport {
    fn parse(text: &str) -> Self {
        let (status, env) = text.split_once("\n\n").unwrap();
        let list = |field| status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().parse().unwrap();
        let env = env.lines().filter_map(|line| line.split_once('='));
        Self {
            cpus: list("Cpus_allowed_list:"),
            mems: list("Mems_allowed_list:"),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        }
    }
}

/// The variables come from the kernel: shells pass on none whose name they could not have given, such as one with a
/// `-`.
fn program() -> [String; 3] {
    let script =
        format!("cat /proc/self/status && echo && tr '\\0' '\\n' </proc/$$/environ && echo {END} && read -r _ || :");
    ["/bin/sh".into(), "-c".into(), script]
}

/// Returns the configuration that every runtime writes, with as few privileges as possible. Neither limits of the
/// process nor its standing with the OOM killer are set: that would need one more privilege.
fn spec(rootfs: &Path, cgroup: &str) -> Value {
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}),
    ];
    fs::create_dir(rootfs).unwrap();
    for folder in PROGRAMS {
        let host = Path::new("/").join(folder);
        if let Ok(target) = fs::read_link(&host) {
            symlink(target, rootfs.join(folder)).unwrap();
        } else if host.is_dir() {
            mounts.push(json!({"destination": host, "type": "bind", "source": host, "options": ["rbind", "ro"]}));
        }
    }
    let namespaces = ["pid", "ipc", "uts", "mount", "cgroup"].map(|kind| json!({"type": kind}));
    json!({
        "ociVersion": "1.0.2",
        "root": {"path": rootfs},
        "process": {
            "user": {"uid": 0, "gid": 0}, "cwd": "/", "args": program(), "noNewPrivileges": true,
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "mounts": mounts,
        "linux": {"cgroupsPath": cgroup, "namespaces": namespaces},
    })
}

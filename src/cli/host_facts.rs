//! Facts that checks look at, read once and without judging.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use hostler_api::Chain;
use hostler_linux::{ReadFailure, SysRoot, boot, topology::Topology};

use crate::config::{DaemonConfig, KubeletSocketPaths};

/// Everything that the checks judge.
#[derive(Clone, Debug, Default)]
pub(super) struct HostFacts {
    /// The file that could not be read, and why: what it tells of the machine is then not known.
    pub(super) unread: Option<String>,
    /// True if we are root.
    pub(super) is_root: bool,
    /// `uname -r`.
    pub(super) kernel: Option<String>,
    /// The boot id.
    pub(super) boot_id: Option<String>,
    /// Seconds since 1970 by the clock.
    pub(super) clock_seconds: u64,
    /// `/sys/devices/system/cpu/online`.
    pub(super) online_cpus: Option<String>,
    /// Mount point and file system type of every mount.
    pub(super) mounts: Vec<(String, String)>,
    /// Controllers of cgroup v2; `None` where it is not mounted.
    pub(super) unified_controllers: Option<String>,
    /// True if a udev daemon runs.
    pub(super) has_udevd: bool,
    /// Number of IOMMUs.
    pub(super) iommus: usize,
    /// Number of PCI functions.
    pub(super) pci_functions: usize,
    /// Number of CXL memory devices.
    pub(super) cxl_memories: usize,
    /// `/sys/devices/system/memory/auto_online_blocks`.
    pub(super) auto_online: Option<String>,
    /// Huge pages in all pools of all nodes.
    pub(super) huge_pages: u64,
    /// The binary that hooks run.
    pub(super) hook: PathFacts,
    /// The folder of claim records.
    pub(super) state: PathFacts,
    /// The folder of sockets.
    pub(super) run: PathFacts,
    /// The folder of manifests.
    pub(super) manifests: PathFacts,
    /// The folder of CDI files.
    pub(super) cdi: PathFacts,
    /// The CDI folder without links.
    pub(super) cdi_real: PathBuf,
    /// The kubelet's folder.
    pub(super) kubelet: PathFacts,
    /// `cpu_manager_state` of the kubelet.
    pub(super) cpu_manager: Option<String>,
    /// `memory_manager_state` of the kubelet.
    pub(super) memory_manager: Option<String>,
    /// The daemon's own socket.
    pub(super) admin_socket: SocketFacts,
    /// The socket that the kubelet looks for.
    pub(super) registration_socket: SocketFacts,
    /// Container runtimes that are configured here: name and configuration.
    pub(super) runtimes: Vec<(&'static str, String)>,
}

/// A file or folder.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) enum PathFacts {
    /// Nothing is there.
    #[default]
    Absent,
    /// The path cannot be looked at.
    Hidden(String),
    /// The answer of `stat`.
    Present { is_dir: bool, mode: u32, uid: u32 },
}

/// A socket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) enum SocketFacts {
    /// Nothing is there.
    #[default]
    Absent,
    /// A process listens.
    Live,
    /// Left over: no process listens.
    Stale,
    /// Something else is there, or we may not look.
    Odd(String),
}

/// Of all instances' sockets, the one that says most: those of killed daemons may lie beside the one that works.
fn registration_socket(config: &DaemonConfig, at: impl Fn(&Path) -> PathBuf) -> SocketFacts {
    let sockets = config.kubelet_sockets();
    let sockets = KubeletSocketPaths { registry_dir: at(&sockets.registry_dir), ..sockets };
    let facts: Vec<SocketFacts> = sockets.registration_sockets().iter().map(|path| SocketFacts::of(path)).collect();
    facts.iter().find(|facts| **facts == SocketFacts::Live).or(facts.first()).cloned().unwrap_or_default()
}

impl HostFacts {
    /// Looks at the host whose files are under `root`.
    pub(super) fn gather(config: &DaemonConfig, root: &SysRoot) -> Self {
        Self::known(Self::look(config, root))
    }

    fn look(config: &DaemonConfig, root: &SysRoot) -> Result<Self, ReadFailure> {
        let at = |path: &Path| root.path(path.strip_prefix("/").unwrap_or(path));
        let state = |name: &str| {
            let path = config.paths.kubelet.join(name);
            root.text(path.strip_prefix("/").unwrap_or(&path))
        };
        Ok(Self {
            is_root: nix::unistd::geteuid().is_root(),
            clock_seconds: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            hook: PathFacts::of(&at(&config.hook)),
            state: PathFacts::of(&at(&config.paths.state)),
            run: PathFacts::of(&at(&config.paths.run)),
            manifests: PathFacts::of(&at(&config.cluster.manifests)),
            cdi: PathFacts::of(&at(&config.paths.cdi)),
            cdi_real: without_links(root, &at(&config.paths.cdi)),
            kubelet: PathFacts::of(&at(&config.paths.kubelet)),
            cpu_manager: if_allowed(state("cpu_manager_state"))?,
            memory_manager: if_allowed(state("memory_manager_state"))?,
            admin_socket: SocketFacts::of(&at(&config.admin_socket())),
            registration_socket: registration_socket(config, at),
            runtimes: runtimes(root)?,
            ..Self::look_at_machine(root)?
        })
    }

    /// Looks at the kernel and the hardware alone, which a capture has too.
    pub(super) fn of_machine(root: &SysRoot) -> Self {
        Self::known(Self::look_at_machine(root))
    }

    fn look_at_machine(root: &SysRoot) -> Result<Self, ReadFailure> {
        let topology = Topology::read(root)?;
        Ok(Self {
            kernel: boot::kernel_release(root)?,
            boot_id: boot::boot_id(root).ok(),
            online_cpus: root.text("sys/devices/system/cpu/online")?,
            mounts: mounts(&root.text("proc/self/mountinfo")?.unwrap_or_default()),
            unified_controllers: unified_controllers(root)?,
            has_udevd: root.exists("run/udev/control")?,
            iommus: root.names("sys/class/iommu")?.len(),
            pci_functions: root.names("sys/bus/pci/devices")?.len(),
            cxl_memories: root.names("sys/bus/cxl/devices")?.iter().filter(|name| name.starts_with("mem")).count(),
            auto_online: root.text("sys/devices/system/memory/auto_online_blocks")?,
            huge_pages: topology.nodes.values().flat_map(|node| node.huge_pages.values()).map(|pool| pool.total).sum(),
            ..Self::default()
        })
    }

    fn known(facts: Result<Self, ReadFailure>) -> Self {
        facts.unwrap_or_else(|failure| Self { unread: Some(Chain(&failure).to_string()), ..Self::default() })
    }
}

impl PathFacts {
    fn of(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(metadata) => Self::Present {
                is_dir: metadata.is_dir(),
                mode: metadata.permissions().mode() & 0o7777,
                uid: metadata.uid(),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Absent,
            Err(error) => Self::Hidden(error.to_string()),
        }
    }
}

impl SocketFacts {
    fn of(path: &Path) -> Self {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::Absent,
            Ok(metadata) if !metadata.file_type().is_socket() => return Self::Odd("it is no socket".to_owned()),
            _ => {}
        }
        match UnixStream::connect(path) {
            Ok(_) => Self::Live,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Self::Stale,
            Err(error) => Self::Odd(error.to_string()),
        }
    }
}

/// Mount points and types from `mountinfo`: the fifth field, and the first one behind the lone hyphen.
fn mounts(mountinfo: &str) -> Vec<(String, String)> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        Some((before.split(' ').nth(4)?.to_owned(), after.split(' ').next()?.to_owned()))
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// Cgroup v2 is mounted at the usual place, or beside the v1 hierarchies.
fn unified_controllers(root: &SysRoot) -> Result<Option<String>, ReadFailure> {
    let usual = root.text("sys/fs/cgroup/cgroup.controllers")?;
    usual.map_or_else(|| root.text("sys/fs/cgroup/unified/cgroup.controllers"), |found| Ok(Some(found)))
}

/// The text of a file that is root's; of others nothing is told, and they are told so.
fn if_allowed(text: Result<Option<String>, ReadFailure>) -> Result<Option<String>, ReadFailure> {
    match text {
        Err(failure) if failure.error().kind() == io::ErrorKind::PermissionDenied => Ok(None),
        text => text,
    }
}

/// The path as the host sees it when all links are followed.
fn without_links(root: &SysRoot, path: &Path) -> PathBuf {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let base = fs::canonicalize(root.path("")).unwrap_or_else(|_| root.path(""));
    real.strip_prefix(&base).map_or_else(|_| real.clone(), |inner| Path::new("/").join(inner))
}

/// Runtimes with a sign of their presence: their configuration, else their default folder.
fn runtimes(root: &SysRoot) -> Result<Vec<(&'static str, String)>, ReadFailure> {
    let known: [(&'static str, &[&str], &[&str]); 3] = [
        ("containerd", &["etc/containerd/config.toml"], &["run/containerd/containerd.sock"]),
        ("CRI-O", &["etc/crio/crio.conf", "etc/crio/crio.conf.d"], &["run/crio/crio.sock"]),
        (
            "podman",
            &[
                "usr/share/containers/containers.conf",
                "etc/containers/containers.conf",
                "etc/containers/containers.conf.d",
            ],
            &["usr/bin/podman"],
        ),
    ];
    let mut found = Vec::new();
    for (name, files, signs) in known {
        let mut texts = Vec::new();
        for file in files {
            texts.extend(file_or_folder(root, file)?);
        }
        let signed = root.look(|tree| signs.iter().any(|sign| tree.exists(sign)))?;
        if signed || (name != "podman" && !texts.is_empty()) {
            found.push((name, texts.join("\n")));
        }
    }
    Ok(found)
}

fn file_or_folder(root: &SysRoot, path: &str) -> Result<Vec<String>, ReadFailure> {
    let is_folder = root.metadata(path)?.is_some_and(|found| found.is_dir());
    let files = match is_folder {
        true => root.names(path)?.iter().map(|name| format!("{path}/{name}")).collect(),
        false => vec![path.to_owned()],
    };
    let mut texts = Vec::new();
    for file in files {
        texts.extend(if_allowed(root.text(file))?);
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn mounts_have_a_point_and_a_type() {
        let text = "22 1 0:20 / /proc rw,nosuid shared:5 - proc proc rw\n33 22 0:44 / /proc/meminfo rw - fuse.lxcfs lxcfs rw\nodd\n";
        assert_eq!(
            mounts(text),
            [("/proc".to_owned(), "proc".to_owned()), ("/proc/meminfo".to_owned(), "fuse.lxcfs".to_owned())]
        );
    }

    #[test]
    fn sockets_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        assert_eq!(SocketFacts::of(&path), SocketFacts::Absent);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(SocketFacts::of(&path), SocketFacts::Live);
        drop(listener);
        assert_eq!(SocketFacts::of(&path), SocketFacts::Stale);
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(matches!(SocketFacts::of(&dir.path().join("file")), SocketFacts::Odd(_)));
    }

    #[test]
    fn facts_come_from_under_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/online", "0-3\n");
        write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n");
        write("etc/containerd/config.toml", "version = 2\n");
        write("etc/crio/crio.conf.d/10.conf", "[crio]\n");
        write("var/lib/kubelet/cpu_manager_state", "{}");
        let facts = HostFacts::gather(&DaemonConfig::default(), &SysRoot::new(dir.path()));
        assert_eq!(facts.online_cpus.as_deref(), Some("0-3"));
        assert_eq!(facts.unified_controllers.as_deref(), Some("cpuset cpu io"));
        assert_eq!(facts.runtimes, [("containerd", "version = 2".to_owned()), ("CRI-O", "[crio]".to_owned())]);
        assert_eq!(facts.cpu_manager.as_deref(), Some("{}"));
        assert_eq!(facts.state, PathFacts::Absent);
        assert!(matches!(facts.kubelet, PathFacts::Present { is_dir: true, .. }));
        assert_eq!(facts.cdi_real, Path::new("/var/run/cdi").to_owned());
    }
}

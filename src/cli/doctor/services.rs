//! The daemon's own files and the programs that it works with.

use std::path::Path;

use super::DoctorFinding;
use crate::{
    cli::host_facts::{HostFacts, PathFacts, SocketFacts},
    config::{ClusterMode, DaemonConfig},
};

/// Folders that runtimes read where nothing else is configured.
const USUAL_CDI_DIRS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

pub(super) fn checks(facts: &HostFacts, config: &DaemonConfig) -> Vec<DoctorFinding> {
    let mut findings = vec![
        hook(&facts.hook, &config.hook),
        STATE.finding(&facts.state, &config.paths.state),
        RUN.finding(&facts.run, &config.paths.run),
        daemon(&facts.admin_socket, &config.admin_socket()),
        cdi(&facts.cdi, &config.paths.cdi),
    ];
    if config.cluster.mode == ClusterMode::Standalone {
        findings.push(MANIFESTS.finding(&facts.manifests, &config.cluster.manifests));
    }
    findings.extend(runtimes(facts));
    if config.kubelet.enabled {
        findings.push(kubelet(&facts.kubelet, &config.paths.kubelet));
        findings.push(registration(facts, config));
        findings.push(managers(facts));
    }
    findings
}

/// Root runs this file whenever a container starts: no other user may be able to change it.
fn hook(facts: &PathFacts, path: &Path) -> DoctorFinding {
    const CHECK: &str = "hook binary";
    let shown = path.display();
    match facts {
        PathFacts::Absent => {
            DoctorFinding::fail(CHECK, format!("{shown} is not there"), "set `hook` to where hostler is installed")
        }
        PathFacts::Hidden(error) => DoctorFinding::fail(CHECK, format!("{shown}: {error}"), "run the check as root"),
        PathFacts::Present { is_dir: true, .. } => {
            DoctorFinding::fail(CHECK, format!("{shown} is a folder"), "set `hook` to the hostler binary")
        }
        PathFacts::Present { mode, .. } if mode & 0o111 == 0 => {
            DoctorFinding::fail(CHECK, format!("{shown} is not executable"), format!("chmod 0755 {shown}"))
        }
        PathFacts::Present { mode, uid, .. } if mode & 0o022 != 0 || *uid != 0 => DoctorFinding::warn(
            CHECK,
            format!("{shown} can be changed by others than root (owner {uid}, mode {mode:04o}), and root runs it"),
            format!("chown root: {shown} && chmod go-w {shown}"),
        ),
        PathFacts::Present { .. } => DoctorFinding::ok(CHECK, shown.to_string()),
    }
}

/// A folder of the daemon's own.
struct OwnFolder {
    /// The subject of the check.
    check: &'static str,
    /// The key that moves it.
    key: &'static str,
    /// The mode that the unit, or the installed tmpfiles.d snippet, gives it.
    mode: u32,
}

/// Records name workloads, and only root may.
const STATE: OwnFolder = OwnFolder { check: "claim records", key: "paths.state", mode: 0o700 };
/// The group of the unit reads figures there.
const RUN: OwnFolder = OwnFolder { check: "socket folder", key: "paths.run", mode: 0o750 };
/// A user who can write here gives devices to containers.
const MANIFESTS: OwnFolder = OwnFolder { check: "manifests", key: "cluster.manifests", mode: 0o700 };
/// Rootless runtimes read it.
const CDI_MODE: u32 = 0o755;

impl OwnFolder {
    fn finding(&self, facts: &PathFacts, path: &Path) -> DoctorFinding {
        let Self { check, key, mode: wanted } = self;
        let shown = path.display();
        let fix = format!("chown root: {shown} && chmod {wanted:04o} {shown}");
        match facts {
            PathFacts::Absent => DoctorFinding::ok(check, format!("{shown} is made when it is needed")),
            PathFacts::Hidden(error) => {
                DoctorFinding::warn(check, format!("{shown}: {error}"), "run the check as root")
            }
            PathFacts::Present { is_dir: false, .. } => {
                DoctorFinding::fail(check, format!("{shown} is no folder"), format!("move it away, or set `{key}`"))
            }
            PathFacts::Present { mode, uid, .. } if mode & 0o022 != 0 || *uid != 0 => DoctorFinding::fail(
                check,
                format!("{shown} can be changed by others than root (owner {uid}, mode {mode:04o})"),
                fix,
            ),
            PathFacts::Present { mode, .. } if mode & 0o777 & !wanted != 0 => {
                DoctorFinding::warn(check, format!("{shown} is open to more than it has to be (mode {mode:04o})"), fix)
            }
            PathFacts::Present { .. } => DoctorFinding::ok(check, format!("in {shown}")),
        }
    }
}

fn daemon(socket: &SocketFacts, path: &Path) -> DoctorFinding {
    const CHECK: &str = "daemon";
    let shown = path.display();
    match socket {
        SocketFacts::Live => DoctorFinding::ok(CHECK, format!("answers on {shown}")),
        SocketFacts::Absent => {
            DoctorFinding::warn(CHECK, format!("does not run: {shown} is not there"), "systemctl start hostler")
        }
        SocketFacts::Stale => DoctorFinding::warn(
            CHECK,
            format!("does not run, and left {shown} behind"),
            "systemctl start hostler; the start removes what was left",
        ),
        SocketFacts::Odd(error) => DoctorFinding::warn(CHECK, format!("{shown}: {error}"), "run the check as root"),
    }
}

fn cdi(facts: &PathFacts, path: &Path) -> DoctorFinding {
    const CHECK: &str = "CDI folder";
    let shown = path.display();
    match facts {
        PathFacts::Absent => DoctorFinding::ok(CHECK, format!("{shown} is made with the first claim")),
        PathFacts::Hidden(error) => DoctorFinding::warn(CHECK, format!("{shown}: {error}"), "run the check as root"),
        PathFacts::Present { is_dir: false, .. } => {
            DoctorFinding::fail(CHECK, format!("{shown} is no folder"), "move it away, or set `paths.cdi`")
        }
        PathFacts::Present { mode, uid, .. } if mode & 0o022 != 0 || *uid != 0 => DoctorFinding::fail(
            CHECK,
            format!(
                "{shown} can be changed by others than root (owner {uid}, mode {mode:04o}): they could run hooks as root"
            ),
            format!("chown root: {shown} && chmod {CDI_MODE:04o} {shown}"),
        ),
        PathFacts::Present { mode, .. } if mode & 0o005 != 0o005 => DoctorFinding::warn(
            CHECK,
            format!("{shown} is closed to rootless runtimes (mode {mode:04o})"),
            format!("chmod {CDI_MODE:04o} {shown}"),
        ),
        PathFacts::Present { .. } => DoctorFinding::ok(CHECK, format!("{shown} is there")),
    }
}

fn runtimes(facts: &HostFacts) -> Vec<DoctorFinding> {
    if facts.runtimes.is_empty() {
        let fix = "install containerd, CRI-O or podman, unless what runs containers here reads CDI files by itself";
        return vec![DoctorFinding::warn("container runtime", "none is known to be here", fix)];
    }
    facts.runtimes.iter().map(|(name, config)| runtime(name, config, &facts.cdi_real)).collect()
}

fn runtime(name: &'static str, config: &str, cdi: &Path) -> DoctorFinding {
    if name == "containerd" && setting(config, "enable_cdi") == Some("false") {
        return DoctorFinding::fail(
            name,
            "CDI is switched off in its configuration",
            "set enable_cdi = true in its CRI plugin's section and restart it",
        );
    }
    // Podman reads cdi_spec_dirs from [engine], the others from the section of their CRI: the name is the same.
    let configured = setting(config, "cdi_spec_dirs").unwrap_or_default();
    let mut dirs: Vec<&str> = configured.split('"').skip(1).step_by(2).collect();
    if dirs.is_empty() {
        dirs.extend(USUAL_CDI_DIRS);
    }
    let known = dirs.into_iter().any(|dir| same_folder(Path::new(dir), cdi));
    if known {
        return DoctorFinding::ok(name, format!("reads CDI files in {}", cdi.display()));
    }
    let fix = format!("add {} to its cdi_spec_dirs, or set `paths.cdi` to a folder that it reads", cdi.display());
    DoctorFinding::fail(name, format!("does not read CDI files in {}", cdi.display()), fix)
}

/// True if both are one folder; /var/run is a link to /run nearly everywhere.
fn same_folder(one: &Path, other: &Path) -> bool {
    let short = |path: &Path| {
        path.strip_prefix("/var/run").map_or_else(|_| path.to_owned(), |rest| Path::new("/run").join(rest))
    };
    short(one) == short(other)
}

/// The last value of a TOML key, in whatever section, as it stands there; an array may go over several lines.
fn setting<'a>(config: &'a str, key: &str) -> Option<&'a str> {
    let mut found = None;
    let mut offset = 0;
    for line in config.split_inclusive('\n') {
        let value = line.trim_start().strip_prefix(key).and_then(|rest| rest.trim_start().strip_prefix('='));
        if let Some(value) = value {
            let start = offset + (line.len() - value.len());
            let rest = &config[start..];
            let end = if value.trim_start().starts_with('[') { rest.find(']') } else { rest.find(['\n', '#']) };
            found = Some(rest[..end.unwrap_or(rest.len())].trim());
        }
        offset += line.len();
    }
    found
}

fn kubelet(facts: &PathFacts, path: &Path) -> DoctorFinding {
    const CHECK: &str = "kubelet";
    let shown = path.display();
    match facts {
        PathFacts::Present { is_dir: true, .. } => DoctorFinding::ok(CHECK, format!("its folder is {shown}")),
        PathFacts::Hidden(error) => DoctorFinding::warn(CHECK, format!("{shown}: {error}"), "run the check as root"),
        _ => DoctorFinding::warn(
            CHECK,
            format!("{shown} is not there"),
            "set `paths.kubelet` to its --root-dir, or `enabled = false` under [kubelet] on a host without one",
        ),
    }
}

fn registration(facts: &HostFacts, config: &DaemonConfig) -> DoctorFinding {
    const CHECK: &str = "kubelet sockets";
    let sockets = config.kubelet_sockets();
    let shown = format!("the registration socket in {}", sockets.registry_dir.display());
    match (&facts.registration_socket, &facts.admin_socket) {
        (SocketFacts::Live, SocketFacts::Live) => DoctorFinding::ok(CHECK, format!("{shown} is served")),
        (SocketFacts::Live, _) => DoctorFinding::warn(
            CHECK,
            format!("somebody serves {shown}, and it is not the daemon of this configuration"),
            "look for a second driver of the same name",
        ),
        (SocketFacts::Stale, _) => DoctorFinding::warn(
            CHECK,
            format!("{shown} was left behind"),
            "start hostler: it removes sockets of its own",
        ),
        (SocketFacts::Odd(error), _) => {
            DoctorFinding::warn(CHECK, format!("{shown}: {error}"), "run the check as root")
        }
        (SocketFacts::Absent, SocketFacts::Live) => DoctorFinding::fail(
            CHECK,
            format!("the daemon runs but does not serve {shown}"),
            "see journalctl -u hostler",
        ),
        (SocketFacts::Absent, _) => DoctorFinding::ok(CHECK, "none while the daemon does not run"),
    }
}

/// Two that bind the same containers undo each other's work.
fn managers(facts: &HostFacts) -> DoctorFinding {
    const CHECK: &str = "kubelet managers";
    let policy = |state: &Option<String>| {
        let state: serde_json::Value = serde_json::from_str(state.as_deref()?).ok()?;
        state.get("policyName")?.as_str().map(str::to_owned)
    };
    let (cpu, memory) = (policy(&facts.cpu_manager), policy(&facts.memory_manager));
    if cpu.as_deref() == Some("static") {
        return DoctorFinding::warn(
            CHECK,
            "the kubelet's static CPU manager binds containers too",
            "set cpuManagerPolicy: none, or give both separate CPUs (reservedSystemCPUs, backends.cpu.reserved)",
        );
    }
    if memory.as_deref() == Some("Static") {
        let fix = "set memoryManagerPolicy: None, or leave backends.memory off";
        return DoctorFinding::warn(CHECK, "the kubelet's static memory manager binds containers too", fix);
    }
    DoctorFinding::ok(CHECK, "bind nothing that hostler binds")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = include_str!("../../../systemd/hostler.service");
    const TMPFILES: &str = include_str!("../../../systemd/hostler.tmpfiles");

    fn unit_mode(key: &str) -> u32 {
        let value = UNIT.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap();
        u32::from_str_radix(value, 8).unwrap()
    }

    /// Mode of a folder that is made; without a word it is that of the manual, and an older systemd knows digits alone.
    fn tmpfiles_mode(path: &str) -> u32 {
        let line = TMPFILES.lines().find_map(|line| line.strip_prefix(&format!("d {path} "))).unwrap();
        match line.split(' ').next().unwrap() {
            "-" => 0o755,
            mode => u32::from_str_radix(mode, 8).unwrap(),
        }
    }

    #[test]
    fn the_unit_makes_folders_as_the_doctor_wants_them() {
        assert_eq!(unit_mode("StateDirectoryMode"), STATE.mode);
        assert_eq!(unit_mode("RuntimeDirectoryMode"), RUN.mode);
        assert_eq!(tmpfiles_mode("/etc/hostler/claims"), MANIFESTS.mode);
        assert_eq!(tmpfiles_mode("/run/cdi"), CDI_MODE);
        let made = |mode| PathFacts::Present { is_dir: true, mode, uid: 0 };
        for folder in [STATE, RUN, MANIFESTS] {
            let finding = folder.finding(&made(folder.mode), Path::new("/x"));
            assert_eq!(finding.level, hostler_cli::doctor::FindingLevel::Ok, "{finding:?}");
        }
        assert_eq!(cdi(&made(CDI_MODE), Path::new("/x")).level, hostler_cli::doctor::FindingLevel::Ok);
    }
}

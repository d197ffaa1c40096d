//! Each check, on made-up hosts.

use hostler_cli::doctor::FindingLevel;

use super::*;
use crate::cli::host_facts::{PathFacts, SocketFacts};

/// The check that notices, and what is wrong.
type BrokenHost = (&'static str, fn(&mut HostFacts));

/// A host on which nothing is wrong.
fn good() -> HostFacts {
    let dir = |mode| PathFacts::Present { is_dir: true, mode, uid: 0 };
    HostFacts {
        unread: None,
        is_root: true,
        kernel: Some("6.12.0-amd64".to_owned()),
        boot_id: Some("b".to_owned()),
        clock_seconds: 1_800_000_000,
        online_cpus: Some("0-3".to_owned()),
        mounts: vec![("/proc".to_owned(), "proc".to_owned())],
        unified_controllers: Some("cpuset cpu io memory".to_owned()),
        has_udevd: true,
        iommus: 1,
        pci_functions: 9,
        cxl_memories: 0,
        auto_online: Some("online_movable".to_owned()),
        huge_pages: 8,
        hook: PathFacts::Present { is_dir: false, mode: 0o755, uid: 0 },
        state: dir(0o700),
        run: dir(0o750),
        manifests: dir(0o700),
        cdi: dir(0o755),
        cdi_real: "/run/cdi".into(),
        kubelet: dir(0o755),
        cpu_manager: Some(r#"{"policyName":"none"}"#.to_owned()),
        memory_manager: None,
        admin_socket: SocketFacts::Live,
        registration_socket: SocketFacts::Live,
        runtimes: vec![("containerd", String::new())],
    }
}

fn findings(facts: &HostFacts) -> Vec<DoctorFinding> {
    let config = DaemonConfig { hook: "/usr/bin/hostler".into(), ..DaemonConfig::default() };
    host::checks(facts).into_iter().chain(services::checks(facts, &config)).collect()
}

/// The one finding of a host that is not good.
fn finding(change: impl FnOnce(&mut HostFacts)) -> DoctorFinding {
    let mut facts = good();
    change(&mut facts);
    let mut bad: Vec<DoctorFinding> =
        findings(&facts).into_iter().filter(|finding| finding.level != FindingLevel::Ok).collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    bad.remove(0)
}

#[test]
fn a_host_in_order_has_nothing_to_fix() {
    for finding in findings(&good()) {
        assert_eq!((finding.level, &*finding.fix), (FindingLevel::Ok, ""), "{finding:?}");
    }
}

#[test]
fn what_keeps_hostler_from_working_is_a_failure() {
    let cases: [BrokenHost; 12] = [
        ("boot id", |facts| facts.boot_id = None),
        ("sysfs", |facts| facts.online_cpus = None),
        ("kernel files", |facts| facts.mounts.push(("/proc/meminfo".to_owned(), "fuse.lxcfs".to_owned()))),
        ("cgroup", |facts| facts.unified_controllers = Some("cpu io".to_owned())),
        ("cgroup", |facts| facts.unified_controllers = None),
        ("hook binary", |facts| facts.hook = PathFacts::Absent),
        ("hook binary", |facts| facts.hook = PathFacts::Present { is_dir: false, mode: 0o644, uid: 0 }),
        ("claim records", |facts| facts.state = PathFacts::Present { is_dir: true, mode: 0o777, uid: 0 }),
        ("socket folder", |facts| facts.run = PathFacts::Present { is_dir: true, mode: 0o770, uid: 0 }),
        ("manifests", |facts| facts.manifests = PathFacts::Present { is_dir: true, mode: 0o700, uid: 1000 }),
        ("CDI folder", |facts| facts.cdi = PathFacts::Present { is_dir: true, mode: 0o755, uid: 1000 }),
        ("kubelet sockets", |facts| facts.registration_socket = SocketFacts::Absent),
    ];
    for (check, change) in cases {
        let finding = finding(change);
        assert_eq!((finding.check, finding.level), (check, FindingLevel::Fail), "{finding:?}");
        assert!(!finding.fix.is_empty(), "{finding:?}");
    }
}

#[test]
fn what_could_be_better_is_a_warning_with_a_fix() {
    let cases: [BrokenHost; 13] = [
        ("claim records", |facts| facts.state = PathFacts::Present { is_dir: true, mode: 0o755, uid: 0 }),
        ("user", |facts| facts.is_root = false),
        ("kernel", |facts| facts.kernel = Some("4.19.0".to_owned())),
        ("clock", |facts| facts.clock_seconds = 0),
        ("udev", |facts| facts.has_udevd = false),
        ("IOMMU", |facts| facts.iommus = 0),
        ("hook binary", |facts| facts.hook = PathFacts::Present { is_dir: false, mode: 0o775, uid: 0 }),
        ("CDI folder", |facts| facts.cdi = PathFacts::Present { is_dir: true, mode: 0o700, uid: 0 }),
        ("kubelet", |facts| facts.kubelet = PathFacts::Absent),
        ("kubelet sockets", |facts| facts.registration_socket = SocketFacts::Stale),
        ("kubelet managers", |facts| facts.cpu_manager = Some(r#"{"policyName":"static"}"#.to_owned())),
        ("kubelet managers", |facts| facts.memory_manager = Some(r#"{"policyName":"Static"}"#.to_owned())),
        ("container runtime", |facts| facts.runtimes.clear()),
    ];
    for (check, change) in cases {
        let finding = finding(change);
        assert_eq!((finding.check, finding.level), (check, FindingLevel::Warn), "{finding:?}");
        assert!(!finding.fix.is_empty(), "{finding:?}");
    }
}

#[test]
fn memory_that_can_never_go_again_matters_where_some_can_come() {
    let policy = |policy: &str, cxl_memories| {
        let mut facts = good();
        (facts.auto_online, facts.cxl_memories) = (Some(policy.to_owned()), cxl_memories);
        let all = findings(&facts);
        all.into_iter().find(|finding| finding.check == "hot-plugged memory").unwrap().level
    };
    assert_eq!(policy("online", 0), FindingLevel::Ok);
    assert_eq!(policy("online", 2), FindingLevel::Warn);
    assert_eq!(policy("offline", 2), FindingLevel::Warn);
    assert_eq!(policy("online_movable", 2), FindingLevel::Ok);
}

#[test]
fn a_runtime_must_read_the_folder_that_hostler_writes() {
    let level = |name: &'static str, config: &str| {
        let facts = HostFacts { runtimes: vec![(name, config.to_owned())], ..good() };
        findings(&facts).into_iter().find(|finding| finding.check == name).unwrap().level
    };
    assert_eq!(level("containerd", "enable_cdi = false\n"), FindingLevel::Fail);
    assert_eq!(level("containerd", "# enable_cdi = false\n[plugins]\n  enable_cdi = true"), FindingLevel::Ok);
    assert_eq!(level("containerd", "cdi_spec_dirs = [\n \"/etc/cdi\",\n \"/var/run/cdi\"\n]\n"), FindingLevel::Ok);
    assert_eq!(level("CRI-O", "cdi_spec_dirs = [\"/etc/cdi\"]"), FindingLevel::Fail);
    assert_eq!(level("podman", "[engine]\n#cdi_spec_dirs = [\"/x\"]\n"), FindingLevel::Ok);
}

#[test]
fn a_wrong_configuration_is_a_finding_per_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h.toml");
    std::fs::write(&path, "drivr = 1\n[log]\nlevel = \"x\"\n").unwrap();
    let (config, found) = configuration(DaemonConfig::load(&path));
    assert_eq!(config, DaemonConfig::default());
    let shown: Vec<&str> = found.iter().map(|finding| &*finding.fix).collect();
    assert_eq!(shown, ["did you mean \"driver\"?", "write one of off, error, warn, info, debug, trace"]);
    assert!(found[0].found.contains("h.toml:1: drivr: "), "{}", found[0].found);
}

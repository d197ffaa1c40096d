//! Effects of claims on the containers of a real containerd, with the real binary as its plugin.
//!
//! `HOSTLER_E2E_CONTAINERD` names a folder; without it, every test here says that it is skipped. In the folder are
//!
//! | Name | Content |
//! |---|---|
//! | `containerd.sock` | containerd's own socket, with CRI on it |
//! | `nri.sock` | the socket for its plugins: `socket_path` of `io.containerd.nri.v1.nri` |
//! | `cdi/` | one of its `cdi_spec_dirs`; files of hostler in it go |
//! | `restart` | a program that kills containerd and starts it again; without it, tests that need it are skipped |
//!
//! The image of `HOSTLER_E2E_IMAGE` (`docker.io/library/busybox:latest` if it is not set) is there already, with
//! `sleep`, `cat` and `grep`; nothing is pulled. Pods are on the node's network. While these tests run, that containerd
//! must have no other plugin and no other pods; the tests take turns.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use hostler::admin::types::AdminClaim;
use hostler_linux::{IdSet, SysRoot, cgroup::CpusetCgroup};
use hostler_testing::{
    cri::{CriClient, CriPod, CriResources},
    host::{Host, wait_for},
    skip::skipped,
};

/// A host on which a real containerd runs.
struct Node {
    host: Host,
    cri: CriClient,
    folder: PathBuf,
    /// The CPUs that containers may use on this host.
    all: IdSet,
    _turn: fs::File,
}

struct Claim {
    name: String,
    uid: String,
    cpus: IdSet,
    ids: Vec<String>,
}

impl Node {
    /// Starts a host; prints a note and returns `None` without a containerd.
    fn start() -> Option<Self> {
        let Some(folder) = env::var_os("HOSTLER_E2E_CONTAINERD").map(PathBuf::from) else {
            skipped("HOSTLER_E2E_CONTAINERD names no containerd");
            return None;
        };
        let turn = fs::File::create(folder.join("hostler-tests.lock")).unwrap();
        turn.lock().unwrap();
        let image = env::var("HOSTLER_E2E_IMAGE").unwrap_or_else(|_| "docker.io/library/busybox:latest".into());
        let cri = CriClient::new(&folder.join("containerd.sock"), &image);
        wait_for("containerd", || cri.version());
        let mut host = Host::with("", "[backends.cpu]\nfull_cores = false\n");
        let (cdi, nri) = (folder.join("cdi"), folder.join("nri.sock"));
        let file = host.path("hostler.toml");
        let config = fs::read_to_string(&file).unwrap();
        // Files of an earlier test belong to no claim any more.
        for entry in fs::read_dir(&cdi).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("hostler.dev-claim_") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let own = format!("cdi = \"{}\"", host.path("cdi").display());
        assert!(config.contains(&own), "{config}");
        let config = config.replace(&own, &format!("cdi = \"{}\"", cdi.display()));
        let nri =
            format!("[nri]\nenabled = true\nsocket = \"{}\"\nshared_pool = \"exclude-exclusive\"\n", nri.display());
        fs::write(file, format!("{config}\n{nri}")).unwrap();
        let all = allowed(std::process::id(), "Cpus_allowed_list:");
        if all.len() < 2 {
            skipped("two CPUs are needed");
            return None;
        }
        host.start();
        let node = Self { host, cri, folder, all, _turn: turn };
        node.wait_until_connected();
        Some(node)
    }

    fn wait_until_connected(&self) {
        wait_for("a daemon that is connected", || self.host.get("/v1/status")["nri"]["runtime"].as_str().map(drop));
    }

    fn claim(&self, name: &str, devices: &[&str]) -> Claim {
        let mut args = vec!["claim", "create", name, "-o", "json"];
        args.extend(devices.iter().flat_map(|device| ["--device", device]));
        let claim: AdminClaim = serde_json::from_str(&self.host.run_ok(&args)).unwrap();
        let sets = claim.devices.iter().map(|device| device.cpus.parse::<IdSet>().unwrap());
        Claim {
            name: name.to_owned(),
            cpus: sets.fold(IdSet::default(), |all, set| all.union(&set)),
            ids: claim.devices.iter().flat_map(|device| device.cdi_ids.clone()).collect(),
            uid: claim.uid,
        }
    }

    fn release(&self, claim: &Claim) {
        self.host.run_ok(&["claim", "delete", &claim.name]);
    }

    fn run(&self, pod: &CriPod, name: &str, claims: &[&Claim]) -> String {
        let ids: Vec<String> = claims.iter().flat_map(|claim| claim.ids.clone()).collect();
        let id = self.cri.create(pod, name, &ids, &[]).unwrap();
        self.cri.start(&id).unwrap();
        id
    }

    fn pid(&self, id: &str) -> u32 {
        u32::try_from(self.cri.info(id)["pid"].as_u64().unwrap()).unwrap()
    }

    /// Returns the CPUs that the kernel lets the container's first process use.
    fn cpus(&self, id: &str) -> IdSet {
        allowed(self.pid(id), "Cpus_allowed_list:")
    }

    /// Returns the CPUs in the specification, which the runtime applies again whenever it has to.
    fn in_specification(&self, id: &str) -> String {
        let info = self.cri.info(id);
        info["runtimeSpec"]["linux"]["resources"]["cpu"]["cpus"].as_str().unwrap_or_default().to_owned()
    }

    fn wait_for_cpus(&self, id: &str, cpus: &IdSet) {
        wait_for(&format!("CPUs {cpus} of {id}"), || (self.cpus(id) == *cpus).then_some(()));
    }

    fn rest(&self, claims: &[&Claim]) -> IdSet {
        claims.iter().fold(self.all.clone(), |rest, claim| rest.difference(&claim.cpus))
    }

    /// Kills containerd and starts it again; prints a note and returns `None` if that cannot be done.
    fn restart_containerd(&self) -> Option<()> {
        let program = self.folder.join("restart");
        if !program.exists() {
            skipped("there is no program that restarts containerd");
            return None;
        }
        assert!(Command::new(program).status().unwrap().success());
        wait_for("containerd", || self.cri.version());
        Some(())
    }
}

fn allowed(pid: u32, field: &str) -> IdSet {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().parse().unwrap()
}

#[test]
fn pods_with_and_without_claims_run_where_they_should() {
    let Some(node) = Node::start() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1", "memory/node0,memory=64Mi"]);
    let (with, without) = (node.cri.run_pod("with"), node.cri.run_pod("without"));
    let bound = node.run(&with, "bound", &[&claim]);
    assert_eq!(node.cpus(&bound), claim.cpus);
    assert_eq!(allowed(node.pid(&bound), "Mems_allowed_list:").to_string(), "0");
    assert_eq!(node.in_specification(&bound), claim.cpus.to_string(), "the runtime knows it too");
    let free = node.run(&without, "free", &[]);
    assert_eq!(node.cpus(&free), node.rest(&[&claim]));
    let said = node.cri.exec(&bound, &["/bin/grep", "Cpus_allowed_list", "/proc/self/status"]);
    assert!(said.trim().ends_with(&claim.cpus.to_string()), "{said}");
    node.release(&claim);
    node.wait_for_cpus(&free, &node.all);
}

#[test]
fn the_pool_shrinks_with_a_claim_that_no_container_has_yet() {
    let Some(node) = Node::start() else { return };
    let free = node.run(&node.cri.run_pod("pod"), "free", &[]);
    assert_eq!(node.cpus(&free), node.all);
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    node.wait_for_cpus(&free, &node.rest(&[&claim]));
    node.release(&claim);
    node.wait_for_cpus(&free, &node.all);
}

#[test]
fn an_init_container_and_the_main_one_share_a_claim() {
    let Some(node) = Node::start() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let pod = node.cri.run_pod("pod");
    let init = node.run(&pod, "init", &[&claim]);
    assert_eq!(node.cpus(&init), claim.cpus);
    node.cri.stop(&init);
    node.cri.remove(&init);
    let (sidecar, main) = (node.run(&pod, "sidecar", &[&claim]), node.run(&pod, "main", &[&claim]));
    assert_eq!((node.cpus(&sidecar), node.cpus(&main)), (claim.cpus.clone(), claim.cpus));
}

#[test]
fn a_resize_keeps_the_cpus() {
    let Some(node) = Node::start() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let pod = node.cri.run_pod("pod");
    let (bound, free) = (node.run(&pod, "bound", &[&claim]), node.run(&pod, "free", &[]));
    for cpuset_cpus in [String::new(), node.all.to_string()] {
        let wanted = CriResources { cpu_shares: 512, cpuset_cpus, ..CriResources::default() };
        for id in [&bound, &free] {
            node.cri.update(id, wanted.clone()).unwrap();
        }
        assert_eq!((node.cpus(&bound), node.cpus(&free)), (claim.cpus.clone(), node.rest(&[&claim])));
        let shares = &node.cri.info(&bound)["runtimeSpec"]["linux"]["resources"]["cpu"]["shares"];
        assert_eq!(shares, 512, "the rest is as asked for");
    }
}

#[test]
fn variables_bind_nothing() {
    let Some(node) = Node::start() else { return };
    let (own, other) = (node.claim("a", &["cpu/numa0,cpus=1"]), node.all.clone());
    let pod = node.cri.run_pod("pod");
    let forged = [("HOSTLER_CPUS", other.to_string()), (&format!("DRA_CPUSET_{}", own.uid), other.to_string())]
        .map(|(key, value)| (key.to_owned(), value));
    let forged: Vec<(&str, &str)> = forged.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    for (ids, expected) in [(&own.ids[..], own.cpus.clone()), (&[], node.rest(&[&own]))] {
        let id = node.cri.create(&pod, &format!("c{}", ids.len()), ids, &forged).unwrap();
        node.cri.start(&id).unwrap();
        assert_eq!(node.cpus(&id), expected);
    }
}

#[test]
fn the_daemon_is_killed_and_comes_back() {
    let Some(mut node) = Node::start() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let pod = node.cri.run_pod("pod");
    let (bound, free) = (node.run(&pod, "bound", &[&claim]), node.run(&pod, "free", &[]));
    node.host.kill();
    // Without a plugin, the hook binds containers with claims, and no part binds a container without one.
    let (late, unbound) = (node.run(&pod, "late", &[&claim]), node.run(&pod, "unbound", &[]));
    assert_eq!((node.cpus(&late), node.cpus(&unbound)), (claim.cpus.clone(), node.all.clone()));
    let made = node.cri.create(&pod, "made", &claim.ids, &[]).unwrap();
    node.host.start();
    node.wait_until_connected();
    node.wait_for_cpus(&unbound, &node.rest(&[&claim]));
    node.cri.start(&made).unwrap();
    for id in [&bound, &late, &made] {
        assert_eq!(node.cpus(id), claim.cpus);
        wait_for("the runtime to know", || (node.in_specification(id) == claim.cpus.to_string()).then_some(()));
    }
    assert_eq!(node.cpus(&free), node.rest(&[&claim]));
}

#[test]
fn containerd_is_killed_and_comes_back() {
    let Some(node) = Node::start() else { return };
    let (started, prepared) = (node.claim("a", &["cpu/numa0,cpus=1"]), node.cri.run_pod("pod"));
    let (bound, free) = (node.run(&prepared, "bound", &[&started]), node.run(&prepared, "free", &[]));
    for round in 0..3 {
        let Some(()) = node.restart_containerd() else { return };
        node.wait_until_connected();
        assert_eq!((node.cpus(&bound), node.cpus(&free)), (started.cpus.clone(), node.rest(&[&started])));
        let again = node.run(&prepared, &format!("again{round}"), &[&started]);
        assert_eq!(node.cpus(&again), started.cpus);
    }
    node.release(&started);
    node.wait_for_cpus(&free, &node.all);
}

#[test]
fn everybody_is_killed_and_comes_back() {
    let Some(mut node) = Node::start() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let pod = node.cri.run_pod("pod");
    let (bound, free) = (node.run(&pod, "bound", &[&claim]), node.run(&pod, "free", &[]));
    let made = node.cri.create(&pod, "made", &claim.ids, &[]).unwrap();
    node.host.kill();
    let Some(()) = node.restart_containerd() else { return };
    node.host.start();
    node.wait_until_connected();
    node.cri.start(&made).unwrap();
    for id in [&bound, &made] {
        assert_eq!(node.cpus(id), claim.cpus);
    }
    assert_eq!(node.cpus(&free), node.rest(&[&claim]));
}

#[test]
fn what_a_hostile_writer_does_to_a_cgroup_is_undone() {
    let Some(node) = Node::start() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let bound = node.run(&node.cri.run_pod("pod"), "bound", &[&claim]);
    let cgroup = CpusetCgroup::of_process(&SysRoot::host(), node.pid(&bound)).unwrap();
    fs::write(cgroup.path().join("cpuset.cpus"), node.all.to_string()).unwrap();
    assert_eq!(node.cpus(&bound), node.all);
    node.wait_for_cpus(&bound, &claim.cpus);
}

#[test]
fn a_container_of_the_pool_that_is_put_on_claimed_cpus_is_put_back() {
    let Some(node) = Node::start() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let free = node.run(&node.cri.run_pod("pod"), "free", &[]);
    assert_eq!(node.cpus(&free), node.rest(&[&claim]));
    let cgroup = CpusetCgroup::of_process(&SysRoot::host(), node.pid(&free)).unwrap();
    fs::write(cgroup.path().join("cpuset.cpus"), node.all.to_string()).unwrap();
    assert_eq!(node.cpus(&free), node.all);
    node.wait_for_cpus(&free, &node.rest(&[&claim]));
}

#[test]
fn many_pods_come_and_go_while_claims_do() {
    let Some(node) = Node::start() else { return };
    let pod = node.cri.run_pod("pod");
    let keep = node.run(&pod, "keep", &[]);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for round in 0..10 {
                let claim = node.claim(&format!("c{round}"), &["cpu/numa0,cpus=1"]);
                node.release(&claim);
            }
        });
        for round in 0..10 {
            let id = node.run(&pod, &format!("r{round}"), &[]);
            node.cri.stop(&id);
            node.cri.remove(&id);
        }
    });
    // A runtime that had locked up would answer none of it.
    node.wait_for_cpus(&keep, &node.all);
    let claim = node.claim("last", &["cpu/numa0,cpus=1"]);
    let bound = node.run(&pod, "bound", &[&claim]);
    assert_eq!(node.cpus(&bound), claim.cpus);
    node.wait_for_cpus(&keep, &node.rest(&[&claim]));
}

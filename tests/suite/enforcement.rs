//! Effects of claims on real containers: `runc` starts them with the CDI files of a real daemon, and the kernel tells
//! the CPUs and memory nodes that their programs may use.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use hostler::admin::types::AdminClaim;
use hostler_linux::IdSet;
use hostler_testing::{
    binary::binary,
    container::{Container, ContainerReport, containers_work_here},
    host::{Host, wait_for},
};
use serde_json::json;

/// A claim of the daemon, as far as containers are concerned.
struct Claim {
    uid: String,
    cpus: IdSet,
    mems: IdSet,
    ids: Vec<String>,
}

/// A host whose daemon hands out single CPUs.
struct Node(Host);

impl Node {
    /// Starts a host; prints a note and returns `None` if containers cannot be run.
    fn start() -> Option<Self> {
        Self::start_with_hook(None)
    }

    fn start_with_hook(hook: Option<&str>) -> Option<Self> {
        if !containers_work_here() {
            return None;
        }
        let mut host = Host::with("", "[backends.cpu]\nfull_cores = false\n");
        if let Some(hook) = hook {
            let file = host.path("hostler.toml");
            let hook = host.path(hook);
            let (mut lines, text) = (String::new(), fs::read_to_string(&file).unwrap());
            for line in text.lines() {
                let hook = format!("hook = {:?}", hook.display().to_string());
                lines.push_str(if line.starts_with("hook =") { &hook } else { line });
                lines.push('\n');
            }
            fs::write(&file, lines).unwrap();
        }
        host.start();
        Some(Self(host))
    }

    fn claim(&self, name: &str, devices: &[&str]) -> Claim {
        let mut args = vec!["claim", "create", name, "-o", "json"];
        args.extend(devices.iter().flat_map(|device| ["--device", device]));
        let claim: AdminClaim = serde_json::from_str(&self.0.run_ok(&args)).unwrap();
        let union = |list: fn(&hostler::admin::types::AdminClaimDevice) -> &String| {
            claim.devices.iter().map(|device| set(list(device))).fold(IdSet::default(), |all, set| all.union(&set))
        };
        Claim {
            cpus: union(|device| &device.cpus),
            mems: union(|device| &device.mems),
            ids: claim.devices.iter().flat_map(|device| device.cdi_ids.clone()).collect(),
            uid: claim.uid,
        }
    }

    fn container(&self, claims: &[&Claim]) -> Container {
        let ids: Vec<_> = claims.iter().flat_map(|claim| claim.ids.clone()).collect();
        Container::new().inject(&self.0.path("cdi"), &ids)
    }
}

fn set(list: &str) -> IdSet {
    list.parse().unwrap()
}

/// Returns the CPUs that a container without a claim may use; prints a note and returns `None` for a single CPU.
fn unbound() -> Option<ContainerReport> {
    let said = Container::new().run();
    if said.cpus.len() > 1 {
        return Some(said);
    }
    let _ = writeln!(io::stderr(), "skipped: containers have CPUs {} here, and two are needed", said.cpus);
    None
}

fn assert_variable(said: &ContainerReport, name: &str, expected: &str) {
    assert_eq!(said.env.get(name).map(String::as_str), Some(expected), "{name} in {:?}", said.env);
}

#[test]
fn a_container_has_exactly_the_cpus_of_its_claim() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let (first, second) = (node.claim("a", &["cpu/numa0,cpus=1"]), node.claim("b", &["cpu/numa0,cpus=1"]));
    for claim in [&first, &second] {
        assert_eq!(claim.cpus.len(), 1);
        let said = node.container(&[claim]).run();
        assert_eq!((&said.cpus, &said.mems), (&claim.cpus, &unbound.mems));
        assert_variable(&said, "HOSTLER_CPUS", &claim.cpus.to_string());
        assert_variable(&said, &format!("DRA_CPUSET_{}", claim.uid), &claim.cpus.to_string());
        assert_eq!(said.env.get("HOSTLER_MEMS"), None);
    }
    assert!(first.cpus.is_disjoint(&second.cpus));
}

#[test]
fn a_container_has_exactly_the_cpus_and_nodes_of_its_claim() {
    let Some(node) = Node::start() else { return };
    let Some(_) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1", "memory/node0,memory=64Mi"]);
    assert_eq!((claim.cpus.len(), claim.mems.to_string().as_str()), (1, "0"));
    let said = node.container(&[&claim]).run();
    assert_eq!((&said.cpus, &said.mems), (&claim.cpus, &claim.mems));
    assert_variable(&said, "HOSTLER_CPUS", &claim.cpus.to_string());
    assert_variable(&said, "HOSTLER_MEMS", &claim.mems.to_string());
    assert_variable(&said, &format!("DRA_CPUSET_{}", claim.uid), &claim.cpus.to_string());
}

#[test]
fn a_container_with_two_claims_has_the_cpus_of_both() {
    let Some(node) = Node::start() else { return };
    let Some(_) = unbound() else { return };
    let (one, other) = (node.claim("a", &["cpu/numa0,cpus=1"]), node.claim("b", &["cpu/numa0,cpus=1"]));
    let both = one.cpus.union(&other.cpus);
    assert_eq!(both.len(), 2);
    // On a machine with two CPUs, these are all; only a container that begins with fewer shows that they were set.
    let fewer = |spec: &mut serde_json::Value| {
        spec["linux"]["resources"] = json!({"cpu": {"cpus": one.cpus.to_string()}});
    };
    for claims in [[&one, &other], [&other, &one]] {
        let said = node.container(&claims).edit(fewer).run();
        assert_eq!(said.cpus, both);
        for claim in claims {
            assert_variable(&said, &format!("DRA_CPUSET_{}", claim.uid), &claim.cpus.to_string());
        }
    }
}

#[test]
fn a_container_with_the_memory_of_a_claim_is_not_bound_to_its_cpus() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1", "memory/node0,memory=64Mi"]);
    let said = Container::new().inject(&node.0.path("cdi"), &claim.ids[1..]).run();
    assert_eq!((&said.cpus, &said.mems), (&unbound.cpus, &claim.mems));
    assert_variable(&said, "HOSTLER_MEMS", &claim.mems.to_string());
    assert_eq!(said.env.get("HOSTLER_CPUS"), None);
}

#[test]
fn containers_of_different_claims_do_not_overlap_and_others_stay_unbound() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let (one, other) = (node.claim("a", &["cpu/numa0,cpus=1"]), node.claim("b", &["cpu/numa0,cpus=1"]));
    let (first, second) = (node.container(&[&one]).start(), node.container(&[&other]).start());
    assert_eq!((&first.said.cpus, &second.said.cpus), (&one.cpus, &other.cpus));
    assert!(first.said.cpus.is_disjoint(&second.said.cpus));
    let neighbour = Container::new().run();
    assert_eq!((neighbour.cpus, neighbour.mems), (unbound.cpus, unbound.mems));
    assert_eq!(first.exec().cpus, one.cpus);
}

#[test]
fn what_enters_a_container_later_is_bound_and_updates_do_not_unbind_it() {
    let Some(node) = Node::start() else { return };
    let Some(_) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1", "memory/node0,memory=64Mi"]);
    let container = node.container(&[&claim]).start();
    container.update(&["--pids-limit", "100", "--cpu-share", "512"]);
    let said = container.exec();
    assert_eq!((said.cpus, said.mems), (claim.cpus, claim.mems));
}

#[test]
fn the_claim_prevails_over_cpus_that_the_runtime_was_told() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let others = unbound.cpus.difference(&claim.cpus).to_string();
    let told = |spec: &mut serde_json::Value| spec["linux"]["resources"] = json!({"cpu": {"cpus": others}});
    assert_eq!(Container::new().edit(told).run().cpus, set(&others));
    assert_eq!(node.container(&[&claim]).edit(told).run().cpus, claim.cpus);
}

#[test]
fn a_runtime_that_may_use_few_cpus_itself_gives_a_container_all_of_its_claim() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    if Command::new("taskset").arg("--version").output().is_err() {
        let _ = writeln!(io::stderr(), "skipped: there is no taskset here");
        return;
    }
    let claim = node.claim("a", &["cpu/numa0,cpus=2"]);
    assert_eq!(claim.cpus.len(), 2);
    for cpu in unbound.cpus.iter() {
        let container = node.container(&[&claim]).started_by(&["taskset", "--cpu-list", &cpu.to_string()]);
        assert_eq!(container.run().cpus, claim.cpus);
    }
}

#[test]
fn nothing_in_an_image_changes_to_what_its_container_is_bound() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let forged = format!("HOSTLER_CPUS={}", unbound.cpus);
    let forge = |spec: &mut serde_json::Value| {
        let env = spec["process"]["env"].as_array_mut().unwrap();
        env.extend([json!(forged), json!(format!("DRA_CPUSET_{}={}", claim.uid, unbound.cpus))]);
        spec["annotations"] = json!({"hostler.dev/cpus": unbound.cpus.to_string()});
    };
    let said = Container::new().edit(forge).inject(&node.0.path("cdi"), &claim.ids).run();
    assert_eq!(said.cpus, claim.cpus);
    assert_variable(&said, "HOSTLER_CPUS", &claim.cpus.to_string());
    assert_variable(&said, &format!("DRA_CPUSET_{}", claim.uid), &claim.cpus.to_string());
    // Behind the back of the runtime's CDI, the variables lie and the kernel does not.
    assert_eq!(node.container(&[&claim]).edit(forge).run().cpus, claim.cpus);

    let without = |spec: &mut serde_json::Value| spec["process"]["env"] = json!([forged, "PATH=/usr/bin:/bin"]);
    assert_eq!(Container::new().edit(without).run().cpus, unbound.cpus);
}

#[test]
fn a_container_does_not_start_when_the_hook_is_gone() {
    let Some(node) = Node::start_with_hook(Some("hostler")) else { return };
    symlink(binary(), node.0.path("hostler")).unwrap();
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    assert_eq!(node.container(&[&claim]).run().cpus, claim.cpus);
    fs::remove_file(node.0.path("hostler")).unwrap();
    let complaint = node.container(&[&claim]).refused();
    assert!(complaint.contains(&format!("{}: no such file", node.0.path("hostler").display())), "{complaint}");
}

#[test]
fn a_container_does_not_start_when_its_parent_has_not_all_of_the_claims_cpus() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let others = unbound.cpus.difference(&claim.cpus);
    assert_eq!(Container::new().below(&others).run().cpus, others);
    let complaint = node.container(&[&claim]).below(&others).refused();
    let expected = format!("hostler: failed to bind the container to CPUs {}: failed to write", claim.cpus);
    assert!(complaint.contains(&expected), "{complaint}");
    assert!(complaint.contains(&format!("allows CPUs {others}, not {}; widen it", claim.cpus)), "{complaint}");
}

#[test]
fn a_container_does_not_start_when_the_hook_is_called_with_garbage() {
    let Some(node) = Node::start() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    for (args, expected) in [
        (json!(["hostler", "hook", "cpuset", "--claim", "a", "--cpus", "all"]), "argument \\\"all\\\" is not valid"),
        (json!(["hostler", "hook", "cpuset"]), "argument \\\"--claim\\\" is not valid: it is missing"),
        (json!(["hostler", "hook"]), "the hooks are `hostler hook cpuset` and `hostler hook record`"),
        (json!(["hostler", "hook", "cpuset", "--claim", "a", "--cpus", "9999"]), "CPUs 9999 are offline"),
    ] {
        let garbage = |spec: &mut serde_json::Value| {
            let hooks = spec["hooks"]["createRuntime"].as_array_mut().unwrap();
            let cpuset = hooks.iter_mut().find(|hook| hook["args"][2] == "cpuset").unwrap();
            cpuset["args"] = args;
        };
        let complaint = node.container(&[&claim]).edit(garbage).refused();
        assert!(complaint.contains("stderr: hostler: ") && complaint.contains(expected), "{complaint}");
    }
}

#[test]
fn the_daemon_knows_which_containers_run_with_a_claim_and_when_they_have_ended() {
    let Some(node) = Node::start() else { return };
    let (used, idle) = (
        node.claim("a", &["cpu/numa0,cpus=1", "memory/node0,memory=64Mi"]),
        node.claim("b", &["memory/node0,memory=64Mi"]),
    );
    let running = |claim: &Claim| {
        let shown: AdminClaim =
            serde_json::from_str(&node.0.run_ok(&["claim", "show", &claim.uid, "-o", "json"])).unwrap();
        shown.containers
    };
    assert!(running(&used).is_empty());
    let container = node.container(&[&used]).start();
    let [noted] = &*running(&used) else { panic!("{:?}", running(&used)) };
    assert_eq!(noted.id, container.id());
    assert!(Path::new("/proc").join(noted.pid.unwrap().to_string()).exists() && noted.cgroup.is_some(), "{noted:?}");
    assert!(running(&idle).is_empty());
    drop(container);
    assert!(running(&used).is_empty());
    node.0.run_ok(&["claim", "delete", "a"]);
    assert!(!node.0.path("state/containers").join(&used.uid).exists());
}

#[test]
fn a_container_does_not_start_when_it_cannot_be_noted() {
    let Some(node) = Node::start() else { return };
    let claim = node.claim("a", &["memory/node0,memory=64Mi"]);
    fs::write(node.0.path("state/containers"), "not a folder").unwrap();
    let complaint = node.container(&[&claim]).refused();
    assert!(complaint.contains("hostler: failed to note that the container uses claim"), "{complaint}");
}

#[test]
fn a_claim_that_was_taken_back_is_not_there_for_containers() {
    let Some(node) = Node::start() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    Container::new().try_inject(&node.0.path("cdi"), &claim.ids).unwrap();
    node.0.run_ok(&["claim", "delete", "a"]);
    let complaint = Container::new().try_inject(&node.0.path("cdi"), &claim.ids).unwrap_err();
    assert!(complaint.contains(&format!("unresolvable CDI devices {}", claim.ids[0])), "{complaint}");
}

/// Returns the hook's message about these arguments and this state, which it must refuse.
fn hook(args: &[&str], state: &str) -> String {
    let mut command = Command::new(binary());
    command.arg("hook").args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A hook that refuses its arguments does not read on.
    let _ = child.stdin.take().unwrap().write_all(state.as_bytes());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?} {state}");
    assert!(output.stdout.is_empty());
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.starts_with("hostler: ") && complaint.lines().count() == 1, "{complaint}");
    complaint
}

#[test]
fn the_hook_refuses_what_no_runtime_would_say() {
    let args = ["cpuset", "--claim", "a", "--cpus", "0"];
    let bundle = tempfile::tempdir().unwrap();
    fs::write(bundle.path().join("config.json"), "{}").unwrap();
    let gone = json!({"pid": u32::MAX, "bundle": bundle.path()}).to_string();
    for (state, expected) in [
        ("", "failed to read the container's state from standard input"),
        ("not json", "failed to read the container's state from standard input"),
        ("{}", "failed to read the container's state from standard input"),
        (r#"{"pid": 0, "bundle": "/"}"#, "names no process"),
        (r#"{"pid": 1, "bundle": "/nonexistent"}"#, "failed to read /nonexistent/config.json"),
        (&gone, "failed to find the container's cgroup: failed to read /proc/4294967295/cgroup"),
    ] {
        let complaint = hook(&args, state);
        assert!(complaint.contains(expected), "{state}: {complaint}");
    }
    assert!(hook(&[], "").contains("the hooks are `hostler hook cpuset` and `hostler hook record`"));
    assert!(hook(&["cpuset", "--all"], "{}").contains("\"--all\" is not valid: it has no value"));
}

#[test]
fn a_container_that_shares_the_runtimes_cgroup_is_refused() {
    if !Path::new("/proc/self/cgroup").exists() {
        let _ = writeln!(io::stderr(), "skipped: there are no cgroups here");
        return;
    }
    let bundle = tempfile::tempdir().unwrap();
    fs::write(bundle.path().join("config.json"), "{}").unwrap();
    let state = json!({"pid": std::process::id(), "bundle": bundle.path()}).to_string();
    let complaint = hook(&["cpuset", "--claim", "a", "--cpus", "0", "--mems", "0"], &state);
    assert!(complaint.contains("the container has no cgroup of its own"), "{complaint}");
}

/// The cgroup of a container, as its note names it.
fn cgroup_of(node: &Node, claim: &Claim) -> std::path::PathBuf {
    let shown: AdminClaim = serde_json::from_str(&node.0.run_ok(&["claim", "show", &claim.uid, "-o", "json"])).unwrap();
    shown.containers[0].cgroup.clone().unwrap()
}

fn requested(cgroup: &Path) -> IdSet {
    set(&fs::read_to_string(cgroup.join("cpuset.cpus")).unwrap())
}

fn bind_to(cgroup: &Path, cpus: &IdSet) {
    fs::write(cgroup.join("cpuset.cpus"), cpus.to_string()).unwrap();
}

#[test]
fn a_container_that_somebody_binds_to_more_is_put_back_and_left_alone_the_fourth_time() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let container = node.container(&[&claim]).start();
    let cgroup = cgroup_of(&node, &claim);
    let looked = || node.0.metrics("/metrics").1.contains("hostler_audit_containers 1").then_some(());
    wait_for("the first look", looked);
    for time in 1..=3 {
        bind_to(&cgroup, &unbound.cpus);
        wait_for("the container to be put back", || (requested(&cgroup) == claim.cpus).then_some(()));
        let repairs = format!("hostler_audit_repairs_total{{kind=\"runtime\"}} {time}");
        wait_for(&repairs, || node.0.metrics("/metrics").1.contains(&repairs).then_some(()));
        assert_eq!(container.exec().cpus, claim.cpus);
    }
    bind_to(&cgroup, &unbound.cpus);
    let degraded = wait_for("the word of it", || {
        let list = node.0.run_ok(&["claim", "list"]);
        list.contains("degraded: container").then_some(list)
    });
    assert!(degraded.contains("it was put back 3 times and is left as it is now"), "{degraded}");
    assert_eq!(requested(&cgroup), unbound.cpus);
    assert!(node.0.run_ok(&["claim", "show", "a"]).contains("degraded container"));
    assert!(node.0.metrics("/metrics").1.contains("hostler_audit_degraded_containers 1"));
}

#[test]
fn a_container_that_was_changed_while_the_daemon_was_away_is_mended_at_its_start() {
    let Some(mut node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1", "memory/node0,memory=64Mi"]);
    let container = node.container(&[&claim]).start();
    let cgroup = cgroup_of(&node, &claim);
    node.0.kill();
    bind_to(&cgroup, &unbound.cpus);
    assert_eq!(container.exec().cpus, unbound.cpus);
    node.0.start();
    wait_for("the container to be put back", || (requested(&cgroup) == claim.cpus).then_some(()));
    assert_eq!(container.exec().cpus, claim.cpus);
}

#[test]
fn cgroups_that_a_hostile_program_makes_below_are_put_back_too() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let _container = node.container(&[&claim]).start();
    let cgroup = cgroup_of(&node, &claim);
    bind_to(&cgroup, &unbound.cpus);
    let below = cgroup.join("below");
    fs::create_dir(&below).unwrap();
    if below.join("cpuset.mems").exists() {
        fs::write(below.join("cpuset.mems"), fs::read(cgroup.join("cpuset.mems")).unwrap()).unwrap();
        // The auditor may have been faster.
        let _ = fs::write(below.join("cpuset.cpus"), unbound.cpus.to_string());
    }
    wait_for("the container to be put back", || (requested(&cgroup) == claim.cpus).then_some(()));
    let left = below.join("cpuset.cpus").exists().then(|| requested(&below));
    fs::remove_dir(&below).unwrap();
    assert!(left.is_none_or(|left| left.is_subset(&claim.cpus)));
}

#[test]
fn an_update_of_the_runtime_is_put_back() {
    let Some(node) = Node::start() else { return };
    let Some(unbound) = unbound() else { return };
    let claim = node.claim("a", &["cpu/numa0,cpus=1"]);
    let container = node.container(&[&claim]).start();
    let cgroup = cgroup_of(&node, &claim);
    let others = unbound.cpus.difference(&claim.cpus);
    container.update(&["--cpuset-cpus", &others.to_string()]);
    wait_for("the container to be put back", || (requested(&cgroup) == claim.cpus).then_some(()));
    assert_eq!(container.exec().cpus, claim.cpus);
}

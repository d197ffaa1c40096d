//! The hook and the plugin, in real containers: bound by either or both, the kernel's answer is the same.

use std::{
    fs,
    io::{self, Write},
};

use hostler::admin::types::AdminClaim;
use hostler_linux::IdSet;
use hostler_testing::{
    container::{Container, ContainerReport, containers_work_here},
    host::Host,
    nri::{ContainerSpec, NriRuntime},
};
use serde_json::{Value, json};

/// This machine with a daemon, `runc`, and a runtime that starts no processes.
struct Machine {
    runtime: NriRuntime,
    host: Host,
    unbound: ContainerReport,
}

/// The part that binds containers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Binder {
    Hook,
    Plugin,
    Both,
}

struct Claimed {
    ids: Vec<String>,
    cpus: IdSet,
    mems: IdSet,
}

impl Machine {
    /// Starts a machine; prints a note and returns `None` if containers cannot be run or the machine has too few CPUs.
    fn start() -> Option<Self> {
        if !containers_work_here() {
            return None;
        }
        let unbound = Container::new().run();
        if unbound.cpus.len() < 2 {
            let _ = writeln!(io::stderr(), "skipped: containers have CPUs {} here, and two are needed", unbound.cpus);
            return None;
        }
        let mut host = Host::with("", "[backends.cpu]\nfull_cores = false\n");
        let socket = host.path("nri.sock");
        let file = host.path("hostler.toml");
        let config = fs::read_to_string(&file).unwrap();
        let nri = format!("[nri]\nenabled = true\nsocket = {:?}\n", socket.display().to_string());
        fs::write(file, format!("{config}\n{nri}")).unwrap();
        let runtime = NriRuntime::listen(&socket);
        host.start();
        runtime.wait_for_plugin();
        Some(Self { runtime, host, unbound })
    }

    fn claim(&self, name: &str, devices: &[&str]) -> Claimed {
        let mut args = vec!["claim", "create", name, "-o", "json"];
        args.extend(devices.iter().flat_map(|device| ["--device", device]));
        let claim: AdminClaim = serde_json::from_str(&self.host.run_ok(&args)).unwrap();
        let list = |text: fn(&hostler::admin::types::AdminClaimDevice) -> &String| {
            let sets = claim.devices.iter().map(|device| text(device).parse::<IdSet>().unwrap());
            sets.fold(IdSet::default(), |all, set| all.union(&set))
        };
        Claimed {
            ids: claim.devices.iter().flat_map(|device| device.cdi_ids.clone()).collect(),
            cpus: list(|device| &device.cpus),
            mems: list(|device| &device.mems),
        }
    }

    /// Returns the CPUs and memory nodes that a container with these claims may use.
    fn said(&self, binder: Binder, claims: &[&Claimed]) -> ContainerReport {
        let ids: Vec<String> = claims.iter().flat_map(|claim| claim.ids.clone()).collect();
        let cdi = self.host.path("cdi");
        let mut container = Container::new().inject(&cdi, &ids);
        if binder != Binder::Hook {
            let mut asked = ContainerSpec::new("pod", "main");
            asked.spec = container.spec.clone();
            asked.devices = ids;
            let id = self.runtime.create(&asked).unwrap();
            let made = self.runtime.container(&id);
            let (cpus, mems) = (made.cpus().to_owned(), made.mems().to_owned());
            container = container.edit(|spec| {
                let given = [("cpus", cpus), ("mems", mems)].into_iter().filter(|(_, list)| !list.is_empty());
                spec["linux"]["resources"]["cpu"] =
                    Value::Object(given.map(|(key, list)| (key.to_owned(), json!(list))).collect());
            });
        }
        if binder == Binder::Plugin {
            container = container.edit(|spec| {
                let hooks = spec["hooks"]["createRuntime"].as_array_mut().unwrap();
                hooks.retain(|hook| hook["args"][2] != "cpuset");
            });
        }
        container.run()
    }
}

#[test]
fn whoever_binds_a_container_it_is_bound_to_the_same_union() {
    let Some(machine) = Machine::start() else { return };
    let one = machine.claim("a", &["cpu/numa0,cpus=1"]);
    let other = machine.claim("b", &["cpu/numa0,cpus=1", "memory/node0,memory=64Mi"]);
    for claims in [vec![&one], vec![&other], vec![&one, &other], vec![&other, &one]] {
        let cpus = claims.iter().fold(IdSet::default(), |all, claim| all.union(&claim.cpus));
        let mems = claims.iter().fold(IdSet::default(), |all, claim| all.union(&claim.mems));
        let mems = if mems.is_empty() { machine.unbound.mems.clone() } else { mems };
        for binder in [Binder::Hook, Binder::Plugin, Binder::Both] {
            let said = machine.said(binder, &claims);
            assert_eq!((&said.cpus, &said.mems), (&cpus, &mems), "{binder:?}, {} claims", claims.len());
        }
    }
}

#[test]
fn an_update_of_what_the_plugin_bound_does_not_unbind_it() {
    let Some(machine) = Machine::start() else { return };
    let claim = machine.claim("a", &["cpu/numa0,cpus=1"]);
    let mut asked = ContainerSpec::new("pod", "main");
    let container = Container::new().inject(&machine.host.path("cdi"), &claim.ids);
    asked.spec = container.spec.clone();
    asked.devices.clone_from(&claim.ids);
    let id = machine.runtime.create(&asked).unwrap();
    let cpus = machine.runtime.cpus(&id);
    let running = container.edit(|spec| spec["linux"]["resources"] = json!({"cpu": {"cpus": cpus}})).start();
    // A runtime updates with its whole specification, as after a resize.
    let has = machine.runtime.update_container(&id, &Default::default()).unwrap().cpu.unwrap();
    running.update(&["--cpu-share", "512", "--cpuset-cpus", &has.cpus]);
    assert_eq!(running.exec().cpus, claim.cpus);
}

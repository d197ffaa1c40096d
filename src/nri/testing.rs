//! Makes containers, records and machines for the tests of this folder.

use std::sync::Arc;

use hostler_api::ClaimUid;
use hostler_linux::IdSet;
use hostler_proto::nri::{Container, Hook, Hooks, LinuxContainer, LinuxCpu, LinuxResources, PodSandbox};
use serde_json::json;

use super::{
    facts::{PinningFacts, PoolRules, UsableMachine},
    known::KnownContainers,
};
use crate::{
    claims::{ClaimTable, ClaimView},
    config::SharedPoolMode,
};

pub(super) const KIND: &str = "hostler.dev/claim";
pub(super) const UID_A: &str = "00000000-0000-0000-0000-00000000000a";
pub(super) const UID_B: &str = "00000000-0000-0000-0000-00000000000b";

/// The hook of a claim that binds; `sets` are its last arguments.
pub(super) fn hook(uid: &str, sets: &str) -> String {
    format!("hostler hook cpuset --claim {uid} {sets}")
}

/// A container with these hooks.
pub(super) fn container(id: &str, hooks: &[String]) -> Container {
    let hook = |line: &String| Hook {
        args: line.split_whitespace().map(str::to_owned).collect(),
        path: "/usr/bin/hostler".to_owned(),
        ..Hook::default()
    };
    Container {
        id: id.to_owned(),
        pod_sandbox_id: "sandbox".to_owned(),
        name: "main".to_owned(),
        hooks: Some(Hooks { create_runtime: hooks.iter().map(hook).collect(), ..Hooks::default() }),
        ..Container::default()
    }
}

/// The same, which runs on these CPUs.
pub(super) fn on_cpus(container: Container, cpus: &str) -> Container {
    let cpu = LinuxCpu { cpus: cpus.to_owned(), ..LinuxCpu::default() };
    let resources = Some(LinuxResources { cpu: Some(cpu), ..LinuxResources::default() });
    Container { linux: Some(LinuxContainer { resources, ..LinuxContainer::default() }), ..container }
}

pub(super) fn pod() -> PodSandbox {
    PodSandbox {
        id: "sandbox".to_owned(),
        name: "web".to_owned(),
        uid: "pod-uid".to_owned(),
        namespace: "default".to_owned(),
        ..PodSandbox::default()
    }
}

/// Prepared claims, each with the CPUs of its devices.
pub(super) fn table(claims: &[(&str, &[&str])]) -> ClaimTable {
    let claims = claims.iter().map(|(uid, devices)| {
        let devices: Vec<_> = devices
            .iter()
            .map(|cpus| {
                let cpus: Vec<u32> = cpus.parse::<IdSet>().unwrap().iter().collect();
                json!({
                    "backend": "cpu",
                    "grant": {"request": "r", "pool": "n/cpu", "device": "numa0"},
                    "plan": {"pinning": {"cpus": cpus}},
                })
            })
            .collect();
        let record = json!({
            "claim": {"namespace": "default", "name": "train", "uid": uid},
            "state": "prepared", "boot_id": "b", "devices": devices,
        });
        let record = Arc::new(serde_json::from_value(record).unwrap());
        (ClaimUid::new(*uid).unwrap(), ClaimView::Recorded { record, problem: None, busy: None })
    });
    claims.collect()
}

/// A machine with these CPUs, of which the first stays with the system, and a shared pool.
pub(super) fn facts(online: &str, claims: &[(&str, &[&str])]) -> PinningFacts {
    let machine = UsableMachine { online: online.parse().unwrap(), ..UsableMachine::default() };
    let rules = PoolRules { mode: SharedPoolMode::ExcludeExclusive, reserved: "0".parse().unwrap() };
    PinningFacts::new(Arc::new(table(claims)), Arc::new(machine), &rules)
}

/// Containers without claims, on no CPUs in particular.
pub(super) fn known_with(ids: &[String], facts: &PinningFacts) -> KnownContainers {
    let mut known = KnownContainers::new(KIND.to_owned());
    ids.iter().for_each(|id| known.learn(Some(&pod()), &container(id, &[]), facts));
    known
}

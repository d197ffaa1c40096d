//! What claims may wish of their CPUs, on made-up machines: each wish by example, and all of them together in any order.

use std::collections::BTreeSet;

use hostler_api::{Access, ClaimUid, Grant, QualifiedName, Quantity};
use hostler_backend::{Backend, BackendError, Device, DevicePlan, HeldDevice, PlanWork, Sharing};
use hostler_linux::{IdSet, SysRoot, topology::Topology};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    device,
    machines::{MachineShape, hybrid, offline, server},
};
use crate::{CpuBackend, CpuBackendConfig, CpuGrouping, enumeration, withheld::WithheldCpus};

/// A grant that was planned.
pub(super) struct PlannedGrant {
    uid: ClaimUid,
    name: String,
    grant: Grant,
    config: Value,
    plan: DevicePlan,
}

impl PlannedGrant {
    fn kept(&self) -> WithheldCpus {
        serde_json::from_value(self.plan.data.clone()).unwrap_or_default()
    }

    /// What it runs on and what it leaves idle.
    fn footprint(&self) -> IdSet {
        let idle = self.kept().idle.unwrap_or_default();
        IdSet::from(self.plan.pinning.cpus.clone()).union(&idle)
    }
}

/// A machine and the claims on it.
pub(super) struct ClaimedMachine {
    pub(super) topology: Topology,
    pub(super) devices: Vec<Device>,
    config: CpuBackendConfig,
    pub(super) planned: Vec<PlannedGrant>,
}

/// What a claim asks for.
#[derive(Clone, Debug)]
pub(super) struct CpuRequest<'a> {
    pub(super) claim: &'a str,
    pub(super) namespace: &'a str,
    pub(super) on: &'a str,
    pub(super) cpus: u64,
    pub(super) config: Value,
    pub(super) within: Option<u32>,
}

fn ask<'a>(claim: &'a str, on: &'a str, cpus: u64, config: Value) -> CpuRequest<'a> {
    CpuRequest { claim, namespace: "default", on, cpus, config, within: None }
}

/// As [`ask`], by a claim of another namespace.
fn ask_in<'a>(namespace: &'a str, claim: &'a str, on: &'a str, cpus: u64, config: Value) -> CpuRequest<'a> {
    CpuRequest { namespace, ..ask(claim, on, cpus, config) }
}

impl ClaimedMachine {
    pub(super) fn new(topology: Topology, config: &CpuBackendConfig) -> Self {
        let devices = enumeration(&topology, config).unwrap().devices;
        Self { topology, devices, config: config.clone(), planned: Vec::new() }
    }

    fn plan(&self, ask: &CpuRequest<'_>) -> Result<PlannedGrant, BackendError> {
        let device = device(&self.devices, ask.on);
        let mut config = ask.config.clone();
        config["apiVersion"] = "hostler.dev/v1alpha1".into();
        config["kind"] = "CpuConfig".into();
        let shared = device.sharing == Sharing::Shared;
        let consumed = shared.then(|| (QualifiedName::new("cpus").unwrap(), Quantity::whole(ask.cpus)));
        let grant = Grant {
            request: "cpus".to_owned(),
            pool: "node/cpu".to_owned(),
            device: device.name.clone(),
            share_id: None,
            access: Access::Use,
            consumed: consumed.into_iter().collect(),
            config: vec![config],
        };
        let held = self.planned.iter().map(|planned| HeldDevice {
            claim: &planned.uid,
            claim_name: &planned.name,
            grant: &planned.grant,
            plan: &planned.plan,
        });
        let held: Vec<HeldDevice<'_>> = held.collect();
        let uid = ClaimUid::new(ask.claim).unwrap();
        let backend = CpuBackend::new(SysRoot::new("/nonexistent"), self.config.clone());
        let name = format!("{}/{uid}", ask.namespace);
        let (claim, claim_name, within) = (&uid, &*name, ask.within);
        let work = PlanWork { claim, claim_name, grant: &grant, device, held: &held, within };
        let plan = backend.plan(&work)?;
        assert_eq!(plan, backend.plan(&work).unwrap(), "the same work has the same answer");
        Ok(PlannedGrant { uid, name, grant, config: ask.config.clone(), plan })
    }

    /// Plans, checks and holds; the CPUs that a container would run on.
    pub(super) fn take(&mut self, ask: &CpuRequest<'_>) -> Result<String, String> {
        let planned = self.plan(ask).map_err(|error| error.to_string())?;
        self.check(ask, &planned);
        let list = IdSet::from(planned.plan.pinning.cpus.clone()).to_string();
        self.planned.push(planned);
        Ok(list)
    }

    fn cores(&self) -> impl Iterator<Item = &IdSet> {
        self.topology.cores.iter().map(|core| &core.cpus)
    }

    /// What must be true of a plan: the wish is fulfilled, and nobody else is touched.
    fn check(&self, ask: &CpuRequest<'_>, new: &PlannedGrant) {
        let (own, running) = (new.footprint(), IdSet::from(new.plan.pinning.cpus.clone()));
        if device(&self.devices, ask.on).sharing == Sharing::Shared {
            assert_eq!(own.len() as u64, ask.cpus, "{ask:?}");
        }
        if ask.config["smt"] == "isolated" {
            let used = |core: &IdSet| (core.intersection(&running).len(), core.intersection(&own).len());
            assert!(self.cores().all(|core| [(0, 0), (1, core.len())].contains(&used(core))), "{ask:?}: {own}");
        } else {
            assert_eq!(own, running);
        }
        if ask.config["fullCores"] == true {
            assert!(self.cores().all(|core| core.is_disjoint(&own) || core.is_subset(&own)), "{ask:?}: {own}");
        }
        if let Some(node) = ask.within {
            assert!(running.iter().all(|cpu| self.topology.cpus[&cpu].node == node), "{ask:?}: {own}");
        }
        if ask.config["l3Exclusive"] == true {
            let touched = own.iter().filter_map(|cpu| self.topology.cpus[&cpu].l3);
            let all = touched.fold(IdSet::new(), |all, l3| all.union(&self.topology.caches[l3].cpus));
            assert!(own.is_subset(&all));
            assert_eq!(new.kept().l3, Some(all));
        }
        for other in &self.planned {
            self.check_beside(new, other);
            self.check_beside(other, new);
        }
    }

    /// Whether `one` has what it was promised beside `other`.
    fn check_beside(&self, one: &PlannedGrant, other: &PlannedGrant) {
        let (ours, theirs) = (one.footprint(), other.footprint());
        assert!(ours.is_disjoint(&theirs), "{} {ours} and {} {theirs}", one.name, other.name);
        if one.config["smt"] == "isolated" || one.config["fullCores"] == true {
            let mut shared = self.cores().filter(|core| !core.is_disjoint(&ours));
            assert!(shared.all(|core| core.is_disjoint(&theirs)), "{} {ours} and {} {theirs}", one.name, other.name);
        }
        if !namespace(&one.name).eq(namespace(&other.name)) {
            let domains: Vec<&IdSet> = match one.config["isolation"].as_str() {
                Some("smt") => self.cores().collect(),
                Some("l3") => {
                    self.topology.caches.iter().filter(|cache| cache.level == 3).map(|cache| &cache.cpus).collect()
                }
                _ => Vec::new(),
            };
            let shared = domains.iter().find(|domain| !domain.is_disjoint(&ours) && !domain.is_disjoint(&theirs));
            assert_eq!(shared, None, "{} {ours} and {} {theirs}", one.name, other.name);
        }
        if let Some(l3) = one.kept().l3.filter(|_| one.uid != other.uid) {
            assert!(l3.is_disjoint(&theirs), "{} has the cache of {l3}, {} has {theirs}", one.name, other.name);
        }
    }
}

fn namespace(name: &str) -> &str {
    name.split('/').next().unwrap()
}

fn threads() -> CpuBackendConfig {
    CpuBackendConfig { full_cores: false, ..CpuBackendConfig::default() }
}

fn machine() -> CpuBackendConfig {
    CpuBackendConfig { mode: CpuGrouping::Machine, ..CpuBackendConfig::default() }
}

#[test]
fn full_cores_are_given_where_the_device_would_split_them() {
    let mut host = ClaimedMachine::new(server(), &threads());
    assert_eq!(host.take(&ask("a", "numa0", 1, json!({}))).unwrap(), "0");
    assert_eq!(host.take(&ask("b", "numa0", 2, json!({"fullCores": true}))).unwrap(), "1,17");
    let error = host.take(&ask("c", "numa0", 3, json!({"fullCores": true}))).unwrap_err();
    assert_eq!(error, "3 CPUs of numa0 cannot be given: it gives whole cores of 2 CPUs; ask for 4");
    let error = host.take(&ask("c", "numa0", 6, json!({"fullCores": true}))).unwrap_err();
    let held = "held by default/a (1), default/b (2)";
    assert_eq!(error, format!("numa0 has 4 of 8 CPUs in whole cores free, 6 are wanted; {held}"));
}

#[test]
fn a_core_with_a_reserved_or_offline_thread_is_no_full_core() {
    let mut topology = server();
    offline(&mut topology, "17");
    let config = CpuBackendConfig { reserved: "16".to_owned(), ..threads() };
    let mut host = ClaimedMachine::new(topology, &config);
    assert_eq!(host.take(&ask("a", "numa0", 4, json!({"fullCores": true}))).unwrap(), "2-3,18-19");
    let error = host.take(&ask("b", "numa0", 2, json!({"smt": "isolated"}))).unwrap_err();
    assert!(error.starts_with("numa0 has 0 of 4 CPUs in whole cores free, 2 are wanted"), "{error}");
    let config = CpuBackendConfig { reserved: "16-31".to_owned(), ..threads() };
    let error =
        ClaimedMachine::new(server(), &config).take(&ask("a", "numa0", 2, json!({"fullCores": true}))).unwrap_err();
    assert_eq!(error, "numa0 has no core with all of its threads to give, as fullCores asks");
}

#[test]
fn isolated_cores_run_one_thread_and_keep_the_others_idle() {
    let mut host = ClaimedMachine::new(server(), &threads());
    assert_eq!(host.take(&ask("a", "numa0", 4, json!({"smt": "isolated"}))).unwrap(), "0-1");
    assert_eq!(host.planned[0].plan.data, json!({"idle": "16-17"}));
    assert_eq!(host.take(&ask("b", "numa0", 4, json!({}))).unwrap(), "2-3,18-19");
    let error = host.take(&ask("c", "numa0", 1, json!({}))).unwrap_err();
    let held = "held by default/a (4), default/b (4)";
    assert_eq!(error, format!("numa0 has 0 of 8 CPUs free, 1 are wanted; {held}"));
}

#[test]
fn a_sibling_that_comes_online_later_stays_with_the_isolated_core() {
    let mut topology = server();
    offline(&mut topology, "16-31");
    let mut host = ClaimedMachine::new(topology, &threads());
    assert_eq!(host.take(&ask("a", "numa0", 2, json!({"smt": "isolated"}))).unwrap(), "0-1");
    host.devices = enumeration(&server(), &threads()).unwrap().devices;
    host.topology = server();
    let planned = host.plan(&ask("b", "numa0", 4, json!({}))).unwrap();
    assert_eq!(IdSet::from(planned.plan.pinning.cpus).to_string(), "2-3,18-19");
}

#[test]
fn spreading_over_cores_uses_a_core_twice_only_when_all_are_used() {
    let mut host = ClaimedMachine::new(server(), &threads());
    assert_eq!(host.take(&ask("a", "numa0", 2, json!({"spread": "cores"}))).unwrap(), "0-1");
    assert_eq!(host.take(&ask("b", "numa0", 3, json!({"spread": "cores"}))).unwrap(), "2-3,16");
    let mut host = ClaimedMachine::new(server(), &threads());
    assert_eq!(host.take(&ask("a", "numa0", 6, json!({"spread": "cores"}))).unwrap(), "0-3,16-17");
    let error = ClaimedMachine::new(server(), &CpuBackendConfig::default()).take(&ask(
        "a",
        "numa0",
        2,
        json!({"spread": "cores"}),
    ));
    assert_eq!(
        error.unwrap_err(),
        "spread: cores asks for one CPU of each core, and numa0 gives whole cores of 2 CPUs; ask for smt: isolated to use \
         one CPU of each"
    );
}

#[test]
fn spreading_over_caches_and_nodes_is_even_and_never_in_one() {
    let mut host = ClaimedMachine::new(server(), &machine());
    assert_eq!(host.take(&ask("a", "machine", 4, json!({"spread": "l3"}))).unwrap(), "0,2,16,18");
    assert_eq!(host.take(&ask("b", "machine", 8, json!({"spread": "numa"}))).unwrap(), "1,4,8,12,17,20,24,28");
    for (on, word, config) in [
        ("numa0", "numa", CpuBackendConfig::default()),
        ("l3-0", "l3", CpuBackendConfig { mode: CpuGrouping::L3, ..CpuBackendConfig::default() }),
    ] {
        let error = ClaimedMachine::new(server(), &config).take(&ask("a", on, 2, json!({"spread": word}))).unwrap_err();
        assert!(error.ends_with(&format!("and spread: {word} asks for several")), "{error}");
    }
    let mut host = ClaimedMachine::new(server(), &CpuBackendConfig::default());
    host.take(&ask("a", "numa0", 4, json!({}))).unwrap();
    let error = host.take(&ask("b", "numa0", 4, json!({"spread": "l3"}))).unwrap_err();
    assert_eq!(
        error,
        "numa0 has 4 of 8 CPUs in whole cores free, 4 are wanted, but behind one L3 cache, and spread: l3 asks for \
         several; held by default/a (4)"
    );
}

#[test]
fn an_exclusive_cache_is_nobody_else_s_and_all_of_the_claim_s() {
    let mut host = ClaimedMachine::new(server(), &CpuBackendConfig::default());
    assert_eq!(host.take(&ask("a", "numa0", 2, json!({"l3Exclusive": true}))).unwrap(), "0,16");
    assert_eq!(host.planned[0].plan.data, json!({"l3": "0-1,16-17"}));
    assert_eq!(host.take(&ask("b", "numa0", 2, json!({}))).unwrap(), "2,18");
    let error = host.take(&ask("c", "numa0", 2, json!({"l3Exclusive": true}))).unwrap_err();
    assert_eq!(
        error,
        "numa0 has 0 of 8 CPUs in whole cores behind L3 caches that no other claim uses free, 2 are wanted; held by \
         default/a (4), default/b (2)"
    );
    assert_eq!(host.take(&ask("a", "numa0", 2, json!({}))).unwrap(), "1,17", "the same claim may");
}

#[test]
fn cores_are_kept_from_other_namespaces_both_ways() {
    let smt = || json!({"isolation": "smt"});
    let mut host = ClaimedMachine::new(server(), &threads());
    assert_eq!(host.take(&ask("a", "numa0", 1, smt())).unwrap(), "0");
    assert_eq!(host.planned[0].plan.data, json!({"apart": {"of": "smt", "cpus": "0,16"}}));
    assert_eq!(
        host.take(&ask_in("other", "b", "numa0", 1, json!({}))).unwrap(),
        "1",
        "not the sibling, for who comes later"
    );
    assert_eq!(host.take(&ask("c", "numa0", 1, smt())).unwrap(), "16", "its own namespace may");
    assert_eq!(host.take(&ask("d", "numa0", 1, smt())).unwrap(), "2", "not beside who was there before");
    let error = host.take(&ask("e", "numa0", 5, smt())).unwrap_err();
    let held = "held by default/a (1), default/c (1), default/d (1), other/b (1)";
    let free = "numa0 has 3 of 8 CPUs of cores that no other namespace uses free, 5 are wanted";
    assert_eq!(error, format!("{free}; {held}"));
    assert_eq!(host.take(&ask_in("other", "f", "numa0", 2, json!({}))).unwrap(), "3,19");
    assert_eq!(host.take(&ask_in("other", "g", "numa0", 1, json!({}))).unwrap(), "17");
    assert!(host.take(&ask_in("other", "h", "numa0", 1, json!({}))).is_err(), "the last one is a sibling of default/d");
}

#[test]
fn caches_are_kept_from_other_namespaces_both_ways() {
    let l3 = || json!({"isolation": "l3"});
    let mut host = ClaimedMachine::new(server(), &CpuBackendConfig::default());
    assert_eq!(host.take(&ask("a", "numa0", 2, l3())).unwrap(), "0,16");
    assert_eq!(host.planned[0].plan.data, json!({"apart": {"of": "l3", "cpus": "0-1,16-17"}}));
    assert_eq!(host.take(&ask_in("other", "b", "numa0", 2, json!({}))).unwrap(), "2,18");
    let error = host.take(&ask_in("other", "c", "numa0", 4, json!({}))).unwrap_err();
    let held = "held by default/a (4), other/b (2)";
    assert_eq!(error, format!("numa0 has 2 of 8 CPUs in whole cores free, 4 are wanted; {held}"));
    assert_eq!(host.take(&ask("d", "numa0", 2, l3())).unwrap(), "1,17");
    assert!(host.take(&ask("e", "numa0", 2, l3())).is_err(), "the other cache is the other namespace's too");
    let mut unknown = server();
    unknown.cpus.values_mut().for_each(|cpu| cpu.l3 = None);
    unknown.caches.clear();
    let error =
        ClaimedMachine::new(unknown, &CpuBackendConfig::default()).take(&ask("a", "numa0", 2, l3())).unwrap_err();
    assert_eq!(error, "the L3 caches of numa0 are not known, and isolation: l3 asks for one");
}

#[test]
fn a_sibling_that_comes_online_later_is_kept_from_other_namespaces() {
    let mut topology = server();
    offline(&mut topology, "16-31");
    let mut host = ClaimedMachine::new(topology, &threads());
    assert_eq!(host.take(&ask("a", "numa0", 1, json!({"isolation": "smt"}))).unwrap(), "0");
    host.devices = enumeration(&server(), &threads()).unwrap().devices;
    host.topology = server();
    let planned = host.plan(&ask_in("other", "b", "numa0", 6, json!({}))).unwrap();
    assert_eq!(IdSet::from(planned.plan.pinning.cpus).to_string(), "1-3,17-19");
    assert!(host.plan(&ask_in("other", "b", "numa0", 7, json!({}))).is_err());
    assert!(host.plan(&ask("b", "numa0", 7, json!({}))).is_ok());
}

#[test]
fn a_claim_whose_name_is_lost_is_of_another_namespace() {
    let mut host = ClaimedMachine::new(server(), &threads());
    host.take(&ask("a", "numa0", 1, json!({}))).unwrap();
    "a-uid".clone_into(&mut host.planned[0].name);
    let planned = host.plan(&ask("b", "numa0", 1, json!({"isolation": "smt"}))).unwrap();
    assert_eq!(IdSet::from(planned.plan.pinning.cpus).to_string(), "1");
}

#[test]
fn an_operator_can_forbid_exclusive_caches() {
    let config = CpuBackendConfig { allow_l3_exclusive: false, ..CpuBackendConfig::default() };
    let mut host = ClaimedMachine::new(server(), &config);
    let error = host.take(&ask("a", "numa0", 2, json!({"l3Exclusive": true}))).unwrap_err();
    assert_eq!(error, "l3Exclusive is forbidden on this node: backends.cpu.allow_l3_exclusive is false");
    let error = host.take(&ask("a", "numa0", 2, json!({"isolation": "l3"}))).unwrap_err();
    assert_eq!(error, "isolation: l3 is forbidden on this node: backends.cpu.allow_l3_exclusive is false");
    assert_eq!(host.take(&ask("a", "numa0", 2, json!({"l3Exclusive": false, "isolation": "smt"}))).unwrap(), "0,16");
}

#[test]
fn an_exclusive_cache_holds_across_devices_that_share_it() {
    let mut host = ClaimedMachine::new(hybrid(), &CpuBackendConfig::default());
    assert_eq!(host.take(&ask("a", "numa0-efficiency", 1, json!({"l3Exclusive": true}))).unwrap(), "4");
    let error = host.take(&ask("b", "numa0", 2, json!({}))).unwrap_err();
    assert!(error.ends_with("held by default/a (4)"), "{error}");
    let mut host = ClaimedMachine::new(hybrid(), &CpuBackendConfig::default());
    host.take(&ask("a", "numa0", 2, json!({}))).unwrap();
    let error = host.take(&ask("b", "numa0-efficiency", 1, json!({"l3Exclusive": true}))).unwrap_err();
    assert!(error.contains("has 0 of 4 CPUs") && error.ends_with("held by default/a (2)"), "{error}");
}

#[test]
fn unknown_caches_can_neither_be_exclusive_nor_spread_over() {
    let mut topology = server();
    topology.cpus.values_mut().for_each(|cpu| cpu.l3 = None);
    topology.caches.clear();
    let mut host = ClaimedMachine::new(topology, &CpuBackendConfig::default());
    for (config, expected) in [
        (json!({"l3Exclusive": true}), "the L3 caches of numa0 are not known, and l3Exclusive asks for one"),
        (json!({"spread": "l3"}), "the L3 caches of numa0 are not known, and spread: l3 asks for several"),
    ] {
        assert_eq!(host.take(&ask("a", "numa0", 2, config)).unwrap_err(), expected);
    }
}

#[test]
fn the_kind_of_core_is_checked() {
    let mut host = ClaimedMachine::new(hybrid(), &CpuBackendConfig::default());
    assert!(host.take(&ask("a", "numa0", 2, json!({"coreType": "performance"}))).is_ok());
    assert!(host.take(&ask("a", "numa0-efficiency", 1, json!({"coreType": "efficient"}))).is_ok());
    let error = host.take(&ask("b", "numa0", 2, json!({"coreType": "efficient"}))).unwrap_err();
    assert!(error.starts_with("the cores of numa0 are performance, not efficient as coreType asks"), "{error}");
    let mut host = ClaimedMachine::new(server(), &CpuBackendConfig::default());
    assert!(
        host.take(&ask("a", "numa0", 2, json!({"coreType": "performance"}))).is_ok(),
        "all cores are the strongest"
    );
    assert!(host.take(&ask("a", "numa0", 2, json!({"coreType": "efficient"}))).is_err());
}

#[test]
fn a_device_of_several_nodes_is_narrowed_to_one() {
    let mut host = ClaimedMachine::new(server(), &machine());
    let backend = CpuBackend::new(SysRoot::new("/nonexistent"), machine());
    assert_eq!(backend.nodes(&host.devices[0]), BTreeSet::from([0, 1, 2, 3]));
    let on = |claim, cpus, within| CpuRequest { within: Some(within), ..ask(claim, "machine", cpus, json!({})) };
    assert_eq!(host.take(&on("a", 6, 2)).unwrap(), "8-10,24-26");
    let error = host.take(&on("b", 4, 2)).unwrap_err();
    let held = "held by default/a (6)";
    assert_eq!(error, format!("machine has 2 of 8 CPUs in whole cores on NUMA node 2 free, 4 are wanted; {held}"));
    assert_eq!(host.take(&on("b", 4, 7)).unwrap_err(), "machine has no CPU on NUMA node 7");
    let both = CpuRequest { within: Some(1), ..ask("b", "machine", 4, json!({"spread": "numa"})) };
    let error = host.take(&both).unwrap_err();
    assert_eq!(error, "spread: numa asks for several NUMA nodes, and sameNumaNode for one");
}

fn with(mut wish: Value, field: &str, word: &str) -> Value {
    wish[field] = word.into();
    wish
}

/// Every wish, several of them together.
pub(super) fn wishes() -> Vec<Value> {
    let mut wishes = Vec::new();
    for spread in ["packed", "cores", "l3", "numa"] {
        for (full_cores, l3_exclusive, smt) in [
            (false, false, "shared"),
            (true, false, "shared"),
            (false, true, "shared"),
            (false, false, "isolated"),
            (true, true, "isolated"),
        ] {
            for isolation in ["none", "smt", "l3"] {
                let wish = json!({"spread": spread, "fullCores": full_cores, "l3Exclusive": l3_exclusive, "smt": smt});
                wishes.push(with(wish, "isolation", isolation));
            }
        }
    }
    wishes
}

proptest! {
    #[test]
    fn no_order_of_claims_and_wishes_breaks_a_promise(
        packages in 1..3_u32, nodes in 1..3_u32, caches in 1..3_u32, cores in 1..4_u32, threads in 1..4_u32,
        full_cores: bool, mode in 0..5_usize, reserved in prop::collection::btree_set(0..12_u32, 0..3),
        steps in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..9_u64, 0..5_usize, any::<bool>(), prop::option::of(0..4_u32)),
            1..24,
        ),
    ) {
        let shape = MachineShape { packages, nodes, caches, cores, threads };
        let reserved: BTreeSet<u32> = reserved.into_iter().filter(|cpu| *cpu < shape.cpus()).collect();
        let config = CpuBackendConfig {
            mode: [CpuGrouping::Numa, CpuGrouping::L3, CpuGrouping::Socket, CpuGrouping::Machine, CpuGrouping::Core][mode],
            reserved: IdSet::from(reserved).to_string(),
            full_cores,
            ..CpuBackendConfig::default()
        };
        let mut host = ClaimedMachine::new(shape.machine(), &config);
        let wishes = wishes();
        for (on, wish, cpus, claim, release, within) in steps {
            if host.devices.is_empty() {
                break;
            }
            if release && !host.planned.is_empty() {
                let released = wish.index(host.planned.len());
                host.planned.swap_remove(released);
            }
            let on = host.devices[on.index(host.devices.len())].name.to_string();
            let wish = wishes[wish.index(wishes.len())].clone();
            let (claim, namespace) = [("a", "one"), ("b", "one"), ("c", "one"), ("d", "two"), ("e", "two")][claim];
            // What is given is checked where it is taken.
            if let Err(reason) = host.take(&CpuRequest { claim, namespace, on: &on, cpus, config: wish, within }) {
                prop_assert!(reason.contains(&on) || reason.contains("sameNumaNode"), "{}", reason);
            }
        }
    }
}

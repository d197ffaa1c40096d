//! Plans of claims on a machine, from grant to record, and the check of what was planned.

use std::{collections::BTreeMap, fs, path::Path};

use hostler_api::{Access, ClaimUid, Grant, QualifiedName, Quantity, opaque::MemoryMode};
use hostler_backend::{Backend, BackendError, Device, DevicePlan, HeldDevice, MemoryPolicy, PlanWork, VerifyWork};
use hostler_linux::SysRoot;
use proptest::prelude::*;
use serde_json::json;

use super::{GIB, MIB, bytes, device, machine};
use crate::{MemoryBackend, MemoryBackendConfig, ZoneInfo, enumeration};

/// A claim, as the daemon holds it.
struct HeldClaim {
    uid: ClaimUid,
    name: String,
    grant: Grant,
    plan: DevicePlan,
}

/// A made-up machine and the claims on it.
struct ClaimedServer {
    devices: Vec<Device>,
    claims: Vec<HeldClaim>,
}

impl ClaimedServer {
    fn new() -> Self {
        let found = enumeration(&machine(), &ZoneInfo::default(), &MemoryBackendConfig::default()).unwrap();
        Self { devices: found.devices, claims: Vec::new() }
    }

    fn grant(&self, on: &str, amount: Option<&str>) -> Grant {
        let amount = amount.map(|amount| (QualifiedName::new("memory").unwrap(), amount.parse::<Quantity>().unwrap()));
        Grant {
            request: "memory".to_owned(),
            pool: "node/memory".to_owned(),
            device: device(&self.devices, on).name.clone(),
            share_id: None,
            access: Access::Use,
            consumed: amount.into_iter().collect::<BTreeMap<_, _>>(),
            config: Vec::new(),
        }
    }

    fn plan(&self, grant: &Grant) -> Result<DevicePlan, BackendError> {
        self.plan_within(grant, None)
    }

    fn plan_within(&self, grant: &Grant, within: Option<u32>) -> Result<DevicePlan, BackendError> {
        let held: Vec<HeldDevice<'_>> = self
            .claims
            .iter()
            .map(|claim| HeldDevice {
                claim: &claim.uid,
                claim_name: &claim.name,
                grant: &claim.grant,
                plan: &claim.plan,
            })
            .collect();
        let claim = ClaimUid::new("new").unwrap();
        let device = device(&self.devices, grant.device.as_str());
        let work = PlanWork { claim: &claim, claim_name: "default/new", grant, device, held: &held, within };
        MemoryBackend::new(SysRoot::new("/nonexistent"), MemoryBackendConfig::default()).plan(&work)
    }

    fn hold(&mut self, name: &str, grant: Grant) -> Result<DevicePlan, BackendError> {
        let plan = self.plan(&grant)?;
        let uid = ClaimUid::new(format!("uid-{}", self.claims.len())).unwrap();
        self.claims.push(HeldClaim { uid, name: name.to_owned(), grant, plan: plan.clone() });
        Ok(plan)
    }

    fn take(&mut self, name: &str, on: &str, amount: Option<&str>) -> Result<DevicePlan, BackendError> {
        self.hold(name, self.grant(on, amount))
    }
}

#[test]
fn a_claim_is_bound_to_the_node_and_accounted() {
    let mut host = ClaimedServer::new();
    let plan = host.take("default/a", "node2", Some("1Gi")).unwrap();
    assert_eq!(plan.pinning.mems, [2].into());
    assert!(plan.pinning.cpus.is_empty());
    assert_eq!(plan.data, json!({"node": 2, "bytes": GIB}));
    let plan = host.take("default/b", "node0-hugepages-2mi", Some("4Mi")).unwrap();
    assert_eq!(plan.data, json!({"node": 0, "huge_page_bytes": 2 * MIB, "bytes": 4 * MIB}));
}

#[test]
fn more_than_is_left_is_refused_and_the_holders_are_named() {
    let mut host = ClaimedServer::new();
    host.take("default/a", "node2", Some("3Gi")).unwrap();
    host.take("default/b", "node2", Some("512Mi")).unwrap();
    host.take("default/a", "node2", Some("256Mi")).unwrap();
    // The same node's huge pages are a pool of their own.
    host.take("default/c", "node0-hugepages-1gi", None).unwrap();
    assert_eq!(
        host.take("default/d", "node2", Some("512Mi")).unwrap_err().to_string(),
        "node2 has 256Mi of 4Gi free, 512Mi are wanted; held by default/a (3328Mi), default/b (512Mi)"
    );
    assert!(host.take("default/e", "node2", Some("256Mi")).is_ok());
}

#[test]
fn a_grant_that_names_no_amount_takes_the_device_whole() {
    let mut host = ClaimedServer::new();
    host.take("default/a", "node0", None).unwrap();
    let refusal = host.take("default/b", "node0", Some("1Mi")).unwrap_err().to_string();
    assert_eq!(refusal, "node0 has 0 of 6Gi free, 1Mi are wanted; held by default/a (6Gi)");
}

#[test]
fn amounts_off_the_step_are_refused_with_the_next_valid_one() {
    let host = ClaimedServer::new();
    for (on, amount, fix) in [
        ("node0", "1500Ki", "1500Ki of node0 cannot be given: it gives multiples of 1Mi; ask for 2Mi"),
        ("node0", "0", "0 of node0 cannot be given: it gives multiples of 1Mi; ask for 1Mi"),
        ("node0-hugepages-1gi", "2Mi", "multiples of 1Gi; ask for 1Gi"),
    ] {
        let refusal = host.plan(&host.grant(on, Some(amount))).unwrap_err().to_string();
        assert!(refusal.ends_with(fix), "{refusal}");
    }
}

#[test]
fn administrative_access_binds_nothing_and_takes_nothing() {
    let mut host = ClaimedServer::new();
    let admin = Grant { access: Access::Admin, ..host.grant("node2", None) };
    assert_eq!(host.hold("default/monitor", admin).unwrap(), DevicePlan::default());
    host.take("default/a", "node2", None).unwrap();
}

#[test]
fn a_holder_without_a_readable_record_counts_with_what_it_may_have() {
    let mut host = ClaimedServer::new();
    host.take("default/a", "node2", None).unwrap();
    host.claims[0].plan.data = json!("old");
    let refusal = host.take("default/b", "node2", Some("1Mi")).unwrap_err().to_string();
    assert!(refusal.ends_with("held by default/a (4Gi)"), "{refusal}");
}

fn configured(fields: &serde_json::Value) -> serde_json::Value {
    let mut config = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "MemoryConfig"});
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    config
}

#[test]
fn a_policy_is_kept_beside_the_binding_and_a_preference_binds_nothing() {
    let mut host = ClaimedServer::new();
    for (policy, mode, mems) in [
        ("bind", MemoryMode::Bind, vec![2]),
        ("interleave", MemoryMode::Interleave, vec![2]),
        ("preferred", MemoryMode::Preferred, vec![]),
    ] {
        let config = vec![configured(&json!({"policy": policy}))];
        let grant = Grant { config, ..host.grant("node2", Some("1Gi")) };
        let plan = host.hold("default/a", grant).unwrap();
        assert_eq!(plan.pinning.mems, mems.into_iter().collect());
        assert_eq!(plan.pinning.policy, Some(MemoryPolicy { mode, nodes: [2].into() }));
        assert_eq!(plan.data, json!({"node": 2, "bytes": GIB}), "it is accounted all the same");
    }
    let grant = Grant { config: vec![configured(&json!({}))], ..host.grant("node2", Some("1Gi")) };
    assert_eq!(host.plan(&grant).unwrap().pinning.policy, None, "nothing was said");
}

#[test]
fn a_node_that_is_not_the_wanted_one_is_refused() {
    let host = ClaimedServer::new();
    let grant = host.grant("node2", Some("1Gi"));
    let error = host.plan_within(&grant, Some(0)).unwrap_err().to_string();
    assert_eq!(error, "node2 is on NUMA node 2, not on node 0");
    assert!(host.plan_within(&grant, Some(2)).is_ok());
}

#[test]
fn opaque_configuration_that_is_wrong_is_refused_by_field() {
    let host = ClaimedServer::new();
    for (config, expected) in [
        (
            configured(&json!({"policy": "local"})),
            "parameters.policy: \"local\" is not one of bind, preferred, interleave",
        ),
        (json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CpuConfig"}), "CpuConfig says nothing to device node0"),
    ] {
        let grant = Grant { config: vec![config], ..host.grant("node0", Some("1Mi")) };
        let error = host.plan(&grant).unwrap_err();
        assert!(matches!(&error, BackendError::Config { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn a_plan_is_usable_only_while_node_and_pages_are_there() {
    let mut host = ClaimedServer::new();
    let grant = host.grant("node0-hugepages-2mi", Some("8Mi"));
    let plan = host.hold("default/a", grant.clone()).unwrap();
    let root = tempfile::tempdir().unwrap();
    let backend = MemoryBackend::new(SysRoot::new(root.path()), MemoryBackendConfig::default());
    let claim = ClaimUid::new("c").unwrap();
    let verify = || {
        let work = VerifyWork { claim: &claim, grant: &grant, plan: &plan };
        backend.verify(&work).map_err(|error| error.to_string())
    };
    let pool = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
    write(root.path(), "sys/devices/system/node/online", "0\n");
    let gone = "device is not usable: NUMA node 0 is offline or has no memory";
    assert_eq!(verify().unwrap_err(), gone);
    write(root.path(), "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:        0 kB\n");
    assert_eq!(verify().unwrap_err(), gone);
    write(root.path(), "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  8388608 kB\n");
    write(root.path(), pool, "3\n");
    assert_eq!(verify().unwrap_err(), format!("device is not usable: /{pool} is 3, 4 pages are claimed"));
    write(root.path(), pool, "4\n");
    assert_eq!(verify(), Ok(()));
}

#[test]
fn a_kernel_without_numa_keeps_its_one_node_but_may_lose_pages() {
    let mut host = ClaimedServer::new();
    let root = tempfile::tempdir().unwrap();
    let backend = MemoryBackend::new(SysRoot::new(root.path()), MemoryBackendConfig::default());
    let claim = ClaimUid::new("c").unwrap();
    let mut verify = |on: &str, amount: &str| {
        let grant = host.grant(on, Some(amount));
        let plan = host.hold("default/a", grant.clone()).unwrap();
        backend.verify(&VerifyWork { claim: &claim, grant: &grant, plan: &plan }).is_ok()
    };
    assert!(verify("node0", "1Mi"));
    assert!(!verify("node2", "1Mi"));
    assert!(!verify("node0-hugepages-2mi", "4Mi"));
    write(root.path(), "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "2\n");
    assert!(verify("node0-hugepages-2mi", "4Mi"));
}

proptest! {
    #[test]
    fn no_order_of_claims_takes_more_than_there_is(steps in prop::collection::vec((0..4_usize, 1..3000_u64, any::<bool>()), 1..30)) {
        let mut host = ClaimedServer::new();
        let names: Vec<String> = host.devices.iter().map(|device| device.name.to_string()).collect();
        for (index, amount, release) in steps {
            if release && !host.claims.is_empty() {
                host.claims.swap_remove(index % host.claims.len());
            }
            let name = &names[index];
            let step = host.devices[index].capacity["memory"].policy.unwrap().step.as_whole().unwrap();
            let wanted = amount * step;
            let held = |host: &ClaimedServer| -> u64 {
                let ours = host.claims.iter().filter(|claim| claim.grant.device.as_str() == name);
                ours.map(|claim| claim.plan.data["bytes"].as_u64().unwrap()).sum()
            };
            let room = held(&host) + wanted <= bytes(&host.devices[index]);
            let taken = host.take("default/x", name, Some(&wanted.to_string()));
            prop_assert_eq!(taken.is_ok(), room);
            prop_assert!(held(&host) <= bytes(&host.devices[index]));
        }
    }
}

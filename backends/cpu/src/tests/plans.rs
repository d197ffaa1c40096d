//! Plans of claims on a machine, from grant to pinning.

use std::{collections::BTreeMap, fs};

use hostler_api::{Access, ClaimUid, Grant, QualifiedName, Quantity};
use hostler_backend::{Backend, BackendError, Device, DevicePlan, HeldDevice, Pinning, PlanWork, VerifyWork};
use hostler_linux::SysRoot;

use super::{
    device,
    machines::{MachineShape, server},
};
use crate::{CpuBackend, CpuBackendConfig, CpuGrouping, enumeration};

/// A claim, as the daemon holds it.
struct HeldClaim {
    uid: ClaimUid,
    name: String,
    grant: Grant,
    plan: DevicePlan,
}

fn grant(device: &Device, cpus: Option<&str>) -> Grant {
    let consumed = cpus.map(|cpus| (QualifiedName::new("cpus").unwrap(), cpus.parse::<Quantity>().unwrap()));
    Grant {
        request: "cpus".to_owned(),
        pool: "node/cpu".to_owned(),
        device: device.name.clone(),
        share_id: None,
        access: Access::Use,
        consumed: consumed.into_iter().collect::<BTreeMap<_, _>>(),
        config: Vec::new(),
    }
}

/// A made-up machine and the claims on it.
struct ClaimedServer {
    devices: Vec<Device>,
    claims: Vec<HeldClaim>,
}

impl ClaimedServer {
    fn new(config: &CpuBackendConfig) -> Self {
        Self { devices: enumeration(&server(), config).unwrap().devices, claims: Vec::new() }
    }

    fn plan(&self, grant: &Grant) -> Result<DevicePlan, BackendError> {
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
        let work = PlanWork {
            claim: &claim,
            claim_name: "default/new",
            grant,
            device: device(&self.devices, grant.device.as_str()),
            held: &held,
            within: None,
        };
        CpuBackend::new(SysRoot::new("/nonexistent"), CpuBackendConfig::default()).plan(&work)
    }

    /// Plans and holds `cpus` of a device.
    fn take(&mut self, name: &str, on: &str, cpus: Option<&str>) -> String {
        let grant = grant(device(&self.devices, on), cpus);
        let plan = self.plan(&grant).unwrap();
        let list = hostler_linux::IdSet::from(plan.pinning.cpus.clone()).to_string();
        let uid = ClaimUid::new(format!("uid-{}", self.claims.len())).unwrap();
        self.claims.push(HeldClaim { uid, name: name.to_owned(), grant, plan });
        list
    }

    fn refusal(&self, on: &str, cpus: Option<&str>) -> String {
        self.plan(&grant(device(&self.devices, on), cpus)).unwrap_err().to_string()
    }
}

#[test]
fn claims_get_whole_cores_of_one_cache_and_never_the_same() {
    let mut host = ClaimedServer::new(&CpuBackendConfig::default());
    assert_eq!(host.take("default/a", "numa0", Some("2")), "0,16");
    // The half-used cache has just enough: the untouched one stays whole.
    assert_eq!(host.take("default/b", "numa0", Some("2")), "1,17");
    assert_eq!(host.take("default/c", "numa0", Some("4")), "2-3,18-19");
    assert_eq!(
        host.refusal("numa0", Some("2")),
        "numa0 has 0 of 8 CPUs in whole cores free, 2 are wanted; held by default/a (2), default/b (2), default/c (4)"
    );
}

#[test]
fn a_grant_that_names_no_amount_takes_the_device_whole() {
    let mut host = ClaimedServer::new(&CpuBackendConfig::default());
    assert_eq!(host.take("default/a", "numa1", None), "4-7,20-23");
    assert!(host.refusal("numa1", None).ends_with("8 are wanted; held by default/a (8)"));
}

#[test]
fn amounts_off_the_step_are_refused_with_the_next_valid_one() {
    let host = ClaimedServer::new(&CpuBackendConfig::default());
    for (cpus, fix) in [("3", "4"), ("1500m", "2"), ("0", "2"), ("1", "2")] {
        let refusal = host.refusal("numa0", Some(cpus));
        assert!(refusal.ends_with(&format!("whole cores of 2 CPUs; ask for {fix}")), "{refusal}");
    }
    let host = ClaimedServer::new(&CpuBackendConfig { full_cores: false, ..CpuBackendConfig::default() });
    assert!(host.refusal("numa0", Some("1.5")).ends_with("whole CPUs; ask for 2"));
}

#[test]
fn more_than_there_is_is_refused_without_a_holder() {
    let host = ClaimedServer::new(&CpuBackendConfig::default());
    assert_eq!(
        host.refusal("numa0", Some("10")),
        "numa0 has 8 of 8 CPUs in whole cores free, 10 are wanted; held by nobody"
    );
}

#[test]
fn a_core_held_under_another_mode_is_not_given_again() {
    let mut host = ClaimedServer::new(&CpuBackendConfig::default());
    assert_eq!(host.take("default/a", "numa0", Some("2")), "0,16");
    host.devices = enumeration(&server(), &CpuBackendConfig { mode: CpuGrouping::Core, ..CpuBackendConfig::default() })
        .unwrap()
        .devices;
    assert!(host.refusal("core-0-0", None).contains("held by default/a (2)"));
    assert_eq!(host.take("default/b", "core-0-1", None), "1,17");
}

#[test]
fn a_core_with_one_held_thread_is_not_given_whole() {
    let mut host = ClaimedServer::new(&CpuBackendConfig { full_cores: false, ..CpuBackendConfig::default() });
    assert_eq!(host.take("default/a", "numa0", Some("1")), "0");
    host.devices = enumeration(&server(), &CpuBackendConfig::default()).unwrap().devices;
    assert_eq!(host.take("default/b", "numa0", Some("6")), "1-3,17-19");
    assert_eq!(
        host.refusal("numa0", Some("2")),
        "numa0 has 0 of 8 CPUs in whole cores free, 2 are wanted; held by default/a (1), default/b (6)"
    );
}

#[test]
fn administrative_access_binds_nothing_and_takes_nothing() {
    let mut host = ClaimedServer::new(&CpuBackendConfig::default());
    host.take("default/a", "numa0", None);
    let admin = Grant { access: Access::Admin, ..grant(&host.devices[0], None) };
    assert_eq!(host.plan(&admin).unwrap(), DevicePlan::default());
}

#[test]
fn what_crosses_caches_stays_inside_a_node_and_a_package_where_it_can() {
    let mut host = ClaimedServer::new(&CpuBackendConfig { mode: CpuGrouping::Machine, ..CpuBackendConfig::default() });
    assert_eq!(host.take("default/a", "machine", Some("2")), "0,16");
    // Best fit of a whole node, not the one that is broken into.
    assert_eq!(host.take("default/b", "machine", Some("8")), "4-7,20-23");
    assert_eq!(host.take("default/c", "machine", Some("12")), "8-13,24-29");
}

#[test]
fn planned_cpus_that_went_offline_are_not_usable() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sys/devices/system/cpu");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("online"), "0-3\n").unwrap();
    let backend = CpuBackend::new(SysRoot::new(root.path()), CpuBackendConfig::default());
    let machine = enumeration(
        &MachineShape { packages: 1, nodes: 1, caches: 1, cores: 4, threads: 1 }.machine(),
        &CpuBackendConfig::default(),
    );
    let grant = grant(&machine.unwrap().devices[0], Some("2"));
    let claim = ClaimUid::new("c").unwrap();
    let verify = |cpus: &[u32]| {
        let plan = DevicePlan {
            pinning: Pinning { cpus: cpus.iter().copied().collect(), ..Pinning::default() },
            ..DevicePlan::default()
        };
        backend.verify(&VerifyWork { claim: &claim, grant: &grant, plan: &plan })
    };
    assert!(verify(&[2, 3]).is_ok());
    assert_eq!(verify(&[3, 4, 5]).unwrap_err().to_string(), "device is not usable: CPUs 4-5 are offline");
}

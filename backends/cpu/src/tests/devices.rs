//! Which devices a machine makes.

use hostler_api::Quantity;
use hostler_backend::{BackendError, Sharing};
use hostler_linux::topology::Topology;

use super::{
    attribute, cpus, device,
    machines::{MachineShape, hybrid, offline, server},
    names,
};
use crate::{CpuBackendConfig, CpuGrouping, enumeration, pick::OfferedCpus};

fn mode(mode: CpuGrouping) -> CpuBackendConfig {
    CpuBackendConfig { mode, ..CpuBackendConfig::default() }
}

#[test]
fn every_mode_names_its_groups_by_hardware() {
    let machine = server();
    for (mode_, expected) in [
        (CpuGrouping::Numa, "numa0 numa1 numa2 numa3"),
        (CpuGrouping::L3, "l3-0 l3-1 l3-2 l3-3 l3-4 l3-5 l3-6 l3-7"),
        (CpuGrouping::Socket, "socket0 socket1"),
        (CpuGrouping::Machine, "machine"),
    ] {
        let found = enumeration(&machine, &mode(mode_)).unwrap();
        assert_eq!(names(&found.devices).join(" "), expected);
        assert_eq!(found.devices.iter().map(cpus).sum::<u64>(), 32, "{mode_:?}");
        assert_eq!(found.warnings, []);
    }
    let cores = enumeration(&machine, &mode(CpuGrouping::Core)).unwrap().devices;
    assert_eq!(cores.len(), 16);
    assert_eq!(names(&cores)[7..9], ["core-0-7", "core-1-0"]);
}

#[test]
fn a_group_is_shared_in_steps_of_a_core() {
    let found = enumeration(&server(), &CpuBackendConfig::default()).unwrap();
    let numa1 = device(&found.devices, "numa1");
    assert_eq!(numa1.sharing, Sharing::Shared);
    let policy = numa1.capacity["cpus"].policy.unwrap();
    assert_eq!([policy.default, policy.min, policy.step], [Quantity::whole(2); 3]);
    let threads =
        enumeration(&server(), &CpuBackendConfig { full_cores: false, ..CpuBackendConfig::default() }).unwrap();
    assert_eq!(device(&threads.devices, "numa1").capacity["cpus"].policy.unwrap().step, Quantity::whole(1));
}

#[test]
fn a_core_is_exclusive_and_has_no_capacity() {
    let found = enumeration(&server(), &mode(CpuGrouping::Core)).unwrap();
    let core = device(&found.devices, "core-1-3");
    assert_eq!(core.sharing, Sharing::Exclusive);
    assert!(core.capacity.is_empty());
    assert_eq!(attribute(core, "cpus"), Some(2.into()));
}

#[test]
fn attributes_say_where_a_group_is_and_stay_away_where_it_spans() {
    let found = enumeration(&server(), &mode(CpuGrouping::L3)).unwrap();
    let l3 = device(&found.devices, "l3-5");
    for (name, value) in [
        ("resource.kubernetes.io/numaNode", 2.into()),
        ("socket", 1.into()),
        ("l3", 5.into()),
        ("coreType", "uniform".into()),
        ("smt", true.into()),
        ("cpus", 4.into()),
    ] {
        assert_eq!(attribute(l3, name), Some(value), "{name}");
    }
    assert_eq!(attribute(l3, "die"), None);
    let found = enumeration(&server(), &mode(CpuGrouping::Socket)).unwrap();
    let socket = device(&found.devices, "socket1");
    assert_eq!(attribute(socket, "resource.kubernetes.io/numaNode"), None);
    assert_eq!(attribute(socket, "l3"), None);
    assert_eq!(attribute(socket, "socket"), Some(1.into()));
}

#[test]
fn kinds_of_cores_are_apart() {
    let found = enumeration(&hybrid(), &CpuBackendConfig::default()).unwrap();
    assert_eq!(names(&found.devices), ["numa0", "numa0-efficiency"]);
    let [fast, slow] = &found.devices[..] else { panic!() };
    assert_eq!((cpus(fast), cpus(slow)), (4, 4));
    assert_eq!((attribute(fast, "smt"), attribute(slow, "smt")), (Some(true.into()), Some(false.into())));
    assert_eq!(attribute(slow, "coreType"), Some("efficiency".into()));
    // The step follows the kind: an efficiency core has one thread.
    assert_eq!(slow.capacity["cpus"].policy.unwrap().step, Quantity::whole(1));
}

#[test]
fn reserved_cpus_are_not_offered_and_neither_are_their_siblings_of_full_cores() {
    // The core of CPU 0 is {0, 16}.
    let config = CpuBackendConfig { reserved: "0".to_owned(), ..CpuBackendConfig::default() };
    let found = enumeration(&server(), &config).unwrap();
    assert_eq!(names(&found.devices), ["numa0", "numa1", "numa2", "numa3"]);
    assert_eq!(cpus(&found.devices[0]), 6);
    assert_eq!(found.warnings.len(), 1);
    assert!(found.warnings[0].reason.starts_with("CPUs 16 of numa0 are not offered"), "{:?}", found.warnings);
    let found = enumeration(&server(), &CpuBackendConfig { full_cores: false, ..config }).unwrap();
    assert_eq!(cpus(&found.devices[0]), 7);
    assert_eq!(found.warnings, []);
}

#[test]
fn names_do_not_shift_when_cpus_are_reserved_or_go_offline() {
    let mut machine = server();
    let before = enumeration(&machine, &mode(CpuGrouping::Core)).unwrap().devices;
    offline(&mut machine, "0,16");
    let config = CpuBackendConfig { reserved: "1,17".to_owned(), ..mode(CpuGrouping::Core) };
    let after = enumeration(&machine, &config).unwrap().devices;
    assert_eq!(names(&after), names(&before)[2..]);
    for mode_ in [CpuGrouping::Numa, CpuGrouping::L3, CpuGrouping::Socket, CpuGrouping::Machine] {
        let all = enumeration(&server(), &mode(mode_)).unwrap().devices;
        let left =
            enumeration(&machine, &CpuBackendConfig { reserved: "2".to_owned(), ..mode(mode_) }).unwrap().devices;
        let lost = all.len() - left.len();
        assert!(lost <= 1, "{mode_:?}");
        assert_eq!(names(&left), names(&all)[lost..], "{mode_:?}");
    }
}

#[test]
fn a_group_whose_cpus_are_all_offline_is_gone() {
    let mut machine = server();
    offline(&mut machine, "0-3,16-19");
    let found = enumeration(&machine, &CpuBackendConfig::default()).unwrap();
    assert_eq!(names(&found.devices), ["numa1", "numa2", "numa3"]);
}

#[test]
fn only_what_the_cpuset_allows_is_offered() {
    let mut machine = server();
    machine.allowed_cpus = "4-7,20-22".parse().unwrap();
    let found = enumeration(&machine, &CpuBackendConfig::default()).unwrap();
    assert_eq!(names(&found.devices), ["numa1"]);
    assert_eq!(cpus(&found.devices[0]), 6);
}

#[test]
fn isolated_cpus_are_kept_back_only_on_request() {
    let mut machine = server();
    machine.isolated = "0,16".parse().unwrap();
    assert_eq!(cpus(&enumeration(&machine, &CpuBackendConfig::default()).unwrap().devices[0]), 8);
    let config = CpuBackendConfig { exclude_isolated: true, ..CpuBackendConfig::default() };
    assert_eq!(cpus(&enumeration(&machine, &config).unwrap().devices[0]), 6);
}

#[test]
fn without_cache_ids_groups_are_named_after_their_lowest_cpu() {
    let mut machine = server();
    for cache in &mut machine.caches {
        cache.id = None;
    }
    let found = enumeration(&machine, &mode(CpuGrouping::L3)).unwrap();
    assert_eq!(names(&found.devices)[..3], ["l3-cpu0", "l3-cpu2", "l3-cpu4"]);
    assert_eq!(found.warnings, []);
    offline(&mut machine, "0,16");
    let found = enumeration(&machine, &mode(CpuGrouping::L3)).unwrap();
    assert_eq!(names(&found.devices)[..2], ["l3-cpu1", "l3-cpu2"]);
    assert!(found.warnings[0].reason.contains("when CPUs 0,16 come online"), "{:?}", found.warnings);
}

#[test]
fn cores_that_share_an_id_are_told_apart_by_die_or_cpu() {
    let mut machine = server();
    // Numbered from 0 again in each L3, as where ids are counted per die.
    for cpu in machine.cpus.values_mut() {
        cpu.core_id = cpu.core_id.map(|id| id % 2);
    }
    let found = enumeration(&machine, &mode(CpuGrouping::Core)).unwrap();
    assert_eq!(names(&found.devices)[..3], ["core-cpu0", "core-cpu1", "core-cpu2"]);
    for cpu in machine.cpus.values_mut() {
        cpu.die = cpu.l3;
    }
    machine.dies =
        (0..8).map(|id| hostler_linux::topology::CpuGroup { id: Some(id % 4), ..Default::default() }).collect();
    let found = enumeration(&machine, &mode(CpuGrouping::Core)).unwrap();
    assert_eq!(names(&found.devices)[7..10], ["core-0-3-1", "core-1-0-0", "core-1-0-1"]);
}

#[test]
fn cpus_without_an_l3_cache_are_grouped_by_node() {
    let mut machine = hybrid();
    for (number, cpu) in &mut machine.cpus {
        cpu.l3 = (*number < 6).then_some(0);
    }
    let found = enumeration(&machine, &mode(CpuGrouping::L3)).unwrap();
    assert_eq!(names(&found.devices), ["l3-0", "l3-0-efficiency", "numa0-no-l3-efficiency"]);
}

#[test]
fn an_empty_machine_and_a_bad_configuration_are_errors() {
    let error = enumeration(&Topology::default(), &CpuBackendConfig::default()).unwrap_err();
    assert!(matches!(error, BackendError::Enumerate { .. }), "{error}");
    let config = CpuBackendConfig { reserved: "0-".to_owned(), ..CpuBackendConfig::default() };
    let problems = config.validate();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].field, "reserved");
    assert!(enumeration(&server(), &config).is_err());
}

#[test]
fn reserving_what_cannot_exist_is_a_warning() {
    let config = CpuBackendConfig { reserved: "30-40".to_owned(), ..CpuBackendConfig::default() };
    let found = enumeration(&server(), &config).unwrap();
    assert!(found.warnings[0].reason.starts_with("CPUs 32-40 are reserved"), "{:?}", found.warnings);
}

#[test]
fn a_core_split_between_groups_by_contradictory_masks_is_offered_in_parts_only_as_threads() {
    let mut machine = MachineShape { packages: 1, nodes: 2, caches: 1, cores: 2, threads: 2 }.machine();
    machine.cpus.get_mut(&4).unwrap().node = 1;
    let threads = CpuBackendConfig { full_cores: false, ..CpuBackendConfig::default() };
    let found = enumeration(&machine, &threads).unwrap();
    assert_eq!(found.devices.iter().map(cpus).collect::<Vec<_>>(), [3, 5]);
    let found = enumeration(&machine, &CpuBackendConfig::default()).unwrap();
    assert_eq!(found.devices.iter().map(cpus).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(found.warnings.len(), 2);
}

#[test]
fn device_data_survives_json() {
    let found = enumeration(&server(), &CpuBackendConfig::default()).unwrap();
    let data = serde_json::to_string(&found.devices[3].data).unwrap();
    let offer: OfferedCpus = serde_json::from_str(&data).unwrap();
    assert_eq!(offer.cpus(), 8);
    assert_eq!(offer.cores[0].0, [12, 28]);
    assert_eq!(offer.cores[0].1, [1, 3, 6]);
}

#[test]
fn configuration_keys_are_checked() {
    let config: CpuBackendConfig = serde_json::from_str(r#"{"mode": "core", "full_cores": false}"#).unwrap();
    assert_eq!(config, CpuBackendConfig { full_cores: false, ..mode(CpuGrouping::Core) });
    assert!(serde_json::from_str::<CpuBackendConfig>(r#"{"fullcores": false}"#).is_err());
    assert_eq!(serde_json::from_str::<CpuBackendConfig>("{}").unwrap(), CpuBackendConfig::default());
}

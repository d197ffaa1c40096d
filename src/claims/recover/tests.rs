//! The plan of a start, for every trace that a crash can leave.

use hostler_api::{Access, BackendName, DeviceName, Grant};
use hostler_backend::{CounterSet, CounterUse, Device, DevicePlan};
use hostler_cdi::SpecDir;

use super::{
    super::{spec::cdi_spec, store::encode, testing::*},
    *,
};
use crate::inventory::Inventory;

fn loaded(record: &ClaimRecord) -> LoadedRecord {
    let path = PathBuf::from(format!("/records/{}.json", record.claim.uid));
    LoadedRecord { uid: record.claim.uid.clone(), path, bytes: encode(record).unwrap(), record: Ok(record.clone()) }
}

fn holdings(record: &ClaimRecord) -> ClaimHoldings {
    ClaimHoldings { claim: record.claim.clone(), devices: record.devices.clone() }
}

fn found(uids: &[&str]) -> BTreeMap<ClaimUid, FoundCdi> {
    uids.iter().map(|text| (uid(text), FoundCdi { path: format!("/cdi/{text}.json").into(), holdings: None })).collect()
}

#[test]
fn every_combination_of_record_boot_and_cdi_file_has_its_action() {
    use RecordState::{Prepared, Preparing, Restoring};
    for (state, boot, has_cdi, expected) in [
        (Prepared, "now", true, "keep"),
        (Prepared, "now", false, "restore"),
        (Prepared, "before", true, "await prepare"),
        (Prepared, "before", false, "await prepare"),
        (Preparing, "now", true, "roll back"),
        (Preparing, "now", false, "roll back"),
        (Preparing, "before", true, "forget"),
        (Preparing, "before", false, "forget"),
        (Restoring, "now", true, "await prepare"),
        (Restoring, "now", false, "await prepare"),
        (Restoring, "before", true, "await prepare"),
        (Restoring, "before", false, "await prepare"),
    ] {
        let cdi = if has_cdi { found(&["a"]) } else { found(&[]) };
        let actions = plan(vec![loaded(&record("a", state, boot))], cdi, "now");
        assert_eq!(actions[&uid("a")].name(), expected, "{state:?} {boot} {has_cdi}");
    }
}

#[test]
fn a_record_that_is_not_understood_keeps_the_devices_that_it_still_names() {
    let held = record("a", RecordState::Prepared, "now");
    let damaged = LoadedRecord { record: Err("its checksum is wrong".to_owned()), ..loaded(&held) };
    let actions = plan(vec![damaged], found(&["a"]), "now");
    let RecoveryAction::Quarantine(quarantined) = &actions[&uid("a")] else { panic!("{actions:?}") };
    assert_eq!(quarantined.devices, held.devices);
    assert_eq!(quarantined.claim, Some(held.claim));
}

#[test]
fn a_record_that_gives_what_its_backend_never_does_is_quarantined_whatever_its_checksum() {
    let backends = BackendRegistry::new([BenchBackend::new() as std::sync::Arc<dyn hostler_backend::Backend>]);
    let changed = |change: fn(&mut ClaimRecord)| {
        let mut record = record("a", RecordState::Prepared, "now");
        change(&mut record);
        hold_to_backends(loaded(&record), &backends, "now").record
    };
    changed(|_| ()).unwrap();
    let memory = changed(|record| {
        let node = hostler_cdi::DeviceNode { path: "/dev/mem".to_owned(), ..Default::default() };
        record.devices[0].edits.device_nodes.push(node);
    });
    let memory = memory.unwrap_err();
    assert!(memory.contains("device one cannot be what is on record") && memory.contains("/dev/mem"), "{memory}");
    for change in [
        (|record| record.devices[0].grant.request = "../../etc/passwd".to_owned()) as fn(&mut ClaimRecord),
        |record| record.devices[0].grant.request = "r/..".to_owned(),
        |record| record.claim.name = "a/b".to_owned(),
        |record| record.claim.namespace = "..".to_owned(),
        |record| record.claim.name = "a\nb".to_owned(),
    ] {
        assert!(changed(change).unwrap_err().ends_with("is no name"));
    }
    changed(|record| record.devices[0].backend = BackendName::new("disabled").unwrap()).unwrap();
}

#[test]
fn what_an_earlier_boot_gave_is_given_to_nobody_and_held_to_nothing() {
    let backends = BackendRegistry::new([BenchBackend::new() as std::sync::Arc<dyn hostler_backend::Backend>]);
    use RecordState::{Prepared, Restoring};
    for (state, boot_id, is_held) in [(Prepared, "before", false), (Restoring, "now", false), (Prepared, "now", true)] {
        let mut record = record("a", state, boot_id);
        // As it was called then.
        let node = hostler_cdi::DeviceNode { path: "/dev/accel/accel0".to_owned(), ..Default::default() };
        record.devices[0].edits.device_nodes.push(node);
        let judged = hold_to_backends(loaded(&record), &backends, "now").record;
        assert_eq!(judged.is_err(), is_held, "{state:?} {boot_id}");
    }
}

#[test]
fn a_record_that_says_nothing_keeps_the_devices_that_its_cdi_file_names() {
    let held = record("a", RecordState::Prepared, "now");
    let cdi = [(uid("a"), FoundCdi { path: "/cdi/a.json".into(), holdings: Some(holdings(&held)) })].into();
    let gone = LoadedRecord { record: Err("it is not JSON".to_owned()), bytes: b"\0\0\0".to_vec(), ..loaded(&held) };
    let actions = plan(vec![gone], cdi, "now");
    let RecoveryAction::Quarantine(quarantined) = &actions[&uid("a")] else { panic!("{actions:?}") };
    assert_eq!(quarantined.devices, held.devices);
    assert_eq!(quarantined.path, PathBuf::from("/records/a.json"));
}

#[test]
fn a_cdi_file_without_a_record_is_quarantined_not_removed() {
    let actions = plan(Vec::new(), found(&["a"]), "now");
    let RecoveryAction::Quarantine(quarantined) = &actions[&uid("a")] else { panic!("{actions:?}") };
    assert_eq!(quarantined.path, PathBuf::from("/cdi/a.json"));
    assert!(quarantined.error().to_string().contains("hostler claim forget a"));
}

#[test]
fn what_a_claims_cdi_file_says_is_read_back() {
    let temp = tempfile::tempdir().unwrap();
    let naming = naming();
    let dir = SpecDir::new(temp.path());
    let held = record("a", RecordState::Prepared, "now");
    dir.write(&naming.stem(&uid("a")), &cdi_spec(&held, &naming)).unwrap();
    std::fs::write(temp.path().join("hostler.dev-claim_b.json"), "garbage").unwrap();
    std::fs::write(temp.path().join("other.json"), "{}").unwrap();
    let found = found_cdi(&dir, &naming, &[]).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&uid("a"), &uid("b")]);
    assert_eq!(found[&uid("a")].holdings.as_ref().unwrap().claim, held.claim);
    assert!(found[&uid("b")].holdings.is_none());
    let damaged = LoadedRecord { record: Err("its checksum is wrong".to_owned()), ..loaded(&held) };
    let found = found_cdi(&dir, &naming, &[damaged]).unwrap();
    assert_eq!(found[&uid("a")].holdings.as_ref().unwrap().claim, held.claim);
}

/// Thousands of them are compared with their records later, one after the other, while the first are ready already.
#[test]
fn the_cdi_file_of_a_claim_with_a_sound_record_is_not_opened_to_make_a_plan() {
    let temp = tempfile::tempdir().unwrap();
    let naming = naming();
    let dir = SpecDir::new(temp.path());
    let held = record("a", RecordState::Prepared, "now");
    dir.write(&naming.stem(&uid("a")), &cdi_spec(&held, &naming)).unwrap();
    let found = found_cdi(&dir, &naming, &[loaded(&held)]).unwrap();
    assert!(found[&uid("a")].holdings.is_none(), "it says something, which nobody has read");
    assert_eq!(plan(vec![loaded(&held)], found, "now")[&uid("a")].name(), "keep");
}

#[test]
fn two_records_of_one_exclusive_device_are_both_quarantined_with_both_names() {
    let named = |text: &str, grants: &[Grant]| loaded(&of_grants(text, grants));
    let admin = Grant { access: Access::Admin, ..grant("one") };
    let records = vec![
        named("a", &[grant("one"), grant("free")]),
        named("b", &[grant("two"), grant("one")]),
        named("c", &[grant("three")]),
        named("d", &[admin]),
        named("e", &[part("many", 1)]),
        named("f", &[part("many", 2)]),
    ];
    let loaded = refuse_contradictions(records, &Inventory::default());
    let actions = plan(loaded, found(&["a", "b", "c", "d", "e", "f"]), "now");
    let names: Vec<&str> = actions.values().map(RecoveryAction::name).collect();
    assert_eq!(names, ["quarantine", "quarantine", "keep", "keep", "keep", "keep"]);
    for (uid, other) in [("a", "default/name-b (b)"), ("b", "default/name-a (a)")] {
        let RecoveryAction::Quarantine(found) = &actions[&super::super::testing::uid(uid)] else {
            panic!("{actions:?}")
        };
        assert_eq!(
            found.reason,
            format!("it has device one of pool node/bench, and so has the record of claim {other}")
        );
        assert_eq!(found.devices.len(), 2, "they stay taken");
    }
}

/// A record of one device for each grant, without CPUs.
fn of_grants(text: &str, grants: &[Grant]) -> ClaimRecord {
    let mut record = record(text, RecordState::Prepared, "now");
    let device = RecordDevice { plan: DevicePlan::default(), ..record.devices[0].clone() };
    record.devices = grants.iter().map(|grant| RecordDevice { grant: grant.clone(), ..device.clone() }).collect();
    record
}

/// Why each of these records is refused, as far as one is.
fn refused(records: &[ClaimRecord], inventory: &Inventory) -> BTreeMap<String, String> {
    let judged = refuse_contradictions(records.iter().map(loaded).collect(), inventory);
    judged.into_iter().filter_map(|it| Some((it.uid.to_string(), it.record.err()?))).collect()
}

#[test]
fn two_records_of_the_same_cpus_are_both_quarantined_with_both_names() {
    let pinned = |text: &str, grant: Grant, cpus: &[u32], data: serde_json::Value| {
        let mut record = of_grants(text, &[grant]);
        record.devices[0].plan.pinning.cpus = cpus.iter().copied().collect();
        record.devices[0].plan.data = data;
        record
    };
    let nothing = serde_json::Value::Null;
    let admin = Grant { access: Access::Admin, ..part("many", 1) };
    let records = [
        pinned("a", part("many", 2), &[0, 1], nothing.clone()),
        pinned("b", part("many", 2), &[1, 2], nothing.clone()),
        pinned("c", part("many", 1), &[4], serde_json::json!({"idle": "5"})),
        // Of another device of the same CPUs.
        pinned("d", grant("other"), &[5], nothing.clone()),
        pinned("e", part("many", 1), &[6], nothing.clone()),
        pinned("f", admin, &[6], nothing),
    ];
    // Nothing is known of what there is, and nothing has to be.
    let refused = refused(&records, &Inventory::default());
    let expected = [
        ("a", "it has CPUs 1, and so has the record of claim default/name-b (b)"),
        ("b", "it has CPUs 1, and so has the record of claim default/name-a (a)"),
        ("c", "it has CPUs 5, and so has the record of claim default/name-d (d)"),
        ("d", "it has CPUs 5, and so has the record of claim default/name-c (c)"),
    ];
    assert_eq!(refused, expected.map(|(uid, reason)| (uid.to_owned(), reason.to_owned())).into());
}

#[test]
fn records_of_more_than_a_shared_device_had_are_all_quarantined_with_their_names() {
    let of = |text: &str, device: &str, units: u64, had: u64| {
        let mut record = of_grants(text, &[part(device, units)]);
        let name = hostler_api::QualifiedName::new("units").unwrap();
        record.devices[0].capacity = (had > 0).then(|| (name, hostler_api::Quantity::whole(had))).into_iter().collect();
        record
    };
    let records = [
        of("a", "many", 6, 10),
        of("b", "many", 5, 10),
        // Enough for all.
        of("c", "gone", 6, 8),
        of("d", "gone", 4, 10),
        // Nobody knows what there was.
        of("e", "old", 6, 0),
        of("f", "old", 600, 0),
    ];
    for inventory in [inventory(), Inventory::default()] {
        let refused = refused(&records, &inventory);
        assert_eq!(refused.keys().collect::<Vec<_>>(), ["a", "b"], "{refused:?}");
        assert_eq!(
            refused["a"],
            "with other records it gives more than there is: device many has 5 of units left, 6 wanted; held by b \
             (default/name-b): 5"
        );
        assert!(refused["b"].ends_with("held by a (default/name-a): 6"), "{}", refused["b"]);
    }
    // The device has ten by now: some of its memory went into huge pages.
    assert_eq!(refused(&[of("a", "many", 6, 12), of("b", "many", 6, 12)], &inventory()), BTreeMap::new());
}

#[test]
fn records_of_partitions_that_exclude_each_other_are_all_quarantined_with_their_names() {
    let name = |text: &str| DeviceName::new(text).unwrap();
    let slots = |slots: u64| BTreeMap::from([(name("slots"), hostler_api::Quantity::whole(slots))]);
    let takes = |amount: u64| vec![CounterUse { set: name("card"), counters: slots(amount) }];
    let mut there = inventory();
    let pool = std::sync::Arc::make_mut(there.pools.get_mut("bench").unwrap());
    pool.counter_sets.push(CounterSet { name: name("card"), counters: slots(4) });
    for (device, amount) in [("whole", 4), ("half", 2), ("quarter", 1)] {
        let mut device = Device::new(name(device));
        device.consumes = takes(amount);
        pool.devices.push(device);
    }
    let of = |text: &str, device: &str, taken: u64| {
        let mut record = of_grants(text, &[grant(device)]);
        record.devices[0].counters = takes(taken);
        record
    };
    let (whole, half, quarter) = (of("a", "whole", 4), of("b", "half", 2), of("c", "quarter", 1));
    let found = refused(&[whole.clone(), half.clone()], &there);
    assert_eq!(
        found["a"],
        "with other records it gives more than there is: device whole takes 4 of counter slots in set card, which has 2 \
         left; held by b (default/name-b): 2 with half"
    );
    assert!(found["b"].ends_with("held by a (default/name-a): 4 with whole"), "{}", found["b"]);
    for (records, why) in [
        ([half.clone(), quarter.clone()], "both fit"),
        ([of("a", "whole", 1), half.clone()], "it took less when it was given"),
        ([of("a", "gone", 4), half.clone()], "what is not there is not judged"),
    ] {
        assert_eq!(refused(&records, &there), BTreeMap::new(), "{why}");
    }
    assert_eq!(refused(&[whole, half], &Inventory::default()), BTreeMap::new(), "nobody knows what there is");
}

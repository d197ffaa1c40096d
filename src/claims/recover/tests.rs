//! The plan of a start, for every trace that a crash can leave.

use hostler_api::BackendName;
use hostler_cdi::SpecDir;

use super::{
    super::{spec::cdi_spec, store::encode, testing::*},
    *,
};

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
    let named = |text: &str, devices: &[Grant]| {
        let mut record = record(text, RecordState::Prepared, "now");
        let device = record.devices[0].clone();
        record.devices = devices.iter().map(|grant| RecordDevice { grant: grant.clone(), ..device.clone() }).collect();
        loaded(&record)
    };
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

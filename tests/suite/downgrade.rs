//! Records between releases: the earlier release reads all records of this one, and this one reads and takes back all
//! records of the earlier one.

mod release_0_1_0;

use std::{collections::BTreeSet, fs, path::PathBuf};

use hostler::claims::store::{ClaimRecord, DeviceMetadata, RecordState, decode, encode};
use hostler_api::{Access, DeviceName, Quantity, resource::ResourceClaimConsumerReference};
use hostler_backend::CounterUse;
use hostler_testing::{
    host::{Host, SCRIPT},
    node::TestNode,
};
use serde_json::{Value, json};

fn golden(folder: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/records-0.1.0").join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

/// Checks that the fields which an unprepare by 0.1.0 needs mean the same to it.
fn assert_can_be_taken_back(record: &ClaimRecord) {
    let old = release_0_1_0::decode(&encode(record).unwrap()).unwrap();
    assert_eq!(old.claim.uid, record.claim.uid.as_str());
    assert_eq!((old.claim.namespace, old.claim.name), (record.claim.namespace.clone(), record.claim.name.clone()));
    assert_eq!(old.state == release_0_1_0::State::Prepared, record.state == RecordState::Prepared);
    assert_eq!((old.boot_id, old.devices.len()), (record.boot_id.clone(), record.devices.len()));
    for (old, new) in old.devices.iter().zip(&record.devices) {
        assert_eq!((&*old.backend, &*old.grant.device), (new.backend.as_str(), new.grant.device.as_str()));
        assert_eq!((&old.grant.pool, &old.grant.request), (&new.grant.pool, &new.grant.request));
        assert_eq!(old.grant.share_id, new.grant.share_id.as_ref().map(|share| share.0.clone()));
        assert_eq!(old.grant.access == release_0_1_0::Access::Admin, new.grant.access == Access::Admin);
        let consumed = new.grant.consumed.iter().map(|(name, amount)| (name.to_string(), amount.to_string()));
        assert_eq!(old.grant.consumed, consumed.collect());
        assert_eq!((&old.plan.pinning.cpus, &old.plan.pinning.mems), (&new.plan.pinning.cpus, &new.plan.pinning.mems));
        assert_eq!((&old.plan.data, &old.edits.env), (&new.plan.data, &new.edits.env));
    }
}

/// A record with everything in it that a record can have.
fn everything() -> ClaimRecord {
    let mut record = decode(&fs::read(&golden("claims")[1]).unwrap()).unwrap();
    record.since = Some(1_800_000_000);
    record.reserved_for = vec![ResourceClaimConsumerReference {
        resource: "pods".into(),
        name: "train-0".into(),
        uid: "5f0c".into(),
        ..Default::default()
    }];
    record.metadata = Some(DeviceMetadata {
        generation: 3,
        pod_claim_name: Some("gpu".to_owned()),
        attributes: vec![[("model".to_owned(), json!({"string": "x1"}))].into(); record.devices.len()],
    });
    for device in &mut record.devices {
        let slices = [(DeviceName::new("slices").unwrap(), Quantity::whole(3))].into();
        device.counters = vec![CounterUse { set: DeviceName::new("card").unwrap(), counters: slices }];
        device.grant.access = Access::Admin;
        device.grant.config = vec![json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CpuConfig", "smt": false})];
        device.plan.pinning.cpus = BTreeSet::from([0, 1, 9]);
        device.plan.pinning.mems = BTreeSet::from([1]);
        device.plan.data = json!({"node": 1, "rate": 0.1});
        device.edits = serde_json::from_value(json!({
            "env": ["A=b"],
            "deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/y", "type": "c", "major": 1, "minor": 2, "permissions": "rw"}],
            "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro", "bind"]}],
            "additionalGids": [7],
        }))
        .unwrap();
    }
    record
}

#[test]
fn release_0_1_0_reads_what_it_wrote_itself() {
    for path in golden("claims") {
        release_0_1_0::decode(&fs::read(path).unwrap()).unwrap();
    }
}

#[test]
fn release_0_1_0_can_take_back_whatever_this_one_records() {
    let record = everything();
    assert_can_be_taken_back(&record);
    assert_can_be_taken_back(&ClaimRecord { state: RecordState::Preparing, ..record.clone() });
}

#[test]
fn release_0_1_0_can_take_back_what_this_daemon_has_prepared() {
    let mut node = TestNode::started();
    node.allocate("a", &["card-1", "pool:3", "card-2"]);
    node.prepare("a");
    let record = fs::read(node.path(&node.record_path("a"))).unwrap();
    let text = String::from_utf8(record.clone()).unwrap();
    assert!(text.contains("\"journal_entry\": "), "it says which entry it is as new as: {text}");
    release_0_1_0::decode(&record).unwrap();
    assert_can_be_taken_back(&decode(&record).unwrap());
}

#[test]
fn claims_of_release_0_1_0_are_kept_prepared_again_and_taken_back() {
    let mut node = TestNode::new(Host::bare(SCRIPT));
    fs::create_dir_all(node.path("state/claims")).unwrap();
    fs::create_dir_all(node.path("cdi")).unwrap();
    for (folder, to) in [("claims", "state/claims"), ("cdi", "cdi")] {
        for path in golden(folder) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.contains("-5f0c") {
                fs::copy(&path, node.path(to).join(name)).unwrap();
            }
        }
    }
    let before = cdi(&node, "mixed");
    // The hardware of these claims was another machine's: devices are made ready again if files are missing.
    fs::remove_file(node.path(&node.cdi_path("mixed"))).unwrap();
    node.begin();
    assert_eq!(node.state("mixed").as_deref(), Some("prepared"));
    let devices = node.prepare("mixed");
    let ids: Vec<&str> = devices.iter().map(|device| device.cdi_device_ids[0].as_str()).collect();
    assert_eq!(ids, ["hostler.dev/claim=mixed-5f0c-0-card-3", "hostler.dev/claim=mixed-5f0c-1-pool"]);
    let after = cdi(&node, "mixed");
    assert_eq!(after["devices"], before["devices"], "containers get what they got");
    assert_eq!(after["annotations"], before["annotations"]);
    assert_eq!(after["containerEdits"]["hooks"][0]["args"][2], "record");
    for name in ["cards", "mixed"] {
        node.unprepare(name);
        assert!(node.traces(name).is_gone(), "{name}");
    }
}

fn cdi(node: &TestNode, name: &str) -> Value {
    serde_json::from_slice(&fs::read(node.path(&node.cdi_path(name))).unwrap()).unwrap()
}

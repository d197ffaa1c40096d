//! Files of device metadata: their content to the byte, their place, and what happens to them.

use std::{os::unix::fs::MetadataExt, sync::Arc};

use hostler_api::QualifiedName;
use serde_json::Value;

use super::{
    super::{spec::cdi_spec, store::RecordState, testing::*},
    *,
};

/// A record of devices `one` and `two` in request `a`, and `many` in request `b/big`.
fn described(pod_claim_name: Option<&str>) -> ClaimRecord {
    let mut record = record("u1", RecordState::Prepared, "boot");
    let device = |request: &str, name: &str| RecordDevice {
        local: None,
        grant: hostler_api::Grant { request: request.to_owned(), ..grant(name) },
        ..record.devices[0].clone()
    };
    record.devices = vec![device("a", "one"), device("a", "two"), device("b/big", "many")];
    record.metadata =
        Some(describe(pod_claim_name.map(str::to_owned), &record.devices, &with_attribute("model", &"x1".into())));
    record
}

fn with_attribute(name: &str, value: &AttributeValue) -> Inventory {
    let mut inventory = inventory();
    for pool in inventory.pools.values_mut() {
        Arc::make_mut(pool).devices[0].attributes.insert(QualifiedName::new(name).unwrap(), value.clone());
    }
    inventory
}

fn place() -> (tempfile::TempDir, CdiNaming) {
    let temp = tempfile::tempdir().unwrap();
    let metadata = temp.path().join("plugins/hostler.dev/dra-device-metadata");
    (temp, CdiNaming { metadata, ..naming() })
}

fn file(naming: &CdiNaming, request: &str) -> PathBuf {
    naming.metadata.join(format!("u1_{request}.json"))
}

#[test]
fn a_file_is_a_stream_of_the_same_object_in_both_versions_the_newest_first() {
    let record = described(Some("gpu"));
    let bytes = content(&record, record.metadata.as_ref().unwrap(), "a", "hostler.dev");
    let objects: Vec<Value> =
        serde_json::Deserializer::from_slice(&bytes).into_iter().collect::<Result<_, _>>().unwrap();
    let expected = |version: &str| {
        json!({
            "kind": "DeviceMetadata", "apiVersion": version,
            "metadata": {"name": "name-u1", "namespace": "default", "uid": "u1", "generation": 1},
            "podClaimName": "gpu",
            "requests": [{"name": "a", "devices": [
                {"driver": "hostler.dev", "pool": POOL, "name": "one", "attributes": {"model": {"string": "x1"}}},
                {"driver": "hostler.dev", "pool": POOL, "name": "two", "attributes": {}},
            ]}],
        })
    };
    assert_eq!(objects, VERSIONS.map(expected));
    let other = String::from_utf8(content(&record, record.metadata.as_ref().unwrap(), "b", "hostler.dev")).unwrap();
    assert!(other.contains(r#""name":"b/big""#), "the whole name of the subrequest: {other}");
}

#[test]
fn every_kind_of_attribute_has_its_type() {
    let values: [(AttributeValue, Value); 6] = [
        (7.into(), json!({"int": 7})),
        (true.into(), json!({"bool": true})),
        ("x".into(), json!({"string": "x"})),
        (AttributeValue::Version("1.2.0".into()), json!({"version": "1.2.0"})),
        (AttributeValue::Ints(vec![0, 1]), json!({"ints": [0, 1]})),
        (AttributeValue::Strings(vec!["a".to_owned()]), json!({"strings": ["a"]})),
    ];
    for (value, expected) in values {
        let device = &with_attribute("some", &value).pools["bench"].devices[0];
        assert_eq!(attributes(device)["some"], expected);
    }
}

#[test]
fn the_first_device_of_each_request_mounts_its_file_for_reading() {
    let (_temp, naming) = place();
    let mounts = |pod_claim_name| {
        let spec = cdi_spec(&described(pod_claim_name), &naming);
        spec.validate().unwrap();
        spec.devices.into_iter().map(|device| device.container_edits.mounts).collect::<Vec<_>>()
    };
    let plain = mounts(None);
    assert_eq!(plain.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1]);
    assert_eq!(Path::new(&plain[2][0].host_path), file(&naming, "b"));
    assert_eq!(plain[0][0].options, ["ro", "bind"]);
    let folder = "/var/run/kubernetes.io/dra-device-attributes";
    assert_eq!(plain[0][0].container_path, format!("{folder}/resourceclaims/name-u1/a/hostler.dev-metadata.json"));
    let template = mounts(Some("gpu"));
    assert_eq!(
        template[0][0].container_path,
        format!("{folder}/resourceclaimtemplates/gpu/a/hostler.dev-metadata.json")
    );
    let without = ClaimRecord { metadata: None, ..described(None) };
    assert!(cdi_spec(&without, &naming).devices.iter().all(|device| device.container_edits.mounts.is_empty()));
}

#[test]
fn a_file_changes_in_place_and_only_when_its_content_does() {
    let (_temp, naming) = place();
    let mut record = described(None);
    write(&record, &naming).unwrap();
    let path = file(&naming, "a");
    let (before, inode) = (fs::read(&path).unwrap(), path.metadata().unwrap().ino());
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o644);
    assert_eq!(naming.metadata.metadata().unwrap().mode() & 0o777, 0o755);
    let long_ago = SystemTime::now() - Duration::from_secs(600);
    fs::File::open(&path).unwrap().set_modified(long_ago).unwrap();
    write(&record, &naming).unwrap();
    assert_eq!(sweep(&naming, Duration::from_secs(60), |_| false).unwrap(), 0, "a claim under way has it");
    assert_eq!((fs::read(&path).unwrap(), path.metadata().unwrap().ino()), (before.clone(), inode));
    record.metadata = described_anew(&record, &with_attribute("model", &"y".into()));
    write(&record, &naming).unwrap();
    let after = fs::read(&path).unwrap();
    assert!(after.len() < before.len() && path.metadata().unwrap().ino() == inode);
    assert_eq!(after, content(&record, record.metadata.as_ref().unwrap(), "a", "hostler.dev"));
    fs::remove_dir_all(&naming.metadata).unwrap();
    write(&record, &naming).unwrap();
    assert_eq!(fs::read(&path).unwrap(), after, "made anew from the record");
}

#[test]
fn a_generation_is_as_old_as_the_attributes_of_devices_that_are_there() {
    let record = described(None);
    assert_eq!(described_anew(&record, &with_attribute("model", &"x1".into())), None);
    assert_eq!(described_anew(&record, &Inventory::default()), None, "a device that has gone keeps its attributes");
    let next = described_anew(&record, &with_attribute("model", &"x2".into())).unwrap();
    assert_eq!((next.generation, &next.attributes[0]["model"]), (2, &json!({"string": "x2"})));
    assert_eq!(described_anew(&ClaimRecord { metadata: None, ..record }, &inventory()), None);
}

#[test]
fn claims_of_one_name_do_not_touch_each_others_files() {
    let (_temp, naming) = place();
    let old = described(None);
    write(&old, &naming).unwrap();
    let before = fs::read(file(&naming, "a")).unwrap();
    let mut new = described(None);
    new.claim.uid = uid("u2");
    write(&new, &naming).unwrap();
    assert_eq!(fs::read(file(&naming, "a")).unwrap(), before);
    remove(&old, &naming).unwrap();
    let left = || fs::read_dir(&naming.metadata).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert!(left().iter().all(|name| name.to_str().unwrap().starts_with("u2_")) && left().len() == 2, "{:?}", left());
    remove(&new, &naming).unwrap();
    assert!(left().is_empty());
    remove(&new, &naming).unwrap();
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let (temp, naming) = place();
    for name in ["..", "../x", "a/b", "", ".a", "A", "a b"] {
        let mut record = described(None);
        record.claim.name = name.to_owned();
        assert!(matches!(write(&record, &naming), Err(MetadataError::Name(_))), "{name}");
        let mut record = described(Some(name));
        assert!(matches!(write(&record, &naming), Err(MetadataError::Name(_))), "{name}");
        record = described(None);
        record.devices[0].grant.request = format!("{name}//");
        if name != "a/b" {
            assert!(matches!(write(&record, &naming), Err(MetadataError::Name(_))), "{name}");
        }
    }
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn files_of_claims_that_are_not_on_record_are_swept_and_nobody_elses() {
    let (_temp, naming) = place();
    assert_eq!(sweep(&naming, Duration::ZERO, |_| false).unwrap(), 0, "the folder is not there");
    write(&described(None), &naming).unwrap();
    let kept = || ["a", "b"].iter().filter(|request| file(&naming, request).exists()).count();
    for foreign in ["README", "u1.json", "_a.json", "u1_a.txt", ".._a.json"] {
        fs::write(naming.metadata.join(foreign), "").unwrap();
    }
    assert_eq!((sweep(&naming, Duration::ZERO, |uid| uid.as_str() == "u1").unwrap(), kept()), (0, 2), "on record");
    assert_eq!((sweep(&naming, Duration::from_secs(60), |_| false).unwrap(), kept()), (0, 2), "just written");
    assert_eq!((sweep(&naming, Duration::ZERO, |_| false).unwrap(), kept()), (2, 0));
    assert_eq!(fs::read_dir(&naming.metadata).unwrap().count(), 5);
}

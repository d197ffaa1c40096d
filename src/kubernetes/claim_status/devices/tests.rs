//! What is told about devices, and what is left as it is.

use hostler_api::{BackendName, ClaimRef, ClaimUid, DeviceName, Grant, Quantity, ShareId};
use hostler_backend::{ContainerEdits, Device, DevicePlan, Pinning};

use super::*;
use crate::inventory::Pool;

const DRIVER: &str = "hostler.dev";

fn held(device: &str, share: Option<&str>) -> RecordDevice {
    let grant = Grant {
        request: "r".to_owned(),
        pool: "n/fake".to_owned(),
        device: DeviceName::new(device).unwrap(),
        share_id: share.map(|share| ShareId(share.to_owned())),
        access: hostler_api::Access::Use,
        consumed: [(hostler_api::QualifiedName::new("cpus").unwrap(), Quantity::whole(4))].into(),
        config: Vec::new(),
    };
    let plan = DevicePlan {
        pinning: Pinning { cpus: [0, 1, 2, 8].into(), mems: [1].into(), ..Pinning::default() },
        ..DevicePlan::default()
    };
    RecordDevice {
        local: None,
        backend: BackendName::new("fake").unwrap(),
        grant,
        plan,
        counters: Vec::new(),
        capacity: Default::default(),
        edits: ContainerEdits::default(),
        unmet: Vec::new(),
    }
}

fn record(devices: Vec<RecordDevice>) -> ClaimRecord {
    let claim = ClaimRef { namespace: "ml".to_owned(), name: "a".to_owned(), uid: ClaimUid::new("u1").unwrap() };
    let (state, boot_id) = (RecordState::Prepared, "b".to_owned());
    ClaimRecord { claim, state, boot_id, devices, metadata: None, since: None, reserved_for: Vec::new() }
}

fn inventory(health: Health) -> Inventory {
    let mut device = Device::new(DeviceName::new("a").unwrap());
    device.health = health;
    let pool = Pool { name: "n/fake".to_owned(), devices: vec![device], ..Pool::default() };
    Inventory { pools: [(BackendName::new("fake").unwrap(), pool.into())].into(), ..Inventory::default() }
}

fn at(seconds: i64) -> ConditionTime {
    ConditionTime { seconds }
}

fn wanted(health: Health, second: i64) -> Vec<DeviceStatus> {
    claim_devices(&record(vec![held("a", None)]), ClaimTrouble::default(), &inventory(health), DRIVER, at(second))
}

fn condition(device: &DeviceStatus) -> &DeviceCondition {
    &device.conditions[0]
}

fn hot() -> Health {
    Health::Unhealthy { reason: "hot".to_owned() }
}

#[test]
fn a_device_is_told_with_its_condition_and_what_it_is_bound_to() {
    let devices = wanted(Health::Healthy, 7);
    let condition = DeviceCondition {
        kind: "Ready".to_owned(),
        status: "True".to_owned(),
        observed_generation: 0,
        last_transition_time: Some(at(7)),
        reason: "Prepared".to_owned(),
        message: "device a is prepared".to_owned(),
    };
    let data = json!({"cpus": "0-2,8", "mems": "1", "consumed": {"cpus": "4"}});
    let expected = DeviceStatus {
        driver: "hostler.dev".to_owned(),
        pool: "n/fake".to_owned(),
        device: "a".to_owned(),
        conditions: vec![condition],
        data: Some(DeviceData::from(&data)),
        share_id: None,
    };
    assert_eq!(devices, [expected]);
}

#[test]
fn a_device_that_is_not_well_says_why() {
    let unknown = Health::Unknown { reason: "no answer".to_owned() };
    for (health, expected) in
        [(hot(), ("False", "Unhealthy", "hot")), (unknown, ("Unknown", "HealthUnknown", "no answer"))]
    {
        let devices = wanted(health, 0);
        let DeviceCondition { status, reason, message, .. } = condition(&devices[0]);
        assert_eq!((status.as_str(), reason.as_str(), message.as_str()), expected);
    }
    let record = record(vec![held("b", None)]);
    let gone = claim_devices(&record, ClaimTrouble::default(), &inventory(hot()), DRIVER, at(0));
    assert_eq!(condition(&gone[0]).reason, "Gone");
    let rebooted = claim_devices(
        &record,
        ClaimTrouble { problem: Some("rebooted"), degraded: None },
        &inventory(hot()),
        DRIVER,
        at(0),
    );
    assert_eq!(condition(&rebooted[0]).reason, "NotPrepared");
}

#[test]
fn nothing_is_told_of_a_claim_that_was_never_ready() {
    let preparing = ClaimRecord { state: RecordState::Preparing, ..record(vec![held("a", None)]) };
    assert!(claim_devices(&preparing, ClaimTrouble::default(), &inventory(hot()), DRIVER, at(0)).is_empty());
}

#[test]
fn shares_of_a_device_are_told_apart_and_one_device_is_told_once() {
    let record = record(vec![held("a", Some("s1")), held("a", Some("s2")), held("a", Some("s1"))]);
    let devices = claim_devices(&record, ClaimTrouble::default(), &inventory(hot()), DRIVER, at(0));
    let shares: Vec<_> = devices.iter().map(|device| device.share_id.as_deref().unwrap()).collect();
    assert_eq!(shares, ["s1", "s2"]);
}

#[test]
fn what_came_back_from_the_server_is_what_was_wanted_however_much_later() {
    let known = StoredDevices::new(wanted(Health::Healthy, 1), None, DRIVER);
    let mut later = wanted(Health::Healthy, 500);
    known.fit(&mut later);
    assert_eq!(known.ours, later, "a write in a steady state");
    let mut sick = wanted(hot(), 500);
    known.fit(&mut sick);
    assert_eq!(condition(&sick[0]).last_transition_time, Some(at(500)));
}

#[test]
fn conditions_and_data_of_others_are_not_ours() {
    let mut devices = wanted(Health::Healthy, 1);
    let other = DeviceCondition { kind: "Attached".to_owned(), ..condition(&devices[0]).clone() };
    devices[0].conditions.insert(0, other);
    devices.push(DeviceStatus { driver: "other.dev".to_owned(), ..devices[0].clone() });
    assert_eq!(StoredDevices::new(devices, None, DRIVER).ours, wanted(Health::Healthy, 1));
}

#[test]
fn where_others_left_no_room_there_is_no_condition_of_ours() {
    let mut devices = wanted(Health::Healthy, 1);
    let other = condition(&devices[0]).clone();
    let others = (0..8).map(|index| DeviceCondition { kind: format!("C{index}"), ..other.clone() }).collect();
    devices[0].conditions = others;
    let mut fitted = wanted(Health::Healthy, 1);
    StoredDevices::new(devices, Some(3), DRIVER).fit(&mut fitted);
    assert!(fitted[0].conditions.is_empty());
}

#[test]
fn the_generation_that_the_server_has_is_the_one_that_was_observed() {
    let mut devices = wanted(Health::Healthy, 1);
    StoredDevices::new(Vec::new(), Some(3), DRIVER).fit(&mut devices);
    assert_eq!(condition(&devices[0]).observed_generation, 3);
}

#[test]
fn data_that_the_server_would_refuse_is_left_out() {
    let mut device = held("a", None);
    device.plan.pinning.cpus = (0..10_000).map(|cpu| cpu * 2).collect();
    let devices = claim_devices(&record(vec![device]), ClaimTrouble::default(), &inventory(hot()), DRIVER, at(0));
    assert_eq!(devices[0].data, None);
}

#[test]
fn a_device_of_a_backend_that_does_not_answer_is_neither_gone_nor_broken() {
    use crate::inventory::UnknownPool;

    let unknown = UnknownPool { name: "n/fake".to_owned(), reason: "it hangs".to_owned() };
    let unknown = [(BackendName::new("fake").unwrap(), unknown)].into();
    let inventory = Inventory { unknown, ..Inventory::default() };
    for problem in [None, Some("it is being recovered")] {
        let told = claim_devices(
            &record(vec![held("a", None)]),
            ClaimTrouble { problem, degraded: None },
            &inventory,
            DRIVER,
            at(1),
        );
        let condition = condition(&told[0]);
        assert_eq!((&*condition.status, &*condition.reason), ("Unknown", "HealthUnknown"));
        assert_eq!(condition.message, "nothing is known of device a: it hangs");
    }
}

#[test]
fn a_container_that_is_bound_to_something_else_makes_what_binds_it_not_ready() {
    let mut unbound = held("a", None);
    unbound.plan.pinning = Pinning::default();
    let trouble = ClaimTrouble { problem: None, degraded: Some("container c1: it was changed") };
    let healthy = inventory(Health::Healthy);
    let ready = |device: RecordDevice| {
        let devices = claim_devices(&record(vec![device]), trouble, &healthy, DRIVER, at(0));
        devices[0].conditions[0].clone()
    };
    let told = ready(held("a", None));
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "Degraded"));
    assert_eq!(told.message, "container c1: it was changed");
    assert_eq!(ready(unbound).status, "True", "a device that binds nothing");
}

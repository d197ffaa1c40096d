//! What may be had: devices that exist, are free, and have enough left.

use std::sync::Arc;

use hostler_api::{Quantity, ShareId};
use hostler_backend::{Backend, CardSerials};

use super::{
    super::{
        store::{ClaimRecord, RecordState},
        testing::*,
    },
    *,
};

fn backends() -> BackendRegistry {
    BackendRegistry::new([BenchBackend::new() as Arc<dyn Backend>])
}

fn holder(grants: &[Grant]) -> ClaimRecord {
    let mut record = record("holder", RecordState::Prepared, "boot");
    let device = record.devices[0].clone();
    record.devices = grants.iter().map(|grant| RecordDevice { grant: grant.clone(), ..device.clone() }).collect();
    record
}

fn admit_against(grants: &[Grant], held: &ClaimRecord) -> Result<Vec<RecordDevice>, String> {
    let name = held.claim.full_name();
    let holdings: Vec<HeldGrant<'_>> =
        held.devices.iter().map(|device| HeldGrant { uid: &held.claim.uid, name: &name, device }).collect();
    admit(&claim("new"), &allocation(grants), &inventory(), &backends(), &holdings).map_err(|error| error.to_string())
}

#[test]
fn an_exclusive_device_is_refused_with_the_name_of_its_holder() {
    let error = admit_against(&[grant("one")], &holder(&[grant("one")])).unwrap_err();
    assert_eq!(error, "device one is already prepared for claim holder (default/name-holder)");
    assert!(admit_against(&[grant("two")], &holder(&[grant("one")])).is_ok());
}

#[test]
fn one_claim_cannot_take_an_exclusive_device_twice() {
    let error = admit_against(&[grant("one"), grant("one")], &holder(&[])).unwrap_err();
    assert!(error.contains("already prepared for claim new"), "{error}");
}

#[test]
fn shares_fit_until_the_capacity_is_used_up() {
    let held = holder(&[part("many", 6)]);
    assert!(admit_against(&[part("many", 4)], &held).is_ok());
    let error = admit_against(&[part("many", 5)], &held).unwrap_err();
    assert_eq!(error, "device many has 4 of units left, 5 wanted; held by holder (default/name-holder): 6");
    let error = admit_against(&[part("many", 3), part("many", 2)], &held).unwrap_err();
    assert!(error.contains("has 1 of units left, 2 wanted"), "shares of one claim add up: {error}");
}

#[test]
fn a_refusal_names_a_few_holders_and_counts_the_rest() {
    let held = holder(&vec![part("many", 1); 5001]);
    let error = admit_against(&[part("many", 5)], &held).unwrap_err();
    let one = "holder (default/name-holder): 1";
    assert!(error.ends_with(&format!("held by {one}, {one}, {one} and 4,998 more")), "{} bytes", error.len());
}

#[test]
fn nothing_is_no_part_of_a_device() {
    let error = admit_against(&[part("many", 0)], &holder(&[])).unwrap_err();
    assert_eq!(
        error,
        "the allocation takes 0 of units of device many; write more than 0, or leave it out for all of it"
    );
    let admin = Grant { access: Access::Admin, ..part("many", 0) };
    assert!(admit_against(&[admin], &holder(&[])).is_ok(), "who looks after a device takes nothing");
}

#[test]
fn a_grant_without_amounts_takes_the_whole_device() {
    assert!(admit_against(&[grant("many")], &holder(&[])).is_ok());
    assert!(admit_against(&[grant("many")], &holder(&[part("many", 1)])).is_err());
    assert!(admit_against(&[part("many", 1)], &holder(&[grant("many")])).is_err());
}

#[test]
fn a_capacity_that_the_device_does_not_have_is_refused() {
    let mut wrong = part("many", 1);
    wrong.consumed = [(hostler_api::QualifiedName::new("unit").unwrap(), Quantity::whole(1))].into();
    let error = admit_against(&[wrong], &holder(&[])).unwrap_err();
    assert_eq!(error, "device many has no capacity unit: it has units");
}

#[test]
fn administrative_access_neither_takes_nor_waits() {
    let admin = Grant { access: Access::Admin, ..grant("one") };
    assert!(admit_against(std::slice::from_ref(&admin), &holder(&[grant("one")])).is_ok());
    assert!(admit_against(&[grant("one")], &holder(&[admin])).is_ok());
}

#[test]
fn a_device_that_is_not_there_is_named_with_its_pool() {
    for (pool, device) in [(POOL, "three"), ("other/bench", "one")] {
        let grant = Grant { pool: pool.to_owned(), ..grant(device) };
        let error = admit_against(&[grant], &holder(&[])).unwrap_err();
        assert!(error.starts_with(&format!("device {device} is not in pool {pool} of this host")), "{error}");
    }
}

#[test]
fn a_backend_sees_what_is_held_of_it_its_own_earlier_grants_included() {
    let share = |id: &str| Grant { share_id: Some(ShareId(id.to_owned())), ..part("many", 1) };
    let admitted = admit_against(&[share("s1"), share("s2")], &holder(&[part("many", 6)])).unwrap();
    assert_eq!(admitted[0].plan.data, serde_json::json!(1));
    assert_eq!(admitted[1].plan.data, serde_json::json!(2));
}

/// As the inventory of all tests, where device `one` is a card with this serial number.
fn with_card(serials: &[(&str, u64)]) -> Inventory {
    let mut inventory = inventory();
    for pool in inventory.pools.values_mut() {
        for device in &mut Arc::make_mut(pool).devices {
            let serial = serials.iter().find(|(name, _)| device.name.as_str() == *name);
            device.cards = serial.map_or(CardSerials::Unknown, |(_, serial)| CardSerials::Whole(*serial));
        }
    }
    inventory
}

/// A grant of the device behind a switch with serial number 0x1001.
fn attached() -> Grant {
    Grant { pool: "fabric/row1/cxl".to_owned(), ..grant("0000000000001001-0001") }
}

fn admit_card(grants: &[Grant], held: &[RecordDevice], inventory: &Inventory) -> Result<Vec<RecordDevice>, String> {
    let uid = claim("holder").uid;
    let holdings: Vec<HeldGrant<'_>> =
        held.iter().map(|device| HeldGrant { uid: &uid, name: "default/holder", device }).collect();
    admit(&claim("new"), &allocation(grants), inventory, &backends(), &holdings).map_err(|error| error.to_string())
}

#[test]
fn a_device_behind_a_switch_is_the_card_with_its_serial_number() {
    let inventory = with_card(&[("one", 0x1001), ("two", 0x1002)]);
    let given = admit_card(&[attached()], &[], &inventory).unwrap().remove(0);
    assert_eq!((given.grant.pool.as_str(), given.grant.device.as_str()), ("fabric/row1/cxl", "0000000000001001-0001"));
    assert_eq!((given.local_name().as_str(), given.local.is_some()), ("one", true));
    let plain = admit_card(&[grant("one")], &[], &inventory).unwrap().remove(0);
    assert_eq!((plain.local_name().as_str(), plain.local.is_some()), ("one", false));
}

#[test]
fn a_card_is_given_once_by_whichever_of_its_names() {
    let inventory = with_card(&[("one", 0x1001)]);
    let (behind, plain) = (attached(), grant("one"));
    for (first, second) in [(&behind, &plain), (&plain, &behind), (&behind, &behind)] {
        let held = admit_card(std::slice::from_ref(first), &[], &inventory).unwrap();
        let error = admit_card(std::slice::from_ref(second), &held, &inventory).unwrap_err();
        assert!(error.ends_with("is already prepared for claim holder (default/holder)"), "{error}");
        let error = admit_card(&[(*first).clone(), (*second).clone()], &[], &inventory).unwrap_err();
        assert!(error.contains("already prepared for claim new"), "{error}");
    }
    assert!(admit_card(&[grant("two")], &admit_card(&[behind], &[], &inventory).unwrap(), &inventory).is_ok());
}

#[test]
fn a_device_behind_a_switch_that_is_not_here_is_looked_for_at_its_manager() {
    let error = admit_card(&[attached()], &[], &inventory()).unwrap_err();
    let said = "device 0000000000001001-0001 is not on this host: fabric manager row1 attaches it; `kubectl get \
                fabricattachment 0000000000001001-0001 -o yaml` says to which node, and what is in the way";
    assert_eq!(error, said);
    let error = admit_card(&[attached()], &[], &with_card(&[("one", 0x1001), ("two", 0x1001)])).unwrap_err();
    assert!(error.contains("cards bench/one, bench/two have the same serial number"), "{error}");
}

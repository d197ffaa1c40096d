//! Counters are never given out twice, whatever is taken and given back in whichever order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::ClaimUid;
use hostler_backend::Backend;
use proptest::prelude::*;

use super::*;
use crate::{
    claims::{admit::admit, store::RecordDevice, testing::*},
    inventory::Inventory,
    registry::BackendRegistry,
};

fn name(text: &str) -> DeviceName {
    DeviceName::new(text).unwrap()
}

fn amounts(slots: u64, memory: u64) -> BTreeMap<DeviceName, Quantity> {
    [(name("slots"), Quantity::whole(slots)), (name("memory"), Quantity::whole(memory))].into()
}

/// Two cards of four slots, each whole, as two halves or as four quarters; a part that several claims may hold at once.
fn cards() -> Inventory {
    let mut inventory = inventory();
    let pool = Arc::make_mut(inventory.pools.get_mut("bench").unwrap());
    for card in ["a", "b"] {
        pool.counter_sets.push(CounterSet { name: name(card), counters: amounts(4, 40) });
        let parts = [("whole", 1, 4), ("half", 2, 2), ("quarter", 4, 1)];
        for (part, count, slots) in parts {
            for index in 0..count {
                let mut device = Device::new(name(&format!("{card}-{part}-{index}")));
                device.consumes = vec![CounterUse { set: name(card), counters: amounts(slots, slots * 10) }];
                pool.devices.push(device);
            }
        }
    }
    let taken = vec![CounterUse { set: name("a"), counters: amounts(1, 10) }];
    pool.devices.iter_mut().find(|device| device.name.as_str() == "many").unwrap().consumes = taken;
    inventory
}

type Held = BTreeMap<ClaimUid, Vec<RecordDevice>>;

fn ask(inventory: &Inventory, held: &Held, claim_name: &str, grants: &[Grant]) -> Result<Vec<RecordDevice>, String> {
    let holdings: Vec<HeldGrant<'_>> = held
        .iter()
        .flat_map(|(uid, devices)| devices.iter().map(move |device| HeldGrant { uid, name: "default/other", device }))
        .collect();
    let backends = BackendRegistry::new([BenchBackend::new() as std::sync::Arc<dyn Backend>]);
    admit(&claim(claim_name), &allocation(grants), inventory, &backends, &holdings).map_err(|error| error.to_string())
}

fn held(inventory: &Inventory, devices: &[&str]) -> Held {
    let mut held = Held::new();
    for device in devices {
        let taken = ask(inventory, &held, device, &[grant(device)]).unwrap();
        held.insert(uid(device), taken);
    }
    held
}

#[test]
fn partitions_of_one_card_exclude_each_other() {
    let cards = cards();
    let some = held(&cards, &["a-half-0", "a-quarter-0"]);
    assert!(ask(&cards, &some, "new", &[grant("a-quarter-3")]).is_ok());
    assert!(ask(&cards, &some, "new", &[grant("b-whole-0")]).is_ok());
    let error = ask(&cards, &some, "new", &[grant("a-half-1")]).unwrap_err();
    assert_eq!(
        error,
        "device a-half-1 takes 20 of counter memory in set a, which has 10 left; held by a-half-0 (default/other): 20 \
         with a-half-0, a-quarter-0 (default/other): 10 with a-quarter-0"
    );
}

#[test]
fn devices_of_one_claim_count_together() {
    let cards = cards();
    assert!(ask(&cards, &Held::new(), "new", &[grant("a-half-0"), grant("a-half-1")]).is_ok());
    let error = ask(&cards, &Held::new(), "new", &[grant("a-half-0"), grant("a-whole-0")]).unwrap_err();
    assert!(error.contains("held by new"), "{error}");
}

#[test]
fn administrative_access_takes_no_counter() {
    let cards = cards();
    let admin = Grant { access: Access::Admin, ..grant("a-half-0") };
    let whole = held(&cards, &["a-whole-0"]);
    let taken = ask(&cards, &whole, "new", std::slice::from_ref(&admin)).unwrap();
    assert!(taken[0].counters.is_empty());
    let looked_after: Held = [(uid("admin"), taken)].into();
    assert!(ask(&cards, &looked_after, "new", &[grant("a-whole-0")]).is_ok());
}

#[test]
fn a_shared_device_takes_its_counters_once() {
    let cards = cards();
    let mut some = held(&cards, &["a-half-0", "a-quarter-0"]);
    for claim in ["one", "two", "three"] {
        let taken = ask(&cards, &some, claim, &[part("many", 1)]).unwrap();
        some.insert(uid(claim), taken);
    }
    assert!(ask(&cards, &some, "new", &[grant("a-quarter-1")]).is_err());
}

#[test]
fn a_device_that_is_gone_still_takes_what_was_recorded() {
    let mut cards = cards();
    let some = held(&cards, &["a-half-0"]);
    Arc::make_mut(cards.pools.get_mut("bench").unwrap()).devices.retain(|device| device.name.as_str() != "a-half-0");
    assert!(ask(&cards, &some, "new", &[grant("a-whole-0")]).is_err());
    assert!(ask(&cards, &some, "new", &[grant("a-half-1")]).is_ok());
}

#[test]
fn a_record_of_an_earlier_version_counts_by_the_inventory() {
    let cards = cards();
    let mut some = held(&cards, &["a-half-0"]);
    some.values_mut().flatten().for_each(|device| device.counters.clear());
    assert!(ask(&cards, &some, "new", &[grant("a-whole-0")]).is_err());
}

#[test]
fn counters_without_a_set_have_nothing_to_give() {
    let mut cards = cards();
    Arc::make_mut(cards.pools.get_mut("bench").unwrap()).counter_sets.clear();
    let error = ask(&cards, &Held::new(), "new", &[grant("a-quarter-0")]).unwrap_err();
    assert!(error.ends_with("which has 0 left; held by nobody"), "{error}");
}

/// The devices of [`cards`] that take counters.
fn partitions(inventory: &Inventory) -> Vec<String> {
    let devices = inventory.devices().filter(|(_, device)| !device.consumes.is_empty());
    devices.map(|(_, device)| device.name.to_string()).collect()
}

/// What is given out of each counter, device by device, as the cards themselves describe it.
fn given_out(cards: &Inventory, held: &Held) -> BTreeMap<(DeviceName, DeviceName), Quantity> {
    let names: BTreeSet<DeviceName> = held.values().flatten().map(|device| device.grant.device.clone()).collect();
    let mut sums = BTreeMap::new();
    for device in cards.devices().map(|(_, device)| device).filter(|device| names.contains(&device.name)) {
        for taken in &device.consumes {
            for (counter, amount) in &taken.counters {
                let sum: &mut Quantity = sums.entry((taken.set.clone(), counter.clone())).or_default();
                *sum = sum.plus(*amount);
            }
        }
    }
    sums
}

proptest! {
    /// Steps: a claim asks for up to three devices, or, where it has some, gives them back; devices come and go.
    #[test]
    fn counters_are_never_over_committed(
        steps in proptest::collection::vec((0..6_usize, proptest::collection::vec(0..16_usize, 1..4), any::<bool>()), 1..60)
    ) {
        let cards = cards();
        let all = partitions(&cards);
        let mut now = cards.clone();
        let mut held = Held::new();
        for (claim, wanted, unplug) in steps {
            let id = format!("c{claim}");
            if held.remove(&uid(&id)).is_none() {
                let grants: Vec<Grant> = wanted.iter().map(|index| &all[index % all.len()]).map(|device| {
                    if device == "many" { part(device, 1) } else { grant(device) }
                }).collect();
                let free = now.clone();
                if let Ok(taken) = ask(&free, &held, &id, &grants) {
                    held.insert(uid(&id), taken);
                }
            }
            let pool = Arc::make_mut(now.pools.get_mut("bench").unwrap());
            pool.devices = cards.pools["bench"].devices.clone();
            if unplug {
                let gone = &all[wanted[0] % all.len()];
                pool.devices.retain(|device| device.name.as_str() != gone);
            }
            for ((_, counter), sum) in given_out(&cards, &held) {
                let most = amounts(4, 40)[&counter];
                prop_assert!(sum <= most, "{counter}: {sum} of {most} with {held:?}");
            }
        }
    }

    /// Whatever is refused for want of a counter would indeed have been too much.
    #[test]
    fn nothing_is_refused_that_would_fit(wanted in proptest::collection::vec(0..15_usize, 1..8)) {
        let cards = cards();
        let all: Vec<String> = partitions(&cards).into_iter().filter(|device| device != "many").collect();
        let mut held = Held::new();
        for device in wanted.iter().map(|index| &all[index % all.len()]) {
            match ask(&cards, &held, device, &[grant(device)]) {
                Ok(taken) => _ = held.insert(uid(device), taken),
                Err(error) if error.contains("counter") => {
                    let mut too_many = held.clone();
                    let mut extra = held.values().next().unwrap()[0].clone();
                    extra.grant = grant(device);
                    too_many.insert(uid("extra"), vec![extra]);
                    let over = given_out(&cards, &too_many).into_iter().any(|((_, counter), sum)| sum > amounts(4, 40)[&counter]);
                    prop_assert!(over, "{error}");
                }
                Err(error) => prop_assert!(error.contains("already prepared"), "{error}"),
            }
        }
    }
}

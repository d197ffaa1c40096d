//! Keeps devices of one card apart: the card, its dax devices and the node that its memory is a part of.

use std::collections::BTreeMap;

use hostler_api::{DeviceName, Quantity};
use hostler_backend::{CounterSet, CounterUse, Enumeration};

use crate::device::{CardId, CxlDevice};

/// Limits of the API server: counters of a set, and sets that a device draws on.
const MOST_COUNTERS: usize = 32;
const MOST_SETS: usize = 2;

/// Gives every card a counter of one, taken by whichever of its devices is held. A node whose cards have more sets
/// than a device may draw on takes none: planning knows all holders and refuses claims that exclude each other.
pub(super) fn add(found: &mut Enumeration) {
    let targets: Vec<Option<CxlDevice>> = found.devices.iter().map(CxlDevice::of).collect();
    let mut users: BTreeMap<&CardId, usize> = BTreeMap::new();
    for card in targets.iter().flatten().flat_map(CxlDevice::cards) {
        *users.entry(card).or_default() += 1;
    }
    let mut members: Vec<(&CardId, DeviceName)> = Vec::new();
    for (device, target) in found.devices.iter().zip(&targets) {
        if let Some(CxlDevice::Memory { card }) = target
            // A card whose memory is in no other device needs no counter.
            && users.get(card).is_some_and(|users| *users > 1)
        {
            members.push((card, device.name.clone()));
        }
    }
    let mut sets = Vec::new();
    let mut place: BTreeMap<&CardId, (DeviceName, DeviceName)> = BTreeMap::new();
    for (index, chunk) in members.chunks(MOST_COUNTERS).enumerate() {
        let Ok(name) = DeviceName::new(format!("cards-{index}")) else { continue };
        let counters = chunk.iter().map(|(_, counter)| (counter.clone(), Quantity::whole(1))).collect();
        place.extend(chunk.iter().map(|(card, counter)| (*card, (name.clone(), counter.clone()))));
        sets.push(CounterSet { name, counters });
    }
    for (device, target) in found.devices.iter_mut().zip(&targets) {
        device.consumes = target.as_ref().map(|target| uses(target, &place)).unwrap_or_default();
    }
    found.counter_sets = sets;
}

fn uses(target: &CxlDevice, place: &BTreeMap<&CardId, (DeviceName, DeviceName)>) -> Vec<CounterUse> {
    let mut uses: BTreeMap<DeviceName, CounterUse> = BTreeMap::new();
    for (set, counter) in target.cards().iter().filter_map(|card| place.get(card)) {
        let all = uses.entry(set.clone()).or_insert_with(|| CounterUse { set: set.clone(), counters: BTreeMap::new() });
        all.counters.insert(counter.clone(), Quantity::whole(1));
    }
    if uses.len() > MOST_SETS { Vec::new() } else { uses.into_values().collect() }
}

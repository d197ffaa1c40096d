//! Serial numbers of the cards behind devices.

use hostler_backend::{CardSerials, Enumeration, Health};

use crate::device::{CardId, CxlDevice};

/// Tells of every device which cards it is made of. An accelerator told its own already: only its configuration space
/// has the number.
pub(super) fn add(found: &mut Enumeration) {
    for device in &mut found.devices {
        let cards = match CxlDevice::of(device) {
            Some(CxlDevice::Memory { card }) => whole(card.serial, &device.health),
            Some(target @ (CxlDevice::Node { .. } | CxlDevice::Dax { .. })) => among(target.cards()),
            Some(CxlDevice::Accelerator { .. }) | None => continue,
        };
        device.cards = cards;
    }
}

/// The card with this serial number. One that is not healthy may have a number and not tell it.
pub(super) fn whole(serial: Option<u64>, health: &Health) -> CardSerials {
    match serial {
        Some(serial) => CardSerials::Whole(serial),
        None if *health == Health::Healthy => CardSerials::Unknown,
        None => CardSerials::Hidden,
    }
}

fn among(cards: &[CardId]) -> CardSerials {
    CardSerials::Among(cards.iter().filter_map(|card| card.serial).collect())
}

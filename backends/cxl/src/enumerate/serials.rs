//! Serial numbers of the cards behind devices.

use hostler_backend::{CardSerials, Enumeration};

use crate::device::{CardId, CxlDevice};

/// Tells of every device which cards it is made of. An accelerator told its own already: only its configuration space
/// has the number.
pub(super) fn add(found: &mut Enumeration) {
    for device in &mut found.devices {
        let cards = match CxlDevice::of(device) {
            Some(CxlDevice::Memory { card }) => card.serial.map_or(CardSerials::Unknown, CardSerials::Whole),
            Some(target @ (CxlDevice::Node { .. } | CxlDevice::Dax { .. })) => among(target.cards()),
            Some(CxlDevice::Accelerator { .. }) | None => continue,
        };
        device.cards = cards;
    }
}

fn among(cards: &[CardId]) -> CardSerials {
    CardSerials::Among(cards.iter().filter_map(|card| card.serial).collect())
}

//! Serial numbers of the cards that devices are on.

use std::collections::BTreeMap;

use hostler_backend::CardSerials;
use hostler_linux::{
    TreeReading,
    pci::{self, PciAddress, SerialNumber},
};
use serde::Deserialize;

use super::EnumeratedDevices;
use crate::FpgaDevice;

/// Says of each device which card it is, or is a part of. A card of several functions that are passed on is none of them.
pub(super) fn name_cards(tree: &TreeReading<'_>, found: &mut EnumeratedDevices) {
    let targets: Vec<Option<FpgaDevice>> =
        found.offers.iter().map(|offer| FpgaDevice::deserialize(&offer.device.data).ok()).collect();
    let mut slots = BTreeMap::<_, Vec<(usize, PciAddress, CardShare)>>::new();
    for (index, target) in targets.iter().enumerate() {
        let Some((address, share)) = target.as_ref().and_then(share) else { continue };
        slots.entry(address.slot()).or_default().push((index, address, share));
    }
    for parts in slots.values() {
        let Some((_, address, _)) = parts.first() else { continue };
        let serial = pci::card_serial(tree, *address);
        for (index, _, share) in parts {
            let is_whole = *share == CardShare::Card || (*share == CardShare::Function && parts.len() == 1);
            found.offers[*index].device.cards = match serial {
                SerialNumber::Known(serial) if is_whole => CardSerials::Whole(serial),
                SerialNumber::Known(serial) => CardSerials::Among([serial].into()),
                SerialNumber::WithoutPower => CardSerials::Hidden,
                SerialNumber::None => CardSerials::Unknown,
            };
        }
    }
}

/// Share of a card that a device is.
#[derive(Clone, Copy, Eq, PartialEq)]
enum CardShare {
    /// The card with everything on it.
    Card,
    /// A function, which is the card where it is the only one.
    Function,
    /// A part.
    Part,
}

/// Function of a device, and its share of the card.
fn share(target: &FpgaDevice) -> Option<(PciAddress, CardShare)> {
    match target {
        FpgaDevice::Card { card } => Some((*card, CardShare::Card)),
        FpgaDevice::Xrt { user, .. } => Some((*user, CardShare::Card)),
        FpgaDevice::Ami { function } | FpgaDevice::Vfio { function } => Some((*function, CardShare::Function)),
        FpgaDevice::Region { card, .. } | FpgaDevice::Afu { card, .. } => Some((*card, CardShare::Part)),
        FpgaDevice::Manager { .. } => None,
    }
}

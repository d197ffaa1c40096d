//! Hardware that a device stands for, in terms that outlive a reboot, and the search for today's objects for it.

use std::fmt;

use hostler_backend::Device;
use hostler_linux::pci::PciAddress;
use serde::{Deserialize, Serialize};

use crate::objects::{CxlObjects, CxlRegion, DaxDevice, Memdev, RegionMode};

/// Target of a device; kept in [`Device::data`] and in plans.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum CxlDevice {
    /// A type-1 or type-2 function.
    Accelerator {
        /// Address of the function.
        address: PciAddress,
        /// True if the function is handed over through vfio.
        vfio: bool,
    },
    /// A memory device, whole.
    Memory {
        /// The card.
        card: CardId,
    },
    /// The memory of a NUMA node that regions make.
    Node {
        /// The node.
        node: u32,
        /// The cards behind it: losing one loses the node, or a part of it.
        cards: Vec<CardId>,
    },
    /// A dax device.
    Dax {
        /// Memory of the device.
        memory: DaxId,
    },
}

impl CxlDevice {
    /// Returns the target of a device, if the device is one of this backend.
    pub fn of(device: &Device) -> Option<Self> {
        Self::deserialize(&device.data).ok()
    }

    /// The cards that the device is made of.
    pub fn cards(&self) -> &[CardId] {
        match self {
            Self::Accelerator { .. } => &[],
            Self::Memory { card } => std::slice::from_ref(card),
            Self::Node { cards, .. } => cards,
            Self::Dax { memory: DaxId::Region(region) } => &region.cards,
            Self::Dax { memory: DaxId::Firmware { .. } } => &[],
        }
    }
}

/// A card: a serial number that it keeps wherever it is plugged in, and the place where it was seen.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct CardId {
    /// The serial number; `None` where the maker gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<u64>,
    /// The PCI function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<PciAddress>,
}

impl CardId {
    /// The identity of a memory device.
    pub fn of(memdev: &Memdev) -> Self {
        Self { serial: memdev.serial.filter(|serial| *serial != 0), address: memdev.address }
    }

    /// True if `other` can be the same card, seen at another time: with the same serial number, wherever it was
    /// plugged in.
    pub fn is_same(&self, other: &Self) -> bool {
        self.serial == other.serial && (self.serial.is_some() || self.address == other.address)
    }

    /// The memory device that this card is today: the one with its serial number, wherever it is plugged in now;
    /// where that number is missing or not the only one, the one at its place.
    pub fn find<'a>(&self, objects: &'a CxlObjects) -> Option<&'a Memdev> {
        let same = |memdev: &&Memdev| CardId::of(memdev).serial == self.serial;
        let mut candidates = objects.memdevs.iter().filter(same);
        match (self.serial, candidates.next(), candidates.next()) {
            (Some(_), Some(only), None) => Some(only),
            _ => objects.memdevs.iter().filter(same).find(|memdev| memdev.address == self.address),
        }
    }
}

/// Identity of a region: the cards that it is made of, and its start in them.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct RegionId {
    /// Cards of the region, in the order of interleaving.
    pub cards: Vec<CardId>,
    /// Volatile or persistent.
    pub mode: RegionMode,
    /// Start of the region's part in the first card's own addresses.
    pub dpa: u64,
}

impl RegionId {
    /// The identity of a region; `None` while it has no cards.
    pub fn of(objects: &CxlObjects, region: &CxlRegion) -> Option<Self> {
        let members = objects.members_of(region);
        let (_, first) = members.first()?;
        Some(Self {
            cards: members.iter().map(|(memdev, _)| CardId::of(memdev)).collect(),
            mode: region.mode?,
            dpa: first.dpa_resource.unwrap_or(0),
        })
    }

    /// The region that this is today. A card that has moved since is the same card.
    pub fn find<'a>(&self, objects: &'a CxlObjects) -> Option<&'a CxlRegion> {
        let mine: Option<Vec<&Memdev>> = self.cards.iter().map(|card| card.find(objects)).collect();
        let mine = mine?;
        objects.regions.iter().find(|region| {
            let members = objects.members_of(region);
            let dpa = members.first().map(|(_, decoder)| decoder.dpa_resource.unwrap_or(0));
            region.mode == Some(self.mode)
                && dpa == Some(self.dpa)
                && members.iter().map(|(memdev, _)| *memdev).eq(mine.iter().copied())
        })
    }
}

/// Identity of a dax device: the memory that it is made of.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DaxId {
    /// A region.
    Region(RegionId),
    /// Memory that firmware has set aside without telling from which card.
    Firmware {
        /// Start in physical addresses, where that may be known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<u64>,
        /// The NUMA node that it would become.
        node: Option<u32>,
    },
}

impl DaxId {
    /// The identity of a dax device; `None` where it stands for something else than CXL memory.
    pub fn of(objects: &CxlObjects, dax: &DaxDevice) -> Option<Self> {
        match objects.region_of(dax) {
            Some(region) => RegionId::of(objects, region).map(Self::Region),
            None => dax.hmem.as_ref().map(|_| Self::Firmware { start: dax.resource, node: dax.target_node }),
        }
    }

    /// The dax device that this is today; of a region that was split, the first.
    pub fn find<'a>(&self, objects: &'a CxlObjects) -> Option<&'a DaxDevice> {
        match self {
            Self::Region(region) => {
                let region = region.find(objects)?;
                objects.daxes_of(region).next()
            }
            Self::Firmware { start: Some(start), .. } => objects.hmem_daxes().find(|dax| dax.resource == Some(*start)),
            Self::Firmware { start: None, node } => objects.hmem_daxes().find(|dax| dax.target_node == *node),
        }
    }
}

impl fmt::Display for CardId {
    /// `0x1001 at 0000:41:00.0`, as far as it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.serial, self.address) {
            (Some(serial), Some(address)) => write!(f, "{serial:#x} at {address}"),
            (Some(serial), None) => write!(f, "{serial:#x}"),
            (None, Some(address)) => write!(f, "at {address}"),
            (None, None) => f.write_str("without identity"),
        }
    }
}

//! Devices that the CXL hardware of a machine makes.

mod accelerators;
mod cards;
mod counters;
mod dax;
mod function;
mod health;
mod nodes;
mod serials;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use health::CardState;
use hostler_api::DeviceName;
use hostler_backend::{BackendWarning, Enumeration};
use hostler_linux::{CharacterDevices, TreeReading};

pub(crate) use accelerators::{accelerator_name, driver_nodes};

use crate::{
    config::CxlBackendConfig,
    device::CardId,
    objects::{CxlObjects, Memdev},
    watch::HealthWatch,
};

/// State that all parts of one enumeration share.
#[derive(Debug)]
pub(crate) struct CxlScan<'a> {
    pub(crate) tree: &'a TreeReading<'a>,
    pub(crate) config: &'a CxlBackendConfig,
    pub(crate) objects: CxlObjects,
    /// NUMA nodes made of CXL memory alone, with their memory blocks.
    nodes: BTreeMap<u32, Vec<u64>>,
    /// The state of each card, by kernel name.
    cards: BTreeMap<String, CardState>,
    /// Earlier observations, and the mailboxes to ask.
    watch: &'a HealthWatch,
    /// Serial numbers that more than one card has.
    doubles: BTreeSet<u64>,
    /// The folders of all character devices, read when the first accelerator asks for its own.
    character_devices: OnceCell<CharacterDevices>,
}

impl<'a> CxlScan<'a> {
    /// Reads the CXL hardware of a tree.
    pub(crate) fn read(tree: &'a TreeReading<'a>, config: &'a CxlBackendConfig, watch: &'a HealthWatch) -> Self {
        let objects = CxlObjects::of(tree);
        let mut seen = BTreeSet::new();
        let doubles = objects.memdevs.iter().filter_map(|memdev| CardId::of(memdev).serial);
        let doubles = doubles.filter(|serial| !seen.insert(*serial)).collect();
        let nodes = hostler_linux::cxl_nodes(tree);
        if !objects.memdevs.is_empty() {
            watch.read_events(tree);
        }
        let (cards, character_devices) = (BTreeMap::new(), OnceCell::new());
        let mut scan = Self { tree, config, objects, nodes, cards, watch, doubles, character_devices };
        scan.cards = scan.cards_shown().map(|memdev| (memdev.name.clone(), scan.look_at(memdev))).collect();
        scan
    }

    /// All devices.
    pub(crate) fn enumeration(&self) -> Enumeration {
        let mut found = Enumeration::default();
        self.card_devices(&mut found);
        self.accelerators(&mut found);
        found.devices.sort_by(|a, b| a.name.cmp(&b.name));
        self.node_devices(&mut found);
        self.daxes(&mut found);
        counters::add(&mut found);
        serials::add(&mut found);
        found
    }

    /// The memory devices that are cards: the memory of a type-2 accelerator is its driver's, and has neither a size
    /// nor a serial number here.
    fn cards_shown(&self) -> impl Iterator<Item = &Memdev> {
        let is_card =
            |memdev: &&Memdev| memdev.serial.is_some() || memdev.ram_bytes.is_some() || memdev.pmem_bytes.is_some();
        self.objects.memdevs.iter().filter(is_card)
    }

    /// The name of a card in devices' names: its serial number, or its place if that number is missing or not the
    /// card's own.
    fn card_name(&self, memdev: &Memdev) -> Option<String> {
        let serial = CardId::of(memdev).serial.filter(|serial| !self.doubles.contains(serial));
        let place = || Some(dashed(&memdev.address?.to_string()));
        serial.map(|serial| format!("{serial:x}")).or_else(place)
    }
}

/// A PCI address or a number as a part of a DNS label.
fn dashed(text: &str) -> String {
    text.replace([':', '.'], "-")
}

/// A device name; an invalid one leaves a warning.
fn device_name(found: &mut Enumeration, path: &std::path::Path, name: String) -> Option<DeviceName> {
    match DeviceName::new(name) {
        Ok(name) => Some(name),
        Err(error) => {
            let path = format!("/{}", path.display());
            found.warnings.push(BackendWarning { path, reason: format!("{error}; it is not offered") });
            None
        }
    }
}

//! Memory devices, each a card that can be claimed whole.

use hostler_api::{DeviceName, fabric::ErasureMethod};
use hostler_backend::{BackendWarning, Device, Enumeration, Erasure};
use serde_json::json;

use super::{CxlScan, device_name, function};
use crate::{
    attributes::{AttributeBuilder, put_bytes},
    cdat,
    device::{CardId, CxlDevice},
    erase,
    objects::{CxlRegion, Memdev, RegionMode},
};

/// Reason why no order erases a card.
const NOT_ERASABLE: &str = "it cannot erase itself, or the kernel does not offer that (Linux 6.6 or later does), and its memory \
                            cannot be mapped to overwrite it";

impl CxlScan<'_> {
    pub(super) fn card_devices(&self, found: &mut Enumeration) {
        for memdev in self.cards_shown() {
            let name = self.card_name(memdev).unwrap_or_else(|| memdev.name.clone());
            let Some(name) = device_name(found, &memdev.folder, format!("memory-{name}")) else { continue };
            let device = self.card(name, memdev, found);
            found.devices.push(device);
        }
    }

    fn card(&self, name: DeviceName, memdev: &Memdev, found: &mut Enumeration) -> Device {
        let mut device = Device::new(name);
        put_bytes(&mut device.capacity, "memory", memdev.bytes(RegionMode::Ram), None);
        put_bytes(&mut device.capacity, "persistentMemory", memdev.bytes(RegionMode::Pmem), None);
        let mut attributes = AttributeBuilder::of_kind("memory");
        if let Some(address) = memdev.address {
            function::describe(self.tree, address, &mut attributes);
        }
        attributes.number("cxlType", Some(3_u64));
        attributes.text("serial", memdev.serial.filter(|serial| *serial != 0).map(|serial| format!("{serial:#x}")));
        attributes.text("firmwareVersion", memdev.firmware_version.as_ref());
        attributes.text("security", memdev.security_state.as_ref());
        attributes.flag("dynamicCapacity", self.has_dynamic_capacity(memdev, found));
        let regions = self.objects.regions_of(memdev);
        // Without the endpoint of a card its regions are not known.
        let regions_known = memdev.driver.is_none() || self.objects.endpoint_of(memdev).is_some();
        attributes.text("use", regions_known.then(|| self.use_of(&regions)));
        attributes.flag("attachable", Some(self.is_attachable(memdev, &regions)));
        self.describe_quality(memdev, &regions, &mut attributes);
        self.describe_health(memdev, &mut attributes);
        if let Some(region) = regions.iter().find(|region| region.mode != Some(RegionMode::Pmem)) {
            attributes.number("targetNode", self.objects.node_of(self.tree, region));
            self.describe_regions(&[region], &mut attributes);
        }
        device.attributes = attributes.done();
        device.health = self.health_of(memdev);
        // Persistent memory is an operator's, and would be erased as well.
        let erases_itself = memdev.bytes(RegionMode::Pmem) == 0 && erase::is_offered(self.tree, memdev);
        let is_mappable = !self.objects.windows_for(memdev, RegionMode::Ram).is_empty();
        device.erasure = match () {
            () if erases_itself => Erasure::By(ErasureMethod::Sanitize),
            () if is_mappable && memdev.bytes(RegionMode::Ram) > 0 => Erasure::By(ErasureMethod::Overwrite),
            () => Erasure::Impossible { reason: NOT_ERASABLE },
        };
        device.data = json!(CxlDevice::Memory { card: CardId::of(memdev) });
        device
    }

    /// Use of the card's memory, in one word.
    fn use_of(&self, regions: &[&CxlRegion]) -> &'static str {
        let mut uses: Vec<&str> = regions.iter().map(|region| self.use_of_region(region)).collect();
        uses.dedup();
        match uses[..] {
            [] => "none",
            [only] => only,
            _ => "mixed",
        }
    }

    pub(super) fn use_of_region(&self, region: &CxlRegion) -> &'static str {
        let dax = self.objects.daxes_of(region).next();
        match (region.mode, dax) {
            (Some(RegionMode::Pmem), _) => "persistent",
            (_, Some(dax)) if dax.is_system_ram() => "systemRam",
            (_, Some(dax)) if dax.driver.is_some() => "devDax",
            // Memory that firmware gave to the system has no dax device.
            (_, None) if self.objects.node_of(self.tree, region).is_some() => "systemRam",
            _ => "reserved",
        }
    }

    /// True if all volatile memory of the card could be mapped now, as one new region.
    fn is_attachable(&self, memdev: &Memdev, regions: &[&CxlRegion]) -> bool {
        let bytes = memdev.bytes(RegionMode::Ram);
        let free = regions.iter().all(|region| region.mode == Some(RegionMode::Pmem));
        let windows = || self.objects.windows_for(memdev, RegionMode::Ram);
        let reachable = self.objects.endpoint_of(memdev).is_some_and(|endpoint| !endpoint.decoders.is_empty());
        bytes > 0 && free && reachable && windows().iter().any(|window| self.objects.free_bytes(window) >= bytes)
    }

    /// Adds the class of the card's memory, and whether it is mapped in a window of that class, or could be.
    fn describe_quality(&self, memdev: &Memdev, regions: &[&CxlRegion], attributes: &mut AttributeBuilder) {
        let mode = if memdev.bytes(RegionMode::Ram) > 0 { RegionMode::Ram } else { RegionMode::Pmem };
        let class = memdev.qos_class(mode);
        attributes.number("qosClass", class);
        let region = regions.iter().find(|region| region.mode == Some(mode));
        let window = match region {
            Some(region) => self.objects.root_decoder_of(region),
            None => self.objects.windows_for(memdev, mode).first().copied(),
        };
        let window = window.and_then(|window| window.qos_class);
        attributes.flag("qosMatch", class.zip(window).map(|(card, window)| card == window));
    }

    /// Adds how the memory of regions is mapped, and how fast the slowest is.
    pub(super) fn describe_regions(&self, regions: &[&CxlRegion], attributes: &mut AttributeBuilder) {
        let ways: Vec<u32> = regions.iter().filter_map(|region| region.interleave_ways).collect();
        attributes
            .number("interleaveWays", ways.first().copied().filter(|first| ways.iter().all(|ways| ways == first)));
        let known = || regions.iter().filter_map(|region| region.performance);
        attributes.number("readBandwidth", known().filter_map(|fast| fast.read_bandwidth).min());
        attributes.number("writeBandwidth", known().filter_map(|fast| fast.write_bandwidth).min());
        attributes.number("readLatency", known().filter_map(|fast| fast.read_latency).max());
        attributes.number("writeLatency", known().filter_map(|fast| fast.write_latency).max());
    }

    /// The node that all these cards are attached to.
    pub(super) fn near_node(&self, members: &[&Memdev]) -> Option<u32> {
        let first = members.first()?.numa_node?;
        members.iter().all(|memdev| memdev.numa_node == Some(first)).then_some(first)
    }

    /// True if a part of a card's memory is given and taken at run time. The kernel does not use such memory, and
    /// does not count it; the card's own description has it, for the privileged.
    fn has_dynamic_capacity(&self, memdev: &Memdev, found: &mut Enumeration) -> Option<bool> {
        let path = self.objects.endpoint_of(memdev)?.folder.join("CDAT");
        let table = self.tree.detail_bytes(&path, u64::MAX).filter(|table| !table.is_empty())?;
        match cdat::parts(&table) {
            Ok(parts) => Some(parts.iter().any(|part| part.dynamic)),
            Err(error) => {
                let reason = format!("{error}; whether the card has dynamic capacity is not known");
                found.warnings.push(BackendWarning { path: format!("/{}", path.display()), reason });
                None
            }
        }
    }
}

//! Memory that is a device: `/dev/daxN.M` of a region, or of memory that firmware has set aside in a CXL window.

use hostler_api::DeviceName;
use hostler_backend::{ContainerEdits, Device, Enumeration, Health};
use hostler_cdi::DeviceNode;
use serde_json::json;

use super::{CxlScan, device_name};
use crate::{
    attributes::{AttributeBuilder, put_bytes},
    device::{CxlDevice, DaxId, RegionId},
    objects::{DaxDevice, Memdev, RegionMode},
};

impl CxlScan<'_> {
    pub(super) fn daxes(&self, found: &mut Enumeration) {
        // Memory of the system is a node. A device without a driver has no node to hand over, and no program uses it.
        let offered = self.objects.daxes.iter().filter(|dax| !dax.is_system_ram() && self.is_cxl(dax));
        for dax in offered {
            let Some(identity) = DaxId::of(&self.objects, dax) else { continue };
            let Some(name) = self.dax_name(dax, &identity) else { continue };
            let Some(name) = device_name(found, &dax.folder, name) else { continue };
            // A region that an operator has split has several dax devices; the first stands for it.
            if found.devices.iter().all(|device| device.name != name) {
                found.devices.push(self.dax(name, dax, identity));
            }
        }
    }

    /// True if a dax device is of volatile CXL memory. Memory that firmware sets aside can be other memory too, and
    /// can be that of a region that there is by now.
    fn is_cxl(&self, dax: &DaxDevice) -> bool {
        if let Some(region) = self.objects.region_of(dax) {
            return region.mode == Some(RegionMode::Ram);
        }
        let Some(range) = dax.range().filter(|_| dax.hmem.is_some()) else { return false };
        let mut windows = self.objects.root_decoders.iter().filter_map(|window| window.start.zip(window.size));
        let inside = windows.any(|(start, size)| start <= range.start && range.end() <= start.saturating_add(size));
        let mut regions = self.objects.regions.iter().filter_map(|region| region.range());
        inside && !regions.any(|region| region.start < range.end() && range.start < region.end())
    }

    /// Name of a dax device after its first card and, where the region does not begin with the card or has several,
    /// that too.
    fn dax_name(&self, dax: &DaxDevice, identity: &DaxId) -> Option<String> {
        match identity {
            DaxId::Region(RegionId { cards, dpa, .. }) => {
                let first = self.card_name(cards.first()?.find(&self.objects)?)?;
                let ways = if cards.len() > 1 { format!("-x{}", cards.len()) } else { String::new() };
                let part = if *dpa > 0 { format!("-at-{dpa:x}") } else { String::new() };
                Some(format!("dax-{first}{ways}{part}"))
            }
            DaxId::Firmware { .. } => Some(format!("dax-at-{:x}", dax.resource?)),
        }
    }

    fn dax(&self, name: DeviceName, dax: &DaxDevice, identity: DaxId) -> Device {
        let region = self.objects.region_of(dax);
        let members: Vec<&Memdev> = region.map(|region| self.objects.memdevs_of(region)).unwrap_or_default();
        let mut device = Device::new(name);
        put_bytes(&mut device.capacity, "memory", dax.size.unwrap_or(0), None);
        let mut attributes = AttributeBuilder::of_kind("dax");
        attributes.number("cxlType", Some(3_u64));
        attributes.number("resource.kubernetes.io/numaNode", self.near_node(&members));
        attributes.number("targetNode", dax.target_node);
        attributes.number("align", dax.align);
        attributes.number("cards", region.map(|_| members.len() as u64));
        if let Some(region) = region {
            attributes.text("mode", region.mode.map(RegionMode::as_str));
            attributes.flag("committed", Some(region.committed));
            self.describe_regions(&[region], &mut attributes);
        }
        device.attributes = attributes.done();
        device.health = match region {
            Some(region) if !region.committed => unhealthy("its region is not committed: nothing translates addresses"),
            _ if dax.driver.is_none() => unhealthy("no driver is bound to it: it has no device node"),
            _ => self.health_of_all(&members),
        };
        let node = DeviceNode { path: format!("/{}", dax.device_node().display()), ..DeviceNode::default() };
        device.edits = ContainerEdits { device_nodes: vec![node], ..ContainerEdits::default() };
        device.data = json!(CxlDevice::Dax { memory: identity });
        device
    }
}

fn unhealthy(reason: &str) -> Health {
    Health::Unhealthy { reason: reason.to_owned() }
}

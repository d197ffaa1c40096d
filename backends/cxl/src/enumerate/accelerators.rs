//! CXL functions by what their configuration space says: accelerators, and cards that no driver shows.

use std::path::Path;

use hostler_api::fabric::ErasureMethod;
use hostler_backend::{BackendWarning, ContainerEdits, Device, Enumeration, Erasure, Health};
use hostler_cdi::DeviceNode;
use hostler_linux::{
    CharacterDevices, ReadFailure, TreeReading,
    pci::{self, ConfigFile, PciAddress, PciIdentity},
    place,
    vfio::{self, DriverBinding, VfioError},
};
use serde_json::json;

use super::{CxlScan, dashed, device_name, function, serials};
use crate::{
    accelerator::NO_RESET_ERASES,
    attributes::{AttributeBuilder, put_bytes},
    device::{CardId, CxlDevice},
    dvsec::CxlFunction,
};

/// The folder of a function's network interfaces.
const NETWORK_INTERFACES: &str = "net";
/// Base classes: bridges are no devices of their own.
const BRIDGE: u8 = 0x06;
/// Class and subclass of CXL memory.
const CXL_MEMORY: u32 = 0x0502;
/// Nodes that are not handed over with a driver's own: mailboxes of memory devices, through which firmware is
/// written, and a function of vfio, which is of no use without its group.
const KEPT: [&str; 2] = ["cxl/", "vfio/"];
/// Drivers of FPGAs. A card that is one is offered by the fpga backend, as what it is programmed to be.
const FPGA_DRIVERS: [&str; 4] = ["dfl-pci", "xocl", "xclmgmt", "ami"];

/// Result of a look into a configuration space.
enum FunctionProbe {
    /// A CXL function.
    Cxl(CxlFunction),
    /// A function that is none of CXL.
    Plain,
    /// Only the first 64 bytes can be read.
    Hidden,
    /// The function sleeps: reading would wake it, and it has never been seen awake.
    Asleep,
}

impl CxlScan<'_> {
    pub(super) fn accelerators(&self, found: &mut Enumeration) {
        let (identities, _) = pci::identities(self.tree);
        let mut hidden = None;
        for identity in identities.iter().filter(|identity| self.may_be_cxl(identity)) {
            match self.look(identity) {
                FunctionProbe::Cxl(function) => self.cxl_function(found, identity, &function),
                FunctionProbe::Hidden => hidden = Some(identity),
                FunctionProbe::Asleep if is_cxl_memory(identity) => self.sleeping_card(found, identity),
                FunctionProbe::Plain | FunctionProbe::Asleep => {}
            }
        }
        let cxl = || !self.objects.root_decoders.is_empty() || identities.iter().any(is_cxl_memory);
        if let Some(identity) = hidden.filter(|_| cxl()) {
            let path = format!("/sys/bus/pci/devices/{}/config", identity.address);
            let reason = "only its first 64 bytes can be read: CXL accelerators are not found without CAP_SYS_ADMIN";
            found.warnings.push(BackendWarning { path, reason: reason.to_owned() });
        }
    }

    /// True if the configuration space is worth a look. A card that the kernel shows as a memory device is known
    /// already.
    fn may_be_cxl(&self, identity: &PciIdentity) -> bool {
        let is_card = self.cards_shown().any(|memdev| memdev.address == Some(identity.address));
        identity.base_class() != Some(BRIDGE) && !is_card
    }

    fn look(&self, identity: &PciIdentity) -> FunctionProbe {
        let known = self.watch.known.get(identity);
        if known == Some(None) {
            return FunctionProbe::Plain;
        }
        let folder = pci::folder(self.tree, identity.address);
        if !function::is_awake(self.tree, &folder) {
            return known.flatten().map_or(FunctionProbe::Asleep, FunctionProbe::Cxl);
        }
        let Some(config) = self.known(ConfigFile::open(self.tree.root(), identity.address)) else {
            return FunctionProbe::Plain;
        };
        let dword = |offset| self.known(config.dword(offset)).flatten();
        let found = CxlFunction::decode(dword);
        if found.is_none() && dword(0x40).is_none() {
            return FunctionProbe::Hidden;
        }
        self.watch.known.insert(*identity, found);
        found.map_or(FunctionProbe::Plain, FunctionProbe::Cxl)
    }

    fn cxl_function(&self, found: &mut Enumeration, identity: &PciIdentity, function: &CxlFunction) {
        match function.cxl_type() {
            Some(kind @ (1 | 2)) => self.accelerator(found, identity, function, kind),
            Some(3) => {
                let state = if function.is_negotiated() {
                    "the kernel shows no memory device for it: the driver cxl_pci is not bound"
                } else {
                    "its link has not agreed on CXL, it works as plain PCIe; no memory device is shown for it"
                };
                let health = Health::Unhealthy { reason: state.to_owned() };
                self.hidden_card(found, identity, function.serial, health);
            }
            _ => {}
        }
    }

    fn accelerator(&self, found: &mut Enumeration, identity: &PciIdentity, function: &CxlFunction, kind: u8) {
        let folder = pci::folder(self.tree, identity.address);
        let vfio = self.config.passes_on(identity);
        let bound = self.tree.link_name(place(&folder, "driver"));
        if !vfio && bound.is_some_and(|driver| FPGA_DRIVERS.contains(&driver.as_str())) {
            return;
        }
        let Some(name) = device_name(found, &folder, accelerator_name(identity.address)) else { return };
        let mut attributes = AttributeBuilder::of_kind("accelerator");
        let driver = function::describe(self.tree, identity.address, &mut attributes);
        attributes.number("cxlType", Some(kind));
        attributes.flag("cacheCapable", Some(function.cache));
        attributes.flag("memCapable", Some(function.mem));
        attributes.flag("cxlNegotiated", Some(function.is_negotiated()));
        attributes.text("class", identity.class.map(|class| format!("{class:#08x}")));
        let serial = function.serial;
        attributes.text("serial", serial.map(|serial| format!("{serial:#x}")));
        let ranges = function.ranges.iter().filter(|range| range.bytes > 0).count();
        attributes.number("hdmRanges", Some(ranges as u64).filter(|_| function.mem));
        let mut device = Device::new(name);
        put_bytes(&mut device.capacity, "hdm", function.memory_bytes(), None);
        device.attributes = attributes.done();
        let nodes = if vfio { Vec::new() } else { self.device_nodes(&folder) };
        device.health = match self.watch.function_errors(self.tree, identity.address) {
            Some(reason) => Health::Unhealthy { reason },
            None if function.is_negotiated() && !vfio && self.is_network_card(&folder) => Health::Healthy,
            None => accelerator_health(function, vfio, driver.as_deref(), &nodes),
        };
        device.edits = ContainerEdits { device_nodes: nodes, ..ContainerEdits::default() };
        // Also one of type 1: memory that the host does not see may hold a tenant's data all the same.
        let is_erased = self.config.is_erased_by_reset(identity) && self.tree.exists(place(&folder, "reset"));
        device.erasure =
            if is_erased { Erasure::By(ErasureMethod::Reset) } else { Erasure::Impossible { reason: NO_RESET_ERASES } };
        device.cards = serials::whole(serial, &device.health);
        device.data = json!(CxlDevice::Accelerator { address: identity.address, vfio });
        // The binding to give the function back to: planning reads nothing.
        device.data["former"] = json!(self.former(identity));
        found.devices.push(device);
    }

    /// True for an accelerator that its driver has made network interfaces of (sfc does). Such a function works
    /// without a device node: a claim keeps it from others, and containers get nothing.
    fn is_network_card(&self, folder: &Path) -> bool {
        !self.tree.names(place(folder, NETWORK_INTERFACES)).is_empty()
    }

    /// Binding of a function; none if the function has gone meanwhile.
    fn former(&self, identity: &PciIdentity) -> DriverBinding {
        match vfio::binding(self.tree.root(), identity.address) {
            Err(VfioError::Read(failure)) => self.tree.fail(failure),
            binding => return binding.unwrap_or_default(),
        }
        DriverBinding::default()
    }

    /// Answer of a configuration space; `None` where there is none. Nothing is remembered of one that cannot be read.
    fn known<T>(&self, answer: Result<T, ReadFailure>) -> Option<T> {
        match answer {
            Err(failure) if !failure.is_absence() => self.tree.fail(failure),
            answer => return answer.ok(),
        }
        None
    }

    /// The character devices that the function's driver has made, as paths of the host.
    fn device_nodes(&self, folder: &Path) -> Vec<DeviceNode> {
        nodes_beneath(self.tree, self.character_devices.get_or_init(|| CharacterDevices::read(self.tree)), folder)
    }

    fn sleeping_card(&self, found: &mut Enumeration, identity: &PciIdentity) {
        let reason = "the card sleeps (power state D3) and is not woken to be looked at".to_owned();
        self.hidden_card(found, identity, None, Health::Unknown { reason });
    }

    /// A memory card that the kernel shows as nothing but a PCI function.
    fn hidden_card(&self, found: &mut Enumeration, identity: &PciIdentity, serial: Option<u64>, health: Health) {
        let card = CardId { serial, address: Some(identity.address) };
        let place = dashed(&identity.address.to_string());
        let own = card.serial.map(|serial| format!("{serial:x}"));
        let taken = |name: &str| found.devices.iter().any(|device| device.name.as_str() == format!("memory-{name}"));
        let name = own.filter(|name| !taken(name)).unwrap_or(place);
        let folder = pci::folder(self.tree, identity.address);
        let Some(name) = device_name(found, &folder, format!("memory-{name}")) else { return };
        let mut attributes = AttributeBuilder::of_kind("memory");
        function::describe(self.tree, identity.address, &mut attributes);
        attributes.number("cxlType", Some(3_u64));
        attributes.text("serial", card.serial.map(|serial| format!("{serial:#x}")));
        attributes.text("use", Some("none"));
        attributes.flag("attachable", Some(false));
        let mut device = Device::new(name);
        device.attributes = attributes.done();
        device.health = health;
        device.data = json!(CxlDevice::Memory { card });
        found.devices.push(device);
    }
}

fn is_cxl_memory(identity: &PciIdentity) -> bool {
    identity.class.is_some_and(|class| class >> 8 == CXL_MEMORY)
}

/// The character devices that the driver of the function in this folder has made, as paths of the host.
pub(crate) fn driver_nodes(tree: &TreeReading<'_>, folder: &Path) -> Vec<DeviceNode> {
    nodes_beneath(tree, &CharacterDevices::read(tree), folder)
}

/// Name of the device of a function.
pub(crate) fn accelerator_name(address: PciAddress) -> String {
    format!("accelerator-{}", dashed(&address.to_string()))
}

fn nodes_beneath(tree: &TreeReading<'_>, devices: &CharacterDevices, folder: &Path) -> Vec<DeviceNode> {
    let names = devices.beneath(tree, folder).into_iter();
    let names = names.filter(|name| KEPT.iter().all(|kept| !name.starts_with(kept)));
    names.map(|name| DeviceNode { path: format!("/dev/{name}"), ..DeviceNode::default() }).collect()
}

fn accelerator_health(function: &CxlFunction, vfio: bool, driver: Option<&str>, nodes: &[DeviceNode]) -> Health {
    let unhealthy = |reason: String| Health::Unhealthy { reason };
    if !function.is_negotiated() {
        let seen = match function.link {
            Some(_) => "its link reports neither CXL.cache nor CXL.mem that it is able to use",
            None => "nothing of CXL is enabled on it, and no memory of it is active",
        };
        return unhealthy(format!("CXL was not negotiated, it works as plain PCIe: {seen}"));
    }
    match driver {
        _ if vfio || !nodes.is_empty() => Health::Healthy,
        None => unhealthy("no driver is bound to it, and it is not named in backends.cxl.vfio".to_owned()),
        Some(driver) => unhealthy(format!(
            "its driver {driver} has made no device node, and it is not named in backends.cxl.vfio: there is nothing to \
             hand over"
        )),
    }
}

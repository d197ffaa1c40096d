//! A device that is being described, with what speaks against it.

use hostler_api::{DeviceName, NameError, QualifiedName, limits::MAX_ATTRIBUTE_BYTES};
use hostler_backend::{AttributeValue, Device};
use hostler_linux::pci::{PciAddress, PciFunction};

use crate::{FpgaDevice, health::HealthFinding, known};

/// A device, and the findings of a look at it. [`crate::health::SteadyHealth`] judges the findings.
#[derive(Clone, Debug)]
pub(crate) struct OfferedDevice {
    pub(crate) device: Device,
    pub(crate) findings: Vec<HealthFinding>,
}

impl OfferedDevice {
    /// A device of this kind with no other attribute than the kind.
    pub(crate) fn new(name: DeviceName, kind: &str, target: &FpgaDevice) -> Self {
        let mut offer = Self { device: Device::new(name), findings: Vec::new() };
        offer.set("kind", text(kind));
        // A target is plain data; were it not, acting on the device would say so.
        offer.device.data = serde_json::to_value(target).unwrap_or_default();
        offer
    }

    /// Adds an attribute, if it is known.
    #[expect(clippy::expect_used, reason = "the names are literals in this crate")]
    pub(crate) fn set(&mut self, name: &'static str, value: Option<AttributeValue>) {
        if let Some(value) = value {
            self.device.attributes.insert(QualifiedName::new(name).expect("a C identifier"), value);
        }
    }

    /// Adds what is known of the function that the device sits on.
    pub(crate) fn set_function(&mut self, function: &PciFunction) {
        let id = |id: u16| text(&format!("{id:#06x}"));
        self.set("vendor", id(function.vendor));
        self.set("device", id(function.device));
        self.set("subsystemVendor", function.subsystem_vendor.and_then(id));
        self.set("subsystemDevice", function.subsystem_device.and_then(id));
        self.set("virtualFunction", Some(function.is_virtual().into()));
        self.set("model", known::model(function).and_then(text));
        self.set("resource.kubernetes.io/numaNode", function.numa_node.map(|node| i64::from(node).into()));
        self.set("resource.kubernetes.io/pciBusID", function.pci_bus_id().as_deref().and_then(text));
        self.set("resource.kubernetes.io/pcieRoot", function.pcie_root().ok().as_deref().and_then(text));
    }

    /// Gives containers a device node, by its path below the root (`dev/dfl-port.0`).
    pub(crate) fn hand_over(&mut self, node: &std::path::Path) {
        let path = format!("/{}", node.display());
        let node = hostler_cdi::DeviceNode { path, ..hostler_cdi::DeviceNode::default() };
        self.device.edits.device_nodes.push(node);
    }
}

/// A text as an attribute, if it can be one.
pub(crate) fn text(value: &str) -> Option<AttributeValue> {
    let value = value.trim();
    let fits = !value.is_empty() && value.len() <= MAX_ATTRIBUTE_BYTES && !value.chars().any(char::is_control);
    fits.then(|| value.into())
}

/// A name from where the hardware sits: `card-0000-b1-00-0`.
///
/// # Errors
/// Never for the short literals of this crate; the type of names checks anyway.
pub(crate) fn name(kind: &str, address: PciAddress) -> Result<DeviceName, NameError> {
    DeviceName::new(format!("{kind}-{}", address.to_string().replace([':', '.'], "-")))
}

/// As [`name`], with a number after it.
///
/// # Errors
/// As [`name`].
pub(crate) fn numbered(kind: &str, address: PciAddress, number: u32) -> Result<DeviceName, NameError> {
    DeviceName::new(format!("{}-{number}", name(kind, address)?))
}

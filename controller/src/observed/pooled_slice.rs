//! Slices of devices behind switches, as people are shown them: whole slices of ten thousand devices would take more
//! memory than the rest of the view.

use std::collections::BTreeMap;

use hostler_api::{
    Packed,
    fabric::{FABRIC_TAINT, of_fabric_pool},
    resource::{DeviceAttribute, ResourceSlice, SliceDevice, SliceQuantity},
};
use serde::{Deserialize, Serialize};

/// A slice of a pool behind switches.
#[derive(Clone, Debug)]
pub(crate) struct PooledSlice {
    /// Driver of the devices.
    pub(crate) driver: Box<str>,
    /// The pool: `fabric/<manager>/<domain>`.
    pub(crate) pool: Box<str>,
    /// Generation of the pool: slices of earlier ones do not count any more.
    pub(crate) generation: i64,
    /// Nodes that can use the devices, by their hostname.
    pub(crate) nodes: Box<[Box<str>]>,
    /// Devices, in the order of the slice.
    devices: Packed<Vec<SlicedDevice>>,
}

/// A device of a slice.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SlicedDevice {
    /// Name of the device.
    pub(crate) name: String,
    /// `memory`, `accelerator`, or nothing where it is not known.
    pub(crate) device_kind: Option<String>,
    /// Enclosure, by the name that its manager gives it, if it gives one.
    pub(crate) enclosure: Option<String>,
    /// Capacities, as the slice has them.
    pub(crate) capacity: BTreeMap<String, String>,
    /// True if the device is not offered to new claims.
    pub(crate) is_hidden: bool,
}

impl PooledSlice {
    /// The slice, if its pool is one behind switches.
    pub(crate) fn of(slice: &ResourceSlice) -> Option<Self> {
        let spec = &slice.spec;
        of_fabric_pool(&spec.pool.name)?;
        Some(Self {
            driver: spec.driver.as_str().into(),
            pool: spec.pool.name.as_str().into(),
            generation: spec.pool.generation,
            nodes: nodes_of(slice),
            devices: Packed::pack(&spec.devices.iter().map(SlicedDevice::of).collect())?,
        })
    }

    /// Devices, in the order of the slice.
    pub(crate) fn devices(&self) -> Vec<SlicedDevice> {
        self.devices.unpack().unwrap_or_default()
    }
}

/// The nodes that a slice names, by their hostname.
fn nodes_of(slice: &ResourceSlice) -> Box<[Box<str>]> {
    let terms = slice.spec.node_selector.iter().flat_map(|selector| &selector.node_selector_terms);
    let of_terms = terms.flat_map(|term| term.match_expressions.iter().chain(&term.match_fields));
    let named = of_terms.flat_map(|requirement| requirement.values.iter().map(String::as_str));
    named.chain(slice.spec.node_name.as_deref()).map(Into::into).collect()
}

impl SlicedDevice {
    fn of(device: &SliceDevice) -> Self {
        let text = |name: &str| match device.attributes.get(name) {
            Some(DeviceAttribute::String(text)) => Some(text.to_string()),
            _ => None,
        };
        let amount = |of: &SliceQuantity| match of {
            SliceQuantity::Exact(amount) => amount.to_string(),
            SliceQuantity::Unreadable(text) => text.to_string(),
        };
        Self {
            name: device.name.to_string(),
            device_kind: text("kind"),
            enclosure: text("enclosure").filter(|name| !name.is_empty()),
            capacity: device.capacity.iter().map(|(name, it)| (name.to_owned(), amount(&it.value))).collect(),
            is_hidden: device.taints.iter().any(|taint| &*taint.key == FABRIC_TAINT),
        }
    }
}

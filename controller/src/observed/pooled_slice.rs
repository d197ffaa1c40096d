//! Slices of devices behind switches, as people are shown them: whole slices of ten thousand devices would take more
//! memory than the rest of the view.

use std::sync::Arc;

use hostler_api::{
    fabric::{FABRIC_TAINT, of_fabric_pool},
    resource::{DeviceAttribute, ResourceSlice, SliceDevice, SliceQuantity},
};

/// A slice of a pool behind switches.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
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
    pub(crate) devices: Box<[SlicedDevice]>,
}

/// A device of a slice.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SlicedDevice {
    /// Name of the device.
    pub(crate) name: Box<str>,
    /// Everything else. Devices of a slice are mostly alike, and share it.
    pub(crate) traits: Arc<SlicedTraits>,
}

/// Everything but the name of a device of a slice.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct SlicedTraits {
    /// `memory`, `accelerator`, or empty where it is not known.
    pub(crate) device_kind: Box<str>,
    /// Enclosure, by the name that its manager gives it; empty where it gives none.
    pub(crate) enclosure: Box<str>,
    /// Capacities, as the slice has them.
    pub(crate) capacity: Box<[(Box<str>, Box<str>)]>,
    /// True if the device is not offered to new claims.
    pub(crate) is_hidden: bool,
}

impl PooledSlice {
    /// The slice, if its pool is one behind switches.
    pub(crate) fn of(slice: &ResourceSlice) -> Option<Self> {
        let spec = &slice.spec;
        of_fabric_pool(&spec.pool.name)?;
        let mut devices: Vec<SlicedDevice> = Vec::with_capacity(spec.devices.len());
        for device in &spec.devices {
            devices.push(SlicedDevice::of(device, devices.last()));
        }
        Some(Self {
            driver: spec.driver.as_str().into(),
            pool: spec.pool.name.as_str().into(),
            generation: spec.pool.generation,
            nodes: nodes_of(slice),
            devices: devices.into(),
        })
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
    fn of(device: &SliceDevice, last: Option<&Self>) -> Self {
        let traits = SlicedTraits::of(device);
        let shared = last.map(|last| &last.traits).filter(|known| ***known == traits);
        Self { name: device.name.clone(), traits: shared.map_or_else(|| Arc::new(traits), Arc::clone) }
    }
}

impl SlicedTraits {
    fn of(device: &SliceDevice) -> Self {
        let text = |name: &str| match device.attributes.get(name) {
            Some(DeviceAttribute::String(text)) => text.as_ref().into(),
            _ => Box::default(),
        };
        let amount = |of: &SliceQuantity| match of {
            SliceQuantity::Exact(amount) => amount.to_string().into(),
            SliceQuantity::Unreadable(text) => text.to_string().into(),
        };
        Self {
            device_kind: text("kind"),
            enclosure: text("enclosure"),
            capacity: device.capacity.iter().map(|(name, it)| (Box::from(name), amount(&it.value))).collect(),
            is_hidden: device.taints.iter().any(|taint| &*taint.key == FABRIC_TAINT),
        }
    }
}

//! Slices in little memory. Devices of a slice are mostly alike: they have names, a few values and taints of their own.
//! Pure.

use std::sync::Arc;

use hostler_api::{
    core::NodeSelector,
    resource::{DeviceAttribute, DeviceTaint, ResourcePool, SliceContent, SliceCounterSet, SliceDevice},
};
use hostler_cluster::ObjectVersion;

use super::PublishedSlice;

/// A slice on the server, packed. Two are equal when they mean the same.
#[derive(Clone, Debug)]
pub(super) struct KnownSlice {
    pub(super) version: ObjectVersion,
    pub(super) pool: ResourcePool,
    pub(super) owner: Option<String>,
    pub(super) content: PackedContent,
    pub(super) sent: Option<PackedContent>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PackedContent {
    node_selector: Option<Box<NodeSelector>>,
    shared_counters: Box<[SliceCounterSet]>,
    /// The first device, without its taints.
    model: Option<Box<SliceDevice>>,
    devices: Box<[PackedDevice]>,
}

#[derive(Clone, Debug, PartialEq)]
enum PackedDevice {
    Alike {
        name: Box<str>,
        /// Attributes that have other values than those of the model, by their place among its attributes.
        attributes: Box<[(usize, DeviceAttribute)]>,
        taints: Box<[DeviceTaint]>,
    },
    Other(Box<SliceDevice>),
}

impl KnownSlice {
    pub(super) fn pack(slice: &PublishedSlice) -> Self {
        let PublishedSlice { version, pool, owner, content, sent } = slice.clone();
        let (content, sent) = (PackedContent::pack(&content), sent.as_deref().map(PackedContent::pack));
        Self { version, pool, owner, content, sent }
    }

    pub(super) fn unpack(&self) -> PublishedSlice {
        let Self { version, pool, owner, content, sent } = self;
        PublishedSlice {
            version: version.clone(),
            pool: pool.clone(),
            owner: owner.clone(),
            content: Arc::new(content.unpack()),
            sent: sent.as_ref().map(|sent| Arc::new(sent.unpack())),
        }
    }

    /// True if both say the same to those who read slices, whatever their versions are.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        (&self.pool, &self.owner, &self.content) == (&other.pool, &other.owner, &other.content)
    }
}

impl PackedContent {
    fn pack(content: &SliceContent) -> Self {
        let model = content.devices.first().map(|first| SliceDevice { taints: Vec::new(), ..first.clone() });
        let pack = |device| model.as_ref().map_or_else(|| other(device), |model| pack_device(device, model));
        Self {
            node_selector: content.node_selector.clone(),
            shared_counters: content.shared_counters.clone().into(),
            devices: content.devices.iter().map(pack).collect(),
            model: model.map(Box::new),
        }
    }

    fn unpack(&self) -> SliceContent {
        let model = self.model.as_deref().cloned().unwrap_or_default();
        SliceContent {
            node_selector: self.node_selector.clone(),
            devices: self.devices.iter().map(|device| unpack_device(device, &model)).collect(),
            shared_counters: self.shared_counters.to_vec(),
        }
    }
}

fn other(device: &SliceDevice) -> PackedDevice {
    PackedDevice::Other(Box::new(device.clone()))
}

fn pack_device(device: &SliceDevice, model: &SliceDevice) -> PackedDevice {
    let pairs = || device.attributes.iter().zip(model.attributes.iter());
    let has_its_attributes =
        device.attributes.len() == model.attributes.len() && pairs().all(|((name, _), (of_model, _))| name == of_model);
    let (name, attributes, taints) = (model.name.clone(), model.attributes.clone(), Vec::new());
    if !has_its_attributes || (SliceDevice { name, attributes, taints, ..device.clone() }) != *model {
        return other(device);
    }
    let own = pairs().enumerate().filter(|(_, ((_, value), (_, of_model)))| value != of_model);
    PackedDevice::Alike {
        name: device.name.clone(),
        attributes: own.map(|(at, ((_, value), _))| (at, value.clone())).collect(),
        taints: device.taints.clone().into(),
    }
}

fn unpack_device(device: &PackedDevice, model: &SliceDevice) -> SliceDevice {
    match device {
        PackedDevice::Other(device) => SliceDevice::clone(device),
        PackedDevice::Alike { name, attributes, taints } => {
            let own = |at: usize| attributes.iter().find(|(place, _)| *place == at).map(|(_, value)| value);
            let pairs = model.attributes.iter().enumerate();
            SliceDevice {
                name: name.clone(),
                attributes: pairs.map(|(at, (name, value))| (name, own(at).unwrap_or(value).clone())).collect(),
                taints: taints.to_vec(),
                ..model.clone()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn content(devices: &Value) -> SliceContent {
        let devices = serde_json::from_value(devices.clone()).unwrap();
        SliceContent { node_selector: Some(Box::new(NodeSelector::of_node("n"))), devices, ..SliceContent::default() }
    }

    fn device(name: &str, serial: &str) -> Value {
        json!({
            "name": name, "attributes": {"kind": {"string": "memory"}, "serial": {"string": serial}},
            "capacity": {"memory": {"value": "16Gi"}}, "bindsToNode": true, "bindingConditions": ["hostler.dev/attached"],
        })
    }

    /// Devices in all ways in which they differ from the first one.
    fn devices() -> Value {
        let with = |name: &str, field: &str, value: Value| {
            let mut device = device(name, name);
            device[field] = value;
            device
        };
        let taint = json!([{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]);
        json!([
            with("a", "taints", taint.clone()),
            device("b", "b"),
            with("c", "taints", taint),
            with("d", "capacity", json!({"memory": {"value": "32Gi"}})),
            with("e", "attributes", json!({"kind": {"string": "memory"}})),
            with("f", "attributes", json!({"kind": {"string": "memory"}, "other": {"int": 3}})),
            with("g", "attributes", json!({"kind": {"bool": true}, "serial": {"string": "g"}})),
            with("h", "bindsToNode", json!(false)),
        ])
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed_with_the_times_of_taints() {
        for devices in [devices(), json!([])] {
            let before = content(&devices);
            let after = PackedContent::pack(&before).unpack();
            assert_eq!(json!(after.devices), json!(before.devices));
            assert_eq!(after, before);
        }
    }

    #[test]
    fn of_devices_that_are_alike_only_the_first_is_kept_whole() {
        let packed = PackedContent::pack(&content(&json!([device("a", "0xa"), device("b", "0xb")])));
        for (packed, own) in packed.devices.iter().zip([0, 1]) {
            let PackedDevice::Alike { attributes, .. } = packed else { panic!("{packed:?} is kept whole") };
            assert_eq!(attributes.len(), own, "{packed:?}");
        }
    }

    #[test]
    fn packed_contents_are_equal_when_they_mean_the_same() {
        let packed = PackedContent::pack(&content(&devices()));
        for at in 0..8 {
            let mut other = devices();
            other[at]["name"] = json!("x");
            assert_ne!(PackedContent::pack(&content(&other)), packed, "device {at} has another name");
            let mut untainted = devices();
            untainted[at]["taints"] = json!([{"key": "new", "effect": "NoSchedule"}]);
            assert_ne!(PackedContent::pack(&content(&untainted)), packed, "device {at} has another taint");
        }
        let mut later = devices();
        later[0]["taints"][0]["timeAdded"] = json!("2026-01-02T00:00:00Z");
        later[1]["capacity"]["memory"]["value"] = json!("16384Mi");
        assert_eq!(PackedContent::pack(&content(&later)), packed);
    }
}

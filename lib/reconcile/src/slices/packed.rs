//! Slices in little memory: their contents are packed. Pure.

use std::sync::Arc;

use hostler_api::{
    Packed,
    resource::{ResourcePool, SliceContent},
};
use hostler_cluster::ObjectVersion;

use super::PublishedSlice;

/// A slice on the server, packed.
#[derive(Clone, Debug)]
pub(super) struct KnownSlice {
    pub(super) version: ObjectVersion,
    pub(super) pool: ResourcePool,
    pub(super) owner: Option<String>,
    pub(super) content: PackedContent,
    pub(super) sent: Option<PackedContent>,
}

/// A content, packed. One that cannot be unpacked reads as an empty one, so that what should be there is written.
#[derive(Clone, Debug)]
pub(super) struct PackedContent(Option<Packed<SliceContent>>);

impl KnownSlice {
    pub(super) fn pack(slice: &PublishedSlice) -> Self {
        let PublishedSlice { version, pool, owner, content, sent } = slice;
        let (content, sent) = (PackedContent::pack(content), sent.as_deref().map(PackedContent::pack));
        Self { version: version.clone(), pool: pool.clone(), owner: owner.clone(), content, sent }
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
        (&self.pool, &self.owner) == (&other.pool, &other.owner) && self.content.says_the_same(&other.content)
    }
}

impl PackedContent {
    fn pack(content: &SliceContent) -> Self {
        Self(Packed::pack(content))
    }

    fn unpack(&self) -> SliceContent {
        self.0.as_ref().and_then(Packed::unpack).unwrap_or_default()
    }

    fn says_the_same(&self, other: &Self) -> bool {
        let is_written_alike =
            self.0.as_ref().zip(other.0.as_ref()).is_some_and(|(one, other)| one.is_written_as(other));
        is_written_alike || self.unpack() == other.unpack()
    }
}

#[cfg(test)]
mod tests {
    use hostler_api::core::NodeSelector;
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

    /// Devices that differ from the first one in all ways.
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
    fn packed_contents_say_the_same_when_they_mean_the_same() {
        let packed = PackedContent::pack(&content(&devices()));
        for at in 0..8 {
            let mut other = devices();
            other[at]["name"] = json!("x");
            let other = PackedContent::pack(&content(&other));
            assert!(!other.says_the_same(&packed), "device {at} has another name");
            let mut untainted = devices();
            untainted[at]["taints"] = json!([{"key": "new", "effect": "NoSchedule"}]);
            let untainted = PackedContent::pack(&content(&untainted));
            assert!(!untainted.says_the_same(&packed), "device {at} has another taint");
        }
        let mut later = devices();
        later[0]["taints"][0]["timeAdded"] = json!("2026-01-02T00:00:00Z");
        later[1]["capacity"]["memory"]["value"] = json!("16384Mi");
        assert!(PackedContent::pack(&content(&later)).says_the_same(&packed));
    }
}

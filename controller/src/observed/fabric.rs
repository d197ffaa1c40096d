//! Devices behind switches as the cluster tells of them: their FabricAttachments, and the claims that have them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_api::{
    ObjectKey, Quantity,
    core::{NodeSelector, NodeSelectorOperator},
    fabric::{FabricAttachment, MEMORY_CAPACITY, SystemUuid, fabric_pool, of_fabric_pool},
    hardware::NodeHardware,
    resource::{ResourceClaim, ResourceSlice},
};
use hostler_reconcile::ObjectStamp;

use super::PooledSlice;

/// A FabricAttachment, in one of its versions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttachmentObject {
    pub(crate) stamp: ObjectStamp,
    pub(crate) attachment: FabricAttachment,
}

/// A claim that has a device behind a switch by its allocation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FabricClaim {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    /// The pool of the device.
    pub(crate) pool: String,
    /// The node of the allocation; absent where the allocation names none, or several.
    pub(crate) node: Option<String>,
    /// Memory that the claim asks of the device.
    pub(crate) memory: Option<Quantity>,
    pub(crate) stamp: ObjectStamp,
}

/// A device behind a switch that a Reservation closes to others, and keeps for a node.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct PooledHold {
    pub(crate) node: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    /// Value of the taint.
    pub(crate) value: String,
}

/// Pools and devices that are to be offered anew.
#[derive(Debug, Default)]
pub(crate) struct OfferedOtherwise<'a> {
    /// Names of pools.
    pub(crate) pools: BTreeSet<String>,
    /// Names of devices, which any pool may show.
    pub(crate) devices: BTreeSet<&'a str>,
}

/// Everything that the cluster tells of devices behind switches.
#[derive(Clone, Debug, Default)]
pub(crate) struct FabricObjects {
    /// FabricAttachments, by the name of the device.
    pub(crate) attachments: BTreeMap<String, Arc<AttachmentObject>>,
    /// Claims, by the name of the device.
    pub(crate) claims: BTreeMap<String, Vec<FabricClaim>>,
    /// Slices of pools behind switches, by name.
    pub(crate) slices: BTreeMap<String, Arc<PooledSlice>>,
    /// UUIDs of nodes' system boards, by the name of the node.
    pub(crate) system_uuids: BTreeMap<String, SystemUuid>,
    /// Devices that Reservations close, each for one node, as the NodeHardware of that node says. In the order of nodes.
    pub(crate) holds: Vec<PooledHold>,
    /// Devices of each claim that is in `claims`.
    devices: BTreeMap<ObjectKey, Vec<String>>,
}

impl FabricObjects {
    /// Pools and devices of which something differs that decides what is offered: pools are those that these objects name. The
    /// slices that are there are read by the publisher itself.
    pub(crate) fn offered_otherwise<'a>(self: &'a Arc<Self>, other: &'a Arc<Self>) -> OfferedOtherwise<'a> {
        let mut found = OfferedOtherwise::default();
        if Arc::ptr_eq(self, other) {
            return found;
        }
        for (device, one, other) in differences(&self.attachments, &other.attachments) {
            found.devices.insert(device);
            let specs = [one, other].into_iter().flatten().map(|object| &object.attachment.spec);
            found.pools.extend(specs.map(|spec| fabric_pool(&spec.manager, &spec.domain)));
        }
        for (device, one, other) in differences(&self.claims, &other.claims) {
            found.devices.insert(device);
            found.pools.extend([one, other].into_iter().flatten().flatten().map(|claim| claim.pool.clone()));
        }
        if self.holds != other.holds {
            let is_in_one = |hold: &&PooledHold| !(self.holds.contains(hold) && other.holds.contains(hold));
            let holds = self.holds.iter().chain(&other.holds).filter(is_in_one);
            found.pools.extend(holds.map(|hold| hold.pool.clone()));
        }
        found
    }

    /// Updates what is known of a claim; nothing is copied for claims that never had such a device.
    pub(crate) fn see_claim(known: &mut Arc<Self>, key: &ObjectKey, stamp: ObjectStamp, claim: &ResourceClaim) {
        let had = known.devices.contains_key(key);
        let allocation = claim.status.allocation.as_ref();
        let results = allocation.into_iter().flat_map(|it| &it.devices.results);
        let found: Vec<_> = results.filter(|result| of_fabric_pool(&result.pool).is_some()).collect();
        if !had && found.is_empty() {
            return;
        }
        let known = Arc::make_mut(known);
        known.drop_claim(key);
        let node = allocation.and_then(|it| it.node_selector.as_ref()).and_then(only_node);
        for result in &found {
            known.claims.entry(result.device.clone()).or_default().push(FabricClaim {
                key: key.clone(),
                uid: claim.metadata.uid.clone().unwrap_or_default(),
                pool: result.pool.clone(),
                node: node.clone(),
                memory: claim.spec.devices.asked(&result.request, MEMORY_CAPACITY),
                stamp,
            });
        }
        if !found.is_empty() {
            known.devices.insert(key.clone(), found.iter().map(|result| result.device.clone()).collect());
        }
    }

    /// Forgets a claim.
    pub(crate) fn forget_claim(known: &mut Arc<Self>, key: &ObjectKey) {
        if known.devices.contains_key(key) {
            Arc::make_mut(known).drop_claim(key);
        }
    }

    /// Updates what is known of a slice; nothing is copied for slices of nodes.
    pub(crate) fn see_slice(known: &mut Arc<Self>, slice: &ResourceSlice) {
        let name = &slice.metadata.name;
        match PooledSlice::of(slice) {
            Some(pooled) => drop(Arc::make_mut(known).slices.insert(name.clone(), Arc::new(pooled))),
            None => Self::forget_slice(known, name),
        }
    }

    /// Forgets a slice.
    pub(crate) fn forget_slice(known: &mut Arc<Self>, name: &str) {
        if known.slices.contains_key(name) {
            Arc::make_mut(known).slices.remove(name);
        }
    }

    /// Updates the UUID of a node and the devices that are kept for it; an unchanged report is not copied.
    pub(crate) fn see_node(known: &mut Arc<Self>, report: &NodeHardware) {
        let (name, uuid) = (&report.metadata.name, &report.status.system_uuid);
        if known.system_uuids.get(name) != uuid.as_ref() {
            match uuid {
                Some(uuid) => drop(Arc::make_mut(known).system_uuids.insert(name.clone(), uuid.clone())),
                None => drop(Arc::make_mut(known).system_uuids.remove(name)),
            }
        }
        let pooled = report.spec.holds.iter().filter(|hold| of_fabric_pool(&hold.pool).is_some());
        let holds: Vec<PooledHold> = pooled
            .map(|hold| PooledHold {
                node: name.clone(),
                pool: hold.pool.clone(),
                device: hold.device.clone(),
                value: hold.value.clone(),
            })
            .collect();
        Self::put_holds(known, name, holds);
    }

    /// Forgets a node.
    pub(crate) fn forget_node(known: &mut Arc<Self>, name: &str) {
        if known.system_uuids.contains_key(name) {
            Arc::make_mut(known).system_uuids.remove(name);
        }
        Self::put_holds(known, name, Vec::new());
    }

    fn put_holds(known: &mut Arc<Self>, node: &str, holds: Vec<PooledHold>) {
        if known.holds.iter().filter(|hold| hold.node == node).eq(&holds) {
            return;
        }
        let all = &mut Arc::make_mut(known).holds;
        all.retain(|hold| hold.node != node);
        all.extend(holds);
        // Of two nodes the same one counts, whichever reported first. The order within a node is its object's.
        all.sort_by(|one, other| one.node.cmp(&other.node));
    }

    fn drop_claim(&mut self, key: &ObjectKey) {
        for device in self.devices.remove(key).unwrap_or_default() {
            if let Some(claims) = self.claims.get_mut(&device) {
                claims.retain(|claim| claim.key != *key);
                if claims.is_empty() {
                    self.claims.remove(&device);
                }
            }
        }
    }
}

/// The one node that a selector names by its name, as the scheduler writes it for devices that bind to a node.
pub(crate) fn only_node(selector: &NodeSelector) -> Option<String> {
    let [term] = selector.node_selector_terms.as_slice() else { return None };
    let mut fields = term.match_fields.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    match field.values.as_slice() {
        [node] if field.key == "metadata.name" && field.operator == NodeSelectorOperator::In => Some(node.clone()),
        _ => None,
    }
}

/// Names with values that differ, or that one map alone has.
fn differences<'a, V: PartialEq>(
    one: &'a BTreeMap<String, V>,
    other: &'a BTreeMap<String, V>,
) -> impl Iterator<Item = (&'a str, Option<&'a V>, Option<&'a V>)> {
    let new = other.iter().filter(|(name, _)| !one.contains_key(*name)).map(|(name, it)| (&**name, None, Some(it)));
    let differing = one.iter().map(|(name, it)| (&**name, Some(it), other.get(name))).filter(|(_, it, now)| it != now);
    differing.chain(new)
}

#[cfg(test)]
mod tests {
    use hostler_cluster::ObjectVersion;
    use serde_json::json;

    use super::*;

    fn claim(devices: &[&str], node: &str) -> ResourceClaim {
        let results: Vec<_> = devices
            .iter()
            .map(|device| {
                let (pool, device) = device.rsplit_once('/').unwrap();
                json!({"request": "r", "driver": "hostler.dev", "pool": pool, "device": device})
            })
            .collect();
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        serde_json::from_value(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "uid": "u"},
            "status": {"allocation": {
                "devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]},
            }},
        }))
        .unwrap()
    }

    fn stamp(version: u64) -> ObjectStamp {
        ObjectStamp::from(&ObjectVersion { uid: "u".to_owned(), resource_version: version.to_string() })
    }

    #[test]
    fn claims_are_known_by_their_devices_behind_switches() {
        let key = ObjectKey::new("default", "c");
        let mut known = Arc::<FabricObjects>::default();
        let untouched = known.clone();
        FabricObjects::see_claim(&mut known, &key, stamp(1), &claim(&["n1/cxl/memory-1"], "n1"));
        assert!(Arc::ptr_eq(&known, &untouched), "a device of a node is copied for nothing");

        let both = claim(&["fabric/m/d/a", "n1/cpu/numa-0", "fabric/m/d/b"], "n1");
        FabricObjects::see_claim(&mut known, &key, stamp(2), &both);
        assert_eq!(known.claims.keys().collect::<Vec<_>>(), ["a", "b"]);
        let of_a = &known.claims["a"][0];
        assert_eq!((of_a.uid.as_str(), of_a.pool.as_str(), of_a.node.as_deref()), ("u", "fabric/m/d", Some("n1")));

        FabricObjects::see_claim(&mut known, &key, stamp(3), &claim(&["fabric/m/d/b"], "n2"));
        assert_eq!(known.claims.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(known.claims["b"].len(), 1, "the earlier allocation is forgotten");
        FabricObjects::forget_claim(&mut known, &key);
        assert!(known.claims.is_empty() && known.devices.is_empty());
    }

    #[test]
    fn a_slice_behind_switches_is_known_until_it_is_gone_and_one_of_a_node_is_not_copied() {
        let slice = |name: &str, pool: &str| -> ResourceSlice {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"driver": "hostler.dev", "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}},
            }))
            .unwrap()
        };
        let mut known = Arc::<FabricObjects>::default();
        let untouched = known.clone();
        FabricObjects::see_slice(&mut known, &slice("a", "n1/cxl"));
        assert!(Arc::ptr_eq(&known, &untouched), "a slice of a node is copied for nothing");
        FabricObjects::see_slice(&mut known, &slice("a", "fabric/m/d"));
        assert_eq!(&*known.slices["a"].pool, "fabric/m/d");
        FabricObjects::see_slice(&mut known, &slice("a", "n1/cxl"));
        assert!(known.slices.is_empty(), "it is of another pool now");
        FabricObjects::see_slice(&mut known, &slice("a", "fabric/m/d"));
        FabricObjects::forget_slice(&mut known, "a");
        assert!(known.slices.is_empty());
    }

    #[test]
    fn a_node_is_known_by_the_uuid_of_its_last_report() {
        let report = |uuid: Option<&str>| -> NodeHardware {
            serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": {"systemUUID": uuid}})).unwrap()
        };
        let uuid = "918eda4d-2b69-432f-b0d3-dc2a8d80a351";
        let mut known = Arc::<FabricObjects>::default();
        FabricObjects::see_node(&mut known, &report(Some(uuid)));
        assert_eq!(known.system_uuids["n1"].as_str(), uuid);
        let before = known.clone();
        FabricObjects::see_node(&mut known, &report(Some(uuid)));
        assert!(Arc::ptr_eq(&known, &before), "an unchanged report is copied");
        FabricObjects::see_node(&mut known, &report(None));
        assert!(known.system_uuids.is_empty());
    }

    #[test]
    fn devices_behind_switches_that_reservations_close_are_known_by_the_node_that_they_are_kept_for() {
        let report = |node: &str, devices: &[&str]| -> NodeHardware {
            let holds: Vec<_> = devices
                .iter()
                .map(|device| {
                    let (pool, device) = device.rsplit_once('/').unwrap();
                    json!({"pool": pool, "device": device, "value": "v"})
                })
                .collect();
            serde_json::from_value(json!({"metadata": {"name": node}, "spec": {"nodeName": node, "holds": holds}}))
                .unwrap()
        };
        let kept = |known: &FabricObjects| {
            known.holds.iter().map(|hold| format!("{} {}", hold.node, hold.device)).collect::<Vec<_>>()
        };
        let mut known = Arc::<FabricObjects>::default();
        FabricObjects::see_node(&mut known, &report("n2", &["fabric/m/d/b", "n2/cxl/own"]));
        FabricObjects::see_node(&mut known, &report("n1", &["fabric/m/d/b", "fabric/m/d/a"]));
        assert_eq!(kept(&known), ["n1 b", "n1 a", "n2 b"]);
        let before = known.clone();
        FabricObjects::see_node(&mut known, &report("n1", &["fabric/m/d/b", "fabric/m/d/a"]));
        assert!(Arc::ptr_eq(&known, &before), "an unchanged report is copied");
        FabricObjects::forget_node(&mut known, "n1");
        FabricObjects::see_node(&mut known, &report("n2", &[]));
        assert!(known.holds.is_empty());
    }
}

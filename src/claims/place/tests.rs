//! Devices that are to lie together: on one node, or refused with the reason for each.

use std::sync::Arc;

use hostler_api::{Allocation, BackendName, ClaimUid, DeviceName, QualifiedName, Quantity};
use hostler_backend::{
    AttributeValue, Backend, BackendError, Capacity, Device, DevicePlan, Enumeration, RequestPolicy, Sharing,
    opaque::refuse_opaque_config,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::{admit::admit, held::HeldGrant, testing::*},
    *,
};
use crate::{
    inventory::{Inventory, Pool},
    registry::BackendRegistry,
};

/// A backend whose devices have units on NUMA nodes: a grant takes all of its units from one node.
struct Islands;

fn units() -> QualifiedName {
    QualifiedName::new("units").unwrap()
}

fn amount(grant: &Grant) -> u64 {
    grant.consumed[&units()].as_whole().unwrap()
}

/// What is free of a device on each of its nodes.
fn free_units(work: &PlanWork<'_>) -> BTreeMap<u32, u64> {
    let mut free: BTreeMap<u32, u64> = serde_json::from_value(work.device.data.clone()).unwrap();
    for held in work.held.iter().filter(|held| held.grant.device == work.device.name) {
        let node = u32::try_from(held.plan.data.as_u64().unwrap()).unwrap();
        *free.get_mut(&node).unwrap() -= amount(held.grant);
    }
    free.retain(|node, _| work.within.is_none_or(|within| within == *node));
    free
}

impl Backend for Islands {
    fn name(&self) -> BackendName {
        backend_name()
    }

    fn subsystems(&self) -> &[&'static str] {
        &[]
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        Ok(Enumeration::default())
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        refuse_opaque_config(work.grant)?;
        let (wanted, free) = (amount(work.grant), free_units(work));
        match free.iter().find(|(_, free)| **free >= wanted) {
            Some((node, _)) => Ok(DevicePlan { data: json!(node), ..DevicePlan::default() }),
            None => Err(BackendError::refused(format!("{} has {free:?} free", work.device.name))),
        }
    }

    fn free(&self, work: &PlanWork<'_>) -> Option<u64> {
        Some(free_units(work).values().sum())
    }
}

/// A device with so many units on each node. With `shown`, it says on which nodes.
fn island(name: &str, units_on: &[(u32, u64)], shown: bool) -> Device {
    let unit = Quantity::whole(1);
    let mut device = Device::new(DeviceName::new(name).unwrap());
    device.sharing = Sharing::Shared;
    let value = Quantity::whole(units_on.iter().map(|(_, units)| units).sum());
    let policy = Some(RequestPolicy { default: unit, min: unit, step: unit });
    device.capacity.insert(units(), Capacity { value, policy });
    device.data = json!(units_on.iter().copied().collect::<BTreeMap<u32, u64>>());
    if shown {
        let nodes = units_on.iter().map(|(node, _)| i64::from(*node)).collect();
        let attribute = QualifiedName::new("resource.kubernetes.io/numaNode").unwrap();
        device.attributes.insert(attribute, AttributeValue::Ints(nodes));
    }
    device
}

fn placement(same: &str) -> Value {
    json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "PlacementConfig", "sameNumaNode": same})
}

fn wish(device: &str, amount: u64, same: Option<&str>) -> Grant {
    let config = same.map(placement).into_iter().collect();
    Grant { request: format!("r-{device}"), config, ..part(device, amount) }
}

/// The nodes that the grants get beside what `held` holds of the devices.
fn nodes(devices: &[Device], held: &[RecordDevice], grants: &[Grant]) -> Result<Vec<u64>, String> {
    let pool = Pool { name: POOL.to_owned(), devices: devices.to_vec(), ..Pool::default() };
    let inventory = Inventory { pools: [(backend_name(), pool.into())].into(), ..Inventory::default() };
    let backends = BackendRegistry::new([Arc::new(Islands) as Arc<dyn Backend>]);
    let uid: ClaimUid = uid("holder");
    let holdings: Vec<HeldGrant<'_>> =
        held.iter().map(|device| HeldGrant { uid: &uid, name: "default/holder", device }).collect();
    let allocation = Allocation { grants: grants.to_vec(), ..Allocation::default() };
    let admitted = admit(&claim("new"), &allocation, &inventory, &backends, &holdings);
    let admitted = admitted.map_err(|error| Chain(&error).to_string())?;
    Ok(admitted.iter().map(|device| device.plan.data.as_u64().unwrap()).collect())
}

fn holds(device: &str, amount: u64, node: u64) -> RecordDevice {
    let mut held = record("holder", super::super::store::RecordState::Prepared, "boot").devices.remove(0);
    held.grant = wish(device, amount, None);
    held.plan = DevicePlan { data: json!(node), ..DevicePlan::default() };
    held
}

const BOTH: &[(u32, u64)] = &[(0, 4), (1, 4)];

#[test]
fn a_device_on_one_node_decides_for_those_on_several() {
    let devices = [island("cpus", BOTH, true), island("card", &[(1, 1)], true)];
    let grants = |same| [wish("cpus", 2, same), wish("card", 1, same)];
    assert_eq!(nodes(&devices, &[], &grants(None)), Ok(vec![0, 1]));
    assert_eq!(nodes(&devices, &[], &grants(Some("required"))), Ok(vec![1, 1]));
    assert_eq!(nodes(&devices, &[], &grants(Some("preferred"))), Ok(vec![1, 1]));
}

#[test]
fn the_node_with_most_room_comes_first_and_the_next_if_it_has_not_enough_of_all() {
    let devices = [island("cpus", &[(0, 4), (1, 8)], true), island("memory", &[(0, 9), (1, 3)], true)];
    let grants = |memory| [wish("cpus", 2, Some("required")), wish("memory", memory, Some("required"))];
    assert_eq!(nodes(&devices, &[], &grants(1)), Ok(vec![1, 1]));
    assert_eq!(nodes(&devices, &[], &grants(5)), Ok(vec![0, 0]));
    assert_eq!(nodes(&devices, &[holds("cpus", 5, 1)], &grants(1)), Ok(vec![0, 0]));
}

#[test]
fn what_cannot_be_on_one_node_is_refused_with_the_reason_for_each() {
    let devices = [island("cpus", BOTH, true), island("memory", BOTH, true), island("card", &[(1, 1)], true)];
    let held = [holds("cpus", 4, 1), holds("memory", 1, 0)];
    let grants = [wish("cpus", 3, Some("required")), wish("memory", 4, Some("required"))];
    assert_eq!(
        nodes(&devices, &held, &grants).unwrap_err(),
        "no NUMA node has all that has to be on one (sameNumaNode: required): cpus for request r-cpus (nodes 0,1), memory \
         for request r-memory (nodes 0,1); on node 0: failed to plan device memory: memory has {0: 3} free; on node 1: \
         failed to plan device cpus: cpus has {1: 0} free"
    );
    let apart = [island("left", &[(0, 1)], true), island("right", &[(1, 1)], true)];
    let grants = [wish("left", 1, Some("required")), wish("right", 1, Some("required"))];
    let error = nodes(&apart, &[], &grants).unwrap_err();
    assert!(error.ends_with("right for request r-right (node 1); they have no node in common"), "{error}");
}

#[test]
fn a_preference_gives_way_and_a_requirement_beside_it_does_not() {
    let devices = [island("cpus", BOTH, true), island("memory", BOTH, true), island("card", &[(1, 1)], true)];
    let full = [holds("cpus", 4, 1)];
    let grants =
        |same| [wish("cpus", 3, Some(same)), wish("memory", 4, Some("required")), wish("card", 1, Some("required"))];
    assert_eq!(nodes(&devices, &full, &grants("preferred")), Ok(vec![0, 1, 1]));
    assert!(nodes(&devices, &full, &grants("required")).is_err());
}

#[test]
fn a_device_of_unknown_place_is_no_obstacle() {
    let devices = [island("cpus", &[(1, 4)], true), island("card", &[(0, 1)], false)];
    let alone = [wish("card", 1, Some("required"))];
    assert_eq!(nodes(&devices, &[], &alone), Ok(vec![0]), "nothing is known, so nothing is asked");
    let grants = [wish("cpus", 1, Some("required")), wish("card", 1, Some("required"))];
    let error = nodes(&devices, &[], &grants).unwrap_err();
    assert!(error.contains("card for request r-card (any node)"), "it may still refuse by itself: {error}");
}

#[test]
fn requests_without_the_wish_go_where_they_like_and_fail_in_their_own_words() {
    let devices = [island("cpus", BOTH, true), island("card", &[(1, 1)], true)];
    let grants = [wish("cpus", 2, Some("required")), wish("card", 1, None)];
    assert_eq!(nodes(&devices, &[], &grants), Ok(vec![0, 1]));
    let error = nodes(&devices, &[holds("card", 1, 1)], &grants).unwrap_err();
    assert!(error.starts_with("device card has 0 of units left"), "{error}");
    let error = nodes(&devices, &[], &[wish("cpus", 2, Some("required")), wish("gone", 1, None)]).unwrap_err();
    assert!(error.starts_with("device gone is not in pool"), "{error}");
}

#[test]
fn wrong_placement_is_refused_by_field() {
    let error = nodes(&[island("cpus", BOTH, true)], &[], &[wish("cpus", 1, Some("perhaps"))]).unwrap_err();
    assert!(error.contains("parameters.sameNumaNode: \"perhaps\" is not one of required, preferred"), "{error}");
}

#[test]
fn what_is_wrong_on_every_node_is_told_without_them() {
    let devices = [island("cpus", BOTH, true), island("memory", BOTH, true)];
    let mut wrong = wish("cpus", 1, Some("required"));
    wrong.config.push(json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CpuConfig"}));
    let error = nodes(&devices, &[], &[wrong, wish("memory", 1, Some("required"))]).unwrap_err();
    assert!(error.starts_with("failed to plan device cpus: configuration is not valid"), "{error}");
    let held = [holds("cpus", 4, 0), holds("cpus", 4, 1)];
    let error = nodes(&devices, &held, &[wish("cpus", 1, Some("preferred"))]).unwrap_err();
    assert!(error.starts_with("device cpus has 0 of units left"), "{error}");
}

#[test]
fn who_only_looks_after_a_device_binds_no_one() {
    let devices = [island("cpus", &[(0, 4)], true), island("card", &[(1, 1)], true)];
    let admin = Grant { access: Access::Admin, ..wish("card", 1, Some("required")) };
    assert_eq!(nodes(&devices, &[], &[wish("cpus", 1, Some("required")), admin]), Ok(vec![0, 1]));
}

proptest! {
    #[test]
    fn a_required_node_is_found_exactly_when_there_is_one(
        first in prop::collection::btree_map(0..3_u32, 0..5_u64, 1..4),
        second in prop::collection::btree_map(0..3_u32, 0..5_u64, 1..4),
        wanted in (1..5_u64, 1..5_u64),
    ) {
        let list = |units: &BTreeMap<u32, u64>| units.iter().map(|(node, units)| (*node, *units)).collect::<Vec<_>>();
        let devices = [island("first", &list(&first), true), island("second", &list(&second), true)];
        let grants = |same| [wish("first", wanted.0, Some(same)), wish("second", wanted.1, Some(same))];
        let fits = |node: &u32| first[node] >= wanted.0 && second.get(node).is_some_and(|units| *units >= wanted.1);
        let possible = first.keys().any(fits);
        let required = nodes(&devices, &[], &grants("required"));
        prop_assert_eq!(required.is_ok(), possible);
        if let Ok(nodes) = required {
            prop_assert_eq!(nodes[0], nodes[1]);
        }
        let apart = first.values().any(|units| *units >= wanted.0) && second.values().any(|units| *units >= wanted.1);
        prop_assert_eq!(nodes(&devices, &[], &grants("preferred")).is_ok(), apart);
    }
}

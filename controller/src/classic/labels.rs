//! Labels of nodes that tell where devices of a class are: the scheduler then asks only about nodes that have some.
//!
//! A class opts in: its `suitableNodes` name a label of the driver's domain. Such a label is `true` on every node with
//! a device of the class, held or free, and on no other. A node whose devices cannot be relied on keeps its labels. A
//! label that no class names any more goes if the node's `managedFields` say that this controller wrote it.

use std::collections::{BTreeMap, BTreeSet};

use hostler_allocator::structured::{AllocatedState, Allocator, Budget, NodeFacts, NodePools, Refusal, SliceIndex};
use hostler_api::{
    core::NodeSelector,
    resource::{DeviceClaim, DeviceRequest, DeviceToleration, ExactDeviceRequest, ResourceClaim},
};

use super::{
    catalogue::Catalogue, context::ClassicContext, event::ClassicWrite, inventory::Inventory, terms::claim_for,
};

/// The value of these labels.
const HAS_SOME: &str = "true";
/// Limit of steps of the search for one device.
const MOST_STEPS: u64 = 10_000;

/// Decides which labels of a node change.
pub(super) fn decide_node(cx: &ClassicContext<'_>, name: &str) -> Option<ClassicWrite> {
    let node = cx.inventory.node(name)?;
    let classes = own_classes(cx.catalogue, &cx.settings.driver);
    let wanted = wanted_labels(cx.catalogue, cx.inventory, &classes, name).unwrap_or_default();
    let is_written = |key: &String| node.labels.get(key).is_some_and(|value| value == HAS_SOME);
    let changes = wanted.into_iter().filter(|(key, has_some)| is_written(key) != *has_some);
    let is_named = |key: &String| classes.iter().any(|(_, keys)| keys.contains(key));
    let is_left = |key: &&String| is_of(key, &cx.settings.driver) && !is_named(key);
    let left = node.own_labels.iter().filter(is_left).map(|key| (key.clone(), None));
    let labels: BTreeMap<String, Option<String>> =
        changes.map(|(key, has_some)| (key, has_some.then(|| HAS_SOME.to_owned()))).chain(left).collect();
    (!labels.is_empty()).then(|| ClassicWrite::Labels { node: name.to_owned(), labels })
}

/// Returns classes with the labels of the driver's domain that they name.
fn own_classes<'c>(catalogue: &'c Catalogue, driver: &str) -> Vec<(&'c str, BTreeSet<&'c String>)> {
    let classes = catalogue.classes_with_nodes().map(|(class, selector)| (class, own_keys(selector, driver)));
    classes.filter(|(_, keys)| !keys.is_empty()).collect()
}

/// Returns the labels that the node shall have, and those that it shall not, if that is known.
fn wanted_labels(
    catalogue: &Catalogue,
    inventory: &Inventory,
    classes: &[(&str, BTreeSet<&String>)],
    node: &str,
) -> Option<BTreeMap<String, bool>> {
    if classes.is_empty() {
        return None;
    }
    let offers = inventory.offers(node).ok()?;
    let (allocator, labels) = (catalogue.allocator(), &inventory.node(node)?.labels);
    let index = SliceIndex::new(offers.iter().flat_map(|slices| slices.iter()));
    let pools = allocator.gather(NodeFacts { name: node, labels }, &index).ok()?;
    let mut wanted: BTreeMap<String, bool> = BTreeMap::new();
    for (class, keys) in classes {
        let has_some = has_some(allocator, &pools, class)?;
        keys.iter().for_each(|key| *wanted.entry((*key).clone()).or_default() |= has_some);
    }
    Some(wanted)
}

/// Returns true if there is a device of the class; `None` if the search cannot tell.
fn has_some(allocator: &Allocator, pools: &NodePools<'_>, class: &str) -> Option<bool> {
    let claim = [one_device(class)];
    let free = AllocatedState::new();
    match allocator.find(pools, &free, &allocator.compile(&claim), &mut Budget::steps(MOST_STEPS)) {
        Ok(found) => Some(found.is_some()),
        Err(Refusal::NoFit(_)) => Some(false),
        Err(_) => None,
    }
}

/// Returns the labels of the driver's domain that a selector names.
fn own_keys<'s>(selector: &'s NodeSelector, driver: &str) -> BTreeSet<&'s String> {
    let requirements = selector.node_selector_terms.iter().flat_map(|term| &term.match_expressions);
    requirements.map(|requirement| &requirement.key).filter(|key| is_of(key, driver)).collect()
}

fn is_of(key: &str, driver: &str) -> bool {
    key.strip_prefix(driver).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns a claim for one device of the class, held or free.
fn one_device(class: &str) -> ResourceClaim {
    let any = DeviceToleration { operator: "Exists".to_owned(), ..DeviceToleration::default() };
    let (device_class_name, tolerations) = (class.to_owned(), vec![any]);
    let exactly = ExactDeviceRequest { device_class_name, tolerations, ..ExactDeviceRequest::default() };
    let request = DeviceRequest { name: "any".to_owned(), exactly: Some(exactly), first_available: Vec::new() };
    claim_for(None, DeviceClaim { requests: vec![request], ..DeviceClaim::default() })
}

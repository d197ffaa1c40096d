//! Devices that Reservations keep: for one node, and for the claims that tolerate them.

use std::sync::Arc;

use hostler_api::fabric::{AttachedClaim, AttachmentKeeper, AttachmentPhase};
use serde_json::{Value, json};

use super::{POOL, Scene, name};
use crate::observed::{FabricObjects, PooledHold};

fn hold(scene: &mut Scene, device: u32, node: &str, value: &str) {
    let (node, pool, device, value) = (node.to_owned(), POOL.to_owned(), name(device), value.to_owned());
    Arc::make_mut(&mut scene.objects).holds.push(PooledHold { node, pool, device, value });
}

fn ready(scene: &mut Scene, device: u32, claim: Option<&str>) {
    scene.attach(device, AttachmentPhase::Ready, |it| {
        it.spec.kept_for = Some(AttachmentKeeper { name: "r".to_owned(), uid: "u".to_owned() });
        it.spec.claim = claim.map(|name| AttachedClaim { name: name.to_owned(), ..AttachedClaim::default() });
    });
}

/// The published taints of a device, and the node that alone can use it.
fn published(scene: &Scene, device: u32) -> (Vec<String>, Value) {
    let mut slices = scene.server.values();
    let found = slices.find_map(|slice| {
        let found = slice.content.devices.iter().find(|it| *it.name == *name(device))?;
        let taint =
            |it: &hostler_api::resource::DeviceTaint| format!("{}={}", it.key, it.value.as_deref().unwrap_or_default());
        let selector = json!(slice.content.node_selector);
        let node = selector["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].clone();
        Some((found.taints.iter().map(taint).collect(), node))
    });
    found.unwrap()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_kept_device_is_published_for_its_node_and_closed_to_others() {
    let mut scene = Scene::new(3);
    scene.publish();
    hold(&mut scene, 1, "n1", "v");
    let writes = scene.publish();
    assert_eq!(published(&scene, 1), (texts(&["hostler.dev/held=v"]), json!("n1")));
    assert_eq!(published(&scene, 0), (Vec::new(), Value::Null));
    assert_eq!(scene.server.len(), 2);
    let pools: Vec<_> = scene.server.values().map(|it| (it.pool.generation, it.pool.resource_slice_count)).collect();
    assert_eq!((writes.len(), pools), (2, vec![(2, 2), (2, 2)]), "a slice is of the pool as it was before");
    assert!(scene.publish().is_empty(), "what is there is written again");
    Arc::make_mut(&mut scene.objects).holds.clear();
    scene.publish();
    assert_eq!(published(&scene, 1), (Vec::new(), Value::Null));
    assert_eq!(scene.server.len(), 1);
}

#[test]
fn owners_are_given_a_kept_device_once_its_node_has_it() {
    let mut scene = Scene::new(1);
    hold(&mut scene, 0, "n0", "v");
    scene.attach(0, AttachmentPhase::Attaching, |_| {});
    scene.publish();
    assert_eq!(published(&scene, 0).0, texts(&["hostler.dev/fabric=attaching", "hostler.dev/held=v"]));
    ready(&mut scene, 0, None);
    scene.publish();
    assert_eq!(published(&scene, 0).0, texts(&["hostler.dev/held=v"]));
    ready(&mut scene, 0, Some("c"));
    scene.claim(0);
    scene.publish();
    assert_eq!(published(&scene, 0), (texts(&["hostler.dev/fabric=attached", "hostler.dev/held=v"]), json!("n0")));
    // The Reservation is over. What the claim was given stays as it was.
    Arc::make_mut(&mut scene.objects).holds.clear();
    scene.publish();
    assert_eq!(published(&scene, 0), (texts(&["hostler.dev/fabric=attached"]), json!("n0")));
    FabricObjects::forget_claim(&mut scene.objects, &hostler_api::ObjectKey::new("default", "c0"));
    scene.publish();
    assert_eq!(published(&scene, 0).1, Value::Null);
}

#[test]
fn nobody_else_is_given_a_device_that_a_node_has_for_a_reservation_which_has_not_closed_it() {
    let mut scene = Scene::new(1);
    ready(&mut scene, 0, None);
    scene.publish();
    assert_eq!(published(&scene, 0).0, texts(&["hostler.dev/fabric=kept"]));
}

#[test]
fn of_two_nodes_that_close_a_device_the_one_that_did_keeps_it() {
    let mut scene = Scene::new(1);
    hold(&mut scene, 0, "n1", "first");
    scene.publish();
    let holds = &mut Arc::make_mut(&mut scene.objects).holds;
    holds.insert(0, PooledHold { node: "n0".to_owned(), value: "second".to_owned(), ..holds[0].clone() });
    assert!(scene.publish().is_empty());
    Arc::make_mut(&mut scene.objects).holds.truncate(1);
    scene.publish();
    assert_eq!(published(&scene, 0), (texts(&["hostler.dev/held=second"]), json!("n0")));
}

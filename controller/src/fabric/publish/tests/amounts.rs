//! Devices whose memory is made for claims: what is offered of a memory domain, and what of it is promised already.

use hostler_api::{Quantity, fabric::AttachmentPhase, resource::SliceDevice};
use hostler_fabric::{AttachKey, MemoryChunk, ObjectPath, fake::FakeFabric};
use serde_json::json;

use super::{Scene, name};

const GIB: u64 = 1 << 30;

/// A rack with devices that share memory.
fn shared(devices: u32, gib: u64) -> Scene {
    let mut scene = Scene::new(devices);
    FakeFabric::shared(3, devices, gib * GIB).change(|parts| *scene.parts() = parts.clone());
    scene
}

fn gib(device: &SliceDevice) -> u64 {
    let value = json!(device)["capacity"]["memory"]["value"].clone();
    value.as_str().unwrap().parse::<Quantity>().unwrap().as_whole().unwrap() / GIB
}

/// The memory in GiB of each device that is offered.
fn offered(scene: &mut Scene) -> Vec<(String, u64)> {
    scene.publish();
    scene.devices().into_iter().map(|(name, it)| (name, gib(&it))).collect()
}

fn make(scene: &mut Scene, device: u32, gib: u64, key: Option<&str>) {
    scene.parts().memory_domains[0].chunks.push(MemoryChunk {
        path: ObjectPath::new(format!("/memory/0/chunks/{device}")),
        size_bytes: Some(gib * GIB),
        devices: vec![ObjectPath::new(format!("/devices/{device}"))],
        made_for: key.map(|key| AttachKey::new(key).unwrap()),
    });
}

fn pair(device: u32, gib: u64) -> (String, u64) {
    (name(device), gib)
}

#[test]
fn a_device_without_memory_is_offered_with_what_can_be_made_for_it() {
    let mut scene = shared(2, 8);
    assert_eq!(offered(&mut scene), [pair(0, 8), pair(1, 8)]);
    make(&mut scene, 0, 3, None);
    assert_eq!(offered(&mut scene), [pair(0, 3), pair(1, 5)]);
    make(&mut scene, 1, 5, None);
    let both = [pair(0, 3), pair(1, 5)];
    assert_eq!(offered(&mut scene), both);
}

#[test]
fn what_claims_are_given_is_taken_off_from_their_allocation_on() {
    let mut scene = shared(3, 8);
    scene.publish();
    scene.claim_memory(0, Some("3Gi"));
    assert_eq!(offered(&mut scene), [pair(0, 8), pair(1, 5), pair(2, 5)], "the claim's own entry stays");
    scene.attach(0, AttachmentPhase::Attaching, |it| it.spec.memory = Some(Quantity::whole(3 * GIB)));
    assert_eq!(offered(&mut scene)[1..], [pair(1, 5), pair(2, 5)], "nothing is taken off twice");
    make(&mut scene, 0, 3, Some("uid-3"));
    assert_eq!(offered(&mut scene)[1..], [pair(1, 5), pair(2, 5)], "the manager shows it now");
}

#[test]
fn a_claim_without_an_amount_leaves_nothing_to_others() {
    let mut scene = shared(2, 8);
    scene.publish();
    scene.claim(0);
    assert_eq!(offered(&mut scene), [pair(0, 8)]);
    let why = scene.offer().left_out();
    assert!(why.iter().any(|it| it.contains("/memory/0 has no memory left for it")), "{why:?}");
}

#[test]
fn a_device_for_which_no_memory_is_left_is_not_offered_whatever_its_manager_says_of_its_size() {
    let mut scene = shared(2, 8);
    make(&mut scene, 0, 8, None);
    scene.parts().devices[1].size_bytes = Some(16 * GIB);
    assert_eq!(offered(&mut scene), [pair(0, 8)]);
    let why = scene.offer().left_out();
    assert!(why.iter().any(|it| it.contains("/memory/0 has no memory left for it")), "{why:?}");
}

#[test]
fn memory_that_is_given_back_is_not_offered_and_memory_that_holds_data_or_is_kept_is() {
    let mut scene = shared(1, 8);
    make(&mut scene, 0, 3, Some("uid-3"));
    assert_eq!(offered(&mut scene), [pair(0, 3)], "no FabricAttachment gives it back");
    scene.attach(0, AttachmentPhase::Detached, |_| {});
    assert_eq!(offered(&mut scene), []);
    scene.attach(0, AttachmentPhase::Detached, |it| it.status.used = true);
    assert_eq!(offered(&mut scene), [pair(0, 3)], "the next claim's node erases it");
}

#[test]
fn a_device_that_is_on_its_way_for_a_reservation_stays_offered_with_its_own_memory() {
    let mut scene = shared(2, 8);
    scene.attach(0, AttachmentPhase::Attaching, |it| it.spec.memory = Some(Quantity::whole(5 * GIB)));
    assert_eq!(offered(&mut scene), [pair(0, 8), pair(1, 3)]);
    scene.attach(0, AttachmentPhase::Ready, |_| {});
    assert_eq!(offered(&mut scene), [pair(0, 8)], "all of the memory is its own");
}

#[test]
fn devices_of_a_fixed_size_come_first() {
    let mut scene = shared(3, 8);
    make(&mut scene, 2, 3, None);
    scene.publish();
    let slice = scene.server.values().next().unwrap();
    let order: Vec<&str> = slice.content.devices.iter().map(|it| &*it.name).collect();
    assert_eq!(order, [name(2), name(0), name(1)]);
}

//! Devices that several claims use at once, and one claim more than once.

use std::collections::BTreeSet;

use hostler_proto::dra_v1::Device;
use hostler_testing::{cluster::DeviceWant, kubelet::KubeletRelease};

use super::scene::{Plan, Scene};

fn units(request: &str, amount: &str) -> DeviceWant {
    DeviceWant::part(request, "pool", "units", amount)
}

/// Returns the allocated devices, by request.
fn allocated(scene: &Scene, claim: &str) -> Vec<(String, Option<String>)> {
    let status = scene.cluster.claim(claim).unwrap().status.unwrap();
    let results = status.allocation.unwrap().devices.unwrap().results.unwrap();
    results.into_iter().map(|result| (result.request, result.share_id)).collect()
}

fn prepared(devices: &[Device]) -> Vec<(String, Option<String>)> {
    devices.iter().map(|device| (device.request_names[0].clone(), device.share_id.clone())).collect()
}

#[test]
fn a_device_of_one_claim_has_no_share_id_and_a_shared_one_has_the_schedulers() {
    let mut scene = Scene::started();
    let uid = scene.claim("a", &[DeviceWant::device("card", "card-1"), units("some", "2")]);
    scene.pod("a", &["a"]);
    scene.runs("a");
    let devices = scene.devices("a", &uid);
    assert_eq!(prepared(&devices), allocated(&scene, "a"));
    assert_eq!(devices.iter().filter(|device| device.share_id.is_some()).count(), 1);
    scene.end("a");
    scene.clean(&uid);
}

#[test]
fn one_device_twice_in_one_claim_is_two_devices_for_its_containers() {
    let mut scene = Scene::started();
    let uid = scene.claim("a", &[units("one", "2"), units("two", "3")]);
    scene.pod("a", &["a"]);
    scene.runs("a");
    let devices = scene.devices("a", &uid);
    assert_eq!(prepared(&devices), allocated(&scene, "a"));
    let ids: BTreeSet<&String> = devices.iter().flat_map(|device| &device.cdi_device_ids).collect();
    assert_eq!(ids.len(), 2, "{devices:?}");
    assert_eq!(scene.host.files("hardware").len(), 2);
    scene.end("a");
    scene.clean(&uid);
}

#[test]
fn shares_of_several_pods_come_and_go_without_disturbing_each_other() {
    let mut scene = Scene::started();
    let names = ["a", "b", "c"];
    let uids = names.map(|name| {
        let uid = scene.claim(name, &[units("some", "20")]);
        scene.pod(name, &[name]);
        scene.runs(name);
        uid
    });
    scene.end("b");
    scene.clean(&uids[1]);
    for name in ["a", "c"] {
        assert_eq!(scene.kubelet.restart_container(name), Ok(()));
    }
    scene.cluster.delete_claim("b");
    scene.claim("d", &[units("some", "24")]);
    scene.pod("d", &["d"]);
    scene.runs("d");
    ["a", "c", "d"].iter().for_each(|name| scene.end(name));
}

#[test]
fn a_kubelet_that_knows_no_shares_gets_its_devices_all_the_same() {
    let plan = Plan { release: KubeletRelease::V1_33, ..Plan::default() };
    let mut scene = Scene::started_with(plan);
    let uid = scene.claim("a", &[units("one", "2"), units("two", "3")]);
    scene.pod("a", &["a"]);
    scene.runs("a");
    let devices = scene.devices("a", &uid);
    assert_eq!(devices.iter().map(|device| device.share_id.clone()).collect::<Vec<_>>(), [None, None]);
    scene.end("a");
    scene.clean(&uid);
}

//! Devices of the node in the cluster, while kubelets delete slices and daemons come and go.

use std::{collections::BTreeSet, time::Duration};

use hostler_testing::{
    cluster::DeviceWant,
    host::{SCRIPT, wait_for},
    kubelet::agent::{times::KubeletTimes, view::SliceWipe},
};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::scene::{HASTE, Plan, Scene};

/// Short pauses in everything but the deletion of slices.
fn patient_with_slices() -> Plan {
    let wipe = KubeletTimes::default().wipe;
    Plan { times: KubeletTimes { wipe, ..KubeletTimes::default().scaled(HASTE) }, ..Plan::default() }
}

/// Returns name, UID and version of each object: they tell whether one was written in between.
fn versions(scene: &Scene) -> Vec<(Option<String>, Option<String>, Option<String>)> {
    let slices = scene.cluster.slices(scene.host.driver()).into_iter();
    slices.map(|slice| (slice.metadata.name, slice.metadata.uid, slice.metadata.resource_version)).collect()
}

/// Returns names of all devices; each pool must be whole and of one generation, as far as consumers see it.
fn names(scene: &Scene) -> BTreeSet<String> {
    let slices = scene.cluster.slices(scene.host.driver());
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let names: Vec<String> = devices.map(|device| device.name.clone()).collect();
    let distinct: BTreeSet<String> = names.iter().cloned().collect();
    if distinct.len() == names.len() { distinct } else { BTreeSet::new() }
}

fn wait_for_names(scene: &Scene, count: usize) -> BTreeSet<String> {
    wait_for("the devices", || {
        let names = names(scene);
        (names.len() == count).then_some(names)
    })
}

fn slice(name: &str, driver: &str, node: &str) -> ResourceSlice {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"driver": driver, "nodeName": node, "devices": [{"name": "d0"}],
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
    }))
    .unwrap()
}

#[test]
fn the_kubelet_deletes_all_slices_of_its_node_when_it_starts_and_ours_come_back() {
    let mut scene = Scene::started();
    let (api, node) = (scene.cluster.slice_api(), scene.cluster.node());
    let (elsewhere, other) = (format!("{node}-elsewhere"), format!("{node}-other"));
    let driver = scene.host.driver().to_owned();
    for slice in [slice(&elsewhere, &driver, &format!("{node}-x")), slice(&other, "other.example.com", &node)] {
        scene.block_on(api.create(&PostParams::default(), &slice)).unwrap();
    }
    scene.kubelet.restart();
    scene
        .kubelet
        .wait_until("the deletion", |view| view.wipes.iter().filter(|wipe| wipe.driver.is_none()).count() == 2);
    let mine = |slice: &ResourceSlice| slice.spec.node_name.as_deref() == Some(&node);
    wait_for("the slices to be back", || {
        let slices = scene.cluster.slices(&driver);
        slices.iter().any(mine).then_some(())
    });
    let left = |name: &str| scene.block_on(api.get_opt(name)).unwrap().is_some();
    assert!(left(&elsewhere), "another node's");
    assert!(!left(&other), "not ours to restore");
    scene.block_on(api.delete(&elsewhere, &DeleteParams::default())).unwrap();
    wait_for_names(&scene, 9);
    scene.running("a", "card-1");
    scene.end("a");
}

#[test]
fn slices_go_when_the_daemon_stays_away_and_come_back_with_it() {
    let mut scene = Scene::started();
    for kill in [false, true] {
        let wipes = scene.kubelet.view().wipes.len();
        if kill {
            scene.host.kill();
        } else {
            assert!(scene.host.stop().success());
            assert_eq!(wait_for_names(&scene, 9).len(), 9, "a daemon that stops leaves them");
        }
        scene.kubelet.wait_until("the deletion", |view| view.wipes.len() > wipes);
        let driver = Some(scene.host.driver().to_owned());
        assert!(scene.kubelet.view().wipes.contains(&SliceWipe { driver }));
        wait_for("the slices to go", || (scene.devices_published() == 0).then_some(()));
        scene.begin();
        wait_for_names(&scene, 9);
    }
}

#[test]
fn a_daemon_that_is_back_soon_finds_its_slices_and_writes_nothing() {
    let mut scene = Scene::started_with(patient_with_slices());
    wait_for_names(&scene, 9);
    let before = versions(&scene);
    for kill in [false, true] {
        if kill {
            scene.host.kill();
        } else {
            assert!(scene.host.stop().success());
        }
        scene.begin();
        let same = |scene: &Scene| versions(scene) == before;
        scene.holds("nothing is written", Duration::from_millis(400), same);
    }
    assert!(scene.kubelet.view().wipes.iter().all(|wipe| wipe.driver.is_none()));
}

#[test]
fn what_nothing_happens_to_is_not_written() {
    let scene = Scene::started();
    wait_for_names(&scene, 9);
    let before = versions(&scene);
    scene.rescan();
    scene.holds("nothing is written", Duration::from_millis(800), |scene| versions(scene) == before);
}

#[test]
fn slices_that_somebody_deletes_or_changes_are_put_right() {
    let scene = Scene::started();
    let before = wait_for_names(&scene, 9);
    let (api, node) = (scene.cluster.slice_api(), scene.cluster.node());
    for round in 0..2 {
        let name = scene.cluster.slices(scene.host.driver())[0].metadata.name.clone().unwrap();
        scene.block_on(api.delete(&name, &DeleteParams::default())).unwrap();
        assert_eq!(wait_for_names(&scene, 9), before, "round {round}");
    }
    let list = kube::api::ListParams::default().fields(&format!("spec.nodeName={node}"));
    scene.block_on(api.delete_collection(&DeleteParams::default(), &list)).unwrap();
    assert_eq!(wait_for_names(&scene, 9), before, "all at once");
    let name = scene.cluster.slices(scene.host.driver())[0].metadata.name.clone().unwrap();
    let less = Patch::Merge(json!({"spec": {"devices": [{"name": "intruder"}]}}));
    scene.block_on(api.patch(&name, &PatchParams::default(), &less)).unwrap();
    assert_eq!(wait_for_names(&scene, 9), before, "changed");
}

#[test]
fn all_that_is_published_can_be_allocated_and_no_more() {
    let mut scene = Scene::started();
    wait_for_names(&scene, 9);
    let (driver, node) = (scene.host.driver().to_owned(), scene.cluster.node());
    let names: Vec<String> = (0..8).map(|n| format!("card-{n}")).collect();
    let mut claims: Vec<&str> = Vec::new();
    for name in &names {
        scene.claim(name, &[DeviceWant::any("any-card")]);
        claims.push(name);
    }
    scene.claim("units-1", &[DeviceWant::part("units", "pool", "units", "40")]);
    scene.claim("units-2", &[DeviceWant::part("units", "pool", "units", "24")]);
    claims.extend(["units-1", "units-2"]);
    let more = [DeviceWant::part("units", "pool", "units", "1")];
    scene.cluster.create_claim("more", &driver, &more, &[]);
    assert!(scene.cluster.allocate("more", &driver, &node, &more).unwrap_err().contains("not enough"));
    scene.pod("a", &claims);
    assert_eq!(scene.runs("a").devices.len(), 10);
    scene.end("a");
}

#[test]
fn many_devices_are_whole_pools_in_every_size() {
    let mut scene = Scene::started();
    // Around what one slice holds, up and down.
    for count in [300, 129, 64, 65, 128, 2] {
        scene.hardware(&SCRIPT.replace("count = 8", &format!("count = {count}")));
        wait_for_names(&scene, count + 1);
        wait_for("a whole pool", || {
            let slices = scene.cluster.slices(scene.host.driver());
            let whole =
                |slice: &ResourceSlice| slice.spec.pool.resource_slice_count == i64::try_from(slices.len()).unwrap();
            slices.iter().all(whole).then_some(())
        });
        let last = format!("card-{}", count - 1);
        let name = format!("last-{count}");
        scene.running(&name, &last);
        scene.end(&name);
        scene.cluster.delete_claim(&name);
    }
}

#[test]
fn a_device_that_is_plugged_in_is_offered_and_one_that_is_pulled_out_is_not() {
    let mut scene = Scene::started();
    scene.hardware(&SCRIPT.replace("count = 8", "count = 9"));
    assert!(wait_for_names(&scene, 10).contains("card-8"));
    scene.running("a", "card-8");
    scene.hardware(SCRIPT);
    // The device still belongs to its pod, but to no other.
    scene.cluster.create_claim("b", scene.host.driver(), &[DeviceWant::device("card", "card-8")], &[]);
    wait_for("the device not to be offered", || {
        let wants = [DeviceWant::device("card", "card-8")];
        scene.cluster.allocate("b", scene.host.driver(), &scene.cluster.node(), &wants).is_err().then_some(())
    });
    scene.end("a");
    assert!(!wait_for_names(&scene, 9).contains("card-8"));
}

#[test]
fn each_driver_has_slices_of_its_own_and_loses_only_those() {
    let scene = Scene::started();
    let mut second = scene.second_host(&SCRIPT.replace("card", "tile"));
    second.start();
    let driver = second.driver().to_owned();
    wait_for("the second driver's slices", || (!scene.cluster.slices(&driver).is_empty()).then_some(()));
    scene.kubelet.wait_until("the second driver", |view| view.is_connected(&driver));
    let before = versions(&scene);
    second.kill();
    wait_for("its slices to go", || scene.cluster.slices(&driver).is_empty().then_some(()));
    assert_eq!(versions(&scene), before);
    second.start();
    wait_for("its slices to be back", || (!scene.cluster.slices(&driver).is_empty()).then_some(()));
    assert_eq!(versions(&scene), before);
}

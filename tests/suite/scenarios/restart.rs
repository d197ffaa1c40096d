//! Running pods notice nothing when the kubelet, the daemon or both restart, and get the same again after a reboot.

use std::fs;

use hostler_testing::kubelet::{KubeletRelease, agent::view::DraMethod};

use super::scene::{Plan, Scene};

const OTHER_BOOT: &str = "00000000-0000-4000-8000-000000000002";

/// Runs two pods; after `disturb` they run on with the same devices and end well.
fn undisturbed(scene: &mut Scene, round: usize, disturb: impl FnOnce(&mut Scene)) {
    let names = [format!("a-{round}"), format!("b-{round}")];
    let uids = [scene.running(&names[0], "card-1"), scene.running(&names[1], "card-2")];
    let given = names.each_ref().map(|name| scene.runs(name).devices);
    let files: Vec<(std::path::PathBuf, Vec<u8>)> = cdi_files(scene);
    disturb(scene);
    scene.connected();
    for (name, given) in names.iter().zip(&given) {
        assert_eq!(scene.runs(name).devices, *given, "round {round}");
        assert_eq!(scene.kubelet.restart_container(name), Ok(()), "round {round}");
    }
    assert_eq!(cdi_files(scene), files, "round {round}");
    for uid in &uids {
        assert_eq!(scene.calls(DraMethod::Prepare, uid), 1, "round {round}: nobody asks for what runs");
    }
    names.iter().for_each(|name| scene.end(name));
    uids.iter().for_each(|uid| scene.clean(uid));
    names.iter().for_each(|name| scene.cluster.delete_claim(name));
}

fn cdi_files(scene: &Scene) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(scene.host.cdi_folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn running_pods_notice_nothing_of_a_restart_of_anybody() {
    let mut scene = Scene::started();
    undisturbed(&mut scene, 0, |scene| scene.kubelet.restart());
    undisturbed(&mut scene, 1, |scene| {
        assert!(scene.host.stop().success());
        scene.begin();
    });
    undisturbed(&mut scene, 2, |scene| {
        scene.host.kill();
        scene.begin();
    });
    undisturbed(&mut scene, 3, |scene| {
        scene.kubelet.stop();
        scene.host.kill();
        scene.kubelet.start();
        scene.begin();
    });
    undisturbed(&mut scene, 4, |scene| {
        scene.kubelet.stop();
        scene.host.kill();
        scene.host.start();
        scene.kubelet.start();
        scene.connected();
        scene.published();
    });
}

#[test]
fn running_pods_notice_nothing_of_an_upgrade_of_the_kubelet() {
    let plan = Plan { release: KubeletRelease::V1_33, ..Plan::default() };
    let mut scene = Scene::started_with(plan);
    for (round, release) in
        [KubeletRelease::V1_36, KubeletRelease::V1_37, KubeletRelease::V1_36].into_iter().enumerate()
    {
        undisturbed(&mut scene, round, |scene| {
            scene.kubelet.upgrade(release);
            scene.kubelet.restart();
        });
        scene.published();
    }
}

/// Sandboxes, CDI files and the state of the hardware are gone; records and the kubelet's state are not.
fn reboot(scene: &mut Scene) {
    scene.kubelet.stop();
    scene.host.kill();
    scene.kubelet.machine().reboot();
    fs::remove_dir_all(scene.host.cdi_folder()).unwrap();
    fs::remove_dir_all(scene.host.path("hardware")).unwrap();
    scene.host.boot(OTHER_BOOT);
}

#[test]
fn after_a_reboot_every_pod_has_the_same_devices_again() {
    let mut scene = Scene::started();
    let uids = [scene.running("a", "card-1"), scene.running("b", "card-2")];
    let given = ["a", "b"].map(|name| scene.runs(name).devices);
    reboot(&mut scene);
    scene.kubelet.start();
    scene.begin();
    // The kubelet holds the lists against those from before the reboot.
    for uid in &uids {
        scene.kubelet.wait_until("the second prepare", |view| view.calls_for(DraMethod::Prepare, uid).count() == 2);
    }
    assert_eq!(["a", "b"].map(|name| scene.runs(name).devices), given);
    assert!(uids.iter().all(|uid| scene.traces(uid).len() == 3));
    scene.end("a");
    scene.end("b");
    uids.iter().for_each(|uid| scene.clean(uid));
}

#[test]
fn after_a_reboot_claims_of_pods_that_are_gone_are_taken_back() {
    let mut scene = Scene::started();
    let uids = [scene.running("gone", "card-1"), scene.running("kept", "card-2")];
    reboot(&mut scene);
    scene.kubelet.machine().force_delete("gone");
    scene.kubelet.start();
    scene.begin();
    scene.gone("gone");
    scene.clean(&uids[0]);
    scene.kubelet.wait_until("the second prepare", |view| view.calls_for(DraMethod::Prepare, &uids[1]).count() == 2);
    scene.runs("kept");
    scene.end("kept");
}

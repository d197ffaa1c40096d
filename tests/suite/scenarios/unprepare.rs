//! Devices of pods are free again when the pods are gone, after absences of daemon and kubelet.

use std::time::Duration;

use hostler_testing::{
    host::SCRIPT,
    kubelet::agent::{
        times::KubeletTimes,
        view::{DraMethod, PodPhase},
    },
};

use super::scene::{HASTE, Plan, Scene, fault};

#[test]
fn an_unprepare_that_fails_is_asked_for_again_until_it_works() {
    let script = fault("unprepare", "card-1", "error = \"still busy\"\ntimes = 2");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    let uid = scene.running("a", "card-1");
    scene.kubelet.machine().delete("a");
    scene.fails("a", "still busy");
    assert_eq!(scene.kubelet.view().pod("a").phase, PodPhase::Terminating);
    scene.gone("a");
    assert!(scene.calls(DraMethod::Unprepare, &uid) >= 3);
    scene.clean(&uid);
}

#[test]
fn an_unprepare_that_failed_before_the_kubelet_restarted_is_asked_for_again_after_it() {
    let script = fault("unprepare", "card-1", "error = \"still busy\"");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    let uid = scene.running("a", "card-1");
    scene.kubelet.machine().delete("a");
    scene.fails("a", "still busy");
    scene.kubelet.stop();
    scene.hardware(SCRIPT);
    scene.kubelet.start();
    scene.gone("a");
    scene.clean(&uid);
}

#[test]
fn an_unprepare_that_takes_longer_than_the_kubelet_waits_is_finished_all_the_same() {
    let times = KubeletTimes { call: Duration::from_millis(300), ..KubeletTimes::default().scaled(HASTE) };
    let script = fault("unprepare", "card-1", "delay_ms = 1200\ntimes = 1");
    let mut scene = Scene::started_with(Plan { times, script, ..Plan::default() });
    let uid = scene.running("a", "card-1");
    scene.kubelet.machine().delete("a");
    scene.fails("a", "deadline exceeded");
    scene.gone("a");
    scene.clean(&uid);
}

#[test]
fn claims_of_pods_that_are_deleted_by_force_are_taken_back() {
    let mut scene = Scene::started();
    let uid = scene.running("a", "card-1");
    scene.kubelet.machine().force_delete("a");
    scene.gone("a");
    scene.clean(&uid);
}

#[test]
fn claims_of_pods_that_went_while_the_kubelet_was_down_are_taken_back() {
    let mut scene = Scene::started();
    let uids = [scene.running("asked", "card-1"), scene.running("forced", "card-2")];
    scene.kubelet.stop();
    scene.kubelet.machine().delete("asked");
    scene.kubelet.machine().force_delete("forced");
    scene.kubelet.start();
    scene.gone("asked");
    scene.gone("forced");
    uids.iter().for_each(|uid| scene.clean(uid));
}

#[test]
fn claims_of_pods_that_went_while_kubelet_and_daemon_were_down_are_taken_back() {
    let mut scene = Scene::started();
    let uids = [scene.running("asked", "card-1"), scene.running("forced", "card-2")];
    scene.kubelet.stop();
    scene.host.kill();
    scene.kubelet.machine().delete("asked");
    scene.kubelet.machine().force_delete("forced");
    scene.kubelet.start();
    scene.fails("asked", "is not registered");
    scene.begin();
    scene.gone("asked");
    scene.gone("forced");
    uids.iter().for_each(|uid| scene.clean(uid));
}

#[test]
fn a_claim_whose_object_is_gone_is_taken_back_all_the_same() {
    let mut scene = Scene::started();
    let uid = scene.running("a", "card-1");
    scene.cluster.delete_claim("a");
    scene.kubelet.restart();
    scene.connected();
    scene.end("a");
    assert_eq!(scene.calls(DraMethod::Unprepare, &uid), 1);
    scene.clean(&uid);
}

#[test]
fn a_claim_that_could_never_be_prepared_can_be_taken_back() {
    let script = fault("prepare", "card-1", "error = \"the link is down\"");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    let uid = scene.running_later("a", "card-1");
    scene.fails("a", "the link is down");
    scene.end("a");
    assert_eq!(scene.calls(DraMethod::Unprepare, &uid), 1);
    scene.clean(&uid);
}

#[test]
fn a_device_that_was_pulled_out_of_a_pod_can_be_taken_back_and_used_again() {
    let mut scene = Scene::started();
    let uid = scene.running("a", "card-7");
    scene.hardware(&SCRIPT.replace("count = 8", "count = 7"));
    assert_eq!(scene.kubelet.restart_container("a"), Ok(()), "what a container was promised stays");
    scene.end("a");
    scene.clean(&uid);
    scene.cluster.delete_claim("a");
    scene.hardware(SCRIPT);
    scene.running("b", "card-7");
    scene.end("b");
}

#[test]
fn what_one_pod_gives_back_the_next_one_gets() {
    let mut scene = Scene::started();
    for round in 0..6 {
        let name = format!("round-{round}");
        let uid = scene.running(&name, "card-1");
        scene.end(&name);
        scene.clean(&uid);
        scene.cluster.delete_claim(&name);
    }
}

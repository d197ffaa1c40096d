//! The API server is away, for the daemon alone: recorded claims go on, and new ones fail with the reason.

use hostler_testing::{
    cluster::WireState,
    host::{SCRIPT, wait_for},
    kubelet::{CALL, agent::view::DraMethod},
};

use super::scene::{Plan, Scene};

#[test]
fn without_the_api_server_claims_are_taken_back() {
    let mut scene = Scene::started();
    let uid = scene.running("a", "card-1");
    scene.cluster.wire(WireState::Cut);
    scene.end("a");
    assert_eq!(scene.calls(DraMethod::Unprepare, &uid), 1);
    scene.clean(&uid);
}

#[test]
fn without_the_api_server_recorded_claims_are_prepared_again_and_new_ones_fail_in_time() {
    let mut scene = Scene::started();
    let shared = scene.card("shared", "card-1");
    scene.pod("a", &["shared"]);
    let given = scene.runs("a").devices;
    // The daemon remembers only prepared claims.
    scene.kubelet.restart();
    scene.connected();
    scene.published();
    scene.card("new", "card-2");
    scene.cluster.wire(WireState::Cut);
    scene.pod("b", &["shared"]);
    assert_eq!(scene.runs("b").devices, given);
    assert_eq!(scene.calls(DraMethod::Prepare, &shared), 2);
    scene.pod("c", &["new"]);
    let error = scene.fails("c", "NodePrepareResources failed");
    assert!(error.contains("ResourceClaim"), "{error}");
    let slowest = scene.kubelet.view().calls.iter().map(|call| call.took).max().unwrap();
    assert!(slowest < CALL / 2, "{slowest:?}");
    scene.cluster.wire(WireState::Whole);
    scene.runs("c");
    ["a", "b", "c"].iter().for_each(|pod| scene.end(pod));
}

/// No answer comes at all: only time tells.
#[test]
fn an_api_server_that_says_nothing_does_not_use_up_the_kubelets_patience() {
    let mut scene = Scene::started();
    scene.running("a", "card-1");
    scene.card("new", "card-2");
    scene.cluster.wire(WireState::Silent);
    scene.pod("b", &["new"]);
    scene.fails("b", "NodePrepareResources failed");
    scene.end("a");
    scene.cluster.wire(WireState::Whole);
    scene.runs("b");
    scene.end("b");
}

#[test]
fn a_daemon_starts_without_the_api_server_and_catches_up_with_it() {
    let mut scene = Scene::started();
    let uid = scene.running("a", "card-1");
    scene.cluster.wire(WireState::Cut);
    scene.host.kill();
    scene.host.script(&SCRIPT.replace("count = 8", "count = 10"));
    scene.host.start();
    scene.connected();
    assert_eq!(scene.kubelet.restart_container("a"), Ok(()));
    scene.end("a");
    scene.clean(&uid);
    scene.cluster.wire(WireState::Whole);
    wait_for("the new devices", || (scene.devices_published() == 11).then_some(()));
    scene.running("b", "card-9");
    scene.end("b");
}

#[test]
fn a_daemon_may_be_there_before_the_api_server() {
    let mut scene = Scene::new(Plan::default());
    scene.cluster.wire(WireState::Cut);
    scene.kubelet.start();
    scene.host.start();
    scene.connected();
    assert_eq!(scene.devices_published(), 0);
    scene.cluster.wire(WireState::Whole);
    scene.published();
    scene.running("a", "card-1");
    scene.end("a");
}

#[test]
fn what_changed_during_an_outage_is_published_after_it() {
    let scene = Scene::started();
    scene.cluster.wire(WireState::Cut);
    for count in [9, 3, 5] {
        scene.hardware(&SCRIPT.replace("count = 8", &format!("count = {count}")));
    }
    assert_eq!(scene.devices_published(), 9);
    scene.cluster.wire(WireState::Whole);
    wait_for("the last state", || (scene.devices_published() == 6).then_some(()));
}

//! An API server in trouble: requests fail in every way, and watches break off. Only a server of the test's own can do
//! that.

use std::time::Duration;

use hostler_testing::{
    apiserver::{ApiFault, FaultEffect},
    host::{SCRIPT, wait_for},
    kubelet::{CALL, agent::view::DraMethod},
};

use super::scene::Scene;

const TROUBLE: [FaultEffect; 8] = [
    FaultEffect::Status(409, None),
    FaultEffect::Status(429, Some(1)),
    FaultEffect::Status(500, None),
    FaultEffect::Status(503, None),
    FaultEffect::Reset,
    FaultEffect::LoseAnswer,
    FaultEffect::CutBody,
    FaultEffect::Latency(Duration::from_millis(300)),
];

#[test]
fn whatever_happens_to_writes_of_slices_the_last_state_is_published() {
    let scene = Scene::started();
    let Some(server) = scene.cluster.faults() else { return };
    for (round, how) in TROUBLE.into_iter().enumerate() {
        for verb in ["create", "update", "patch"] {
            server.fail(ApiFault::new(verb, "resourceslices", 2, how));
        }
        // Grows and shrinks, so that slices are made, changed and deleted.
        let count = if round % 2 == 0 { 200 } else { 4 };
        scene.hardware(&SCRIPT.replace("count = 8", &format!("count = {count}")));
        wait_for(&format!("the devices after {how:?}"), || (scene.devices_published() == count + 1).then_some(()));
        server.heal();
    }
}

#[test]
fn a_watch_that_breaks_off_or_forgets_hides_no_deletion() {
    let scene = Scene::started();
    let Some(server) = scene.cluster.faults() else { return };
    let slices = || server.list("resourceslices");
    for round in 0..3 {
        let name = slices()[0]["metadata"]["name"].as_str().unwrap().to_owned();
        match round {
            0 => server.close_watches(),
            1 => {
                server.compact();
                server.expire_watches();
            }
            _ => {
                server.fail(ApiFault::new("list", "resourceslices", 1, FaultEffect::Status(410, None)));
                server.close_watches();
            }
        }
        assert!(server.delete("resourceslices", &name), "round {round}");
        // Read without the fault.
        wait_for("the slice to be back", || (!slices().is_empty()).then_some(()));
    }
}

#[test]
fn a_claim_that_cannot_be_read_at_once_is_read_soon_or_told_of() {
    let mut scene = Scene::started();
    if scene.cluster.faults().is_none() {
        return;
    }
    for (round, how) in TROUBLE.into_iter().enumerate() {
        let (name, card) = (format!("pod-{round}"), format!("card-{round}"));
        let uid = scene.card(&name, &card);
        scene.kubelet.stop();
        scene.pod(&name, &[&name]);
        // The kubelet reads the claim too, and tries again if it cannot.
        scene.cluster.faults().unwrap().fail(ApiFault::new("get", "resourceclaims", 3, how));
        scene.kubelet.start();
        scene.runs(&name);
        assert!(scene.calls(DraMethod::Prepare, &uid) >= 1);
        scene.cluster.faults().unwrap().heal();
        scene.end(&name);
    }
    let slowest = scene.kubelet.view().calls.iter().map(|call| call.took).max().unwrap();
    assert!(slowest < CALL, "{slowest:?}");
}

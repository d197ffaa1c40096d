//! Health of devices in the kubelet's view.

use hostler_proto::health_v1::HealthStatus;
use hostler_testing::{
    host::{script_with, wait_for},
    kubelet::KubeletRelease,
};

use super::scene::{Plan, Scene};

/// Returns a script with one more device, in this state.
fn with_lamp(health: &str) -> String {
    script_with(&format!("[[device]]\nname = \"lamp\"\n{health}"))
}

const DARK: &str = "health = \"unhealthy\"\nreason = \"the bulb is broken\"";

fn wait_for_health(scene: &Scene, device: &str, status: HealthStatus) -> String {
    let (driver, pool) = (scene.host.driver().to_owned(), format!("{}/fake", scene.cluster.node()));
    scene.kubelet.wait(&format!("{device} to be {status:?}"), |view| {
        let (found, message) = view.health_of(&driver, &pool, device);
        (found == status).then(|| message.to_owned())
    })
}

#[test]
fn a_change_of_health_is_believed_by_every_kubelet_that_knows_health() {
    for release in [KubeletRelease::V1_36, KubeletRelease::V1_37] {
        let script = with_lamp("");
        let mut scene = Scene::started_with(Plan { release, script, ..Plan::default() });
        wait_for_health(&scene, "lamp", HealthStatus::Healthy);
        scene.running("a", "lamp");
        scene.hardware(&with_lamp(DARK));
        assert_eq!(wait_for_health(&scene, "lamp", HealthStatus::Unhealthy), "the bulb is broken");
        wait_for_health(&scene, "card-1", HealthStatus::Healthy);
        scene.hardware(&with_lamp(""));
        wait_for_health(&scene, "lamp", HealthStatus::Healthy);
        scene.end("a");
    }
}

#[test]
fn health_is_unknown_while_the_daemon_is_away_and_known_when_it_is_back() {
    let script = with_lamp(DARK);
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    for kill in [false, true] {
        wait_for_health(&scene, "lamp", HealthStatus::Unhealthy);
        if kill {
            scene.host.kill();
        } else {
            assert!(scene.host.stop().success());
        }
        wait_for_health(&scene, "lamp", HealthStatus::Unknown);
        scene.begin();
    }
    wait_for_health(&scene, "lamp", HealthStatus::Unhealthy);
    scene.kubelet.restart();
    wait_for_health(&scene, "lamp", HealthStatus::Unhealthy);
}

#[test]
fn the_health_of_devices_of_several_pods_is_told_apart() {
    let mut scene = Scene::started();
    for n in 0..3 {
        scene.running(&format!("pod-{n}"), &format!("card-{n}"));
    }
    // One is pulled out and stays its pod's.
    scene.hardware(&hostler_testing::host::SCRIPT.replace("count = 8", "count = 2"));
    wait_for_health(&scene, "card-2", HealthStatus::Unhealthy);
    for device in ["card-0", "card-1"] {
        wait_for_health(&scene, device, HealthStatus::Healthy);
    }
    for n in 0..3 {
        scene.end(&format!("pod-{n}"));
    }
}

/// One message holds a thousand devices.
#[test]
fn the_health_of_ten_thousand_devices_reaches_the_kubelet() {
    let script = hostler_testing::host::SCRIPT.replace("count = 8", "count = 10000");
    let mut scene = Scene::new(Plan { script, ..Plan::default() });
    scene.kubelet.start();
    scene.host.start();
    scene.connected();
    wait_for("all devices", || (scene.kubelet.view().health.len() == 10_001).then_some(()));
    wait_for_health(&scene, "card-9999", HealthStatus::Healthy);
}

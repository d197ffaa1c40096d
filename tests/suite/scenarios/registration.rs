//! The kubelet finds the daemon and stays connected to it after absences of either.

use std::{fs, time::Duration};

use hostler_testing::{
    host::{Host, wait_for},
    kubelet::{
        KubeletRelease,
        agent::view::{DraMethod, KubeletView},
    },
};
use nix::sys::signal::Signal;

use super::scene::{Plan, Scene};

fn registrations(view: &KubeletView) -> usize {
    view.registrations.iter().filter(|attempt| attempt.outcome.is_ok()).count()
}

#[test]
fn a_kubelet_that_comes_back_registers_the_daemon_again() {
    let mut scene = Scene::started();
    let before = registrations(&scene.kubelet.view());
    scene.kubelet.restart();
    scene.kubelet.wait_until("another registration", |view| registrations(view) > before);
    scene.connected();
    scene.running("a", "card-1");
    scene.end("a");
}

#[test]
fn a_daemon_that_comes_back_is_registered_again_whether_it_was_stopped_or_killed() {
    let mut scene = Scene::started();
    for kill in [false, true] {
        if kill {
            scene.host.kill();
        } else {
            assert!(scene.host.stop().success());
        }
        let driver = scene.host.driver().to_owned();
        scene.kubelet.wait_until("the connection to be lost", |view| !view.is_connected(&driver));
        scene.begin();
        let name = format!("killed-{kill}");
        scene.running(&name, "card-1");
        scene.end(&name);
    }
}

#[test]
fn a_kubelet_that_comes_later_than_the_daemon_finds_it() {
    let mut scene = Scene::new(Plan::default());
    scene.host.start();
    assert_eq!(scene.host.get("/v1/status")["kubelet"]["registered"], serde_json::Value::Null);
    scene.kubelet.start();
    scene.connected();
}

/// The kubelet gives GetInfo one second, and then longer and longer pauses.
#[test]
fn a_daemon_that_was_too_slow_to_say_who_it_is_is_asked_again() {
    let mut scene = Scene::new(Plan::default());
    scene.host.start();
    scene.host.signal(Signal::SIGSTOP);
    scene.kubelet.start();
    scene.kubelet.wait_until("a failure", |view| {
        view.registrations.iter().any(|attempt| matches!(&attempt.outcome, Err(error) if error.contains("GetInfo")))
    });
    scene.host.signal(Signal::SIGCONT);
    scene.connected();
    scene.published();
}

#[test]
fn every_kubelet_that_is_supported_gets_its_pods_started() {
    for release in [KubeletRelease::V1_33, KubeletRelease::V1_36, KubeletRelease::V1_37] {
        let mut scene = Scene::started_with(Plan { release, ..Plan::default() });
        let uid = scene.running("a", "card-1");
        assert_eq!(scene.devices("a", &uid).len(), 1, "{release:?}");
        scene.end("a");
    }
}

#[test]
fn one_connection_is_enough_for_everything() {
    let mut scene = Scene::started();
    for name in ["a", "b"] {
        scene.running(name, "card-1");
        scene.end(name);
    }
    scene.kubelet.wait_until("health", |view| !view.health.is_empty());
    let view = scene.kubelet.view();
    assert_eq!(view.plugins.iter().map(|plugin| plugin.connections).collect::<Vec<_>>(), [1]);
    assert_eq!((view.succeeded(DraMethod::Prepare), view.succeeded(DraMethod::Unprepare)), (2, 2));
}

/// No event tells the daemon of the deletion: it looks every ten seconds.
#[test]
fn sockets_that_somebody_deleted_come_back_and_so_does_the_kubelet() {
    let mut scene = Scene::started();
    scene.running("a", "card-1");
    let before = registrations(&scene.kubelet.view());
    fs::remove_file(scene.host.registration_socket()).unwrap();
    fs::remove_file(scene.host.service_socket()).unwrap();
    scene.kubelet.wait_until("another registration", |view| registrations(view) > before);
    scene.connected();
    scene.end("a");
    scene.published();
}

/// Distributions move the folder; the sockets' paths must still fit into 107 bytes.
#[test]
fn the_kubelets_root_folder_may_be_anywhere() {
    let plan = Plan { kubelet: Some("var/lib/k0s/kubelet"), ..Plan::default() };
    let mut scene = Scene::started_with(plan);
    assert!(scene.host.registration_socket().to_string_lossy().contains("/var/lib/k0s/kubelet/plugins_registry/"));
    scene.running("a", "card-1");
    scene.end("a");
}

/// Returns a driver name with so many characters that no other test has.
fn long_name(length: usize) -> String {
    let id = format!("d{:x}.", std::process::id());
    id.clone() + &"x".repeat(length - id.len())
}

#[test]
fn driver_names_may_be_as_long_as_socket_paths_let_them_be() {
    for length in [28, 37, 60] {
        let driver = long_name(length);
        // With the folder above it as long as /var/lib/kubelet.
        let plan = Plan { driver: Some(driver.clone()), kubelet: Some("abc"), ..Plan::default() };
        let mut scene = Scene::started_with(plan);
        assert_eq!(scene.host.kubelet_root().as_os_str().len(), "/var/lib/kubelet".len());
        let uid = scene.running("a", "card-1");
        let ids = scene.devices("a", &uid)[0].cdi_device_ids.clone();
        assert!(ids[0].starts_with(&format!("{driver}/")), "{ids:?}");
        scene.end("a");
    }
}

#[test]
fn a_driver_name_that_is_too_long_for_a_socket_path_is_refused_with_the_path() {
    let plan = Plan { driver: Some(long_name(63)), kubelet: Some("abc"), ..Plan::default() };
    let scene = Scene::new(plan);
    let output = scene.host.run(&["run"]);
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("plugins_registry") && error.contains("110 bytes long"), "{error}");
}

#[test]
fn other_files_in_the_registry_and_sockets_of_the_dead_disturb_nobody() {
    let mut scene = Scene::new(Plan::default());
    let registry = scene.host.kubelet_root().join("plugins_registry");
    fs::create_dir_all(&registry).unwrap();
    fs::write(registry.join("README"), "no socket").unwrap();
    drop(std::os::unix::net::UnixListener::bind(registry.join("csi@dead-reg.sock")).unwrap());
    drop(std::os::unix::net::UnixListener::bind(scene.host.registration_socket()).unwrap());
    scene.kubelet.start();
    scene.begin();
    assert!(registry.join("csi@dead-reg.sock").exists(), "it is not ours");
    scene.running("a", "card-1");
    scene.end("a");
}

#[test]
fn two_drivers_on_one_node_do_not_know_of_each_other() {
    let mut scene = Scene::started();
    let mut second = scene.second_host(hostler_testing::host::SCRIPT);
    second.start();
    let driver = second.driver().to_owned();
    scene.kubelet.wait_until("the second driver", |view| view.is_connected(&driver));
    scene.running("a", "card-1");
    second.kill();
    scene.kubelet.wait_until("the second driver to go", |view| !view.is_connected(&driver));
    let first = scene.host.driver().to_owned();
    assert!(scene.kubelet.view().is_connected(&first));
    Host::start(&mut second);
    scene.kubelet.wait_until("the second driver to be back", |view| view.is_connected(&driver));
    scene.end("a");
}

#[test]
fn a_daemon_that_stops_is_not_registered_any_more() {
    let mut scene = Scene::started();
    assert!(scene.host.stop().success());
    scene.kubelet.wait_until("the registration to end", |view| view.plugins.is_empty());
    let attempts = scene.kubelet.view().registrations.len();
    let quiet = |scene: &Scene| scene.kubelet.view().registrations.len() == attempts;
    scene.holds("nobody is there to be dialled", Duration::from_millis(50), quiet);
    wait_for("the sockets to go", || (!scene.host.service_socket().exists()).then_some(()));
}

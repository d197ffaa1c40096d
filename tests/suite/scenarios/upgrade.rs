//! One daemon replaces another: both are there for a while, and clients do not notice which one works.

use std::time::Duration;

use hostler_testing::{
    host::wait_for,
    kubelet::agent::{times::KubeletTimes, view::DraMethod},
};
use nix::sys::signal::Signal;

use super::scene::{HASTE, Plan, Scene, fault};

fn patient_with_slices() -> Plan {
    let wipe = KubeletTimes::default().wipe;
    Plan { times: KubeletTimes { wipe, ..KubeletTimes::default().scaled(HASTE) }, ..Plan::default() }
}

/// Starts a second daemon as a standby, ends the first one, and continues with the second.
fn replace(scene: &mut Scene, signal: Signal) {
    let standbys = scene.host.log().matches("standing by").count();
    let second = scene.host.spawn_beside();
    wait_for("the second daemon to stand by", || {
        (scene.host.log().matches("standing by").count() > standbys).then_some(())
    });
    scene.host.signal(signal);
    scene.host.wait();
    scene.host.adopt(second);
    scene.host.wait_until_served();
    scene.connected();
}

#[test]
fn pods_and_slices_outlive_the_replacement_of_the_daemon() {
    let mut scene = Scene::started_with(patient_with_slices());
    let uid = scene.running("a", "card-1");
    let slices = scene.cluster.slices(scene.host.driver());
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGTERM] {
        replace(&mut scene, signal);
        assert_eq!(scene.kubelet.restart_container("a"), Ok(()));
        let same = |scene: &Scene| scene.cluster.slices(scene.host.driver()) == slices;
        scene.holds("nothing is written", Duration::from_millis(200), same);
    }
    let during = scene.running("b", "card-2");
    scene.end("a");
    scene.end("b");
    assert_eq!(scene.calls(DraMethod::Prepare, &uid), 1);
    scene.clean(&uid);
    scene.clean(&during);
}

#[test]
fn pods_that_come_and_go_during_a_replacement_are_served_by_one_or_the_other() {
    let plan = Plan { script: fault("prepare", "card-1", "delay_ms = 300"), ..patient_with_slices() };
    let mut scene = Scene::started_with(plan);
    let leaving = scene.running("leaving", "card-2");
    let coming = scene.running_later("coming", "card-1");
    wait_for("the work to begin", || (!scene.traces(&coming).is_empty()).then_some(()));
    scene.kubelet.machine().delete("leaving");
    replace(&mut scene, Signal::SIGTERM);
    scene.runs("coming");
    scene.gone("leaving");
    scene.clean(&leaving);
    scene.end("coming");
    scene.clean(&coming);
}

/// The kubelet looks for sockets once a second, as the real one does, and pods come and go all the while: before,
/// during and after the moment in which one daemon is told to stop.
#[test]
fn no_prepare_fails_while_one_daemon_follows_another() {
    let times = patient_with_slices().times;
    let registration_period = KubeletTimes::default().registration_period;
    let mut scene =
        Scene::started_with(Plan { times: KubeletTimes { registration_period, ..times }, ..Plan::default() });
    for round in 0..2 {
        let standbys = scene.host.log().matches("standing by").count();
        let second = scene.host.spawn_beside();
        wait_for("the second daemon to stand by", || {
            (scene.host.log().matches("standing by").count() > standbys).then_some(())
        });
        scene.host.signal(Signal::SIGTERM);
        // The first one has gone, and some more pods came after it.
        let (mut number, mut after) = (0, 0);
        while after < 5 {
            let name = format!("pod-{round}-{number}");
            scene.running(&name, "card-1");
            scene.end(&name);
            number += 1;
            after += usize::from(scene.host.has_ended());
        }
        scene.host.wait();
        scene.host.adopt(second);
        scene.host.wait_until_served();
        scene.connected();
    }
    let view = scene.kubelet.view();
    assert_eq!((view.failed(DraMethod::Prepare), view.failed(DraMethod::Unprepare)), (0, 0), "{:#?}", view.calls);
    let failures: Vec<_> = view.pods.iter().filter(|(_, pod)| pod.failures > 0).collect();
    assert!(failures.is_empty(), "{failures:#?}");
    scene.kubelet.wait_until("the daemons that have gone to be forgotten", |view| view.plugins.len() == 1);
}

#[test]
fn a_daemon_that_takes_over_before_it_is_told_finds_nobody_to_wait_for() {
    let mut scene = Scene::started_with(patient_with_slices());
    let uid = scene.running("a", "card-1");
    replace(&mut scene, Signal::SIGKILL);
    let left = scene.host.registration_socket();
    replace(&mut scene, Signal::SIGTERM);
    wait_for("the sockets of the one before to go", || (!left.exists()).then_some(()));
    scene.end("a");
    scene.clean(&uid);
}

#[test]
fn a_replacement_that_does_not_work_leaves_the_old_daemon_in_place() {
    let mut scene = Scene::started_with(patient_with_slices());
    let second = scene.host.spawn_beside();
    wait_for("the second daemon to stand by", || scene.host.log().contains("standing by").then_some(()));
    second.signal(Signal::SIGTERM);
    assert!(second.wait().success());
    assert!(scene.host.run(&["run", "--no-such-option"]).status.code() != Some(0));
    scene.running("a", "card-1");
    scene.end("a");
}

#[test]
fn a_kubelet_restart_in_the_middle_of_a_replacement_changes_nothing() {
    let mut scene = Scene::started_with(patient_with_slices());
    let uid = scene.running("a", "card-1");
    let second = scene.host.spawn_beside();
    wait_for("the second daemon to stand by", || scene.host.log().contains("standing by").then_some(()));
    scene.kubelet.stop();
    scene.host.signal(Signal::SIGTERM);
    scene.host.wait();
    scene.kubelet.start();
    scene.host.adopt(second);
    scene.host.wait_until_served();
    scene.connected();
    scene.published();
    assert_eq!(scene.kubelet.restart_container("a"), Ok(()));
    scene.end("a");
    scene.clean(&uid);
}

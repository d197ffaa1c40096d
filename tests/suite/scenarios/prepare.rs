//! Pods start when their claims are ready, and not before, whatever happens on the way.

use std::{fs, time::Duration};

use hostler_fake::KILL_EXIT_CODE;
use hostler_testing::{
    cluster::DeviceWant,
    host::{SCRIPT, script_with, wait_for},
    kubelet::agent::{
        times::KubeletTimes,
        view::{DraMethod, PodPhase},
    },
};

use super::{
    disk::SmallDisk,
    scene::{HASTE, Plan, Scene, fault},
};

#[test]
fn a_pod_that_came_while_the_kubelet_was_down_is_started() {
    let mut scene = Scene::started();
    scene.kubelet.stop();
    scene.running_later("a", "card-1");
    scene.kubelet.start();
    scene.runs("a");
    scene.end("a");
}

#[test]
fn a_pod_that_came_before_its_driver_waits_for_it() {
    let mut scene = Scene::started();
    scene.host.kill();
    fs::remove_file(scene.host.registration_socket()).unwrap();
    let driver = scene.host.driver().to_owned();
    scene.kubelet.wait_until("the driver to be gone", |view| view.plugins.is_empty());
    scene.running_later("a", "card-1");
    assert!(scene.fails("a", "is not registered").contains(&driver));
    scene.begin();
    scene.runs("a");
    scene.end("a");
}

#[test]
fn a_prepare_that_takes_longer_than_the_kubelet_waits_is_joined_by_the_next_one() {
    let times = KubeletTimes { call: Duration::from_millis(300), ..KubeletTimes::default().scaled(HASTE) };
    let plan = Plan { times, script: fault("prepare", "card-1", "delay_ms = 1500\ntimes = 1"), ..Plan::default() };
    let mut scene = Scene::started_with(plan);
    let uid = scene.card("a", "card-1");
    scene.pod("a", &["a"]);
    scene.fails("a", "deadline exceeded");
    assert_eq!(scene.kubelet.view().pod("a").phase, PodPhase::Pending);
    scene.runs("a");
    assert!(scene.calls(DraMethod::Prepare, &uid) > 1);
    scene.end("a");
    scene.clean(&uid);
}

#[test]
fn a_prepare_that_fails_is_asked_for_again_until_it_works() {
    let script = fault("prepare", "card-1", "error = \"the link is down\"\ntimes = 2");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    let uid = scene.card("a", "card-1");
    scene.pod("a", &["a"]);
    scene.fails("a", "the link is down");
    scene.runs("a");
    assert_eq!(scene.calls(DraMethod::Prepare, &uid), 3);
    scene.end("a");
    scene.clean(&uid);
}

#[test]
fn a_prepare_that_failed_before_the_kubelet_restarted_is_asked_for_again_after_it() {
    let script = fault("prepare", "card-1", "error = \"the link is down\"");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    scene.card("a", "card-1");
    scene.pod("a", &["a"]);
    scene.fails("a", "the link is down");
    scene.kubelet.stop();
    scene.hardware(SCRIPT);
    scene.kubelet.start();
    scene.runs("a");
    scene.end("a");
}

#[test]
fn a_pod_that_was_deleted_while_the_kubelet_was_down_is_never_prepared() {
    let mut scene = Scene::started();
    scene.kubelet.stop();
    let uid = scene.running_later("a", "card-1");
    scene.kubelet.machine().force_delete("a");
    scene.kubelet.start();
    scene.connected();
    scene.running("b", "card-2");
    assert_eq!(scene.calls(DraMethod::Prepare, &uid), 0);
    scene.end("b");
}

#[test]
fn a_pod_that_is_deleted_while_its_claim_is_being_prepared_leaves_nothing() {
    let script = fault("prepare", "card-1", "delay_ms = 400");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    let uid = scene.card("a", "card-1");
    scene.pod("a", &["a"]);
    wait_for("the work to begin", || (!scene.traces(&uid).is_empty()).then_some(()));
    scene.end("a");
    assert_eq!(scene.calls(DraMethod::Unprepare, &uid), 1);
    scene.clean(&uid);
}

#[test]
fn one_claim_of_two_pods_is_prepared_once_and_taken_back_after_both() {
    let mut scene = Scene::started();
    let uid = scene.card("shared", "card-1");
    scene.pod("a", &["shared"]);
    let given = scene.runs("a").devices;
    scene.pod("b", &["shared"]);
    assert_eq!(scene.runs("b").devices, given);
    assert_eq!(scene.calls(DraMethod::Prepare, &uid), 1);
    scene.end("a");
    assert_eq!(scene.calls(DraMethod::Unprepare, &uid), 0);
    assert_eq!(scene.kubelet.restart_container("b"), Ok(()));
    scene.end("b");
    assert_eq!(scene.calls(DraMethod::Unprepare, &uid), 1);
    scene.clean(&uid);
}

#[test]
fn two_pods_that_start_at_once_with_one_claim_get_the_same() {
    let script = fault("prepare", "card-1", "delay_ms = 200");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    let uid = scene.card("shared", "card-1");
    scene.pod("a", &["shared"]);
    scene.pod("b", &["shared"]);
    assert_eq!(scene.runs("a").devices, scene.runs("b").devices);
    assert_eq!(scene.calls(DraMethod::Prepare, &uid), 2, "the kubelet does not wait for its own call");
    scene.end("a");
    scene.end("b");
    scene.clean(&uid);
}

#[test]
fn many_pods_at_once_are_all_started_and_all_ended() {
    let mut scene = Scene::started();
    let names: Vec<String> = (0..8).map(|n| format!("pod-{n}")).collect();
    let uids: Vec<String> = (0..8).map(|n| scene.running_later(&names[n], &format!("card-{n}"))).collect();
    names.iter().for_each(|name| drop(scene.runs(name)));
    names.iter().for_each(|name| scene.kubelet.machine().delete(name));
    names.iter().for_each(|name| scene.gone(name));
    uids.iter().for_each(|uid| scene.clean(uid));
}

#[test]
fn a_pod_whose_claims_are_not_all_ready_keeps_what_is_and_gets_the_rest_later() {
    let script = fault("prepare", "card-2", "error = \"the link is down\"\ntimes = 1");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    let uids = [scene.card("one", "card-1"), scene.card("two", "card-2")];
    scene.pod("a", &["one", "two"]);
    scene.fails("a", "the link is down");
    let view = scene.runs("a");
    assert_eq!(view.devices.keys().collect::<Vec<_>>().len(), 2);
    let calls = scene.kubelet.view().calls;
    assert!(calls.iter().all(|call| call.claims.len() == 2), "one call for all claims of a pod: {calls:?}");
    scene.end("a");
    uids.iter().for_each(|uid| scene.clean(uid));
}

#[test]
fn a_claim_made_anew_under_the_same_name_waits_for_the_end_of_the_old_one() {
    let script = fault("unprepare", "card-1", "error = \"still busy\"");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    let old = scene.running("a", "card-1");
    scene.kubelet.machine().force_delete("a");
    scene.fails("a", "still busy");
    scene.cluster.delete_claim("a");
    let new = scene.card("a", "card-1");
    assert_ne!(old, new);
    scene.pod("b", &["a"]);
    scene.fails("b", "different UID");
    scene.hardware(SCRIPT);
    scene.runs("b");
    scene.clean(&old);
    assert_eq!(scene.traces(&new).len(), 3);
    scene.end("b");
}

#[test]
fn a_claim_is_prepared_although_no_container_uses_it_and_stays_over_restarts_of_containers() {
    let mut scene = Scene::started();
    let uid = scene.running("a", "card-1");
    for _ in 0..3 {
        assert_eq!(scene.kubelet.restart_container("a"), Ok(()));
    }
    assert_eq!(scene.calls(DraMethod::Prepare, &uid), 1);
    scene.end("a");
}

#[test]
fn a_claim_without_an_allocation_is_nobodys_business() {
    let mut scene = Scene::started();
    let wants = [DeviceWant::device("card", "card-1")];
    let uid = scene.cluster.create_claim("a", scene.host.driver(), &wants, &[]);
    let pod = scene.pod("a", &["a"]);
    scene.fails("a", "is not allowed to use");
    assert_eq!(scene.calls(DraMethod::Prepare, &uid), 0);
    scene.cluster.allocate("a", scene.host.driver(), &scene.cluster.node(), &wants).unwrap();
    scene.cluster.reserve("a", "a", &pod);
    scene.runs("a");
    scene.end("a");
}

#[test]
fn a_pod_with_claims_of_two_drivers_gets_both_and_gives_both_back() {
    let mut scene = Scene::started();
    let mut second = scene.second_host(&SCRIPT.replace("card", "tile"));
    second.start();
    let driver = second.driver().to_owned();
    scene.kubelet.wait_until("the second driver", |view| view.is_connected(&driver));
    let ours = scene.card("ours", "card-1");
    let theirs = scene.claim_of(&driver, "theirs", &[DeviceWant::device("tile", "tile-1")]);
    scene.pod("a", &["ours", "theirs"]);
    let view = scene.runs("a");
    let names: Vec<&str> = view.devices.values().flatten().map(|device| &*device.device_name).collect();
    assert_eq!((names.len(), names.contains(&"card-1"), names.contains(&"tile-1")), (2, true, true), "{names:?}");
    scene.end("a");
    for uid in [&ours, &theirs] {
        assert_eq!((scene.calls(DraMethod::Prepare, uid), scene.calls(DraMethod::Unprepare, uid)), (1, 1));
    }
    // And the same when one of them does not work at first, in prepare and in unprepare.
    for step in ["prepare", "unprepare"] {
        second.script(&fault(step, "tile-2", "error = \"not now\"\ntimes = 1").replace("\"card\"", "\"tile\""));
        assert_eq!(second.request("POST", "/v1/rescan", "").0, 204);
        let (one, two) = (format!("ours-{step}"), format!("theirs-{step}"));
        let ours = scene.card(&one, "card-2");
        let theirs = scene.claim_of(&driver, &two, &[DeviceWant::device("tile", "tile-2")]);
        scene.pod(step, &[&one, &two]);
        scene.runs(step);
        scene.end(step);
        let calls = scene.calls(if step == "prepare" { DraMethod::Prepare } else { DraMethod::Unprepare }, &theirs);
        assert_eq!(calls, 2, "{step}");
        scene.clean(&ours);
    }
}

/// A kubelet restart in the middle of a prepare or an unprepare, with two drivers of which one takes its time.
#[test]
fn a_kubelet_restart_in_the_middle_of_two_drivers_work_is_made_good() {
    let mut scene = Scene::started();
    let mut second = scene.second_host(&SCRIPT.replace("card", "tile"));
    second.start();
    let driver = second.driver().to_owned();
    scene.kubelet.wait_until("the second driver", |view| view.is_connected(&driver));
    for step in ["prepare", "unprepare"] {
        second.script(&fault(step, "tile-1", "delay_ms = 400\ntimes = 1").replace("\"card\"", "\"tile\""));
        assert_eq!(second.request("POST", "/v1/rescan", "").0, 204);
        let (one, two) = (format!("ours-{step}"), format!("theirs-{step}"));
        let ours = scene.card(&one, "card-1");
        let theirs = scene.claim_of(&driver, &two, &[DeviceWant::device("tile", "tile-1")]);
        scene.pod(step, &[&one, &two]);
        let method = if step == "prepare" { DraMethod::Prepare } else { DraMethod::Unprepare };
        if step == "unprepare" {
            scene.runs(step);
            scene.kubelet.machine().delete(step);
        }
        scene.kubelet.wait_until("the call", |view| view.calls_for(method, &theirs).next().is_some());
        scene.kubelet.restart();
        if step == "prepare" {
            scene.runs(step);
            scene.kubelet.machine().delete(step);
        }
        scene.gone(step);
        scene.clean(&ours);
        assert!(second.files("hardware").is_empty(), "{:?}", second.files("hardware"));
    }
}

/// The kubelet's calls are the way back to order: no other part repeats a step.
#[test]
fn a_kill_at_any_step_of_a_pods_life_only_delays_it() {
    let mut scene = Scene::started();
    for step in ["plan", "prepare", "verify", "unprepare"] {
        for at in ["before", "after"] {
            let name = format!("{step}-{at}");
            scene.host.script(&fault(step, "card-1", &format!("at = \"{at}\"\nkill = true")));
            let uid = scene.running_later(&name, "card-1");
            if step == "unprepare" {
                scene.runs(&name);
                scene.kubelet.machine().delete(&name);
            }
            assert_eq!(scene.host.wait().code(), Some(KILL_EXIT_CODE), "{name}");
            scene.host.script(SCRIPT);
            scene.begin();
            if step != "unprepare" {
                scene.runs(&name);
                scene.kubelet.machine().delete(&name);
            }
            scene.gone(&name);
            scene.clean(&uid);
            scene.cluster.delete_claim(&name);
        }
    }
}

#[test]
fn a_full_disk_delays_a_pod_until_there_is_space_and_no_running_pod_notices() {
    for folder in ["state/claims", "cdi"] {
        let mut scene = Scene::new(Plan::default());
        let path = if folder == "cdi" { scene.host.cdi_folder() } else { scene.host.path(folder) };
        let Some(disk) = SmallDisk::mount(path) else { return };
        scene.kubelet.start();
        scene.begin();
        let kept = scene.running("kept", "card-1");
        disk.fill(0);
        let uid = scene.running_later("a", "card-2");
        scene.fails("a", "No space left on device");
        assert_eq!(scene.kubelet.restart_container("kept"), Ok(()));
        disk.clear();
        scene.runs("a");
        disk.fill(0);
        scene.end("a");
        scene.end("kept");
        scene.clean(&uid);
        scene.clean(&kept);
        drop(scene);
        drop(disk);
    }
}

#[test]
fn a_device_that_was_unplugged_before_its_pod_came_is_told_by_name() {
    let mut scene = Scene::started();
    scene.card("a", "card-7");
    scene.hardware(&SCRIPT.replace("count = 8", "count = 7"));
    scene.pod("a", &["a"]);
    scene.fails("a", "card-7");
    scene.hardware(SCRIPT);
    scene.runs("a");
    scene.end("a");
}

#[test]
fn a_device_that_another_claim_holds_is_refused_until_that_one_is_taken_back() {
    // A scheduler that believes an old view of the world gives a device away twice.
    let script = script_with("");
    let mut scene = Scene::started_with(Plan { script, ..Plan::default() });
    scene.running("a", "card-1");
    let result = scene.cluster.claim("a").unwrap();
    let results = serde_json::to_value(&result).unwrap()["status"]["allocation"]["devices"]["results"].clone();
    scene.cluster.create_claim("b", scene.host.driver(), &[DeviceWant::device("card", "card-1")], &[]);
    scene.cluster.set_allocation("b", &scene.cluster.node(), results.as_array().unwrap());
    scene.pod("b", &["b"]);
    assert!(scene.fails("b", "already prepared for claim").contains("card-1"));
    scene.end("a");
    scene.runs("b");
    scene.end("b");
}

//! Absences of the daemon and of the runtime, and containers that are created meanwhile.

use std::sync::mpsc::channel;

use hostler_testing::{
    host::wait_for,
    nri::{Moment, NriVersion},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use super::rig::{ALL, Claim, Rig, SharedPool, without};

fn two_claims(rig: &Rig) -> [Claim; 2] {
    [rig.claim("a", &["cpu/numa0,cpus=2", "memory/node0,memory=64Mi"]), rig.claim("b", &["cpu/numa1,cpus=2"])]
}

#[test]
fn a_container_made_between_prepare_and_a_restart_of_the_runtime_keeps_its_cpus() {
    let mut rig = Rig::new(SharedPool::ExcludeExclusive);
    let claims = two_claims(&rig);
    let ids = [
        rig.run_container("pod", "a", &[&claims[0]]),
        rig.runtime.create(&rig.container("pod", "b", &[&claims[1]])).unwrap(),
    ];
    let free = rig.run_container("pod", "free", &[]);
    for times in 2..5 {
        rig.runtime.restart();
        rig.runtime.wait_for_synchronization(times);
        for (id, claim) in ids.iter().zip(&claims) {
            rig.assert_bound(id, claim);
        }
        assert_eq!(rig.runtime.cpus(&free), without(&[&claims[0], &claims[1]]));
    }
}

#[test]
fn a_claim_prepared_and_not_started_keeps_its_cpus_over_a_restart_of_anybody() {
    let mut rig = Rig::new(SharedPool::ExcludeExclusive);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    let free = rig.run_container("pod", "free", &[]);
    // The runtime has no container that could report it.
    rig.revive();
    rig.runtime.restart();
    rig.runtime.wait_for_plugin();
    rig.revive();
    assert_eq!(rig.runtime.cpus(&free), without(&[&claim]));
    let other = rig.claim("b", &["cpu/numa0,cpus=6"]);
    assert!(other.cpus.is_disjoint(&claim.cpus), "{} and {}", other.cpus, claim.cpus);
    let id = rig.run_container("pod", "main", &[&claim]);
    rig.assert_bound(&id, &claim);
}

#[test]
fn containers_made_while_the_daemon_was_away_are_bound_when_it_is_back() {
    let mut rig = Rig::new(SharedPool::ExcludeExclusive);
    let claims = two_claims(&rig);
    rig.kill();
    let bound: Vec<String> = claims.iter().map(|claim| rig.run_container("pod", &claim.name, &[claim])).collect();
    let free = rig.run_container("pod", "free", &[]);
    assert_eq!(rig.runtime.cpus(&bound[0]), "", "there is nobody who would bind it");
    rig.restart();
    for (id, claim) in bound.iter().zip(&claims) {
        rig.assert_bound(id, claim);
    }
    assert_eq!(rig.runtime.cpus(&free), without(&[&claims[0], &claims[1]]));
}

#[test]
fn containers_that_nobody_told_of_are_bound_when_they_start() {
    for pool in [SharedPool::Off, SharedPool::ExcludeExclusive] {
        let mut rig = Rig::new(pool);
        let claims = two_claims(&rig);
        let (made_tx, made_rx) = channel();
        let lost = [rig.container("pod", "a", &[&claims[0]]), rig.container("pod", "free", &[])];
        rig.kill();
        rig.runtime.at(Moment::Sent("Synchronize"), move |runtime, _| {
            lost.iter().for_each(|container| made_tx.send(runtime.create_untold(container)).unwrap());
        });
        rig.restart();
        let ids: Vec<String> = made_rx.iter().collect();
        ids.iter().for_each(|id| rig.runtime.start_container(id).unwrap());
        rig.wait_until_bound(&ids[0], &claims[0]);
        match pool {
            SharedPool::Off => assert_eq!(rig.runtime.cpus(&ids[1]), ""),
            SharedPool::ExcludeExclusive => rig.runtime.wait_for_cpus(&ids[1], &without(&[&claims[0], &claims[1]])),
        }
    }
}

#[test]
fn one_odd_container_is_left_alone_and_the_others_are_served() {
    let mut rig = Rig::new(SharedPool::ExcludeExclusive);
    let claims = two_claims(&rig);
    let gone = rig.claim("gone", &["cpu/numa0,cpus=1"]);
    let of_nobody = rig.container("odd", "of-nobody", &[&gone]);
    rig.release(&gone);
    rig.kill();
    let first = rig.run_container("pod", "a", &[&claims[0]]);
    let garbled = rig.container("odd", "garbled", &[&claims[0]]).edit(|spec| {
        for hook in spec["hooks"]["createRuntime"].as_array_mut().unwrap() {
            if hook["args"][2] == "cpuset" {
                hook["args"] = json!(["hostler", "hook", "cpuset", "--claim", "../..", "--cpus", "nine"]);
            }
        }
    });
    let odd = [rig.runtime.run(&of_nobody).unwrap(), rig.runtime.run(&garbled).unwrap()];
    let last = rig.run_container("pod", "b", &[&claims[1]]);
    let free = rig.run_container("pod", "free", &[]);
    rig.restart();
    rig.assert_bound(&first, &claims[0]);
    rig.assert_bound(&last, &claims[1]);
    assert_eq!(rig.runtime.cpus(&free), without(&[&claims[0], &claims[1]]));
    let status = rig.get("/v1/status").to_string();
    for id in &odd {
        assert_eq!(rig.runtime.cpus(id), "", "what is not understood is not touched");
        assert!(rig.log().contains(id.as_str()), "{id} is in the log");
        assert!(status.contains(id.as_str()), "{id} is in the status: {status}");
    }
    assert_eq!(rig.runtime.connections(), 2, "no container is a reason to lose the runtime");
}

#[test]
fn records_are_known_before_the_runtime_can_ask() {
    let mut rig = Rig::new(SharedPool::ExcludeExclusive);
    let claims = two_claims(&rig);
    rig.kill();
    let id = rig.run_container("pod", "a", &[&claims[0]]);
    // The first thing that a runtime can ask, as early as it can be asked.
    rig.restart();
    let so_far = rig.runtime.cpus_so_far(&id);
    // Created without the plugin, and bound by its first answer: the container never had another set in between.
    assert_eq!(so_far, [String::new(), claims[0].cpus.to_string()]);
    assert_eq!(rig.runtime.synchronizations(), 2);
}

#[test]
fn the_runtime_comes_later_goes_and_comes_back() {
    let mut rig = Rig::quiet(SharedPool::ExcludeExclusive);
    rig.spawn();
    rig.wait_until_served();
    assert_eq!(rig.connected_with(), None);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    rig.runtime.start();
    rig.runtime.wait_for_plugin();
    rig.wait_until_connected();
    let id = rig.run_container("pod", "main", &[&claim]);
    rig.assert_bound(&id, &claim);

    rig.runtime.kill();
    rig.wait_until_lost();
    // Claims are served all the same, since the hook binds; but the daemon does not report itself as healthy.
    let other = rig.claim("b", &["cpu/numa1,cpus=2"]);
    let reason = wait_for("a daemon that is not ready", || rig.misses_runtime());
    assert!(rig.metrics("/readyz").1.contains(&reason), "{reason}");
    rig.runtime.start();
    rig.runtime.wait_for_plugin();
    rig.wait_until_connected();
    assert_eq!(rig.misses_runtime(), None);
    let later = rig.run_container("pod", "later", &[&other]);
    rig.assert_bound(&later, &other);
    rig.assert_bound(&id, &claim);
}

#[test]
fn the_daemon_tries_for_ever() {
    let mut rig = Rig::quiet(SharedPool::Off);
    rig.runtime.start();
    (0..6).for_each(|_| rig.runtime.at(Moment::Accepted, |_, link| link.close()));
    rig.start();
    let pid = rig.pid();
    rig.runtime.wait_for_plugin();
    assert!(rig.runtime.connections() > 6 && rig.runtime.has_done_all());
    assert_eq!(rig.pid(), pid);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    let id = rig.run_container("pod", "main", &[&claim]);
    rig.assert_bound(&id, &claim);
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_binds_what_it_has_promised() {
    let mut rig = Rig::new(SharedPool::ExcludeExclusive);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2", "memory/node0,memory=64Mi"]);
    let bound = rig.run_container("pod", "bound", &[&claim]);
    let free = rig.run_container("pod", "free", &[]);
    let pool = without(&[&claim]);
    for moment in [Moment::Accepted, Moment::Registered, Moment::Sent("Configure"), Moment::Sent("Synchronize")] {
        // Twice: the second start finds the rest of the first.
        for _ in 0..2 {
            rig.kill();
            let (died_tx, died_rx) = channel();
            rig.runtime.at(moment, move |_, link| {
                died_tx.send(()).unwrap();
                link.close();
            });
            rig.spawn();
            died_rx.recv().unwrap();
        }
        rig.kill();
        rig.restart();
        rig.assert_bound(&bound, &claim);
        assert_eq!(rig.runtime.cpus(&free), pool, "{moment:?}");
    }
    for method in ["CreateContainer", "UpdateContainer", "StopContainer"] {
        for _ in 0..2 {
            let pid = Pid::from_raw(i32::try_from(rig.pid()).unwrap());
            rig.runtime.at(Moment::Sent(method), move |_, _| kill(pid, Signal::SIGKILL).unwrap());
            // The runtime goes on without its plugin.
            let asked = rig.container("pod", method, &[&claim]);
            let id = rig.runtime.run(&asked).unwrap();
            if method != "CreateContainer" {
                rig.assert_bound(&id, &claim);
            }
            let _ = rig.runtime.update_container(&id, &Default::default());
            let _ = rig.runtime.stop_container(&id);
            assert!(rig.runtime.has_done_all());
            rig.revive();
            rig.assert_bound(&bound, &claim);
            assert_eq!(rig.runtime.cpus(&free), pool, "{method}");
        }
    }
}

#[test]
fn a_daemon_that_is_killed_while_claims_come_and_go_leaves_the_pool_right() {
    let mut rig = Rig::new(SharedPool::ExcludeExclusive);
    let free = rig.run_container("pod", "free", &[]);
    for round in 0..6 {
        let claim = rig.claim(&format!("c{round}"), &["cpu/numa0,cpus=2"]);
        rig.revive();
        assert_eq!(rig.runtime.cpus(&free), without(&[&claim]));
        rig.release(&claim);
        rig.revive();
        assert_eq!(rig.runtime.cpus(&free), ALL);
    }
}

#[test]
fn the_runtime_is_replaced_by_an_older_and_a_newer_one() {
    let mut rig = Rig::new(SharedPool::ExcludeExclusive);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2"]);
    let id = rig.run_container("pod", "main", &[&claim]);
    for (round, version) in NriVersion::ALL.into_iter().enumerate() {
        rig.runtime.replace(version);
        rig.runtime.wait_for_synchronization(round + 2);
        rig.assert_bound(&id, &claim);
        let other = rig.run_container("pod", "other", &[&claim]);
        rig.assert_bound(&other, &claim);
    }
}

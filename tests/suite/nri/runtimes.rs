//! Runtimes that misbehave, are old, or have very many containers.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use hostler_proto::nri::{Event, StateChangeEvent, SynchronizeRequest};
use hostler_testing::{
    host::wait_for,
    nri::{
        CallError, Moment, NriVersion, PLUGIN_SERVICE, PluginLink, REQUEST_LIMIT, RUNTIME_SERVICE, RawMessage,
        RpcResponse, Runtime, Trunk, UNIMPLEMENTED,
    },
};
use prost::Message;

use super::rig::{Claim, Rig, SharedPool, without};

/// Longer than any step of a test needs.
const LONG: Duration = Duration::from_secs(30);

/// A rig with a claim and a container of it, and one without.
fn scene(version: NriVersion) -> (Rig, Claim, [String; 2]) {
    let rig = Rig::of_version(SharedPool::ExcludeExclusive, version);
    let claim = rig.claim("a", &["cpu/numa0,cpus=2", "memory/node0,memory=64Mi"]);
    let ids = [rig.run_container("pod", "bound", &[&claim]), rig.run_container("pod", "free", &[])];
    (rig, claim, ids)
}

/// Checks that both containers are as they should be, and stay so.
#[track_caller]
fn assert_well(rig: &Rig, claim: &Claim, [bound, free]: &[String; 2]) {
    rig.assert_bound(bound, claim);
    assert_eq!(rig.runtime.cpus(free), without(&[claim]));
    let new = rig.run_container("pod", "new", &[claim]);
    rig.assert_bound(&new, claim);
    rig.runtime.remove_container(&new).unwrap();
}

/// Waits until the runtime counts the plugin among those that it calls; the plugin has sent its wishes before.
fn wait_for_plugin(rig: &Rig) {
    wait_for("a plugin that can be called", || {
        let plugin = rig.runtime.plugin()?;
        plugin.call::<hostler_proto::nri::Empty>("StateChange", &StateChangeEvent::default(), LONG).ok()
    });
}

/// Misbehaves at a moment of the next connection; the connection after it is a good one.
fn survives(moment: Moment, mischief: impl Fn(&Runtime, &PluginLink) + Send + Clone + 'static) {
    let (mut rig, claim, ids) = scene(NriVersion::V0_12_2);
    let pid = rig.pid();
    rig.runtime.kill();
    rig.runtime.at(moment, mischief);
    rig.runtime.start();
    wait_for("the mischief", || rig.runtime.has_done_all().then_some(()));
    wait_for_plugin(&rig);
    assert_eq!(rig.pid(), pid);
    assert_well(&rig, &claim, &ids);
    // A runtime that hung up hears nothing of the plugin's messages; these complaints are expected.
    rig.runtime.take_complaints();
}

#[test]
fn every_age_of_runtimes_has_its_containers_bound() {
    for version in NriVersion::ALL {
        let (rig, claim, ids) = scene(version);
        assert_well(&rig, &claim, &ids);
        rig.runtime.stop_container(&ids[0]).unwrap();
        rig.runtime.remove_container(&ids[0]).unwrap();
        assert!(rig.connected_with().unwrap().contains(version.runtime), "{:?}", rig.connected_with());
        assert_eq!(rig.misses_runtime(), None);
    }
}

#[test]
fn synchronize_in_pieces_is_one() {
    for piece in [1, 2, 3] {
        let (mut rig, claim, [bound, free]) = scene(NriVersion::V0_12_2);
        rig.kill();
        let made: Vec<String> = (0..7).map(|n| rig.run_container("pod", &format!("m{n}"), &[&claim])).collect();
        rig.runtime.pieces_of(piece);
        rig.restart();
        for id in made.iter().chain([&bound]) {
            rig.assert_bound(id, &claim);
        }
        assert_eq!(rig.runtime.cpus(&free), without(&[&claim]));
    }
}

#[test]
fn a_runtime_that_is_lost_between_the_pieces_begins_anew() {
    let (mut rig, claim, ids) = scene(NriVersion::V0_12_2);
    rig.runtime.kill();
    rig.runtime.pieces_of(1);
    rig.runtime.at(Moment::Sent("Synchronize"), |_, _| {});
    rig.runtime.at(Moment::Sent("Synchronize"), |_, link| link.close());
    rig.runtime.start();
    rig.runtime.wait_for_synchronization(2);
    wait_for_plugin(&rig);
    assert_well(&rig, &claim, &ids);
}

#[test]
fn more_than_a_message_can_hold_is_synchronized() {
    let (mut rig, claim, ids) = scene(NriVersion::V0_12_2);
    rig.kill();
    let large = "x".repeat(200 << 10);
    let made: Vec<String> = (0..40)
        .map(|n| {
            rig.runtime.run(&rig.container("large", &format!("l{n}"), &[]).env(&format!("LARGE={large}"))).unwrap()
        })
        .collect();
    rig.restart();
    for id in &made {
        assert_eq!(rig.runtime.cpus(id), without(&[&claim]));
    }
    assert_well(&rig, &claim, &ids);
}

#[test]
fn hundreds_of_containers_are_synchronized_and_updated_within_the_runtimes_patience() {
    let (mut rig, claim, ids) = scene(NriVersion::V0_12_2);
    let many: Vec<String> = (0..300).map(|n| rig.run_container("many", &format!("m{n}"), &[])).collect();
    let other = rig.claim("b", &["cpu/numa1,cpus=2"]);
    for id in &many {
        rig.runtime.wait_for_cpus(id, &without(&[&claim, &other]));
    }
    rig.release(&other);
    rig.revive();
    for id in &many {
        rig.runtime.wait_for_cpus(id, &without(&[&claim]));
    }
    assert_well(&rig, &claim, &ids);
}

#[test]
fn a_runtime_that_hangs_up_at_any_moment_is_called_again() {
    for moment in [
        Moment::Accepted,
        Moment::Registered,
        Moment::Sent("Configure"),
        Moment::Sent("Synchronize"),
        Moment::Synchronized,
    ] {
        survives(moment, |_, link| link.close());
    }
}

#[test]
fn a_runtime_that_has_no_patience_is_called_again() {
    for moment in [Moment::Registered, Moment::Sent("Configure")] {
        survives(moment, |runtime, _| {
            runtime.limit(Duration::ZERO);
            runtime.at(Moment::Accepted, |runtime, _| runtime.limit(REQUEST_LIMIT));
        });
    }
}

#[test]
fn a_runtime_that_says_nothing_holds_nobody_up() {
    let (mut rig, claim, ids) = scene(NriVersion::V0_12_2);
    rig.runtime.kill();
    let (go_tx, go_rx) = std::sync::mpsc::channel::<()>();
    rig.runtime.at(Moment::Accepted, move |_, link| {
        go_rx.recv().unwrap();
        link.close();
    });
    rig.runtime.start();
    wait_for("the silence", || rig.runtime.has_done_all().then_some(()));
    rig.wait_until_lost();
    let other = rig.claim("b", &["cpu/numa1,cpus=2"]);
    rig.release(&other);
    go_tx.send(()).unwrap();
    rig.runtime.wait_for_synchronization(2);
    assert_well(&rig, &claim, &ids);
}

#[test]
fn garbage_on_the_trunk_ends_the_connection_and_nothing_else() {
    let garbage: [Vec<u8>; 4] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        [&PLUGIN_SERVICE.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat(),
        vec![0xff; 4096],
        // A message that says it is larger than a message can be.
        Trunk::frame(PLUGIN_SERVICE, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 1, 0]),
    ];
    for bytes in garbage {
        survives(Moment::Synchronized, move |_, link| link.trunk.write_raw(&bytes).unwrap());
    }
}

#[test]
fn half_a_frame_and_then_nothing_ends_with_the_connection() {
    survives(Moment::Synchronized, |_, link| {
        let frame = Trunk::frame(PLUGIN_SERVICE, &[0; 200]);
        link.trunk.write_raw(&frame[..100]).unwrap();
        link.close();
    });
}

#[test]
fn what_no_runtime_says_but_any_may_is_passed_over() {
    let (rig, claim, ids) = scene(NriVersion::V0_12_2);
    let link = rig.runtime.wait_for_plugin();
    // A connection that was never opened, an answer without a request, nothing at all.
    link.trunk.write_raw(&Trunk::frame(77, b"anything")).unwrap();
    let answer = RawMessage::response(4711, &RpcResponse::failure(1, "what?"));
    link.trunk.write_message(RUNTIME_SERVICE, &answer).unwrap();
    link.trunk.write_raw(&Trunk::frame(PLUGIN_SERVICE, b"")).unwrap();
    let event = StateChangeEvent { event: Event::Last as i32 + 20, ..StateChangeEvent::default() };
    link.call::<hostler_proto::nri::Empty>("StateChange", &event, LONG).unwrap();
    assert_well(&rig, &claim, &ids);
    assert_eq!(rig.runtime.connections(), 1);
}

#[test]
fn calls_that_are_none_are_refused_and_the_connection_stays() {
    let (rig, claim, ids) = scene(NriVersion::V0_12_2);
    let link = rig.runtime.wait_for_plugin();
    let refusal = |service: &str, method: &str, payload: &[u8]| {
        let answered_rx = link.begin_at(service, method, payload.to_vec(), LONG).unwrap();
        match link.finish::<hostler_proto::nri::Empty>(&answered_rx, LONG) {
            Err(CallError::Refused { code, .. }) => code,
            other => panic!("{service}/{method}: {other:?}"),
        }
    };
    let plugin = hostler_testing::nri::PLUGIN;
    assert_eq!(refusal(plugin, "MakeCoffee", b""), UNIMPLEMENTED);
    assert_eq!(refusal("nri.pkg.api.v1alpha1.Runtime", "UpdateContainers", b""), UNIMPLEMENTED);
    assert_well(&rig, &claim, &ids);
    assert_eq!(rig.runtime.connections(), 1);
}

#[test]
fn arguments_that_are_none_bind_nobody() {
    for method in ["Configure", "CreateContainer", "UpdateContainer", "StopContainer", "Synchronize", "StateChange"] {
        survives(Moment::Synchronized, move |_, link| {
            let answered_rx = link.begin(method, b"\xff\xff\xff\xff garbage".to_vec(), LONG).unwrap();
            let outcome = link.finish::<hostler_proto::nri::Empty>(&answered_rx, LONG);
            assert!(matches!(outcome, Err(CallError::Refused { .. } | CallError::Closed)), "{method}: {outcome:?}");
        });
    }
}

#[test]
fn messages_in_small_frames_are_messages() {
    let (rig, claim, ids) = scene(NriVersion::V0_12_2);
    let link = rig.runtime.wait_for_plugin();
    let event = StateChangeEvent { event: Event::Unknown.into(), ..StateChangeEvent::default() };
    let request = hostler_testing::nri::RpcRequest {
        service: hostler_testing::nri::PLUGIN.into(),
        method: "StateChange".into(),
        payload: event.encode_to_vec(),
        timeout_nano: 0,
    };
    let message = RawMessage::request(1_000_001, &request).encode();
    let frames: Vec<u8> = message.iter().flat_map(|byte| Trunk::frame(PLUGIN_SERVICE, &[*byte])).collect();
    link.trunk.write_raw(&frames).unwrap();
    drop(link);
    assert_eq!(rig.runtime.connections(), 1);
    // Stream ids only grow, so this connection has come to its end for the others; the next one is as good.
    rig.runtime.wait_for_plugin().close();
    rig.runtime.wait_for_synchronization(2);
    assert_well(&rig, &claim, &ids);
}

#[test]
fn a_flood_of_calls_is_answered() {
    let (rig, claim, ids) = scene(NriVersion::V0_12_2);
    let link = rig.runtime.wait_for_plugin();
    let event = StateChangeEvent { event: Event::PostCreateContainer.into(), ..StateChangeEvent::default() };
    // As many at once as a runtime can have answers waiting for it.
    for _ in 0..20 {
        let begin = |_| link.begin("StateChange", event.encode_to_vec(), LONG).unwrap();
        let waiting: Vec<_> = (0..200).map(begin).collect();
        for answered_rx in &waiting {
            link.finish::<hostler_proto::nri::Empty>(answered_rx, LONG).unwrap();
        }
    }
    assert_well(&rig, &claim, &ids);
    assert_eq!(rig.runtime.connections(), 1);
}

#[test]
fn what_a_claim_was_promised_is_known_however_much_the_runtime_has_to_say() {
    let (rig, claim, ids) = scene(NriVersion::V0_12_2);
    let link = rig.runtime.wait_for_plugin();
    let event = StateChangeEvent { event: Event::PostCreateContainer.into(), ..StateChangeEvent::default() };
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|threads| {
        // There is always something to be read.
        threads.spawn(|| {
            let mut waiting = std::collections::VecDeque::new();
            while goes_on.load(Ordering::SeqCst) {
                waiting.push_back(link.begin("StateChange", event.encode_to_vec(), LONG).unwrap());
                if waiting.len() == 100 {
                    link.finish::<hostler_proto::nri::Empty>(&waiting.pop_front().unwrap(), LONG).unwrap();
                }
            }
        });
        let outcomes = (0..20).map(|round| {
            let other = rig.claim(&format!("o{round}"), &["cpu/numa1,cpus=1"]);
            let asked = [rig.container("pod", &format!("r{round}"), &[&other]), rig.container("pod", "f", &[])];
            let cpus = asked.map(|asked| rig.runtime.create(&asked).map(|id| rig.runtime.cpus(&id)));
            rig.release(&other);
            (cpus, [Ok(other.cpus.to_string()), Ok(without(&[&claim, &other]))])
        });
        let outcomes: Vec<_> = outcomes.collect();
        goes_on.store(false, Ordering::SeqCst);
        for (round, (made, expected)) in outcomes.iter().enumerate() {
            assert_eq!(made, expected, "round {round}");
        }
    });
    assert_well(&rig, &claim, &ids);
}

#[test]
fn a_runtime_that_reads_nothing_does_not_stop_the_daemon() {
    let (rig, claim, ids) = scene(NriVersion::V0_12_2);
    // The runtime's lock is held while it makes a container; an update of ours has to wait meanwhile.
    let (go_tx, go_rx) = std::sync::mpsc::channel::<()>();
    rig.runtime.limit(LONG);
    rig.runtime.at(Moment::Sent("CreateContainer"), move |_, _| go_rx.recv().unwrap());
    let asked = rig.container("pod", "slow", &[]);
    std::thread::scope(|threads| {
        let slow = threads.spawn(|| rig.runtime.create(&asked).unwrap());
        wait_for("the call", || rig.runtime.has_done_all().then_some(()));
        // Claims are made and taken back, and the command line is answered.
        let other = rig.claim("b", &["cpu/numa1,cpus=2"]);
        rig.release(&other);
        assert!(rig.get("/v1/status").is_object());
        go_tx.send(()).unwrap();
        let id = slow.join().unwrap();
        rig.runtime.wait_for_cpus(&id, &without(&[&claim]));
    });
    assert_well(&rig, &claim, &ids);
}

#[test]
fn a_second_synchronize_is_the_truth_that_counts() {
    let (rig, claim, ids) = scene(NriVersion::V0_12_2);
    let link = rig.runtime.wait_for_plugin();
    link.call::<hostler_proto::nri::SynchronizeResponse>("Synchronize", &SynchronizeRequest::default(), LONG).unwrap();
    // A runtime that has reported none of them still has them: its requests are answered.
    assert_well(&rig, &claim, &ids);
}

#[test]
fn a_handler_does_not_wait_for_the_runtime_that_waits_for_it() {
    let (rig, claim, [bound, free]) = scene(NriVersion::V0_12_2);
    // Were an update sent and waited for in here, none of these would be answered in time.
    for round in 0..5 {
        let other = rig.claim(&format!("o{round}"), &["cpu/numa1,cpus=1"]);
        let id = rig.run_container("pod", &format!("r{round}"), &[&other]);
        rig.assert_bound(&id, &other);
        rig.runtime.update_container(&id, &Default::default()).unwrap();
        rig.runtime.remove_container(&id).unwrap();
        rig.release(&other);
    }
    rig.runtime.wait_for_cpus(&free, &without(&[&claim]));
    rig.assert_bound(&bound, &claim);
    assert_eq!(rig.runtime.connections(), 1, "it would have been hung up on");
}

//! `hostler events`, with the real binary: what a daemon has seen, followed over its restart.

use std::io::{BufRead, BufReader};

use hostler_testing::host::{Host, SCRIPT, wait_for};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

const LINES: &str = "jsonpath={range .items[*]}{.subject} {.name} {.change} {.message}{\"\\n\"}{end}";

#[test]
fn changes_of_claims_devices_and_the_daemon_are_listed_with_their_reasons() {
    let mut host = Host::bare(SCRIPT);
    host.start();
    host.manifest("train", "u1", &[("a", "fake", "card-0", Value::Null)]);
    host.manifest("other", "u2", &[("a", "fake", "card-0", Value::Null)]);
    host.run_ok(&["claim", "prepare", "train"]);
    host.run_refused(&["claim", "prepare", "other"]);
    host.run_ok(&["device", "drain", "fake/card-3", "--reason", "fan"]);
    let listed = || host.run_ok(&["events", "-o", LINES]);
    let events = wait_for("the drain", || Some(listed()).filter(|events| events.contains("drained")));
    for expected in ["daemon node started \n", "claim default/train prepared \n", "device fake/card-3 drained fan\n"] {
        assert!(events.contains(expected), "{expected}: {events}");
    }
    assert!(events.contains("claim default/other failed prepare: device card-0 is already prepared"), "{events}");
    host.run_ok(&["claim", "delete", "train"]);
    wait_for("the end of the claim", || listed().contains("claim default/train unprepared").then_some(()));
    assert!(host.run_ok(&["events"]).starts_with("TIME "));
}

#[test]
fn events_that_are_watched_go_on_when_the_daemon_is_started_anew_and_say_so() {
    let mut host = Host::bare(SCRIPT);
    host.start();
    let mut watching = host.spawn_command(&["events", "--watch", "-o", LINES]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = BufReader::new(watching.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "daemon node started ");
    host.run_ok(&["device", "drain", "fake/card-3"]);
    assert_eq!(lines.next().unwrap(), "device fake/card-3 drained ");
    host.stop();
    assert!(said.next().unwrap().ends_with("; waiting for it"));
    host.start();
    assert_eq!(lines.next().unwrap(), "daemon node started ");
    assert!(said.next().unwrap().contains("the daemon was started anew"));
    host.run_ok(&["device", "undrain", "fake/card-3"]);
    assert_eq!(lines.next().unwrap(), "device fake/card-3 undrained ");
    kill(Pid::from_raw(i32::try_from(watching.id()).unwrap()), Signal::SIGTERM).unwrap();
    watching.wait().unwrap();
}

//! When ClusterHardware is written, and when not.

use std::time::{Duration, Instant};

use hostler_api::hardware::{ClusterHardwareStatus, ClusterNodeCounts, Condition, ConditionStatus};

use super::decision::{HardwareCommand, HardwareCore, HardwareEvent, StoredHardware};

const S: Duration = Duration::from_secs(1);

fn status(reporting: u32) -> ClusterHardwareStatus {
    ClusterHardwareStatus {
        nodes: ClusterNodeCounts { reporting, ..ClusterNodeCounts::default() },
        ..ClusterHardwareStatus::default()
    }
}

fn stored(version: &str, reporting: u32) -> StoredHardware {
    let status = ClusterHardwareStatus { last_change_time: Some("then".to_owned()), ..status(reporting) };
    StoredHardware { version: version.to_owned(), status }
}

/// One that leads, and has found the object.
fn writer(now: Instant) -> HardwareCore {
    let mut core = HardwareCore::new(now);
    assert_eq!(core.step(now, true, Some(status(1)), HardwareEvent::Changed), Some(HardwareCommand::Read));
    assert_eq!(core.step(now, true, Some(status(1)), HardwareEvent::Read(Some(stored("1", 1)))), None);
    core
}

fn version(command: Option<HardwareCommand>) -> String {
    match command {
        Some(HardwareCommand::Write { version, .. }) => version,
        other => panic!("{other:?} is no write"),
    }
}

#[test]
fn nothing_is_written_at_rest_nor_by_who_does_not_lead_nor_before_everything_is_known() {
    let now = Instant::now();
    let mut core = writer(now);
    for second in 0..299 {
        assert_eq!(core.step(now + S * second, true, Some(status(1)), HardwareEvent::Changed), None, "{second}");
    }
    assert_eq!(core.step(now, false, Some(status(2)), HardwareEvent::Changed), None);
    assert_eq!(core.step(now, true, None, HardwareEvent::Changed), None);
    // Others may have written meanwhile.
    assert_eq!(core.step(now, true, Some(status(1)), HardwareEvent::Changed), Some(HardwareCommand::Read));
}

#[test]
fn a_change_is_written_at_once_and_the_next_ones_together_ten_seconds_later() {
    let now = Instant::now();
    let mut core = writer(now);
    assert_eq!(version(core.step(now, true, Some(status(2)), HardwareEvent::Changed)), "1");
    assert_eq!(core.step(now, true, Some(status(3)), HardwareEvent::Written(stored("2", 2))), None);
    assert_eq!(core.due(), Some(now + S * 10));
    assert_eq!(core.step(now + S * 9, true, Some(status(4)), HardwareEvent::Changed), None);
    let Some(HardwareCommand::Write { version, status: written }) =
        core.step(now + S * 10, true, Some(status(5)), HardwareEvent::Changed)
    else {
        panic!("nothing is written")
    };
    assert_eq!((&*version, written.nodes.reporting), ("2", 5));
}

#[test]
fn an_object_that_is_not_there_is_made_and_then_written() {
    let now = Instant::now();
    let mut core = HardwareCore::new(now);
    core.step(now, true, Some(status(1)), HardwareEvent::Changed);
    let made = core.step(now, true, Some(status(1)), HardwareEvent::Read(None));
    assert_eq!(made, Some(HardwareCommand::Create));
    assert_eq!(version(core.step(now, true, Some(status(1)), HardwareEvent::Read(Some(stored("1", 0))))), "1");
}

#[test]
fn a_write_that_is_refused_is_begun_anew_from_what_stands_there() {
    let now = Instant::now();
    let mut core = writer(now);
    core.step(now, true, Some(status(2)), HardwareEvent::Changed);
    let again = core.step(now, true, Some(status(2)), HardwareEvent::Refused);
    assert_eq!(again, Some(HardwareCommand::Read));
    assert_eq!(version(core.step(now, true, Some(status(2)), HardwareEvent::Read(Some(stored("9", 7))))), "9");
    // Whoever refuses everything is not asked on and on.
    assert_eq!(core.step(now, true, Some(status(2)), HardwareEvent::Refused), None);
    assert!(core.due().unwrap() > now);
}

#[test]
fn failures_wait_twice_as_long_each_time_up_to_a_minute() {
    let now = Instant::now();
    let mut core = writer(now);
    let mut at = now;
    for pause in [2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(core.step(at, true, Some(status(2)), HardwareEvent::Failed), None);
        assert_eq!(core.due(), Some(at + S * pause));
        at += S * pause;
        assert_eq!(core.step(at, true, Some(status(2)), HardwareEvent::Changed), Some(HardwareCommand::Read));
    }
}

#[test]
fn a_kind_that_is_missing_is_looked_for_and_nothing_is_written_for_it() {
    let now = Instant::now();
    let mut core = HardwareCore::new(now);
    core.step(now, true, Some(status(1)), HardwareEvent::Changed);
    assert_eq!(core.step(now, true, Some(status(1)), HardwareEvent::NotServed), None);
    let due = core.due().unwrap();
    assert_eq!(core.step(due, true, Some(status(1)), HardwareEvent::Changed), Some(HardwareCommand::Read));
}

#[test]
fn a_condition_keeps_the_time_since_when_it_is_so() {
    let condition = |status, at: &str| Condition {
        kind: "Synced".to_owned(),
        status,
        reason: "R".to_owned(),
        message: String::new(),
        last_transition_time: at.to_owned(),
    };
    let with = |condition| ClusterHardwareStatus { conditions: vec![condition], ..status(1) };
    let now = Instant::now();
    let mut core = HardwareCore::new(now);
    core.step(now, true, Some(status(1)), HardwareEvent::Changed);
    let found = StoredHardware { version: "1".to_owned(), status: with(condition(ConditionStatus::True, "then")) };
    let same = with(condition(ConditionStatus::True, "now"));
    assert_eq!(core.step(now, true, Some(same), HardwareEvent::Read(Some(found))), None);
    let other = with(condition(ConditionStatus::False, "now"));
    let Some(HardwareCommand::Write { status, .. }) = core.step(now, true, Some(other), HardwareEvent::Changed) else {
        panic!("nothing is written")
    };
    assert_eq!(status.conditions[0].last_transition_time, "now");
}

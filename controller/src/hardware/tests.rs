//! When ClusterHardware is written, and when not.

use hostler_api::hardware::{ClusterHardwareStatus, ClusterNodeCounts, Condition, ConditionStatus};

use super::*;

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

#[test]
fn an_object_that_says_what_it_is_to_say_is_not_written_and_another_one_is_over_its_version() {
    assert_eq!(decide(status(1), Some(&stored("1", 1))), HardwareStep::Rest);
    let HardwareStep::Write { version, status } = decide(status(2), Some(&stored("7", 1))) else {
        panic!("nothing is written")
    };
    assert_eq!((&*version, status.nodes.reporting), ("7", 2));
    assert_eq!(decide(self::status(1), None), HardwareStep::Create);
}

#[test]
fn changes_within_ten_seconds_of_a_write_are_written_together() {
    let mut pace = WritePause::default();
    assert_eq!(pace.left(S), Duration::ZERO);
    pace.wrote(S * 5);
    assert_eq!([5, 14, 15, 16].map(|at| pace.left(S * at)), [10, 1, 0, 0].map(|left| S * left));
}

const S: Duration = Duration::from_secs(1);

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
    let found = StoredHardware { version: "1".to_owned(), status: with(condition(ConditionStatus::True, "then")) };
    assert_eq!(decide(with(condition(ConditionStatus::True, "now")), Some(&found)), HardwareStep::Rest);
    let HardwareStep::Write { status, .. } = decide(with(condition(ConditionStatus::False, "now")), Some(&found))
    else {
        panic!("nothing is written")
    };
    assert_eq!(status.conditions[0].last_transition_time, "now");
}

#[test]
fn a_kind_that_is_missing_is_looked_for_soon_and_an_object_of_another_version_read_again() {
    let requeue = |answer| requeue_after(&answer);
    assert_eq!(requeue(HardwareAnswer::Kept), Requeue::After(LOOK));
    assert_eq!(requeue(HardwareAnswer::Done), Requeue::After(LOOK));
    assert_eq!(requeue(HardwareAnswer::Created), Requeue::Now);
    assert_eq!(requeue(HardwareAnswer::Early(S)), Requeue::After(S));
    assert_eq!(requeue(HardwareAnswer::NotServed), Requeue::After(LOOK_FOR_KIND));
    assert_eq!(requeue(HardwareAnswer::Failed(None)), Requeue::Failed);
}

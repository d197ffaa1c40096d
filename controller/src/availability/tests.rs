//! Rows of availability: sums that agree, whichever way they are cut.

use super::*;

#[test]
fn the_answer_comes_back_as_it_was_written() {
    let counts = AvailabilityCounts {
        devices: DeviceTotals { capacity: 3, allocatable: 3, free: 1, allocated: 2, ..DeviceTotals::default() },
        amounts: [("cpus".to_owned(), AmountCounts::default())].into(),
        held_for: [("train".to_owned(), 1)].into(),
    };
    let row = AvailabilityRow {
        node: Some("n1".to_owned()),
        numa_node: Some(1),
        status: Some(NodeAvailability { is_there: true, report: Some(ReportFreshness::Stale), ..Default::default() }),
        counts: counts.clone(),
        classes: [("gpu".to_owned(), counts.devices)].into(),
        ..AvailabilityRow::default()
    };
    let answer = Availability {
        kind: "Availability".to_owned(),
        by: AvailabilityBy::Numa,
        rows: vec![row],
        total: counts,
        ..Availability::default()
    };
    let text = serde_json::to_string(&answer).unwrap();
    assert_eq!(serde_json::from_str::<Availability>(&text).unwrap(), answer);
    assert!(text.contains(r#""node":"n1","numaNode":1,"status":{"isThere":true,"#), "{text}");
}

#[test]
fn a_node_is_as_its_kubelet_and_its_daemon_say() {
    let node = |is_there, is_ready, is_schedulable, report| {
        NodeAvailability { is_there, is_ready, is_schedulable, report }.to_string()
    };
    assert_eq!(node(true, true, true, None), "ready");
    assert_eq!(node(true, true, true, Some(ReportFreshness::Fresh)), "ready");
    assert_eq!(node(true, true, false, Some(ReportFreshness::Stale)), "cordoned, stale");
    assert_eq!(node(true, false, true, Some(ReportFreshness::Unknown)), "not ready, unknown");
    assert_eq!(node(false, false, true, None), "gone");
}

//! Reports: fresh, stale and unknown, and back.

use hostler_api::hardware::SIGN_OF_LIFE;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn report(node: &str, number: u64, allocated: u32) -> NodeHardware {
    serde_json::from_value(json!({
        "metadata": {"name": node}, "spec": {"nodeName": node},
        "status": {"driver": "hostler.dev", "lastReportTime": format!("{number}"), "backends": [
            {"name": "cpu", "knowledge": "Known", "classes": [{"name": "c", "zones": [
                {"capacity": 2, "allocatable": 2, "allocated": allocated}]}]}]},
    }))
    .unwrap()
}

fn freshness(reports: &NodeReports) -> Option<ReportFreshness> {
    reports.get("a").map(|report| report.freshness)
}

#[test]
fn a_report_is_stale_after_two_signs_of_life_and_unknown_after_three() {
    let (start, mut reports) = (Instant::now(), NodeReports::default());
    reports.see(start, &report("a", 1, 0));
    for (after, expected) in [
        (SIGN_OF_LIFE * 2, ReportFreshness::Fresh),
        (STALE_AFTER, ReportFreshness::Fresh),
        (STALE_AFTER + Duration::from_secs(1), ReportFreshness::Stale),
        (UNKNOWN_AFTER, ReportFreshness::Stale),
        (UNKNOWN_AFTER + Duration::from_secs(1), ReportFreshness::Unknown),
        (UNKNOWN_AFTER * 100, ReportFreshness::Unknown),
    ] {
        reports.pass(start + after);
        assert_eq!(freshness(&reports), Some(expected), "{after:?}");
    }
    assert_eq!(reports.next(), None);
    reports.see(start + UNKNOWN_AFTER * 100, &report("a", 2, 0));
    assert_eq!(freshness(&reports), Some(ReportFreshness::Fresh));
    assert_eq!(reports.counts(), ClusterNodeCounts { reporting: 1, stale: 0, unknown: 0 });
}

#[test]
fn a_report_that_comes_again_is_no_sign_of_life() {
    let (start, mut reports) = (Instant::now(), NodeReports::default());
    reports.see(start, &report("a", 1, 0));
    reports.see(start + SIGN_OF_LIFE * 2, &report("a", 1, 0));
    reports.pass(start + STALE_AFTER + Duration::from_secs(1));
    assert_eq!(freshness(&reports), Some(ReportFreshness::Stale));
}

#[test]
fn only_what_anybody_counts_is_news() {
    let (start, mut reports) = (Instant::now(), NodeReports::default());
    reports.see(start, &report("a", 1, 0));
    assert_eq!(reports.take_changed().len(), 1);
    reports.see(start + SIGN_OF_LIFE, &report("a", 2, 0));
    assert!(reports.take_changed().is_empty());
    reports.see(start + SIGN_OF_LIFE, &report("a", 3, 1));
    assert_eq!(reports.take_changed().len(), 1);
    reports.forget("a");
    assert_eq!((reports.take_changed().len(), reports.get("a").is_none(), reports.next()), (1, true, None));
}

proptest! {
    /// However reports come and time passes, each is as old as its last change says, and the next moment is never missed.
    #[test]
    fn reports_are_as_old_as_they_are(steps in prop::collection::vec((0..4usize, 0..4u64, 0..1_200u64, 0..9u8), 1..80)) {
        let (mut now, mut reports) = (Instant::now(), NodeReports::default());
        let mut last: BTreeMap<String, (u64, Instant)> = BTreeMap::new();
        for (node, number, seconds, is_gone) in steps {
            now += Duration::from_secs(seconds);
            let name = format!("n{node}");
            if is_gone == 0 {
                reports.forget(&name);
                last.remove(&name);
            } else {
                reports.see(now, &report(&name, number, 0));
                last.entry(name).and_modify(|it| if it.0 != number { *it = (number, now) }).or_insert((number, now));
            }
            reports.pass(now);
            for (name, (_, seen)) in &last {
                prop_assert_eq!(reports.get(name).unwrap().freshness, ReportFreshness::after(now - *seen));
            }
            let next = last.values().filter_map(|(_, seen)| {
                Some(*seen + ReportFreshness::after(now - *seen).ends()? + Duration::from_millis(1))
            });
            prop_assert_eq!(reports.next(), next.min());
        }
    }
}

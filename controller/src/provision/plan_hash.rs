//! Which plan a request was told yes for, as a value that is short enough for a label. The detail `nodes` names as many nodes as
//! one value can, and no devices; of two answers with the same hash nothing is somewhere else.

use hostler_allocator::plan::{Plan, SetPlan};
use hostler_api::fingerprint;

/// The hash of a plan that is told in lines, in an order that does not change.
pub(super) fn plan_hash(lines: &[String]) -> String {
    fingerprint(&lines.join("\n"))
}

/// Which node takes how many pods of which set.
pub(super) fn placements(plan: &Plan) -> Vec<String> {
    let of_set = |(at, set): (usize, &SetPlan)| {
        set.placements.iter().map(move |it| format!("{at} {} {}", it.node, it.pods)).collect::<Vec<_>>()
    };
    let mut lines: Vec<String> = plan.sets.iter().enumerate().flat_map(of_set).collect();
    lines.sort();
    lines
}

//! A hash of the plan that a request was told yes for, short enough for a label. The detail `nodes` names only as many
//! nodes as one value can, and no devices; two answers with the same hash place every pod and device in the same place.

use hostler_allocator::plan::{Plan, SetPlan};
use hostler_api::fingerprint;

/// Returns the hash of a plan from its lines, which have a stable order.
pub(super) fn plan_hash(lines: &[String]) -> String {
    fingerprint(&lines.join("\n"))
}

/// Returns the number of pods of each set on each node, as lines.
pub(super) fn placements(plan: &Plan) -> Vec<String> {
    let of_set = |(at, set): (usize, &SetPlan)| {
        set.placements.iter().map(move |it| format!("{at} {} {}", it.node, it.pods)).collect::<Vec<_>>()
    };
    let mut lines: Vec<String> = plan.sets.iter().enumerate().flat_map(of_set).collect();
    lines.sort();
    lines
}

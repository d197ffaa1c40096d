//! Texts for conditions and Events of a request: the number of pods of each set with room, and the first reasons for
//! those without.

use std::{collections::BTreeMap, time::Duration};

use hostler_allocator::plan::{NodeRefusal, Order, Plan, PodSet, SetPlan};
use hostler_api::{few, provisioning::MAX_DETAIL_BYTES};

use crate::requests::ProvisionClass;

/// Limit of reasons of a set in a text; those of most nodes come first.
const REASONS: usize = 3;

/// Returns the text for a plan with room for all pods.
pub(super) fn found(plan: &Plan) -> String {
    let sets: Vec<String> = plan.sets.iter().map(|set| format!("{} on {}", share(set), count(set, "node"))).collect();
    let order = match plan.order {
        Order::AsGiven => "",
        Order::LargestFirst => "; only when the largest pods are placed first",
        Order::FewestNodesFirst => "; only when those that fit on the fewest nodes are placed first",
    };
    short(format!("there is room for all pods: {}{order}", sets.join(", ")))
}

/// Returns the text for a plan without room for all pods.
pub(super) fn lacking(plan: &Plan, class: ProvisionClass) -> String {
    let sets: Vec<String> = plan.sets.iter().map(reasons).collect();
    let booked = match class {
        ProvisionClass::CheckCapacity => "",
        ProvisionClass::AtomicScaleUp => "; nothing is booked",
    };
    short(format!("there is not room for all pods: {}{booked}", sets.join("; ")))
}

/// Returns the text for a plan with room for all pods that cannot be booked for them.
pub(super) fn not_promised(plan: &Plan, sets: &[PodSet]) -> String {
    let bound = sets.iter().filter(|set| set.has_pod_terms()).map(|set| &*set.name);
    short(format!(
        "{}, as it is now; it cannot be promised, since other pods decide by then where those of {} may be: they have a \
         required podAffinity or podAntiAffinity, or topologySpreadConstraints with DoNotSchedule",
        found(plan),
        few(bound)
    ))
}

/// Returns the text for a plan without a decision.
pub(super) fn undecided(plan: &Plan) -> String {
    let sets: Vec<String> = plan.sets.iter().map(|set| format!("{}{}", reasons(set), unseen(set))).collect();
    short(format!("whether there is room for all pods cannot be said here: {}", sets.join("; ")))
}

fn unseen(set: &SetPlan) -> String {
    match &*set.unsupported {
        [] => String::new(),
        unsupported => format!(" (not looked at: {})", unsupported.join(", ")),
    }
}

/// Returns the nodes of a plan, with the number of pods on each.
pub(super) fn nodes(plan: &Plan) -> String {
    on_nodes(&by_node(plan))
}

/// Returns nodes with the number of pods on each, as many as a detail has room for.
pub(super) fn on_nodes<N: std::fmt::Display + Ord>(by_node: &BTreeMap<N, u32>) -> String {
    let mut text = String::new();
    for (at, (node, pods)) in by_node.iter().enumerate() {
        let next = format!("{}{node}={pods}", if at == 0 { "" } else { "," });
        // 32 bytes are left for the number of further nodes.
        if text.len() + next.len() + 32 > MAX_DETAIL_BYTES {
            return format!("{text},and {} more", by_node.len() - at);
        }
        text.push_str(&next);
    }
    text
}

/// Returns the node, if there is only one.
pub(super) fn only_node(plan: &Plan) -> Option<String> {
    let mut nodes = by_node(plan).into_keys();
    let first = nodes.next()?;
    nodes.next().is_none().then(|| first.to_owned())
}

fn by_node(plan: &Plan) -> BTreeMap<&str, u32> {
    let mut nodes = BTreeMap::new();
    for placement in plan.sets.iter().flat_map(|set| &set.placements) {
        *nodes.entry(&*placement.node).or_default() += placement.pods;
    }
    nodes
}

/// Returns a text such as `workers 60 of 64: first reason (12 nodes), second reason (1 node)`.
fn reasons(set: &SetPlan) -> String {
    if set.placed == set.wanted {
        return share(set);
    }
    let refusal = |refusal: &NodeRefusal| format!("{} ({})", refusal.reason, numbered(refusal.nodes.len(), "node"));
    let of_nodes = set.refusals.iter().map(refusal);
    let reasons: Vec<String> = set.problem.clone().into_iter().chain(of_nodes).take(REASONS).collect();
    match reasons.is_empty() {
        true => format!("{}: there is no node", share(set)),
        false => format!("{}: {}", share(set), reasons.join(", ")),
    }
}

fn share(set: &SetPlan) -> String {
    format!("{} {} of {}", set.name, set.placed, set.wanted)
}

fn count(set: &SetPlan, what: &str) -> String {
    numbered(set.placements.len(), what)
}

fn numbered(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns a text such as `10 min` or `90 s`.
pub(super) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => "0 s".to_owned(),
        _ if seconds.is_multiple_of(24 * 3600) => {
            numbered(usize::try_from(seconds / (24 * 3600)).unwrap_or(usize::MAX), "day")
        }
        _ if seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    }
}

/// Cuts a text to the length of a condition's message, with room for words that follow it.
pub(super) fn short(mut text: String) -> String {
    const ROOM: usize = 1024;
    if text.len() > MAX_DETAIL_BYTES - ROOM {
        let end = (0..=MAX_DETAIL_BYTES - ROOM).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

//! What fits on 5,000 nodes with 100 devices each.

use std::time::Instant;

use hostler_allocator::plan::{ClusterFacts, PlanBoxes, PlanOptions, PodSet, Snapshot};

use super::{
    clusters::{self, PODS, SETS},
    measure::{median, ms, peak_mib, report},
};

/// One pod, one answer for each node.
pub(crate) fn fit() {
    let snapshot = snapshot("5,000 alike nodes", clusters::uniform());
    measure_fit("one pod's fit on 5,000 alike nodes × 100 devices", &snapshot);
}

/// As many pods as a question can have.
pub(crate) fn plan() {
    let snapshot = snapshot("5,000 alike nodes", clusters::uniform());
    measure_plan("plan of 32 × 16,384 pods on 5,000 alike nodes × 100 devices", &snapshot);
}

/// The same where machines are of ten models, and half of the devices are taken at random.
pub(crate) fn mixed() {
    let snapshot = snapshot("5,000 nodes of 10 models, half taken", clusters::mixed());
    measure_fit("one pod's fit on 5,000 nodes of 10 models, half taken", &snapshot);
    measure_plan("plan of 32 × 16,384 pods on 5,000 nodes of 10 models, half taken", &snapshot);
}

/// Pods with terms about each other are placed one by one, beside 100,000 that run.
pub(crate) fn terms() {
    let snapshot = snapshot("5,000 alike nodes with 100,000 pods", clusters::with_pods());
    let set = clusters::spread();
    let start = Instant::now();
    let plan = snapshot.plan(&[set], &PlanOptions::default());
    report("plan of 16,384 pods that are spread over 5,000 nodes", ms(start.elapsed()), "≤ 5 s");
    report("  pods placed", plan.sets[0].placed, "");
}

fn snapshot(what: &str, facts: ClusterFacts) -> Snapshot {
    report(&format!("{what}: packed"), format!("{} MiB", peak_mib()), "");
    let start = Instant::now();
    let snapshot = Snapshot::new(facts);
    report(&format!("{what}: made ready"), ms(start.elapsed()), "");
    snapshot
}

fn measure_fit(what: &str, snapshot: &Snapshot) {
    let set = clusters::pods(0, 1);
    let (time, fit) = median(9, || snapshot.fit(&set, &PlanOptions::default(), &mut PlanBoxes::default()));
    report(what, ms(time), "≤ 50 ms");
    report("  nodes with room, and reasons of the others", format!("{} + {}", fit.room.len(), fit.refusals.len()), "");
}

fn measure_plan(what: &str, snapshot: &Snapshot) {
    let sets: Vec<PodSet> = (0..SETS).map(|set| clusters::pods(set, PODS)).collect();
    let start = Instant::now();
    let plan = snapshot.plan(&sets, &PlanOptions::default());
    report(what, ms(start.elapsed()), "≤ 10 s");
    let placed: u32 = plan.sets.iter().map(|set| set.placed).sum();
    report("  pods placed", placed, "");
    report("  memory at its peak", format!("{} MiB", peak_mib()), "≤ 300 MB");
}

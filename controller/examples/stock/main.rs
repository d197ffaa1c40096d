//! What it takes to know a large cluster: `cargo run --release -p hostler-controller --example stock [NODES]`.
//!
//! 5,000 nodes with 100 devices each, of three drivers, in 10,000 slices; 50,000 claims have one of them each, and there are
//! 100,000 pods. With another number of nodes there is as much of everything for each. Prints one line per figure, with what
//! it should be for 5,000.

#![allow(
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    unused_imports,
    reason = "a program for developers, made of modules of which it uses a part"
)]

#[path = "../../src"]
mod source {
    //! The modules of the controller that are measured.

    pub(crate) mod reports;
    pub(crate) mod stock;
}

mod cluster;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use hostler_allocator::plan::{ClusterFacts, PlanBoxes, PlanOptions, Snapshot};

use reports::NodeReports;
use source::{reports, stock};
use stock::{ClusterStock, StockAccount};

/// A cluster and its account.
struct Kept {
    facts: ClusterFacts,
    reports: NodeReports,
    account: StockAccount,
}

/// What readers get of it.
type View = (ClusterFacts, ClusterStock);

fn main() {
    let start = Instant::now();
    let mut kept = Kept {
        facts: ClusterFacts::default(),
        reports: NodeReports::default(),
        account: StockAccount::new(PlanOptions::default()),
    };
    cluster::fill(&mut kept.facts, &mut kept.reports);
    report("cluster made and packed", ms(start.elapsed()), "");
    report("  resident", mib("VmRSS"), "");
    let start = Instant::now();
    let view = kept.view();
    report("first account of all devices", ms(start.elapsed()), "");
    report("  resident with it", mib("VmRSS"), "≤ 200 MB");
    assert_eq!(view.1.sums.all.totals.capacity, u32::try_from(*cluster::NODES).unwrap() * 100);
    changes(&mut kept, view);
    storm(&mut kept);
    questions(&mut kept);
    churn(&mut kept);
    report("resident at its peak", mib("VmHWM"), "≤ 300 MB");
}

impl Kept {
    fn view(&mut self) -> View {
        let stock = self.account.update(&mut self.facts, &mut self.reports).clone();
        (self.facts.clone(), stock)
    }
}

/// Single changes, each shown in a view while the one before is still read.
fn changes(kept: &mut Kept, mut view: View) {
    let mut measure = |what: &str, change: &dyn Fn(&mut Kept, usize)| {
        let mut times: Vec<Duration> = (0..200)
            .map(|round| {
                let start = Instant::now();
                change(kept, round);
                view = kept.view();
                start.elapsed()
            })
            .collect();
        times.sort();
        report(what, format!("{}, {} at most", ms(times[100]), ms(times[199])), "≤ 100 ms");
    };
    measure("a slice changed: packed, counted, shown", &|kept, round| {
        kept.facts.add_slice(cluster::slice(round * 7 % *cluster::NODES, round % 2, round % 3 == 0));
    });
    measure("a claim was given a device: the same", &|kept, round| {
        kept.facts.add_claim(&cluster::claim(round * 11 % *cluster::NODES, 1));
    });
    measure("a class changed: everything judged anew", &|kept, round| {
        kept.facts.add_class(cluster::class("changing", &format!("device.driver == \"none-{round}\"")));
    });
}

/// Changes faster than views are made, which are shown together.
fn storm(kept: &mut Kept) {
    const SLICES: u32 = 1_000;
    let slices: Vec<_> = (0..SLICES as usize).map(|at| cluster::slice(at * 3 % *cluster::NODES, 0, true)).collect();
    let view = kept.view();
    let start = Instant::now();
    slices.into_iter().for_each(|slice| kept.facts.add_slice(slice));
    drop(black_box(kept.view()));
    report(&format!("each of {SLICES} slices that changed: packed, shown together"), ms(start.elapsed() / SLICES), "");
    drop(view);
}

/// Questions to the planner, of a snapshot that is there and of one that must be made.
fn questions(kept: &mut Kept) {
    let mut times: Vec<Duration> = (0..9)
        .map(|round| {
            kept.facts.add_slice(cluster::slice(round, 0, round % 2 == 0));
            let facts = kept.facts.clone();
            let start = Instant::now();
            black_box(Snapshot::new(facts));
            start.elapsed()
        })
        .collect();
    times.sort();
    report("snapshot for the planner, made anew", ms(times[4]), "≤ 100 ms");
    let snapshot = Snapshot::new(kept.facts.clone());
    for (what, count) in [("one pod's fit, asked of it", 0), ("plan of 100 pods, asked of it", 100)] {
        let set = cluster::pods(count);
        let mut times: Vec<Duration> = (0..9)
            .map(|_| {
                let start = Instant::now();
                let options = PlanOptions::default();
                match count {
                    0 => drop(black_box(snapshot.fit(&set, &options, &mut PlanBoxes::default()))),
                    _ => drop(black_box(snapshot.plan(std::slice::from_ref(&set), &options))),
                }
                start.elapsed()
            })
            .collect();
        times.sort();
        report(what, ms(times[4]), "milliseconds");
    }
}

/// Names come and go until most of the store is of no use, and then some.
fn churn(kept: &mut Kept) {
    let before = mib("VmRSS");
    let mut longest = Duration::ZERO;
    for round in 0..60_000 {
        let start = Instant::now();
        kept.facts.add_slice(cluster::other_devices(round % *cluster::NODES, round));
        longest = longest.max(start.elapsed());
        if round % 1_000 == 0 {
            drop(black_box(kept.view()));
        }
    }
    report("resident before 3,000,000 other devices came and went", before, "");
    report("  and after", mib("VmRSS"), "");
    report("  longest change: what is of no use was given back", ms(longest), "");
}

fn report(what: &str, found: impl std::fmt::Display, wanted: &str) {
    println!("{what:<64} {found:>32}   {wanted}");
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

/// A line of what the kernel says of this process.
fn mib(line: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib: f64 = found.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default();
    format!("{:.0} MB", kib * 1.024 / 1000.0)
}

//! The figures of docs/performance.md, measured on the real binary: `make bench`.
//!
//! Prints one Markdown table: what was measured, what it should be, whether that is met, and how to see it again. With
//! `UPDATE=1` the table in docs/performance.md is replaced. A missed target is a line that says so, never a failure:
//! how long something takes is a property of a machine, not of a commit.
//!
//! `HOSTLER_BIN` names the binary to measure: cargo builds one of its own for this program, with the features of the
//! tests. Words on the command line choose sections: `cargo bench --bench figures -- inventory hook`. With `COMPARE_BIN`
//! that binary and `HOSTLER_BIN` are measured in turn, `ROUNDS` times, and compared.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for developers: it starts programs, prints what it finds and ends when something fails"
)]

mod figures {
    //! One file per section of the table, and what they share.

    pub(crate) mod ahead;
    pub(crate) mod audit;
    pub(crate) mod claims;
    pub(crate) mod cluster;
    pub(crate) mod compare;
    pub(crate) mod cycles;
    pub(crate) mod hook;
    pub(crate) mod hotplug;
    pub(crate) mod idle;
    pub(crate) mod inventory;
    pub(crate) mod limits;
    pub(crate) mod machine;
    pub(crate) mod manifests;
    pub(crate) mod nri;
    pub(crate) mod pictures;
    pub(crate) mod pod_resources;
    pub(crate) mod profile;
    pub(crate) mod report;
    pub(crate) mod rig;
    pub(crate) mod samples;
    pub(crate) mod scale;
    pub(crate) mod scan;
    pub(crate) mod start;
    pub(crate) mod stuck;
    pub(crate) mod synthetic;
    pub(crate) mod syscalls;
}

use figures::{
    ahead, audit, claims, cluster, compare, cycles, hook, hotplug, idle, inventory, limits, machine, manifests, nri,
    pictures, pod_resources, profile, report, scale, scan, start, stuck,
};

type Section = (&'static str, fn(&mut report::Report));

const SECTIONS: [Section; 19] = [
    ("limits", limits::measure),
    ("inventory", inventory::measure),
    ("scan", scan::measure),
    ("hotplug", hotplug::measure),
    ("claims", claims::measure),
    ("profile", profile::measure),
    ("manifests", manifests::measure),
    ("idle", idle::measure),
    ("start", start::measure),
    ("cycles", cycles::measure),
    ("scale", scale::measure),
    ("cluster", cluster::measure),
    ("ahead", ahead::measure),
    ("hook", hook::measure),
    ("nri", nri::measure),
    ("audit", audit::measure),
    ("stuck", stuck::measure),
    ("pictures", pictures::measure),
    ("pod_resources", pod_resources::measure),
];

fn main() {
    let (flags, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|arg| arg.starts_with('-'));
    // `cargo test --all-targets` starts this too; figures taken among running tests mean nothing.
    if !flags.iter().any(|flag| flag == "--bench") {
        println!("figures: run it with `make bench`");
        return;
    }
    if compare::run(&words) {
        return;
    }
    let mut report = report::Report::default();
    for (name, section) in SECTIONS {
        if words.is_empty() || words.iter().any(|word| word == name) {
            eprintln!("figures: measuring {name}");
            report.section = name;
            section(&mut report);
        }
    }
    if compare::hand_over(&report) {
        return;
    }
    let table = format!("{}\n{}", machine::describe(), report.table());
    println!("{table}");
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        figures::report::update_document(&table);
    }
}

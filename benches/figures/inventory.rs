//! `hostler inventory` beside hwloc's `lstopo-no-graphics`, on the same captured trees.

use std::{
    io,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use hostler_testing::binary::binary;

use super::{report::Report, rig, samples::Samples};

const RUNS: usize = 60;
const MACHINES: [&str; 2] = ["hwloc-128arm-2pa2n8cluster4co", "lscpu-x86_64-epyc_7451"];

pub(crate) fn measure(report: &mut Report) {
    for machine in MACHINES {
        let figure = format!("`hostler inventory` of {machine}, median");
        let how = "unpacked in memory, output to /dev/null, runs in turn";
        let Some(capture) = rig::capture(machine) else {
            report.skipped(&figure, "captures are absent", how);
            continue;
        };
        let root = capture.root().path("");
        if lstopo(&root).status().is_err() {
            report.skipped(&figure, "lstopo-no-graphics is not installed (Debian: hwloc-nox)", how);
            continue;
        }
        compare(report, &figure, machine, &root, how);
    }
}

fn compare(report: &mut Report, figure: &str, machine: &str, root: &Path, how: &str) {
    let [mut ours, mut lean, mut usual] = [const { Vec::new() }; 3];
    // The first round warms the caches.
    for _ in 0..=RUNS {
        ours.push(time(&mut hostler(root)));
        lean.push(time(&mut lean_lstopo(root)));
        usual.push(time(&mut lstopo(root)));
    }
    let [ours, lean, usual] = [ours, lean, usual].map(|mut times| Samples::new(times.split_off(1)));
    let how_lean = "`HWLOC_COMPONENTS=linux,stop lstopo-no-graphics --no-io` with `HWLOC_FSROOT`: no plugins, no PCI";
    report.median_at_most(figure, lean.median() * 2 / 5, &ours, how);
    report.median(
        &format!("`lstopo-no-graphics` on {machine}, at its leanest (the target above is 0.4 of it)"),
        &lean,
        how_lean,
    );
    report.median(&format!("`lstopo-no-graphics` on {machine}, without options"), &usual, "with `HWLOC_FSROOT`");
}

fn hostler(root: &Path) -> Command {
    let mut command = Command::new(binary());
    command.args(["inventory", "--root"]).arg(root);
    quiet(command)
}

fn lstopo(root: &Path) -> Command {
    let mut command = Command::new("lstopo-no-graphics");
    command.env("HWLOC_FSROOT", root);
    quiet(command)
}

fn lean_lstopo(root: &Path) -> Command {
    let mut command = lstopo(root);
    command.env("HWLOC_COMPONENTS", "linux,stop").arg("--no-io");
    command
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn time(command: &mut Command) -> Duration {
    let start = Instant::now();
    let status = command.status().unwrap_or_else(|error: io::Error| panic!("{command:?}: {error}"));
    let took = start.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    took
}

//! Whether anything is left over when claims come and go.

use std::{fs, path::Path, thread, time::Duration};

use super::{
    idle::Memory,
    machine,
    report::{Amount, Report},
    rig::Rig,
    samples::Samples,
};

const WARM_UP: usize = 100;
const CYCLES: usize = 1000;
const MOST_GROWTH: i64 = 1_000_000;

pub(crate) fn measure(report: &mut Report) {
    let how = format!("one CPU claim prepared and taken back, {CYCLES} times after {WARM_UP} to warm up");
    let Some(mut rig) = Rig::large(&machine::disk()) else {
        return report.skipped("growth over claims", "captures are absent", &how);
    };
    rig.host.start();
    let mut plugin = rig.register();
    let mut prepare = Vec::new();
    let mut cycle = |rig: &Rig, number| {
        let claims = [rig.cpu_claim(number)];
        prepare.push(rig.prepare(&mut plugin, &claims));
        rig.unprepare(&mut plugin, &claims);
    };
    (0..WARM_UP).for_each(|number| cycle(&rig, number));
    let before = Usage::of(&rig);
    (WARM_UP..WARM_UP + CYCLES).for_each(|number| cycle(&rig, number));
    let after = Usage::of(&rig);
    let none = Amount::Count(0);
    let grown = |of: fn(&Usage) -> u64| of(&after).cast_signed() - of(&before).cast_signed();
    let from_to = |of: fn(&Usage) -> u64| format!("{} to {}", of(&before), of(&after));
    let count = |of| Amount::Count(grown(of));
    report.at_most("files left by 1,000 claims", none, count(|usage| usage.files), &from_to(|usage| usage.files), &how);
    let descriptors = from_to(|usage| usage.descriptors);
    report.at_most("descriptors left by 1,000 claims", none, count(|usage| usage.descriptors), &descriptors, &how);
    let rss = format!("{} to {}", Amount::from(before.rss), Amount::from(after.rss));
    let growth = Amount::Bytes(grown(|usage| usage.rss));
    report.at_most("growth of resident memory over 1,000 claims", Amount::Bytes(MOST_GROWTH), growth, &rss, &how);
    // Where much was deleted a moment ago, ext4 may be slow; see `claims`.
    report.median("prepare of one CPU claim, among these", &Samples::new(prepare), "the same, all in one folder");
}

/// What a daemon holds.
struct Usage {
    files: u64,
    descriptors: u64,
    rss: u64,
}

impl Usage {
    fn of(rig: &Rig) -> Self {
        // Threads that have nothing to do any more end within this.
        thread::sleep(Duration::from_secs(1));
        let pid = rig.host.pid();
        let folders = [rig.state.path(), rig.cdi.path(), &rig.host.path("run"), &rig.host.path("kubelet")];
        Self {
            files: folders.into_iter().map(files).sum(),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64,
            rss: Memory::of(pid).rss,
        }
    }
}

/// Everything below a folder that is not a folder.
fn files(folder: &Path) -> u64 {
    let count = |entry: fs::DirEntry| if entry.file_type().unwrap().is_dir() { files(&entry.path()) } else { 1 };
    fs::read_dir(folder).unwrap().map(|entry| count(entry.unwrap())).sum()
}

//! How long preparing and taking back take, and how much of that is the disk.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    machine,
    report::Report,
    rig::Rig,
    samples::{Millis, Samples},
};

const WARM_UP: usize = 30;
const SINGLE: usize = 400;
const BATCH: usize = 100;
const BATCHES: usize = 30;

pub(crate) fn measure(report: &mut Report) {
    let how = "`NodePrepareResources` v1 over the socket, captured machine with 128 CPUs";
    let Some(mut rig) = Rig::large(&machine::disk()) else {
        return report.skipped("prepare and unprepare", "captures are absent", how);
    };
    let on = machine::file_system(rig.state.path());
    let single = single(&mut rig);
    report.median_at_most(&format!("prepare of one CPU claim, p50, state on {on}"), millis(1.0), &single.prepare, how);
    report.median_at_most(
        &format!("unprepare of one CPU claim, p50, state on {on}"),
        millis(0.6),
        &single.unprepare,
        how,
    );
    report.median("the same claim prepared again", &single.again, how);
    disk(report, &on, &single);
    let batch = batches(&mut rig);
    report.median_at_most(&format!("prepare of {BATCH} CPU claims in one request"), millis(30.0), &batch.prepare, how);
    report.median(&format!("unprepare of {BATCH} CPU claims in one request"), &batch.unprepare, how);
    drop(rig);
    in_memory(report);
}

/// The same where flushing costs nothing: what is left is ours.
fn in_memory(report: &mut Report) {
    let how = "the same, with `paths.state` in /dev/shm";
    let Some(mut rig) = Rig::large(machine::memory()) else { return };
    let single = single(&mut rig);
    report.median("prepare of one CPU claim without a disk", &single.prepare, how);
    report.median("unprepare of one CPU claim without a disk", &single.unprepare, how);
    let batch = batches(&mut rig);
    report.median(&format!("prepare of {BATCH} CPU claims without a disk"), &batch.prepare, how);
    report.median(&format!("unprepare of {BATCH} CPU claims without a disk"), &batch.unprepare, how);
}

/// A prepare waits for two durable writes, each of a file and of its folder; an unprepare for one flush of the folder.
fn disk(report: &mut Report, on: &str, single: &Single) {
    let how = "taken between the samples, in the same file system";
    let raw = &single.raw;
    report.median(&format!("{on}: flush of a new file of 1.5 kB"), &raw.file, how);
    report.median(&format!("{on}: flush of a folder after a rename"), &raw.folder, how);
    let floor = 2 * (raw.file.median() + raw.folder.median());
    report.context("of that in one prepare: 2 files and 2 folders", Millis(floor).to_string(), how);
}

struct Single {
    prepare: Samples,
    again: Samples,
    unprepare: Samples,
    raw: Raw,
}

fn single(rig: &mut Rig) -> Single {
    rig.host.start();
    let mut plugin = rig.register();
    let mut raw = RawTimes::new(rig.state.path());
    let (mut prepare, mut again, mut unprepare) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..WARM_UP + SINGLE {
        let claims = [rig.cpu_claim(number)];
        prepare.push(rig.prepare(&mut plugin, &claims));
        again.push(rig.prepare(&mut plugin, &claims));
        unprepare.push(rig.unprepare(&mut plugin, &claims));
        raw.take();
    }
    rig.host.kill();
    let warm = |times: Vec<Duration>| Samples::new(times[WARM_UP..].to_vec());
    Single { prepare: warm(prepare), again: warm(again), unprepare: warm(unprepare), raw: raw.done() }
}

struct Batches {
    prepare: Samples,
    unprepare: Samples,
}

fn batches(rig: &mut Rig) -> Batches {
    rig.host.start();
    let mut plugin = rig.register();
    let (mut prepare, mut unprepare) = (Vec::new(), Vec::new());
    for batch in 0..=BATCHES {
        let claims: Vec<_> = (0..BATCH).map(|number| rig.cpu_claim(1_000_000 + batch * BATCH + number)).collect();
        prepare.push(rig.prepare(&mut plugin, &claims));
        unprepare.push(rig.unprepare(&mut plugin, &claims));
    }
    rig.host.kill();
    // The first one is the warm-up.
    Batches { prepare: Samples::new(prepare.split_off(1)), unprepare: Samples::new(unprepare.split_off(1)) }
}

/// What the disk itself takes for what a durable write waits for.
struct Raw {
    file: Samples,
    folder: Samples,
}

struct RawTimes<'a> {
    folder: &'a Path,
    handle: File,
    file_times: Vec<Duration>,
    folder_times: Vec<Duration>,
}

impl<'a> RawTimes<'a> {
    fn new(folder: &'a Path) -> Self {
        Self { folder, handle: File::open(folder).unwrap(), file_times: Vec::new(), folder_times: Vec::new() }
    }

    fn take(&mut self) {
        let (temporary, path) = (self.folder.join(".raw.tmp"), self.folder.join("raw"));
        let mut file = File::create(&temporary).unwrap();
        file.write_all(&[b'x'; 1500]).unwrap();
        let start = Instant::now();
        file.sync_data().unwrap();
        self.file_times.push(start.elapsed());
        fs::rename(temporary, &path).unwrap();
        let start = Instant::now();
        self.handle.sync_all().unwrap();
        self.folder_times.push(start.elapsed());
        fs::remove_file(path).unwrap();
    }

    fn done(self) -> Raw {
        Raw { file: Samples::new(self.file_times), folder: Samples::new(self.folder_times) }
    }
}

fn millis(millis: f64) -> Duration {
    Duration::from_secs_f64(millis / 1e3)
}

//! How long preparing and taking back take, and how much of that is the disk.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hostler_testing::kubelet::KubeletPlugin;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::{
    limits::Limits,
    machine,
    report::Report,
    rig::Rig,
    samples::{Millis, Samples},
};

/// Daemons per place, each with a state folder of its own, and what each of them does.
const DAEMONS: usize = 10;
const WARM_UP: usize = 10;
const SINGLE: usize = 40;
const BATCH: usize = 100;
const BATCHES: usize = 3;

pub(crate) fn measure(report: &mut Report) {
    let how = "`NodePrepareResources` v1 over the socket, captured machine with 128 CPUs";
    let ground = tempfile::Builder::new().prefix("figures").tempdir_in(machine::disk()).unwrap();
    spread(ground.path());
    let Some(times) = Times::taken_in(ground.path()) else {
        return report.skipped("prepare and unprepare", "captures are absent", how);
    };
    let on = machine::file_system(ground.path());
    let [prepare, unprepare] =
        ["prepare", "unprepare"].map(|what| format!("{what} of one CPU claim, p50, state on {on}"));
    let limits = Limits::of_this_machine();
    report.median_of_budget(&prepare, limits.prepare_on_disk(), &Samples::new(times.prepare), how);
    report.median_at_most(&unprepare, millis(0.6), &Samples::new(times.unprepare), how);
    report.median("the same claim prepared again", &Samples::new(times.again), how);
    disk(report, &on, times.raw);
    let [prepare, unprepare] =
        ["prepare", "unprepare"].map(|what| format!("{what} of {BATCH} CPU claims in one request"));
    let batches = Samples::new(times.prepare_batch);
    report.median_at_most(&prepare, millis(15.0), &batches, how);
    report.median(&unprepare, &Samples::new(times.unprepare_batch), how);
    beside_a_writer(report, ground.path(), batches.median());
    in_memory(report);
}

/// The same while others keep the file system busy: what is waited for is our own bytes, not theirs.
fn beside_a_writer(report: &mut Report, ground: &Path, alone: Duration) {
    let writer = DirtyWriter::start(ground);
    let times = Times::taken_in(ground);
    let dirty = format!("; {} MB of it dirty at the end", writer.dirty() / 1_000_000);
    drop(writer);
    let Some(times) = times else { return };
    let how = format!(
        "the same beside a process of its own that writes as fast as it can{dirty}; the target is the time alone"
    );
    let figure = format!("prepare of {BATCH} CPU claims in one request, beside a writer");
    report.median_at_most(&figure, alone, &Samples::new(times.prepare_batch), &how);
}

/// A process that writes a file again and again, and its file. Both go with it.
struct DirtyWriter {
    writer: Child,
    file: PathBuf,
}

impl DirtyWriter {
    /// Comes back when there are two gigabytes that are not on the disk yet, or as many as the kernel lets there be.
    fn start(ground: &Path) -> Self {
        const PATIENCE: Duration = Duration::from_secs(20);
        let file = ground.join("dirty");
        let again = "while dd if=/dev/zero of=\"$0\" bs=1M count=3000 conv=notrunc 2>/dev/null; do :; done";
        // Ends by itself where this program is killed: it would fill the disk's time for ever.
        let mut command = Command::new("timeout");
        command.args(["90", "sh", "-c", again]).arg(&file).process_group(0);
        let writer = command.spawn().unwrap();
        let (writer, began) = (Self { writer, file }, Instant::now());
        while writer.dirty() < 2_000_000_000 && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        writer
    }

    /// Bytes of all files that are not on the disk yet.
    fn dirty(&self) -> u64 {
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let of = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        };
        [of("Dirty:"), of("Writeback:")].into_iter().flatten().sum::<u64>() * 1024
    }
}

impl Drop for DirtyWriter {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.writer.id()).unwrap());
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.writer.wait();
        let _ = fs::remove_file(&self.file);
    }
}

/// The same where flushing costs nothing: what is left is ours.
fn in_memory(report: &mut Report) {
    let how = "the same, with `paths.state` in /dev/shm";
    let Some(times) = Times::taken_in(machine::memory()) else { return };
    let (prepare, budget) = (Samples::new(times.prepare), Limits::of_this_machine().prepare_in_memory());
    report.median_of_budget("prepare of one CPU claim without a disk", budget, &prepare, how);
    for (what, times) in [
        ("unprepare of one CPU claim", times.unprepare),
        ("prepare of 100 CPU claims", times.prepare_batch),
        ("unprepare of 100 CPU claims", times.unprepare_batch),
    ] {
        report.median(&format!("{what} without a disk"), &Samples::new(times), how);
    }
}

/// A prepare waits for two durable writes, each of a file and of its folder; an unprepare for one flush of the folder.
fn disk(report: &mut Report, on: &str, raw: RawTimes) {
    let how = "taken between the samples, in the same file system";
    let [file, folder] = [raw.file, raw.folder].map(Samples::new);
    report.median(&format!("{on}: flush of a new file of 700 bytes"), &file, how);
    report.median(&format!("{on}: flush of a folder after a rename"), &folder, how);
    let floor = 2 * (file.median() + folder.median());
    report.context("of that in one prepare: 2 files and 2 folders", Millis(floor).to_string(), how);
}

/// Has ext4 put the folders in `ground` far from each other. Without a journal it makes new files slowly where files were
/// deleted in the last minutes, looking at each deleted one first. No host prepares thousands of claims in a minute; this
/// program does, and would measure little else. Other file systems do not know the flag.
pub(crate) fn spread(ground: &Path) {
    let done = Command::new("chattr").arg("+T").arg(ground).stderr(Stdio::null()).status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("figures:   folders are not spread: no chattr, or not ext4");
    }
}

#[derive(Default)]
struct Times {
    prepare: Vec<Duration>,
    again: Vec<Duration>,
    unprepare: Vec<Duration>,
    prepare_batch: Vec<Duration>,
    unprepare_batch: Vec<Duration>,
    raw: RawTimes,
}

impl Times {
    fn taken_in(place: &Path) -> Option<Self> {
        let mut times = Self::default();
        for _ in 0..DAEMONS {
            let mut rig = Rig::large(place)?;
            rig.host.start();
            let mut plugin = rig.register();
            (0..WARM_UP).for_each(|number| Self::default().single(&rig, &mut plugin, number));
            (0..SINGLE).for_each(|number| times.single(&rig, &mut plugin, number));
            (0..BATCHES).for_each(|number| times.batch(&rig, &mut plugin, number));
            rig.host.kill();
        }
        Some(times)
    }

    fn single(&mut self, rig: &Rig, plugin: &mut KubeletPlugin, number: usize) {
        let claims = [rig.cpu_claim(number)];
        self.prepare.push(rig.prepare(plugin, &claims));
        self.again.push(rig.prepare(plugin, &claims));
        self.unprepare.push(rig.unprepare(plugin, &claims));
        self.raw.take(rig.state.path());
    }

    fn batch(&mut self, rig: &Rig, plugin: &mut KubeletPlugin, number: usize) {
        let claims: Vec<_> = (0..BATCH).map(|claim| rig.cpu_claim(1000 + number * BATCH + claim)).collect();
        self.prepare_batch.push(rig.prepare(plugin, &claims));
        self.unprepare_batch.push(rig.unprepare(plugin, &claims));
    }
}

/// What the disk itself takes for what a durable write waits for.
#[derive(Default)]
struct RawTimes {
    file: Vec<Duration>,
    folder: Vec<Duration>,
}

impl RawTimes {
    fn take(&mut self, folder: &Path) {
        let (temporary, path, handle) = (folder.join(".raw.tmp"), folder.join("raw"), File::open(folder).unwrap());
        let mut file = File::create(&temporary).unwrap();
        file.write_all(&[b'x'; 700]).unwrap();
        let start = Instant::now();
        file.sync_data().unwrap();
        self.file.push(start.elapsed());
        fs::rename(temporary, &path).unwrap();
        let start = Instant::now();
        handle.sync_all().unwrap();
        self.folder.push(start.elapsed());
        fs::remove_file(path).unwrap();
    }
}

fn millis(millis: f64) -> Duration {
    Duration::from_secs_f64(millis / 1e3)
}

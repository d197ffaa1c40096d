//! What it takes to see whether containers are bound as their claims say.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use hostler::{
    audit::Auditor,
    claims::{
        ClaimTable, ClaimView,
        store::{ClaimRecord, RecordState, decode},
    },
    containers::{ContainerDir, ContainerId, ContainerOwner, ContainerSets, ContainerUse, record},
    metrics::Metrics,
};
use hostler_api::ClaimUid;
use hostler_backend::Pinning;
use hostler_linux::{IdSet, SysRoot, boot::boot_id};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};

use super::{
    hook::make_cgroup_called,
    report::{Amount, Report},
    samples::Samples,
};

const CONTAINERS: usize = 250;
const LOOKS: usize = 50;
const MOST: Duration = Duration::from_millis(20);

pub(crate) fn measure(report: &mut Report) {
    let figure = "audit of 250 containers, processor time, median";
    let how =
        "a look at 250 processes in cpuset cgroups of their own, each with a claim and a note, all as they should be";
    let mut containers = Containers(Vec::new());
    for number in 0..CONTAINERS {
        match BoundProcess::start(number) {
            Ok(process) => containers.0.push(process),
            Err(error) => return report.skipped(figure, &format!("no cpuset cgroup can be made here: {error}"), how),
        }
    }
    let notes = tempfile::tempdir().unwrap();
    let (root, table) = (SysRoot::host(), containers.claims(notes.path()));
    let dir = ContainerDir::new(notes.path(), root.clone(), boot_id(&root).unwrap());
    let mut auditor = Auditor::new(root, dir, PathBuf::from("/nonexistent"), Metrics::default());
    let first = auditor.look(&table, Instant::now());
    assert_eq!((first.containers, first.news.len(), first.table.remarks.len()), (CONTAINERS, 0, 0));
    let look = |_| {
        let before = processor_time();
        assert_eq!(auditor.look(&table, Instant::now()).containers, CONTAINERS);
        processor_time().saturating_sub(before)
    };
    let samples = Samples::new((0..LOOKS).map(look).collect());
    report.at_most(figure, Amount::Time(MOST), Amount::Time(samples.median()), &samples.tail(), how);
}

/// What this thread has used.
fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap())
}

/// A process in a cgroup of its own.
struct BoundProcess {
    cgroup: PathBuf,
    process: Child,
}

impl BoundProcess {
    fn start(number: usize) -> std::io::Result<Self> {
        let cgroup = make_cgroup_called(&format!("hostler-figures-{}-{number}", std::process::id()))?;
        let process = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn()?;
        let started = Self { cgroup, process };
        fs::write(started.cgroup.join("cgroup.procs"), started.process.id().to_string())?;
        Ok(started)
    }

    fn set(&self, file: &str) -> IdSet {
        fs::read_to_string(self.cgroup.join(file)).unwrap().parse().unwrap()
    }
}

impl Drop for BoundProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir(&self.cgroup);
    }
}

struct Containers(Vec<BoundProcess>);

impl Containers {
    /// A claim for each, and a note of it.
    fn claims(&self, notes: &Path) -> ClaimTable {
        let golden = include_bytes!("../../tests/golden/records-0.1.0/claims/cards-5f0c.json");
        let sample: ClaimRecord = decode(golden).unwrap();
        let mut table = ClaimTable::default();
        for (number, container) in self.0.iter().enumerate() {
            let mut claim = sample.clone();
            claim.claim.uid = ClaimUid::new(format!("figures-{number}")).unwrap();
            claim.state = RecordState::Prepared;
            claim.devices.truncate(1);
            let sets = ContainerSets { cpus: container.set("cpuset.cpus"), mems: IdSet::new() };
            claim.devices[0].plan.pinning = Pinning { cpus: sets.cpus.iter().collect(), ..Pinning::default() };
            let id = ContainerId::new(format!("c{number}")).unwrap();
            let pid = container.process.id();
            let (sets, owner) = (Some(sets), ContainerOwner::default());
            let used = ContainerUse { claim: &claim.claim.uid, container: &id, pid, sets, owner };
            record(&SysRoot::host(), notes, used).unwrap();
            let view = ClaimView::Recorded { record: Arc::new(claim.clone()), problem: None, busy: None };
            table.claims.insert(claim.claim.uid, view);
        }
        table
    }
}

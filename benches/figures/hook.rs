//! What every start of a container with a claim waits for, and what is installed for it.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hostler_testing::binary::binary;

use super::{
    report::{Amount, Report},
    samples::Samples,
};

const RUNS: usize = 200;
const MOST: Duration = Duration::from_millis(5);
const MOST_BYTES: i64 = 12_000_000;

pub(crate) fn measure(report: &mut Report) {
    size(report);
    let figure = "`hostler hook cpuset`, median";
    let how = "as a runtime calls it, from fork to exit, on a waiting process in a cpuset cgroup of its own";
    match Container::new() {
        Err(why) => report.skipped(figure, &why, how),
        Ok(container) => {
            let samples = Samples::new((0..RUNS).map(|run| container.pin(run)).collect());
            report.median_at_most(figure, MOST, &samples, how);
        }
    }
}

fn size(report: &mut Report) {
    let (figure, how) = ("size of the binary, stripped", "`strip`");
    let stripped = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostler-stripped");
    match Command::new("strip").arg("-o").arg(&stripped).arg(binary()).status() {
        Ok(status) if status.success() => {
            let bytes = fs::metadata(&stripped).unwrap().len();
            report.at_most(figure, Amount::Bytes(MOST_BYTES), bytes.into(), "", how);
        }
        _ => report.skipped(figure, "strip is not installed", how),
    }
}

/// A process that waits in a cgroup, and its bundle, as a runtime has them when it calls the hook.
struct Container {
    cgroup: PathBuf,
    bundle: tempfile::TempDir,
    process: Child,
}

impl Container {
    fn new() -> Result<Self, String> {
        let cgroup = make_cgroup().map_err(|error| format!("no cpuset cgroup can be made here: {error}"))?;
        let process = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let container = Self { cgroup, bundle: tempfile::tempdir().unwrap(), process };
        let joined = fs::write(container.cgroup.join("cgroup.procs"), container.process.id().to_string());
        joined.map_err(|error| format!("no process can be put into a cpuset cgroup here: {error}"))?;
        Ok(container)
    }

    /// Pins the process to a CPU, in turn the first and the last one, and checks that it is.
    fn pin(&self, run: usize) -> Duration {
        let last = std::thread::available_parallelism().unwrap().get() - 1;
        let cpu = if run.is_multiple_of(2) { 0 } else { last };
        let args = ["hostler", "hook", "cpuset", "--claim", "figures", "--cpus", &cpu.to_string()].map(str::to_owned);
        let config = serde_json::json!({
            "ociVersion": "1.2.0",
            "hooks": {"createRuntime": [{"path": binary(), "args": args}]},
        });
        fs::write(self.bundle.path().join("config.json"), config.to_string()).unwrap();
        let state = serde_json::json!({
            "ociVersion": "1.2.0", "id": "figures", "status": "creating",
            "pid": self.process.id(), "bundle": self.bundle.path(),
        });
        let start = Instant::now();
        let mut hook = Command::new(binary()).args(&args[1..]).stdin(Stdio::piped()).spawn().unwrap();
        hook.stdin.take().unwrap().write_all(state.to_string().as_bytes()).unwrap();
        let status = hook.wait().unwrap();
        let took = start.elapsed();
        assert!(status.success(), "{status}");
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        assert!(status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{status}");
        took
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir(&self.cgroup);
    }
}

/// A cgroup with a cpuset of its own, in version 2 or, where that has none, in version 1.
fn make_cgroup() -> std::io::Result<PathBuf> {
    make_cgroup_called(&format!("hostler-figures-{}", std::process::id()))
}

/// As [`make_cgroup`], of this name.
pub(crate) fn make_cgroup_called(name: &str) -> std::io::Result<PathBuf> {
    let v2 = Path::new("/sys/fs/cgroup");
    if v2.join("cgroup.controllers").exists() {
        fs::write(v2.join("cgroup.subtree_control"), "+cpuset")?;
        fs::create_dir(v2.join(name))?;
        return Ok(v2.join(name));
    }
    let v1 = v2.join("cpuset");
    let cgroup = v1.join(name);
    fs::create_dir(&cgroup)?;
    for file in ["cpuset.cpus", "cpuset.mems"] {
        fs::write(cgroup.join(file), fs::read(v1.join(file))?)?;
    }
    Ok(cgroup)
}

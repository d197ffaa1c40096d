//! Where a prepare's time goes: processor time, changes of threads and system calls of the daemon.

use std::{fs, time::Duration};

use hostler_proto::dra_v1::Claim;
use hostler_testing::kubelet::{self, KubeletPlugin};
use serde_json::Value;

use super::{
    claims,
    cluster::Api,
    machine,
    report::Report,
    rig::{Rig, fake_backend},
    samples::{Millis, Samples},
    syscalls::SyscallCounter,
};

/// Claims of one round, each for a CPU of 128 or a device of its own.
const CLAIMS: usize = 60;
const ROUNDS: usize = 10;
/// System calls that are named for each prepare, those made most often.
const NAMED: usize = 14;

pub(crate) fn measure(report: &mut Report) {
    fake(report);
    let ground = tempfile::Builder::new().prefix("figures").tempdir_in(machine::disk()).unwrap();
    claims::spread(ground.path());
    for (state, on) in [(ground.path(), "a disk"), (machine::memory(), "memory")] {
        let Some(mut rig) = Rig::large(state) else {
            return report.skipped("profile of a prepare", "captures are absent", "the kubelet's way");
        };
        rig.host.start();
        let claims: Vec<Claim> = (0..CLAIMS).map(|number| rig.cpu_claim(number)).collect();
        profile(report, &rig, &claims, &format!("a CPU of 128, manifests, state on {on}"));
        rig.host.kill();
    }
    let Some(mut rig) = Rig::large(machine::memory()) else { return };
    let api = Api::start();
    rig.configure(&api.configuration());
    rig.host.start();
    let claims: Vec<Claim> = (0..CLAIMS).map(|number| api.claim(number)).collect();
    profile(report, &rig, &claims, "a CPU of 128, API server, state in memory");
    rig.host.kill();
}

/// Devices that need no work.
fn fake(report: &mut Report) {
    let mut rig = Rig::with_state(machine::memory(), |host| {
        fake_backend(host, &format!("[[device]]\nname = \"card\"\ncount = {CLAIMS}\n"))
    });
    rig.host.start();
    let claim = |number: usize| {
        let (name, uid) = (format!("claim-{number}"), format!("5f0c6a1e-0000-4000-8000-{number:012}"));
        rig.host.manifest(&name, &uid, &[("one", "fake", &format!("card-{number}"), Value::Null)]);
        kubelet::claim("default", &name, &uid)
    };
    let claims: Vec<Claim> = (0..CLAIMS).map(claim).collect();
    profile(report, &rig, &claims, "a device of the fake backend, manifests, state in memory");
    rig.host.kill();
}

fn profile(report: &mut Report, rig: &Rig, claims: &[Claim], what: &str) {
    let mut plugin = rig.register();
    let pid = rig.host.pid();
    round(rig, &mut plugin, claims);
    let (mut times, mut spent) = (Vec::new(), Spent::default());
    for _ in 0..ROUNDS {
        let before = Spent::by(pid);
        times.extend(prepare_all(rig, &mut plugin, claims));
        spent = spent + (Spent::by(pid) - before);
        rig.unprepare(&mut plugin, claims);
    }
    let prepares = (ROUNDS * claims.len()) as f64;
    let detail = format!(
        "{:.2} ms of processor time, {:.1} changes of threads that waited, {:.1} of others",
        spent.running.as_secs_f64() * 1e3 / prepares,
        spent.waited as f64 / prepares,
        spent.displaced as f64 / prepares
    );
    let calls = syscalls(rig, &mut plugin, claims).unwrap_or_else(|| "system calls not counted: no strace".to_owned());
    let times = Samples::new(times);
    let measured = format!("{} ({}); {detail}", Millis(times.median()), times.tail());
    report.context(&format!("one prepare: {what}"), measured, &calls);
}

fn round(rig: &Rig, plugin: &mut KubeletPlugin, claims: &[Claim]) {
    prepare_all(rig, plugin, claims);
    rig.unprepare(plugin, claims);
}

/// One call for each claim.
fn prepare_all(rig: &Rig, plugin: &mut KubeletPlugin, claims: &[Claim]) -> Vec<Duration> {
    claims.chunks(1).map(|claim| rig.prepare(plugin, claim)).collect()
}

fn syscalls(rig: &Rig, plugin: &mut KubeletPlugin, claims: &[Claim]) -> Option<String> {
    let counter = SyscallCounter::start(rig.host.pid())?;
    prepare_all(rig, plugin, claims);
    let calls = counter.stop();
    rig.unprepare(plugin, claims);
    let mut calls: Vec<(String, f64)> =
        calls.into_iter().map(|(name, calls)| (name, calls as f64 / claims.len() as f64)).collect();
    calls.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: f64 = calls.iter().map(|(_, calls)| calls).sum();
    let named: Vec<String> = calls.iter().take(NAMED).map(|(name, calls)| format!("{name} {calls:.1}")).collect();
    Some(format!("{all:.1} system calls: {}", named.join(", ")))
}

/// What the threads of a process have had of the processors. Those of a thread that ends are lost: an idle one of the
/// daemon stays longer than this takes.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    running: Duration,
    /// How often a thread gave its processor up to wait.
    waited: u64,
    /// How often a thread lost it to another.
    displaced: u64,
}

impl Spent {
    fn by(pid: u32) -> Self {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        threads.map(|thread| Self::of(&thread.unwrap().path())).fold(Self::default(), |sum, own| sum + own)
    }

    fn of(thread: &std::path::Path) -> Self {
        let read = |file: &str| fs::read_to_string(thread.join(file)).unwrap_or_default();
        let (status, schedule) = (read("status"), read("schedstat"));
        let of = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0);
        let running = schedule.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        Self {
            running: Duration::from_nanos(running),
            waited: of("voluntary_ctxt_switches:"),
            displaced: of("nonvoluntary_ctxt_switches:"),
        }
    }
}

impl std::ops::Add for Spent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            running: self.running + other.running,
            waited: self.waited + other.waited,
            displaced: self.displaced + other.displaced,
        }
    }
}

impl std::ops::Sub for Spent {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            running: self.running.saturating_sub(other.running),
            waited: self.waited.saturating_sub(other.waited),
            displaced: self.displaced.saturating_sub(other.displaced),
        }
    }
}

//! What the daemon costs while nobody wants anything, and how soon it serves.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use hostler_proto::registration::InfoRequest;
use hostler_testing::host::{http, wait_for};

use super::{
    report::{Amount, Report},
    rig::Rig,
    samples::Samples,
};

const MOST_BYTES: i64 = 10_000_000;
const MOST_ANONYMOUS: i64 = 1_200_000;
const MOST_START: Duration = Duration::from_millis(100);
const STARTS: usize = 40;

pub(crate) fn measure(report: &mut Report) {
    let starts = Samples::new((0..STARTS).map(|_| start_time()).collect());
    let how = "this machine, default backends; until the admin socket has answered a GET and the kubelet's a GetInfo";
    report.median_at_most("exec until the sockets are served, median", MOST_START, &starts, how);
    let mut rig = Rig::here();
    rig.host.start();
    thread::sleep(Duration::from_secs(5));
    let memory = Memory::of(rig.host.pid());
    let detail = format!(
        "PSS {}, anonymous {}, file {}, {} threads",
        Amount::from(memory.pss),
        Amount::from(memory.anonymous),
        Amount::from(memory.file),
        fs::read_dir(format!("/proc/{}/task", rig.host.pid())).unwrap().count(),
    );
    let how = "`/proc/PID/smaps_rollup` 5 s after the start, this machine, default backends";
    report.at_most("resident memory of the idle daemon", Amount::Bytes(MOST_BYTES), memory.rss.into(), &detail, how);
    let most = Amount::Bytes(MOST_ANONYMOUS);
    report.at_most("anonymous memory of the idle daemon", most, memory.anonymous.into(), "", how);
}

fn start_time() -> Duration {
    // Often enough to be exact, seldom enough to leave the daemon its CPU.
    const PAUSE: Duration = Duration::from_micros(200);
    let mut rig = Rig::here();
    let admin = rig.host.path("run/admin.sock");
    let start = Instant::now();
    rig.host.spawn();
    wait_for("the admin socket", || {
        thread::sleep(PAUSE);
        http(&admin, "GET", "/v1/status", "").is_ok_and(|(code, _)| code == 200).then_some(())
    });
    let info = rig.run(async {
        loop {
            if let Some(mut registration) = rig.registration().await {
                return registration.get_info(InfoRequest {}).await.unwrap().into_inner();
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    let took = start.elapsed();
    assert_eq!(info.name, "hostler.dev");
    rig.host.kill();
    took
}

/// Bytes of a process, from `smaps_rollup`.
pub(crate) struct Memory {
    pub(crate) rss: u64,
    pub(crate) pss: u64,
    pub(crate) anonymous: u64,
    pub(crate) file: u64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let bytes = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.unwrap().trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
        };
        let (rss, anonymous) = (bytes("Rss"), bytes("Anonymous"));
        Self { rss, pss: bytes("Pss"), anonymous, file: rss - anonymous }
    }
}

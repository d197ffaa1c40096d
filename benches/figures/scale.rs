//! What a prepare and a scan take on a host that has thousands of devices and claims, beside one that has none.

use std::time::{Duration, Instant};

use hostler_proto::dra_v1::Claim;
use hostler_testing::kubelet::{self, KubeletPlugin};
use serde_json::Value;

use super::{
    idle::Memory,
    machine,
    report::{Amount, Report},
    rig::{Rig, fake_backend},
    samples::{Millis, Samples},
};

const DEVICES: usize = 10_000;
const CLAIMS: usize = 2_000;
/// Claims in one request of the kubelet.
const BATCH: usize = 100;
const SAMPLES: usize = 300;
const SCANS: usize = 20;
/// A prepare on the full host to one on the empty host, in hundredths.
const MOST: u32 = 120;

pub(crate) fn measure(report: &mut Report) {
    let how = format!(
        "one CPU of a captured machine with 128, from a manifest, state in memory; beside it {DEVICES} devices of the fake backend \
         and {CLAIMS} prepared claims on them, or neither"
    );
    let full = format!("prepare of one CPU claim beside {DEVICES} devices and {CLAIMS} claims, p50");
    let (Some(mut empty), Some(mut crowded)) = (Rig::large(machine::memory()), Rig::large(machine::memory())) else {
        return report.skipped(&full, "captures are absent", &how);
    };
    empty.host.start();
    crowd(&mut crowded);
    let mut plugins = [empty.register(), crowded.register()];
    prepare_all(&crowded, &mut plugins[1]);
    // In turn, so that both meet the machine in the same moods.
    let mut times = [const { Vec::new() }; 2];
    for number in 0..SAMPLES {
        for (at, rig) in [&empty, &crowded].into_iter().enumerate() {
            let claims = [rig.cpu_claim(5_000 + number)];
            let (prepare, unprepare) =
                (rig.prepare(&mut plugins[at], &claims), rig.unprepare(&mut plugins[at], &claims));
            times[at].push((prepare, unprepare));
        }
    }
    let [alone, beside] = times.map(|times| {
        let (prepares, unprepares): (Vec<Duration>, Vec<Duration>) = times.into_iter().unzip();
        [Samples::new(prepares), Samples::new(unprepares)]
    });
    report.median("prepare of one CPU claim on a host without others, p50", &alone[0], &how);
    report.median_at_most(&full, alone[0].median() * MOST / 100, &beside[0], &how);
    report.median_at_most(
        &format!("unprepare of one CPU claim beside {DEVICES} devices and {CLAIMS} claims, p50"),
        alone[1].median() * MOST / 100,
        &beside[1],
        &how,
    );
    let memory = Memory::of(crowded.host.pid());
    report.context("anonymous memory of that daemon", Amount::from(memory.anonymous).to_string(), &how);
    drop(plugins);
    crowded.host.kill();
    empty.host.kill();
    scans(report);
}

/// The fake backend beside the others, and its devices.
fn crowd(rig: &mut Rig) {
    let more = fake(rig, DEVICES);
    rig.configure(&more);
    rig.host.start();
}

fn fake(rig: &Rig, devices: usize) -> String {
    fake_backend(&rig.host, &format!("[[device]]\nname = \"card\"\ncount = {devices}\n"))
}

fn prepare_all(rig: &Rig, plugin: &mut KubeletPlugin) {
    let claim = |number: usize| {
        let (name, uid) = (format!("card-{number}"), format!("6f0c6a1e-0000-4000-8000-{number:012}"));
        rig.host.manifest(&name, &uid, &[("one", "fake", &format!("card-{number}"), Value::Null)]);
        kubelet::claim("default", &name, &uid)
    };
    let claims: Vec<Claim> = (0..CLAIMS).map(claim).collect();
    for claims in claims.chunks(BATCH) {
        rig.prepare(plugin, claims);
    }
}

/// How a scan grows with what there is.
fn scans(report: &mut Report) {
    let scan = |devices: usize| {
        let mut rig = Rig::with_state(machine::memory(), |_| String::new());
        let more = fake(&rig, devices);
        rig.configure(&more);
        rig.host.start();
        let scan = |_| {
            let start = Instant::now();
            assert_eq!(rig.host.request("POST", "/v1/rescan", "").0, 204);
            start.elapsed()
        };
        let samples = Samples::new((0..=SCANS).map(scan).skip(1).collect());
        rig.host.kill();
        samples
    };
    let [tenth, whole] = [DEVICES / 10, DEVICES].map(scan);
    let how = format!("`POST /v1/rescan`; of {} devices in {}", DEVICES / 10, Millis(tenth.median()));
    report.median_at_most(&format!("scan of {DEVICES} devices of the fake backend"), tenth.median() * 12, &whole, &how);
}

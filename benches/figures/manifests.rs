//! Whether a prepare costs more where there are many manifests of other claims.

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use hostler_proto::dra_v1::Claim;
use hostler_testing::kubelet::KubeletPlugin;
use serde_json::json;

use super::{cluster, machine, report::Report, rig::Rig, samples::Samples, syscalls::SyscallCounter};

const WARM_UP: usize = 3;
const SINGLE: usize = 200;
/// Longest time for these.
const MOST: Duration = Duration::from_secs(10);
const COUNTED: usize = 5;
/// Longer than the daemon needs to have read every file once more because it was new.
const SETTLED: Duration = Duration::from_secs(13);

pub(crate) fn measure(report: &mut Report) {
    for number in [1, 100, 10_000] {
        let Some(mut rig) = Rig::large(machine::memory()) else {
            return report.skipped("prepare among manifests", "captures are absent", "standalone");
        };
        let one = [("cpu", "cpu", "numa0", json!({"cpus": "1"}))];
        (1..number).for_each(|number| {
            rig.host.manifest(&format!("other-{number}"), &format!("6f0c6a1e-0000-4000-8000-{number:012}"), &one);
        });
        // A file that does not bear its claim's name.
        let claim = rig.cpu_claim(0);
        let folder = rig.host.path("manifests");
        fs::rename(folder.join("default_claim-0.json"), folder.join("zz.json")).unwrap();
        rig.host.start();
        let mut plugin = rig.register();
        thread::sleep(SETTLED);
        kubelet_way(report, &rig, &mut plugin, &claim, number);
        admin_way(report, &rig, &mut plugin, &claim, number);
        rig.host.kill();
    }
}

fn kubelet_way(report: &mut Report, rig: &Rig, plugin: &mut KubeletPlugin, claim: &Claim, number: usize) {
    let claims = [claim.clone()];
    let way = "`NodePrepareResources` v1, a file that does not bear the claim's name, state in memory";
    let mut cycle = |times: &mut Vec<Duration>| {
        times.push(rig.prepare(plugin, &claims));
        rig.unprepare(plugin, &claims);
    };
    row(report, rig, &format!("prepare of one CPU claim among manifests: {number}"), way, &mut cycle);
}

fn admin_way(report: &mut Report, rig: &Rig, plugin: &mut KubeletPlugin, claim: &Claim, number: usize) {
    let claims = [claim.clone()];
    let way = "`POST /v1/claims/NAME/prepare` on the admin socket, the same file";
    let mut cycle = |times: &mut Vec<Duration>| {
        let start = Instant::now();
        assert_eq!(rig.host.request("POST", &format!("/v1/claims/{}/prepare", claim.name), "").0, 200);
        times.push(start.elapsed());
        rig.unprepare(plugin, &claims);
    };
    row(report, rig, &format!("the same over the admin socket: {number}"), way, &mut cycle);
}

/// Times, processor time and opened files of a prepare, each with what taking back costs.
fn row(report: &mut Report, rig: &Rig, figure: &str, way: &str, cycle: &mut dyn FnMut(&mut Vec<Duration>)) {
    let mut times = Vec::new();
    (0..WARM_UP).for_each(|_| cycle(&mut times));
    times.clear();
    let (start, before) = (Instant::now(), cluster::cpu(rig.host.pid()));
    while times.len() < SINGLE && start.elapsed() < MOST {
        cycle(&mut times);
    }
    let spent = (cluster::cpu(rig.host.pid()) - before) / u32::try_from(times.len()).unwrap();
    let counter = SyscallCounter::start(rig.host.pid());
    (0..COUNTED).for_each(|_| cycle(&mut Vec::new()));
    let opened = counter.map_or_else(|| "no".to_owned(), |counter| opened(&counter.stop()));
    let how = format!(
        "{way}; with taking back {:.2} ms of processor time and {opened} files opened",
        spent.as_secs_f64() * 1e3
    );
    report.median(figure, &Samples::new(times), &how);
}

/// Files that were opened in one cycle, or tried to.
fn opened(calls: &BTreeMap<String, usize>) -> String {
    let opened = calls.iter().filter(|(name, _)| name.starts_with("open")).map(|(_, calls)| calls).sum::<usize>();
    format!("{:.1}", opened as f64 / COUNTED as f64)
}

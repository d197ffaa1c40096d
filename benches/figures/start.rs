//! How soon a daemon serves that finds thousands of prepared claims.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use hostler_files::EnvelopeFormat;
use hostler_testing::host::{http, wait_for};
use serde_json::Value;

use super::{idle::Memory, machine, report::Amount, report::Report, rig::Rig, samples::Samples};

const CLAIMS: usize = 10_000;
/// As many as the captured machine has CPUs for.
const PREPARED: usize = 128;
const MOST_START: Duration = Duration::from_secs(1);
const STARTS: usize = 7;

/// The state is written by the program's own writer of such files, so that it carries the checksums that a daemon expects.
const RECORDS: EnvelopeFormat = EnvelopeFormat { version: 1, field: "record", what: "a claim record", remedy: "" };

pub(crate) fn measure(report: &mut Report) {
    let figure = format!("exec until served, with {CLAIMS} prepared claims, median");
    let how = "captured machine with 128 CPUs: 128 claims prepared over the socket, their records and CDI files repeated under \
               other UIDs; starts after `kill -9`, until the admin socket has answered a GET";
    let Some(mut rig) = Rig::large(&machine::disk()) else {
        return report.skipped(&figure, "captures are absent", how);
    };
    prepare(&mut rig);
    repeat(&rig);
    // The first start comes after a checkpoint that others do not need.
    let _warmed = start_time(&mut rig);
    let starts: Vec<(Duration, Memory)> = (0..STARTS).map(|_| start_time(&mut rig)).collect();
    let times = Samples::new(starts.iter().map(|(took, _)| *took).collect());
    report.median_at_most(&figure, MOST_START, &times, how);
    let anonymous = starts.iter().map(|(_, memory)| memory.anonymous).max().unwrap_or_default();
    report.context("anonymous memory of that daemon", Amount::from(anonymous).to_string(), "when it serves");
}

fn prepare(rig: &mut Rig) {
    rig.host.start();
    let mut plugin = rig.register();
    let claims: Vec<_> = (0..PREPARED).map(|number| rig.cpu_claim(number)).collect();
    rig.prepare(&mut plugin, &claims);
    drop(plugin);
    rig.host.kill();
}

/// Writes what the daemon has written once more for each further claim, under another UID.
fn repeat(rig: &Rig) {
    let files =
        |folder: &Path| -> Vec<PathBuf> { fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let records = rig.state.path().join("claims");
    let sources: Vec<PathBuf> = files(&records);
    assert_eq!(sources.len(), PREPARED, "each claim has left its record");
    for (number, source) in (PREPARED..CLAIMS).zip(sources.iter().cycle()) {
        let old = source.file_stem().unwrap().to_str().unwrap();
        let new = format!("5f0c6a1e-0000-4000-8000-{number:012}");
        let text = fs::read_to_string(source).unwrap().replace(old, &new);
        let record: Value = RECORDS.salvage(text.as_bytes()).unwrap();
        let path = records.join(format!("{new}.json"));
        fs::write(&path, RECORDS.encode(&record).unwrap()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let cdi = |uid: &str| rig.cdi.path().join(format!("hostler.dev-claim_{uid}.json"));
        let text = fs::read_to_string(cdi(old)).unwrap().replace(old, &new);
        // Variables hold it in another spelling.
        let [old, written] = [old, new.as_str()].map(|uid| uid.replace('-', "_"));
        fs::write(cdi(&new), text.replace(&old, &written)).unwrap();
    }
}

fn start_time(rig: &mut Rig) -> (Duration, Memory) {
    // Far less than what is measured, and no load.
    const PAUSE: Duration = Duration::from_millis(2);
    let admin = rig.host.path("run/admin.sock");
    let start = Instant::now();
    rig.host.spawn();
    let status = wait_for("the admin socket", || {
        thread::sleep(PAUSE);
        http(&admin, "GET", "/v1/status", "").ok().filter(|(code, _)| *code == 200).map(|(_, body)| body)
    });
    let took = start.elapsed();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["claims"]["prepared"], CLAIMS, "none is left behind: {status}");
    let memory = Memory::of(rig.host.pid());
    rig.host.kill();
    (took, memory)
}

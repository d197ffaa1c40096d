//! What it costs to watch a machine.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use hostler_testing::{binary::binary, host::wait_for};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    cluster::cpu,
    machine,
    report::{Amount, Report},
    rig::Rig,
};

/// A hundredth of a core.
const MOST_PER_SECOND: Duration = Duration::from_millis(10);
/// Frames that are measured, one a second.
const SECONDS: u32 = 30;
const HOW: &str = "user and system time of `hostler top` on a terminal of 132 × 50 made by script(1), one frame a second, \
                   over 30 s";

pub(crate) fn measure(report: &mut Report) {
    let mut here = Rig::here();
    watch(report, "this machine, with the load of its CPUs", &mut here);
    match Rig::large(&machine::disk()) {
        Some(mut large) => {
            let claims: Vec<_> = (0..64).map(|number| large.cpu_claim(number)).collect();
            large.host.start();
            large.prepare(&mut large.register(), &claims);
            watch(report, "a machine with 128 CPUs and 64 claims", &mut large);
        }
        None => report.skipped("`hostler top`: a machine with 128 CPUs", "the capture is not here", HOW),
    }
}

fn watch(report: &mut Report, what: &str, rig: &mut Rig) {
    if !rig.host.path("run/admin.sock").exists() {
        rig.host.start();
    }
    let Some(top) = WatchedTop::start(&rig.host.path("run/admin.sock")) else {
        return report.skipped(&format!("`hostler top`: {what}"), "there is no script(1)", HOW);
    };
    // The first frame reads what all others keep.
    thread::sleep(Duration::from_secs(2));
    let (start, before) = (Instant::now(), [cpu(top.pid), cpu(rig.host.pid())]);
    thread::sleep(Duration::from_secs(1) * SECONDS);
    let after = [cpu(top.pid), cpu(rig.host.pid())];
    let seconds = start.elapsed().as_secs_f64();
    let each = |index: usize| (after[index] - before[index]).div_f64(seconds);
    report.at_most(
        &format!("processor time per second of `hostler top`: {what}"),
        Amount::Time(MOST_PER_SECOND),
        Amount::Time(each(0)),
        "",
        HOW,
    );
    report.context("of the daemon meanwhile, per second", Amount::Time(each(1)).to_string(), HOW);
}

/// A `hostler top` on a terminal of its own.
struct WatchedTop {
    script: Child,
    pid: u32,
}

impl WatchedTop {
    fn start(socket: &Path) -> Option<Self> {
        let line = format!("stty rows 50 cols 132; exec {} top --socket {}", binary().display(), socket.display());
        let mut command = Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .env("TERM", "xterm-256color");
        let script = command.spawn().ok()?;
        let pid = wait_for("hostler top", || running(&["top", socket.to_str().unwrap()]));
        Some(Self { script, pid })
    }
}

impl Drop for WatchedTop {
    fn drop(&mut self) {
        kill(Pid::from_raw(i32::try_from(self.pid).unwrap()), Signal::SIGTERM).unwrap();
        self.script.wait().unwrap();
    }
}

/// The process of our binary whose arguments have all these words.
fn running(words: &[&str]) -> Option<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|pid: &u32| {
        let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
        arguments[0] == binary().as_os_str().as_encoded_bytes()
            && words.iter().all(|word| arguments.contains(&word.as_bytes()))
    })
}

//! Taking times and memory.

use std::time::{Duration, Instant};

/// The median time of so many runs, and the last result.
pub(crate) fn median<T>(runs: usize, mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut times = Vec::with_capacity(runs);
    let mut last = None;
    for _ in 0..runs {
        let start = Instant::now();
        last = Some(run());
        times.push(start.elapsed());
    }
    times.sort();
    (times[runs / 2], last.unwrap())
}

/// The shortest time of so many runs.
pub(crate) fn fastest<T>(runs: usize, mut run: impl FnMut() -> T) -> Duration {
    let time = || {
        let start = Instant::now();
        std::hint::black_box(run());
        start.elapsed()
    };
    std::iter::repeat_with(time).take(runs).min().unwrap()
}

/// The most memory that the process ever had, in MiB.
pub(crate) fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() / 1024
}

/// One line of the report.
pub(crate) fn report(what: &str, found: impl std::fmt::Display, wanted: &str) {
    println!("{what:<72} {found:>14}   {wanted}");
}

/// Milliseconds, for people.
pub(crate) fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

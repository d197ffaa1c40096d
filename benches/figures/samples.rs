//! Times that were taken of one thing.

use std::{fmt, time::Duration};

/// Sorted times, at least one.
#[derive(Clone, Debug)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        assert!(!times.is_empty(), "nothing was measured");
        times.sort_unstable();
        Self(times)
    }

    /// The smallest time that `percent` of all times do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0[rank - 1]
    }

    pub(crate) fn median(&self) -> Duration {
        self.percentile(50)
    }

    /// What the tail looks like, for beside the median.
    pub(crate) fn tail(&self) -> String {
        let [p90, p99] = [90, 99].map(|percent| Millis(self.percentile(percent)));
        format!("p90 {p90}, p99 {p99}, n = {}", self.0.len())
    }
}

/// A time in milliseconds.
pub(crate) struct Millis(pub(crate) Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_secs_f64() * 1e3;
        write!(f, "{millis:.*} ms", if millis < 10.0 { 2 } else { 1 })
    }
}

//! Counters of errors that only grow: new errors are trouble, and trouble is remembered for a while.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Time after the last new error for which a counter means trouble. Errors come in bursts: a device that is offered,
/// taken away and offered again with each of them is of no use.
pub(crate) const SICK_FOR: Duration = Duration::from_secs(300);

/// Earlier counts, by counter. Errors from before the first look count against no device.
#[derive(Debug, Default)]
pub(crate) struct ErrorTrends(Mutex<BTreeMap<String, ErrorTrend>>);

#[derive(Clone, Copy, Debug)]
struct ErrorTrend {
    count: u64,
    /// New errors since the device was well, and the time at which the last of them was seen.
    new: Option<(u64, Instant)>,
}

impl ErrorTrends {
    /// Takes the present value of a counter, and returns the number of errors for which the device counts as sick. A
    /// counter that has begun anew belongs to a device that was reset or replaced.
    pub(crate) fn observe(&self, counter: &str, count: u64, now: Instant) -> Option<u64> {
        let mut trends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let trend = trends.entry(counter.to_owned()).or_insert(ErrorTrend { count, new: None });
        let risen = count.saturating_sub(trend.count);
        let known = trend.new.filter(|_| count >= trend.count);
        let still = known.filter(|(_, last)| now.saturating_duration_since(*last) < SICK_FOR);
        trend.new = match (risen, still) {
            (0, still) => still,
            (risen, still) => Some((still.map_or(0, |(new, _)| new).saturating_add(risen), now)),
        };
        trend.count = count;
        trend.new.map(|(new, _)| new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_before_is_no_trouble_and_new_trouble_lasts() {
        let trends = ErrorTrends::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(trends.observe("aer", 7, at(0)), None);
        assert_eq!(trends.observe("aer", 7, at(10)), None);
        assert_eq!(trends.observe("aer", 9, at(20)), Some(2));
        assert_eq!(trends.observe("aer", 9, at(30)), Some(2));
        assert_eq!(trends.observe("aer", 10, at(200)), Some(3));
        assert_eq!(trends.observe("aer", 10, at(499)), Some(3));
        assert_eq!(trends.observe("aer", 10, at(500)), None);
        assert_eq!(trends.observe("aer", 11, at(510)), Some(1));
        assert_eq!(trends.observe("other", 11, at(510)), None);
    }

    #[test]
    fn a_counter_that_begins_anew_is_no_trouble() {
        let trends = ErrorTrends::default();
        let now = Instant::now();
        trends.observe("aer", 7, now);
        assert_eq!(trends.observe("aer", 2, now), None);
        assert_eq!(trends.observe("aer", 3, now), Some(1));
        assert_eq!(trends.observe("aer", 0, now), None);
    }
}

//! The time at which the core continues if no event comes before. The owner of the clock keeps it.

use std::time::Duration;

/// The one moment at which the core is woken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Alarm {
    at: Option<Duration>,
}

impl Alarm {
    /// Stores the time that the core asked for. The core asks again only for an earlier time, or when the stored time
    /// has passed: the new time always replaces the stored one. Keeping a time that has passed would lose the new one.
    pub(crate) fn set(&mut self, at: Duration) {
        self.at = Some(at);
    }

    /// Returns the time of the alarm, if one is set.
    pub(crate) fn at(self) -> Option<Duration> {
        self.at
    }

    /// Clears the alarm; the core is told that time has passed.
    pub(crate) fn ring(&mut self) {
        self.at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_core_says_last_counts_be_it_earlier_or_later() {
        let mut alarm = Alarm::default();
        for seconds in [5, 3, 9] {
            alarm.set(Duration::from_secs(seconds));
            assert_eq!(alarm.at(), Some(Duration::from_secs(seconds)));
        }
        alarm.ring();
        assert_eq!(alarm.at(), None);
    }
}

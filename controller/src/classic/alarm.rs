//! When the core wants to go on if nothing happens before: kept for it by whoever has a clock.

use std::time::Duration;

/// The one moment at which the core is woken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Alarm {
    at: Option<Duration>,
}

impl Alarm {
    /// The core said when. It says it again only if it is earlier than what it said before, or if that has passed: what stands
    /// here is never the one to keep. One that has passed would be taken for this one, and this one be forgotten.
    pub(crate) fn set(&mut self, at: Duration) {
        self.at = Some(at);
    }

    /// When it rings, if it shall.
    pub(crate) fn at(self) -> Option<Duration> {
        self.at
    }

    /// It rings; the core is told that time has passed.
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

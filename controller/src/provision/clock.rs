//! Ages of objects while clocks jump. The wall clock is read once for each object, when it is first seen; from then on
//! a steady clock counts. So no object grows old because a clock is set.

use std::time::{Duration, SystemTime};

/// The present time, by two clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ProvisionMoment {
    /// Wall clock time, as objects and people use it.
    pub(crate) wall: SystemTime,
    /// Steady time since an arbitrary start; it never jumps.
    pub(crate) steady: Duration,
}

/// The time at which an object was first seen, and its age then.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenAge {
    at: Duration,
    age: Duration,
}

impl SeenAge {
    /// Returns the age of an object that was made at `since`. A time in the future counts as now: a clock was set back.
    pub(super) fn of(since: Option<SystemTime>, now: ProvisionMoment) -> Self {
        let age = since.and_then(|since| now.wall.duration_since(since).ok()).unwrap_or_default();
        Self { at: now.steady, age }
    }

    /// Returns the steady time at which the object reaches this age.
    pub(super) fn reaches(self, age: Duration) -> Duration {
        self.at + age.saturating_sub(self.age)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(wall: u64, steady: u64) -> ProvisionMoment {
        ProvisionMoment { wall: UNIX_EPOCH + Duration::from_secs(wall), steady: Duration::from_secs(steady) }
    }

    #[test]
    fn what_was_there_before_is_as_old_as_it_says() {
        let age = SeenAge::of(Some(UNIX_EPOCH + Duration::from_secs(900)), at(1000, 5));
        assert_eq!(age.reaches(Duration::from_secs(600)), Duration::from_secs(505));
        assert_eq!(age.reaches(Duration::from_secs(60)), Duration::from_secs(5));
    }

    #[test]
    fn what_comes_from_the_future_is_new() {
        let age = SeenAge::of(Some(UNIX_EPOCH + Duration::from_secs(5000)), at(1000, 5));
        assert_eq!(age.reaches(Duration::from_secs(600)), Duration::from_secs(605));
    }
}

//! How old something is, by clocks that jump. A clock of the wall is looked at once for each thing, when it is seen first; from
//! then on only a clock counts that never jumps. So nothing grows old while a clock is being set.

use std::time::{Duration, SystemTime};

/// Now, by two clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ProvisionMoment {
    /// What people and objects call it.
    pub(crate) wall: SystemTime,
    /// Since something that does not matter; it never jumps.
    pub(crate) steady: Duration,
}

/// When something was seen first, and how old it was then.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenAge {
    at: Duration,
    age: Duration,
}

impl SeenAge {
    /// Something that has been there since then. What is of the future is new: a clock was set back.
    pub(super) fn of(since: Option<SystemTime>, now: ProvisionMoment) -> Self {
        let age = since.and_then(|since| now.wall.duration_since(since).ok()).unwrap_or_default();
        Self { at: now.steady, age }
    }

    /// When it is so old, by the clock that never jumps.
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

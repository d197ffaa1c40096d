//! Repairs of a container: their number, and when it is left alone. Pure.

use std::time::{Duration, Instant};

/// Repairs of one container within [`WINDOW`]. A program that changes it more often does so on purpose, and two
/// programs that undo each other cost more than one that has its way.
pub(super) const MOST_REPAIRS: usize = 3;

/// Window of the repairs: longer than an event that changes every container once takes to recur, such as a restart of
/// the runtime or a reload of systemd.
pub(super) const WINDOW: Duration = Duration::from_secs(600);

/// Repairs of a container so far.
#[derive(Clone, Debug, Default)]
pub(super) struct BindingHistory {
    repairs: Vec<Instant>,
    given_up: bool,
}

/// Verdict on a container now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BindingVerdict {
    /// The container is bound as it should be.
    Sound,
    /// The container is put back.
    Repair,
    /// The container is left alone from now on.
    GiveUp,
    /// The container is left alone, as was reported.
    Leave,
}

impl BindingHistory {
    /// Decides after a read of the container's binding.
    pub(super) fn judge(&mut self, sound: bool, now: Instant) -> BindingVerdict {
        self.repairs.retain(|at| now.duration_since(*at) < WINDOW);
        if sound {
            self.given_up &= !self.repairs.is_empty();
            return if self.given_up { BindingVerdict::Leave } else { BindingVerdict::Sound };
        }
        if self.given_up {
            return BindingVerdict::Leave;
        }
        if self.repairs.len() >= MOST_REPAIRS {
            self.given_up = true;
            return BindingVerdict::GiveUp;
        }
        self.repairs.push(now);
        BindingVerdict::Repair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn three_repairs_are_all_within_the_window() {
        let (mut history, start) = (BindingHistory::default(), Instant::now());
        let mut judge = |sound, seconds: u32| history.judge(sound, start + SECOND * seconds);
        assert_eq!(judge(true, 0), BindingVerdict::Sound);
        for seconds in [1, 2, 3] {
            assert_eq!(judge(false, seconds), BindingVerdict::Repair);
            assert_eq!(judge(true, seconds), BindingVerdict::Sound);
        }
        assert_eq!(judge(false, 4), BindingVerdict::GiveUp);
        assert_eq!(judge(false, 5), BindingVerdict::Leave);
        assert_eq!(judge(true, 6), BindingVerdict::Leave, "it is not forgotten the moment it is right");
        assert_eq!(judge(false, 2000), BindingVerdict::Leave, "nor while it is wrong, however long");
        assert_eq!(judge(true, 2001), BindingVerdict::Sound);
        assert_eq!(judge(false, 2002), BindingVerdict::Repair);
    }

    #[test]
    fn repairs_that_are_far_apart_go_on_for_ever() {
        let (mut history, start) = (BindingHistory::default(), Instant::now());
        for number in 0..20 {
            assert_eq!(history.judge(false, start + WINDOW / 2 * number), BindingVerdict::Repair);
        }
    }
}

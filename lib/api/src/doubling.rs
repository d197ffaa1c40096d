//! Pauses between tries, for decisions that have neither a clock nor dice.

use std::time::Duration;

/// Pauses that double from a first up to a longest one.
#[derive(Clone, Copy, Debug)]
pub struct Doubling {
    first: Duration,
    longest: Duration,
}

impl Doubling {
    /// Returns pauses from `first` up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// Returns the pause after so many failures before this one.
    pub fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(failures)).min(self.longest)
    }

    /// Returns the pause that follows on `last`, or the first one.
    pub fn next(self, last: Option<Duration>) -> Duration {
        last.map_or(self.first, |last| last.saturating_mul(2).clamp(self.first, self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_from_the_first_to_the_longest_however_often_it_fails() {
        let doubling = Doubling::new(200 * MS, 1000 * MS);
        assert_eq!(
            [0, 1, 2, 3, u32::MAX].map(|failures| doubling.after(failures)),
            [200, 400, 800, 1000, 1000].map(|most| most * MS)
        );
        let lasts = [None, Some(200 * MS), Some(800 * MS), Some(Duration::ZERO), Some(Duration::MAX)];
        assert_eq!(lasts.map(|last| doubling.next(last)), [200, 400, 1000, 200, 1000].map(|most| most * MS));
    }
}

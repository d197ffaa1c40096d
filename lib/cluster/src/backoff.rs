//! Pauses between tries: twice as long each time, up to a longest, and never the same on two nodes.

use std::time::Duration;

use hostler_api::Doubling;

/// Ever longer pauses. The daemons of a cluster fail at once when its API server does, and must not come back at once:
/// each pause is between half of what it could be and the whole.
#[derive(Debug)]
pub struct Backoff {
    longest: Doubling,
    failures: u32,
}

impl Backoff {
    /// The first pause is at most `first`, and none is longer than `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { longest: Doubling::new(first, longest), failures: 0 }
    }

    /// Returns the pause after one more failure.
    pub fn next_pause(&mut self) -> Duration {
        let half = self.longest.after(self.failures) / 2;
        self.failures = self.failures.saturating_add(1);
        half + half.mul_f64(fastrand::f64())
    }

    /// The call has worked: the next failure is a first one.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_up_to_the_longest_and_lie_in_the_upper_half() {
        for _ in 0..50 {
            let mut backoff = Backoff::new(200 * MS, 1000 * MS);
            for most in [200, 400, 800, 1000, 1000, 1000] {
                let pause = backoff.next_pause();
                assert!(
                    pause >= most * MS / 2 && pause <= most * MS,
                    "{pause:?} is not in the upper half of {most} ms"
                );
            }
            backoff.reset();
            assert!(backoff.next_pause() <= 200 * MS);
        }
    }

    #[test]
    fn no_two_nodes_wait_equally_long() {
        let pauses = [(); 20].map(|()| Backoff::new(8000 * MS, 8000 * MS).next_pause());
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    }

    #[test]
    fn there_is_no_last_pause() {
        let mut backoff = Backoff::new(2 * MS, 8 * MS);
        assert!((0..10_000).all(|_| backoff.next_pause() > Duration::ZERO));
    }
}

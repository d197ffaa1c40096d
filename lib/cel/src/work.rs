//! The comparisons of one evaluation: few for any selector that is meant well, and bounded for all others.

/// Comparisons within lists and maps. Costs do not bound those either: comparing two lists of lists costs what their
/// outer lengths say.
#[derive(Debug, Default)]
pub(super) struct Work(u64);

/// Most comparisons of one evaluation; they still take hardly any time.
const MOST_WORK: u64 = 20_000_000;

impl Work {
    /// Counts one comparison more; `false` once there are too many, and everything that compares gives up.
    pub(super) fn step(&mut self) -> bool {
        self.steps(1);
        !self.is_over()
    }

    pub(super) fn steps(&mut self, steps: u64) {
        self.0 = self.0.saturating_add(steps);
    }

    /// True once there are too many.
    pub(super) fn is_over(&self) -> bool {
        self.0 > MOST_WORK
    }
}

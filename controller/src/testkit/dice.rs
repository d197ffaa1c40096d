//! Chances that are the same for the same seed, and lives that are made of them.

/// The variable that has random tests live through one seed only.
const SEED: &str = "HOSTLER_TEST_SEED";
/// The variable that has random tests live through so many seeds.
const SEEDS: &str = "HOSTLER_TEST_SEEDS";

/// A source of chances. A panic tells its seed, and the step that the life was in.
#[derive(Debug)]
pub(crate) struct Dice {
    seed: u64,
    state: u64,
    step: usize,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, state: seed, step: 0 }
    }

    /// Returns a number below `sides`; 0 where there are none.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        // A linear congruential generator: its high bits are random enough for a choice.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.state >> 33).unwrap() % sides.max(1)
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, chances: usize) -> bool {
        self.roll(chances) == 0
    }

    /// Returns one of these.
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())]
    }

    /// Takes one of these out, if there is any.
    pub(crate) fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        let at = self.roll(from.len());
        (at < from.len()).then(|| from.swap_remove(at))
    }
}

impl Drop for Dice {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, step, .. } = self;
            eprintln!("this was seed {seed} at step {step}: with {SEED}={seed} the test lives through it alone");
        }
    }
}

/// A life in which things happen at random.
pub(crate) trait RandomLife {
    fn dice(&mut self) -> &mut Dice;

    /// Lets one thing happen.
    fn step(&mut self);

    /// Checks what must be true at every moment.
    fn check(&mut self);
}

/// Lives through so many steps; after each of them all invariants are checked.
pub(crate) fn live(life: &mut impl RandomLife, steps: usize) {
    for step in 1..=steps {
        life.dice().step = step;
        life.step();
        life.check();
    }
}

fn only_seed() -> Option<u64> {
    number(SEED)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")))
}

/// Returns the seeds of a test: these, the one that the environment names, or as many as it says.
pub(crate) fn seeds(all: impl IntoIterator<Item = u64>) -> impl Iterator<Item = u64> {
    let (only, many) = (only_seed(), number(SEEDS));
    let many = many.filter(|_| only.is_none());
    let own = all.into_iter().take_while(move |_| only.is_none() && many.is_none());
    only.into_iter().chain(0..many.unwrap_or_default()).chain(own)
}

/// Asserts that lives came to something. One life alone need not.
pub(crate) fn expect_enough(is_enough: bool, what: &impl std::fmt::Debug) {
    assert!(is_enough || only_seed().is_some(), "it came to too little: {what:?}");
}

//! The fates of writes.

use std::collections::BTreeMap;

use super::dice::Dice;

/// The fate of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// The controller dies before it sends the write.
    DieBefore,
    /// The controller dies before it hears the answer.
    DieAfter,
    /// Another writer changes the object first.
    Conflict,
    /// The server fails, and has written nothing.
    FailBefore,
    /// The server fails, and has written the object.
    FailAfter,
    /// The server refuses the write.
    Refuse,
}

/// The end of a write with its fate.
#[derive(Debug)]
pub(crate) enum Fated<A> {
    /// The server has answered.
    Answered(A),
    /// No answer came.
    Silent,
    /// The server does not take the object as it is to be.
    Refused,
    /// The controller is dead.
    Dead,
}

impl Fate {
    pub(crate) const ALL: [Self; 6] =
        [Self::DieBefore, Self::DieAfter, Self::Conflict, Self::FailBefore, Self::FailAfter, Self::Refuse];
    pub(crate) const DEATHS: [Self; 2] = [Self::DieBefore, Self::DieAfter];
    /// Two deaths, in both orders.
    pub(crate) const TWO_DEATHS: [[Self; 2]; 2] =
        [[Self::DieBefore, Self::DieAfter], [Self::DieAfter, Self::DieBefore]];

    /// Carries out a write as its fate wants it. `overtake` is what another writer does before a conflict.
    pub(crate) fn carry_out<S, A>(
        fate: Option<Self>,
        server: &mut S,
        overtake: impl FnOnce(&mut S),
        write: impl FnOnce(&mut S) -> A,
    ) -> Fated<A> {
        let is_written = !matches!(fate, Some(Self::DieBefore | Self::FailBefore | Self::Refuse));
        if fate == Some(Self::Conflict) {
            overtake(server);
        }
        let answer = is_written.then(|| write(server));
        match (fate, answer) {
            (None | Some(Self::Conflict), Some(answer)) => Fated::Answered(answer),
            (Some(Self::DieBefore | Self::DieAfter), _) => Fated::Dead,
            (Some(Self::Refuse), _) => Fated::Refused,
            _ => Fated::Silent,
        }
    }
}

/// The fates of the writes of a life, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    planned: BTreeMap<usize, Fate>,
    sent: usize,
}

impl Fates {
    /// Plans the fate of the write that comes after so many others.
    pub(crate) fn plan(&mut self, after: usize, fate: Fate) {
        self.planned.insert(self.sent + after, fate);
    }

    /// Plans any of these for one of the next writes.
    pub(crate) fn plan_any(&mut self, within: usize, fates: &[Fate], dice: &mut Dice) {
        let after = dice.roll(within);
        self.plan(after, dice.pick(fates));
    }

    /// Returns the fate of the write that is sent now.
    pub(crate) fn next(&mut self) -> Option<Fate> {
        self.sent += 1;
        self.planned.remove(&(self.sent - 1))
    }

    /// Forgets what was planned.
    pub(crate) fn clear(&mut self) {
        self.planned.clear();
    }

    /// Returns how many fates are still to come.
    pub(crate) fn left(&self) -> usize {
        self.planned.len()
    }
}

impl Extend<(usize, Fate)> for Fates {
    /// Plans fates by the numbers of the writes, from the beginning of the life.
    fn extend<T: IntoIterator<Item = (usize, Fate)>>(&mut self, fates: T) {
        self.planned.extend(fates);
    }
}

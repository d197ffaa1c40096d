//! Writes in flight: at most one for each object, a pause after each that did not succeed, and the writes whose answers
//! were lost, as long as it is not known whether they had an effect. Pure.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::{Chain, Doubling};
use hostler_cluster::ApiFailure;

/// Pauses after writes of one object that did not succeed.
const PAUSES: Doubling = Doubling::new(Duration::from_secs(1), Duration::from_secs(30));

/// The end of a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WriteOutcome {
    /// The object is written.
    Done,
    /// The object has another version than the write names.
    Conflict,
    /// The API server wrote the object without these fields.
    Dropped(String),
    /// The API server does not take the object as it is to be, for this reason.
    Refused(String),
    /// This process may not write the object.
    Forbidden(String),
    /// The object does not exist.
    Gone,
    /// The call failed; the object may be written or not.
    Failed(String),
}

impl WriteOutcome {
    /// Returns the outcome of a call that failed. After [`Failed`](Self::Failed) the object may be written all the same.
    pub fn of_failure(failure: &ApiFailure) -> Self {
        let message = || Chain(failure).to_string();
        match failure.code() {
            Some(404) if !failure.is_unknown_resource() => Self::Gone,
            Some(403) => Self::Forbidden(message()),
            Some(409) => Self::Conflict,
            Some(400 | 413 | 422) => Self::Refused(message()),
            _ => Self::Failed(message()),
        }
    }

    /// Returns the reason of a failure; `None` where the write succeeded, or just lost against another writer.
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Self::Done | Self::Conflict | Self::Gone => None,
            Self::Dropped(why) | Self::Refused(why) | Self::Forbidden(why) | Self::Failed(why) => Some(why),
        }
    }

    /// Label of the outcome in figures.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Conflict => "conflict",
            Self::Dropped(_) => "dropped",
            Self::Refused(_) | Self::Forbidden(_) => "refused",
            Self::Gone => "gone",
            Self::Failed(_) => "failed",
        }
    }
}

/// Writes in flight and pauses, by object.
#[derive(Debug)]
pub struct InFlightWrites<T, W> {
    states: BTreeMap<T, WriteState<W>>,
}

#[derive(Debug)]
struct WriteState<W> {
    in_flight: Option<W>,
    /// Writes whose answers were lost, until it is known whether they had an effect.
    lost: Vec<W>,
    not_before: Option<Duration>,
    failures: u32,
    /// True if the object is gone: nothing is remembered of it once the write has ended.
    is_gone: bool,
}

/// Answer to the question whether an object may be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteReadiness {
    /// The object may be written now.
    Ready,
    /// A write is in flight; its outcome comes.
    InFlight,
    /// The last write did not succeed: the object may be written after this pause.
    After(Duration),
}

impl<T, W> Default for InFlightWrites<T, W> {
    fn default() -> Self {
        Self { states: BTreeMap::new() }
    }
}

impl<T: Clone + Ord, W: Clone + PartialEq> InFlightWrites<T, W> {
    /// Says whether the object may be written at this time.
    pub fn readiness(&self, target: &T, now: Duration) -> WriteReadiness {
        let Some(state) = self.states.get(target) else { return WriteReadiness::Ready };
        let pause = state.not_before.map(|at| at.saturating_sub(now)).filter(|pause| !pause.is_zero());
        match pause {
            Some(pause) => WriteReadiness::After(pause),
            None if state.in_flight.is_some() => WriteReadiness::InFlight,
            None => WriteReadiness::Ready,
        }
    }

    /// Notes that a write begins. The caller has asked for the readiness of its object.
    pub fn begin(&mut self, target: T, write: W) {
        let state = self.states.entry(target).or_insert(WriteState {
            in_flight: None,
            lost: Vec::new(),
            not_before: None,
            failures: 0,
            is_gone: false,
        });
        (state.in_flight, state.not_before, state.is_gone) = (Some(write), None, false);
    }

    /// Returns the writes in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = &W> {
        self.states.values().filter_map(|state| state.in_flight.as_ref())
    }

    /// Returns the writes that may have an effect which is not known yet: writes in flight, and writes whose answer was
    /// lost.
    pub fn uncertain(&self) -> impl Iterator<Item = &W> {
        self.states.values().flat_map(|state| state.in_flight.iter().chain(&state.lost))
    }

    /// Returns the writes of this object whose answers were lost. News of the object or the answer of another write tell
    /// what became of them; where neither is due, the object has to be written again.
    pub fn lost(&self, target: &T) -> &[W] {
        self.states.get(target).map_or(&[], |state| &state.lost)
    }

    /// Returns the write of this object in flight.
    pub fn of(&self, target: &T) -> Option<&W> {
        self.states.get(target)?.in_flight.as_ref()
    }

    /// Notes that the object has another version now: a write that lost a conflict may succeed, and a lost write of the
    /// version before has had its effect or never will. Says whether a write was lost.
    pub fn object_changed(&mut self, target: &T) -> bool {
        let Some(state) = self.states.get_mut(target) else { return false };
        state.not_before = None;
        !std::mem::take(&mut state.lost).is_empty()
    }

    /// Notes that the object is gone. An outcome that still comes is not one of a write of another object with this name.
    pub fn object_gone(&mut self, target: &T) {
        let Some(state) = self.states.get_mut(target) else { return };
        state.is_gone = true;
        if state.in_flight.is_none() {
            self.states.remove(target);
        }
    }

    /// Notes the end of a write, and returns it. `is_over` is true where no pause is to follow: the write succeeded, or
    /// its object is of no interest any more.
    pub fn ended(&mut self, target: &T, now: Duration, outcome: &WriteOutcome, is_over: bool) -> Option<W> {
        let state = self.states.get_mut(target)?;
        let write = state.in_flight.take();
        if is_over || state.is_gone {
            self.states.remove(target);
        } else {
            match outcome {
                WriteOutcome::Failed(_) => {
                    let new = write.clone().filter(|write| !state.lost.contains(write));
                    state.lost.extend(new);
                }
                WriteOutcome::Done | WriteOutcome::Gone => state.lost.clear(),
                WriteOutcome::Conflict
                | WriteOutcome::Dropped(_)
                | WriteOutcome::Refused(_)
                | WriteOutcome::Forbidden(_) => {}
            }
            state.not_before = Some(now + PAUSES.after(state.failures));
            state.failures = state.failures.saturating_add(1);
        }
        write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn failed() -> WriteOutcome {
        WriteOutcome::Failed("no answer".to_owned())
    }

    #[test]
    fn an_object_has_one_write_in_flight_and_ever_longer_pauses_between_those_that_fail() {
        let mut writes = InFlightWrites::default();
        let mut now = NOW;
        for pause in [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs) {
            assert_eq!(writes.readiness(&"a", now), WriteReadiness::Ready);
            writes.begin("a", 1);
            assert_eq!(writes.readiness(&"a", now), WriteReadiness::InFlight);
            assert_eq!(writes.readiness(&"b", now), WriteReadiness::Ready);
            assert_eq!(writes.ended(&"a", now, &failed(), false), Some(1));
            assert_eq!(writes.readiness(&"a", now), WriteReadiness::After(pause));
            now += pause;
        }
        writes.begin("a", 2);
        assert_eq!(writes.ended(&"a", now, &WriteOutcome::Done, true), Some(2));
        assert_eq!(writes.readiness(&"a", now), WriteReadiness::Ready);
    }

    #[test]
    fn another_version_of_the_object_ends_the_pause_and_its_end_forgets_all_but_a_write_in_flight() {
        let mut writes = InFlightWrites::default();
        writes.begin("a", 1);
        writes.object_gone(&"a");
        assert_eq!(writes.readiness(&"a", NOW), WriteReadiness::InFlight);
        assert_eq!(writes.ended(&"a", NOW, &failed(), false), Some(1));
        assert_eq!(writes.readiness(&"a", NOW), WriteReadiness::Ready, "no pause for an object that is gone");
        writes.begin("a", 1);
        writes.ended(&"a", NOW, &failed(), false);
        writes.object_changed(&"a");
        assert_eq!(writes.readiness(&"a", NOW), WriteReadiness::Ready);
        writes.begin("a", 2);
        writes.ended(&"a", NOW, &failed(), false);
        writes.object_gone(&"a");
        assert_eq!(writes.readiness(&"a", NOW), WriteReadiness::Ready);
        assert_eq!(writes.ended(&"a", NOW, &failed(), false), None, "an outcome without a write");
    }
    #[test]
    fn a_write_whose_answer_was_lost_is_uncertain_until_the_object_or_another_write_tells() {
        let mut writes = InFlightWrites::default();
        let end = |writes: &mut InFlightWrites<_, _>, write, outcome: &WriteOutcome| {
            writes.begin("a", write);
            writes.ended(&"a", NOW, outcome, *outcome == WriteOutcome::Done);
        };
        let all = |writes: &InFlightWrites<_, i32>| writes.uncertain().copied().collect::<Vec<_>>();
        end(&mut writes, 1, &failed());
        assert_eq!((all(&writes), writes.lost(&"a")), (vec![1], &[1][..]));
        // The first write may be what this one lost against.
        end(&mut writes, 2, &WriteOutcome::Conflict);
        assert_eq!(all(&writes), [1]);
        assert!(writes.object_changed(&"a"));
        assert!(all(&writes).is_empty() && !writes.object_changed(&"a"));
        [3, 4, 3].into_iter().for_each(|write| end(&mut writes, write, &failed()));
        writes.begin("a", 5);
        assert_eq!(all(&writes), [5, 3, 4]);
        writes.ended(&"a", NOW, &WriteOutcome::Done, true);
        assert!(all(&writes).is_empty());
        end(&mut writes, 6, &failed());
        writes.object_gone(&"a");
        assert!(all(&writes).is_empty());
    }
}

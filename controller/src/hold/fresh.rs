//! Lists that are read when they are needed, and count for a while.

use std::time::Duration;

/// A list of objects with the time at which it was read.
#[derive(Debug)]
pub(super) struct FreshList<T> {
    is_asked: bool,
    /// The list, or the reason why it could not be read, and the time of either.
    known: Option<(Duration, Result<T, String>)>,
}

impl<T> Default for FreshList<T> {
    fn default() -> Self {
        Self { is_asked: false, known: None }
    }
}

impl<T> FreshList<T> {
    /// The list, if it is younger than `age`.
    pub(super) fn known(&self, now: Duration, age: Duration) -> Option<&Result<T, String>> {
        let known = self.known.as_ref().filter(|(since, _)| now.saturating_sub(*since) < age);
        known.map(|(_, list)| list)
    }

    /// Returns true if the list has to be asked for now, and notes that it is asked for. No second call is made
    /// meanwhile.
    pub(super) fn asks(&mut self) -> bool {
        !std::mem::replace(&mut self.is_asked, true)
    }

    /// Takes the list, or the reason why it could not be read.
    pub(super) fn told(&mut self, now: Duration, list: Result<T, String>) {
        *self = Self { is_asked: false, known: Some((now, list)) };
    }
}

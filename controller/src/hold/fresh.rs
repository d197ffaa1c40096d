//! Lists that are asked for when they are needed, and believed for a while.

use std::time::Duration;

/// What is known of such a list.
#[derive(Debug)]
pub(super) struct FreshList<T> {
    is_asked: bool,
    /// What it says, or why nobody knows, and since when.
    known: Option<(Duration, Result<T, String>)>,
}

impl<T> Default for FreshList<T> {
    fn default() -> Self {
        Self { is_asked: false, known: None }
    }
}

impl<T> FreshList<T> {
    /// What it says, if that is not older.
    pub(super) fn known(&self, now: Duration, age: Duration) -> Option<&Result<T, String>> {
        let known = self.known.as_ref().filter(|(since, _)| now.saturating_sub(*since) < age);
        known.map(|(_, list)| list)
    }

    /// Whether it is to be asked for now: not while it is already.
    pub(super) fn asks(&mut self) -> bool {
        !std::mem::replace(&mut self.is_asked, true)
    }

    /// It was listed.
    pub(super) fn told(&mut self, now: Duration, list: Result<T, String>) {
        *self = Self { is_asked: false, known: Some((now, list)) };
    }
}

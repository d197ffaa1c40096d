//! Limits of work and time for each asker: the hardest question of one asker does not delay the others.
//!
//! Work comes first: its count is the same on every machine, so that an answer does not depend on the machine's
//! speed. The limit of time is for work that the count gets wrong.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// A limit of work and time for all questions of one asker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BoxSize {
    /// Number of looks at devices and at the usage of nodes.
    pub work: u64,
    /// Time that planning may take.
    pub time: Duration,
}

/// The point at which planning a set was cut short.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutShort {
    /// The set used up the box.
    Begun,
    /// The box was empty before the set had its turn.
    NotReached,
}

/// The sets that share a box.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sharing {
    All,
    Namespace,
}

/// A box for each asker.
#[derive(Clone, Debug)]
pub struct PlanBoxes {
    size: Option<BoxSize>,
    sharing: Sharing,
    left: BTreeMap<String, BoxSize>,
    open: Option<OpenBox>,
}

/// The box of the asker whose turn it is.
#[derive(Clone, Debug)]
struct OpenBox {
    asker: String,
    work: u64,
    ends: Instant,
}

impl Default for PlanBoxes {
    /// Boxes without limits.
    fn default() -> Self {
        Self { size: None, sharing: Sharing::All, left: BTreeMap::new(), open: None }
    }
}

impl PlanBoxes {
    /// Makes one box for all sets, which have one asker.
    pub fn for_all(size: BoxSize) -> Self {
        Self { size: Some(size), ..Self::default() }
    }

    /// Makes a box for the sets of each namespace.
    pub fn for_each_namespace(size: BoxSize) -> Self {
        Self { size: Some(size), sharing: Sharing::Namespace, ..Self::default() }
    }

    /// Starts the clock of a namespace.
    pub fn open(&mut self, namespace: &str) {
        let Some(size) = self.size else { return };
        let asker = if self.sharing == Sharing::All { "" } else { namespace };
        if self.open.as_ref().is_some_and(|open| open.asker == asker) {
            return;
        }
        self.close();
        let BoxSize { work, time } = self.left.get(asker).copied().unwrap_or(size);
        self.open = Some(OpenBox { asker: asker.to_owned(), work, ends: Instant::now() + time });
    }

    /// Stops the clock.
    pub fn close(&mut self) {
        if let Some(OpenBox { asker, work, ends }) = self.open.take() {
            self.left.insert(asker, BoxSize { work, time: ends.saturating_duration_since(Instant::now()) });
        }
    }

    /// Returns true if nothing is left of the open box.
    pub fn is_empty(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.work == 0 || Instant::now() >= open.ends)
    }

    /// Returns true while a clock runs.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the work that is left in the open box, and the time at which it ends.
    pub(super) fn left(&self) -> (u64, Option<Instant>) {
        self.open.as_ref().map_or((u64::MAX, None), |open| (open.work, Some(open.ends)))
    }

    /// Takes work out of the open box.
    pub(super) fn spend(&mut self, work: u64) {
        if let Some(open) = &mut self.open {
            open.work = open.work.saturating_sub(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: BoxSize = BoxSize { work: 10, time: Duration::from_secs(600) };

    #[test]
    fn an_asker_empties_no_box_but_its_own() {
        let mut boxes = PlanBoxes::for_each_namespace(SIZE);
        boxes.open("a");
        boxes.spend(11);
        assert!(boxes.is_empty());
        boxes.open("b");
        assert_eq!((boxes.is_empty(), boxes.left().0), (false, 10));
        boxes.open("a");
        assert!(boxes.is_empty(), "it stays empty");
        boxes.close();
        assert!(!boxes.is_open());
    }

    #[test]
    fn one_asker_has_one_box_for_all_namespaces() {
        let mut boxes = PlanBoxes::for_all(SIZE);
        boxes.open("a");
        boxes.spend(10);
        boxes.open("b");
        assert!(boxes.is_empty());
    }

    #[test]
    fn a_box_ends_with_its_time() {
        let mut boxes = PlanBoxes::for_all(BoxSize { work: 10, time: Duration::ZERO });
        boxes.open("a");
        assert!(boxes.is_empty());
    }
}

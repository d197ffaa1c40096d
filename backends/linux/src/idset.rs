//! Sets of small numbers (CPUs, NUMA nodes) in the kernel's list and mask formats.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A set of CPU or node numbers; reads and writes as a kernel list (`0-3,8`).
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct IdSet(BTreeSet<u32>);

/// Why a text is not a list of numbers.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
#[error("{text:?} is not a list such as 0-3,8: {reason}")]
pub struct ParseIdSetError {
    text: String,
    reason: &'static str,
}

/// No machine has numbers near this; it bounds what a hostile `0-4294967295` can cost.
const LARGEST: u32 = 65_535;

impl IdSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `id` is a member.
    pub fn contains(&self, id: u32) -> bool {
        self.0.contains(&id)
    }

    /// The least member.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// Adds `id`; false if it was there.
    pub fn insert(&mut self, id: u32) -> bool {
        self.0.insert(id)
    }

    /// Members of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    /// Members of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    /// Members of this and not of `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    /// Whether every member is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Whether no member is in `other`.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }

    /// The members as a standard set.
    pub fn as_set(&self) -> &BTreeSet<u32> {
        &self.0
    }

    /// Reads a kernel mask: comma-separated groups of up to eight hex digits, the most significant first.
    ///
    /// # Errors
    /// When a group is not hexadecimal, or the mask is wider than any machine.
    pub fn from_mask(text: &str) -> Result<Self, ParseIdSetError> {
        let fail = |reason| ParseIdSetError { text: text.trim().to_owned(), reason };
        let mut set = BTreeSet::new();
        for (position, group) in text.trim().rsplit(',').enumerate() {
            if group.is_empty() || group.len() > 8 {
                return Err(fail("a mask is made of groups of one to eight hex digits"));
            }
            let bits = u32::from_str_radix(group, 16).map_err(|_| fail("a mask is made of hex digits"))?;
            let base = u32::try_from(position * 32).ok().filter(|base| *base < LARGEST);
            let base = base.ok_or_else(|| fail("the mask is too wide"))?;
            set.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| base + bit));
        }
        Ok(Self(set))
    }
}

impl FromStr for IdSet {
    type Err = ParseIdSetError;

    /// Reads `0-3,8,10-20:2/4`; nothing but white space is the empty set.
    fn from_str(text: &str) -> Result<Self, ParseIdSetError> {
        let fail = |reason| ParseIdSetError { text: text.trim().to_owned(), reason };
        let mut set = BTreeSet::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (range, stride) = part.split_once(':').map_or((part, None), |(range, stride)| (range, Some(stride)));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| fail("a number or range was expected"));
            let (first, last) = (number(first)?, number(last)?);
            let (used, group) = match stride.map(|stride| stride.split_once('/')) {
                None => (1, 1),
                Some(Some((used, group))) => (number(used)?, number(group)?),
                Some(None) => return Err(fail("a stride is written used/group")),
            };
            if first > last || last > LARGEST || used == 0 || used > group {
                return Err(fail("a range runs from a lower to a higher number, 65535 at most"));
            }
            set.extend((first..=last).filter(|id| (id - first) % group < used));
        }
        Ok(Self(set))
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{separator}{first}")?
            } else {
                write!(f, "{separator}{first}-{last}")?
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Serialize for IdSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IdSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl FromIterator<u32> for IdSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        Self(ids.into_iter().collect())
    }
}

impl Extend<u32> for IdSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        self.0.extend(ids);
    }
}

impl From<BTreeSet<u32>> for IdSet {
    fn from(set: BTreeSet<u32>) -> Self {
        Self(set)
    }
}

#[cfg(test)]
mod tests;

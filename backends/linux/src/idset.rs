//! Sets of small numbers (CPUs, NUMA nodes) in the kernel's list and mask formats.

mod ranges;

use std::{cmp::Ordering, collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use ranges::IdRange;

/// A set of CPU or node numbers; reads and writes as a kernel list (`0-3,8`). It is kept as that list is written, in
/// ranges: the cost to read, combine and keep one follows from its text, not from how many numbers the text names.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct IdSet(Vec<IdRange>);

/// Why a text is not a list of numbers.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
#[error("{text:?} is not a list such as 0-3,8: {reason}")]
pub struct ParseIdSetError {
    text: String,
    reason: &'static str,
}

/// Limit on numbers: no machine has any near this. It bounds what a hostile `0-4294967295` can cost.
const LARGEST: u32 = 65_535;

/// Limit on ranges: strides make more of them than are written. No set has more than every second number by itself,
/// and no kernel writes a number twice.
const MOST_RANGES: usize = 1 << 16;

/// Limit on quoted text: one that is no list can be as long as the largest file; so much of it tells which one it is.
const SHOWN_CHARS: usize = 100;

impl ParseIdSetError {
    fn new(text: &str, reason: &'static str) -> Self {
        Self { text: text.trim().chars().take(SHOWN_CHARS).collect(), reason }
    }
}

impl IdSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().flat_map(|range| range.first..=range.last)
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.0.iter().map(IdRange::len).sum()
    }

    /// True if the set has no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `id` is a member.
    pub fn contains(&self, id: u32) -> bool {
        self.0.get(ranges::from(&self.0, id)).is_some_and(|range| range.first <= id)
    }

    /// The least member.
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|range| range.first)
    }

    /// Adds `id`; false if it was there.
    pub fn insert(&mut self, id: u32) -> bool {
        let is_new = !self.contains(id);
        if is_new {
            ranges::add(&mut self.0, id);
        }
        is_new
    }

    /// Members of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(ranges::merged(self.0.iter().chain(&other.0).copied().collect()))
    }

    /// Members of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        Self(few.0.iter().flat_map(|range| ranges::within(&many.0, *range)).collect())
    }

    /// Members of this and not of `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.iter().flat_map(|range| ranges::without(&other.0, *range)).collect())
    }

    /// True if every member is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        let holds = |range: &IdRange| {
            let found = other.0.get(ranges::from(&other.0, range.last));
            found.is_some_and(|found| found.first <= range.first)
        };
        self.0.iter().all(holds)
    }

    /// True if no member is in `other`.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (few, many) = if self.0.len() < other.0.len() { (self, other) } else { (other, self) };
        few.0.iter().all(|range| ranges::within(&many.0, *range).next().is_none())
    }

    /// Reads a kernel mask: comma-separated groups of up to eight hex digits, the most significant first.
    ///
    /// # Errors
    /// When a group is not hexadecimal, or the mask is wider than any machine.
    pub fn from_mask(text: &str) -> Result<Self, ParseIdSetError> {
        let fail = |reason| ParseIdSetError::new(text, reason);
        let mut set = Vec::new();
        for (position, group) in text.trim().rsplit(',').enumerate() {
            if group.is_empty() || group.len() > 8 {
                return Err(fail("a mask is made of groups of one to eight hex digits"));
            }
            let bits = u32::from_str_radix(group, 16).map_err(|_| fail("a mask is made of hex digits"))?;
            let base = u32::try_from(position * 32).ok().filter(|base| *base < LARGEST);
            let base = base.ok_or_else(|| fail("the mask is too wide"))?;
            set.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| base + bit));
        }
        Ok(set.into_iter().collect())
    }

    /// The kernel mask that [`from_mask`](Self::from_mask) reads: groups of eight hex digits, the most significant
    /// first.
    pub fn to_mask(&self) -> String {
        let groups = self.iter().next_back().map_or(1, |last| last / 32 + 1);
        let bits =
            |group: u32| (0..32).filter(|bit| self.contains(group * 32 + bit)).fold(0_u32, |bits, bit| bits | 1 << bit);
        (0..groups).rev().map(|group| format!("{:08x}", bits(group))).collect::<Vec<_>>().join(",")
    }
}

impl FromStr for IdSet {
    type Err = ParseIdSetError;

    /// Reads `0-3,8,10-20:2/4`; nothing but white space is the empty set.
    fn from_str(text: &str) -> Result<Self, ParseIdSetError> {
        let fail = |reason| ParseIdSetError::new(text, reason);
        let mut found = Vec::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let part = RangeText::parse(part).map_err(fail)?;
            if found.len().saturating_add(part.pieces()) > MOST_RANGES {
                return Err(fail("it names more ranges than a machine has"));
            }
            found.extend(part.ranges());
        }
        Ok(Self(ranges::merged(found)))
    }
}

/// One part of a list: of the numbers from `first` to `last`, the first `used` of every `group`.
struct RangeText {
    first: u32,
    last: u32,
    used: u32,
    group: u32,
}

impl RangeText {
    fn parse(part: &str) -> Result<Self, &'static str> {
        let (range, stride) = part.split_once(':').map_or((part, None), |(range, stride)| (range, Some(stride)));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| "a number or range was expected");
        let (first, last) = (number(first)?, number(last)?);
        let (used, group) = match stride.map(|stride| stride.split_once('/')) {
            None => (1, 1),
            Some(Some((used, group))) => (number(used)?, number(group)?),
            Some(None) => return Err("a stride is written used/group"),
        };
        if first > last || last > LARGEST || used == 0 || used > group {
            return Err("a range runs from a lower to a higher number, 65535 at most");
        }
        // A stride that is used wholly has no gaps, however it is written.
        let (used, group) = if used == group { (LARGEST + 1, LARGEST + 1) } else { (used, group) };
        Ok(Self { first, last, used, group })
    }

    /// Number of ranges that the part stands for.
    fn pieces(&self) -> usize {
        ((self.last - self.first) / self.group + 1) as usize
    }

    fn ranges(&self) -> impl Iterator<Item = IdRange> + '_ {
        let starts = (self.first..=self.last).step_by(self.group as usize);
        starts.map(|first| IdRange { first, last: self.last.min(first.saturating_add(self.used - 1)) })
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for IdRange { first, last } in &self.0 {
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

/// Orders sets by their members, one after the other.
impl Ord for IdSet {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl PartialOrd for IdSet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
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
        Self(ranges::merged(ids.into_iter().map(IdRange::of).collect()))
    }
}

impl Extend<u32> for IdSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl From<BTreeSet<u32>> for IdSet {
    fn from(set: BTreeSet<u32>) -> Self {
        set.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;

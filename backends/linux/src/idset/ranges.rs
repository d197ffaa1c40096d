//! Ranges of numbers in ascending order, with gaps between them: the form of a set.

/// The numbers from `first` to `last`, both among them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct IdRange {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl IdRange {
    /// One number.
    pub(super) fn of(id: u32) -> Self {
        Self { first: id, last: id }
    }

    pub(super) fn len(&self) -> usize {
        (self.last - self.first) as usize + 1
    }
}

/// The place of the first range that does not end before `id`.
pub(super) fn from(ranges: &[IdRange], id: u32) -> usize {
    ranges.partition_point(|range| range.last < id)
}

/// Puts ranges in any order, which may overlap, into the form of a set.
pub(super) fn merged(mut ranges: Vec<IdRange>) -> Vec<IdRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let joins = next.first <= before.last.saturating_add(1);
        if joins {
            before.last = before.last.max(next.last);
        }
        joins
    });
    ranges.shrink_to_fit();
    ranges
}

/// Adds a number that is in none of the ranges.
pub(super) fn add(ranges: &mut Vec<IdRange>, id: u32) {
    let at = from(ranges, id);
    let joins_before = at > 0 && ranges[at - 1].last + 1 == id;
    let joins_next = ranges.get(at).is_some_and(|next| next.first - 1 == id);
    match (joins_before, joins_next) {
        (true, true) => ranges[at - 1].last = ranges.remove(at).last,
        (true, false) => ranges[at - 1].last = id,
        (false, true) => ranges[at].first = id,
        (false, false) => ranges.insert(at, IdRange::of(id)),
    }
}

/// The parts of `range` that are in `ranges`.
pub(super) fn within(ranges: &[IdRange], range: IdRange) -> impl Iterator<Item = IdRange> + '_ {
    let met = ranges[from(ranges, range.first)..].iter().take_while(move |met| met.first <= range.last);
    met.map(move |met| IdRange { first: met.first.max(range.first), last: met.last.min(range.last) })
}

/// The parts of `range` that are not in `ranges`.
pub(super) fn without(ranges: &[IdRange], range: IdRange) -> Vec<IdRange> {
    let (mut left, mut first) = (Vec::new(), range.first);
    for met in within(ranges, range) {
        if first < met.first {
            left.push(IdRange { first, last: met.first - 1 });
        }
        // Behind the greatest of all numbers there is nothing.
        let Some(next) = met.last.checked_add(1) else { return left };
        first = next;
    }
    if first <= range.last {
        left.push(IdRange { first, last: range.last });
    }
    left
}

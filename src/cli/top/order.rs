//! The order of the rows of a table, by the keys `s` and `r`.

use std::cmp::Ordering;

/// The column that rows are sorted by, and whether the last one comes first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct RowOrder {
    column: usize,
    is_reversed: bool,
}

/// The value of a cell that its column is sorted by.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum SortKey {
    /// Small ones first.
    Number(u64),
    /// Large ones first, as users look for them.
    Amount(std::cmp::Reverse<u64>),
    /// By the alphabet.
    Text(String),
}

impl SortKey {
    pub(super) fn amount(amount: u64) -> Self {
        Self::Amount(std::cmp::Reverse(amount))
    }
}

impl RowOrder {
    /// Sorts by the next column, from its own beginning.
    pub(super) fn next(self, columns: usize) -> Self {
        Self { column: (self.column + 1) % columns.max(1), is_reversed: false }
    }

    /// The other way round.
    pub(super) fn reversed(self) -> Self {
        Self { is_reversed: !self.is_reversed, ..self }
    }

    /// Compares rows by the values of their columns; those that are alike stay as they are.
    pub(super) fn compare(self, one: &[SortKey], other: &[SortKey]) -> Ordering {
        let order = one.get(self.column).cmp(&other.get(self.column));
        if self.is_reversed { order.reverse() } else { order }
    }

    /// Returns a heading, with the mark of the order where it is that of the column.
    pub(super) fn marked(self, column: usize, heading: &str) -> String {
        match (column == self.column, self.is_reversed) {
            (true, false) => format!("{heading}▾"),
            (true, true) => format!("{heading}▴"),
            (false, _) => heading.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_goes_round_and_each_begins_at_its_own_beginning() {
        let order = RowOrder::default().reversed();
        assert_eq!((order.marked(0, "A"), order.marked(1, "B")), ("A▴".to_owned(), "B".to_owned()));
        let order = order.next(2);
        assert_eq!((order.marked(0, "A"), order.marked(1, "B")), ("A".to_owned(), "B▾".to_owned()));
        assert_eq!(order.next(2), RowOrder::default());
    }

    #[test]
    fn names_begin_at_a_and_amounts_at_the_largest() {
        let sorted = |order: RowOrder| {
            let mut rows: Vec<Vec<SortKey>> = [("b", 1), ("a", 2), ("c", 2)]
                .map(|(name, amount)| vec![SortKey::Text(name.to_owned()), SortKey::amount(amount)])
                .into();
            rows.sort_by(|one, other| order.compare(one, other));
            let name = |row: &Vec<SortKey>| match &row[0] {
                SortKey::Text(name) => name.clone(),
                other => panic!("{other:?}"),
            };
            rows.iter().map(name).collect::<String>()
        };
        let first = RowOrder::default();
        assert_eq!(
            [first, first.reversed(), first.next(2), first.next(2).reversed()].map(sorted),
            ["abc", "cba", "acb", "bac"]
        );
    }
}

//! The shortage of one capacity on a device, and words for it.

use std::fmt;

use hostler_api::{ExactQuantity, Quantity};

/// The first capacity of which a device has too little for a request.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CapacityShortage {
    /// The capacity's name.
    pub capacity: String,
    /// The amount asked for, as people write amounts; `None`: the whole capacity.
    pub wanted: Option<String>,
    /// The reason.
    pub lack: Lack,
}

/// The reason why a device does not give an amount.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Lack {
    /// The device has no such capacity.
    Absent,
    /// The capacity's policy gives other amounts.
    NotGiven,
    /// The device has less, free or not.
    TooSmall,
    /// Others took too much of the capacity.
    Taken,
}

impl CapacityShortage {
    pub(in crate::structured) fn new(capacity: &str, wanted: Option<ExactQuantity>, lack: Lack) -> Self {
        // An amount finer than a thousandth, or more than the API server holds, stands as it was written.
        let human = |amount: ExactQuantity| Quantity::try_from(amount).map_or(amount.to_string(), Quantity::human);
        Self { capacity: capacity.to_owned(), wanted: wanted.map(human), lack }
    }

    /// `fewer than 8 cpus`, `less than 16Gi of memory`: names in the plural are counted.
    fn too_little(&self) -> String {
        let name = &self.capacity;
        match &self.wanted {
            None => format!("less than all of {name}"),
            Some(amount) if name.ends_with('s') && amount.parse::<u64>().is_ok_and(|amount| amount > 1) => {
                format!("fewer than {amount} {name}")
            }
            Some(amount) => format!("less than {amount} of {name}"),
        }
    }
}

/// Formats the amount that a device has instead, to stand behind `has` or `with`.
impl fmt::Display for CapacityShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capacity, wanted, lack } = self;
        match (lack, wanted) {
            (Lack::Absent, _) => write!(f, "no capacity {capacity}"),
            (Lack::NotGiven, Some(amount)) => write!(f, "{capacity} only in other amounts than {amount}"),
            (Lack::NotGiven, None) => write!(f, "{capacity} only for requests that name an amount"),
            (Lack::TooSmall, _) => f.write_str(&self.too_little()),
            (Lack::Taken, _) => write!(f, "{} free", self.too_little()),
        }
    }
}

//! What a device lacks of one capacity, in words.

use std::fmt;

use hostler_api::{ExactQuantity, Quantity};

/// The first capacity of which a device has too little for a request.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CapacityShortage {
    /// Its name.
    pub capacity: String,
    /// What is taken of it, as people write amounts; `None`: all of it.
    pub wanted: Option<String>,
    /// What is wrong with it.
    pub lack: Lack,
}

/// Why a device does not give an amount.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Lack {
    /// It has no such capacity.
    Absent,
    /// Its policy gives other amounts.
    NotGiven,
    /// It has less, be it free or not.
    TooSmall,
    /// Others took too much.
    Taken,
}

impl CapacityShortage {
    pub(in crate::structured) fn new(capacity: &str, wanted: Option<ExactQuantity>, lack: Lack) -> Self {
        // What is finer than a thousandth, or more than the API server holds, stands as it was written.
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

/// What a device has instead, to stand behind `has` or `with`.
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

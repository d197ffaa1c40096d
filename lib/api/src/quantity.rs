//! Kubernetes quantities (`4`, `16Gi`, `1500m`), exact to a thousandth.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

mod exact;
mod written;

pub use exact::ExactQuantity;
pub(crate) use exact::quantity_text;
use written::{BINARY, Written};

/// An amount of a capacity, never less than nothing. Unit: whatever the capacity counts (CPUs, bytes); resolution: one
/// thousandth.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Quantity {
    milli: u128,
}

/// An amount that is asked for: more than nothing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct AskedQuantity(Quantity);

/// Error: a text is no quantity.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
pub enum ParseQuantityError {
    /// The text is in no known notation.
    #[error("{0:?} is not a quantity: write a number with an optional suffix, such as 4, 1500m, 16Gi or 2G{near}", near = near(.0))]
    Syntax(String),
    /// The amount is less than nothing.
    #[error("{0} is negative; write 0 or more")]
    Negative(String),
    /// The amount asked for is nothing.
    #[error("{0} asks for nothing; write more than 0, or leave it out")]
    Nothing(String),
    /// The amount is more than the API server holds.
    #[error("{0} is more than 2^63 - 1, the most that can be written")]
    TooMuch(String),
}

/// The suffixes of quantities, in their only spelling.
const SUFFIXES: [&str; 14] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "k", "M", "G", "T", "P", "E", "m", "u"];

/// Returns `; did you mean 8Gi?` for letters in the wrong case, and where bytes are named.
fn near(text: &str) -> String {
    let (digits, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit = unit.trim_end_matches(['b', 'B']);
    let is_number = !digits.is_empty() && digits.trim().parse::<f64>().is_ok();
    let suffix = SUFFIXES.iter().find(|suffix| suffix.eq_ignore_ascii_case(unit));
    match suffix.filter(|_| is_number) {
        Some(suffix) => format!("; did you mean {}{suffix}?", digits.trim()),
        None => String::new(),
    }
}

/// The API server holds at most 2^63 - 1 units; it also keeps every later sum and product inside 128 bits.
const MOST_MILLI: u128 = i64::MAX as u128 * 1000;

impl Quantity {
    /// `units` whole units.
    pub fn whole(units: u64) -> Self {
        Self { milli: u128::from(units) * 1000 }
    }

    /// True if the amount is nothing.
    pub fn is_zero(self) -> bool {
        self.milli == 0
    }

    /// The amount in whole units, if it is a whole number of them.
    pub fn as_whole(self) -> Option<u64> {
        if self.milli.is_multiple_of(1000) { u64::try_from(self.milli / 1000).ok() } else { None }
    }

    /// The sum; saturates at the ends of the range, which no real amount reaches.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { milli: self.milli.saturating_add(other.milli) }
    }

    /// The difference, not below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { milli: self.milli.saturating_sub(other.milli) }
    }

    /// The product with a factor, rounded down to thousandths; saturates like [`plus`](Self::plus).
    #[must_use]
    pub fn times(self, factor: Self) -> Self {
        Self { milli: self.milli.saturating_mul(factor.milli) / 1000 }
    }

    /// The smallest multiple of `step` above `base` that is not below this amount, as the scheduler rounds a request:
    /// in whole units.
    #[must_use]
    pub fn round_up(self, base: Self, step: Self) -> Self {
        let [amount, from, step] = [self, base, step].map(ExactQuantity::from);
        Self::try_from(amount.round_up(from, step)).unwrap_or_else(|_| self.max(base))
    }

    /// Formats the amount with a binary suffix where that is exact (`16Gi`), for people; the API gets
    /// [`Display`](fmt::Display).
    pub fn human(self) -> String {
        let Some(units) = self.as_whole().filter(|units| *units > 0) else { return self.to_string() };
        BINARY
            .iter()
            .find(|(_, shift)| units.trailing_zeros() >= *shift)
            .map_or_else(|| units.to_string(), |(suffix, shift)| format!("{}{suffix}", units >> shift))
    }

    /// Rounds up amounts finer than a thousandth, as the API server does at its own resolution.
    fn from_nano(nano: u128) -> Option<Self> {
        let milli = nano.div_ceil(1_000_000);
        (milli <= MOST_MILLI).then_some(Self { milli })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli.is_multiple_of(1000) { write!(f, "{}", self.milli / 1000) } else { write!(f, "{}m", self.milli) }
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        // The API server takes a text without any digit for nothing; that is more likely a mistake.
        let written = Written::read(text).filter(|written| written.has_digits);
        let written = written.ok_or_else(|| ParseQuantityError::Syntax(text.to_owned()))?;
        match written.nano() {
            Some(0) => Ok(Self::default()),
            _ if written.is_negative => Err(ParseQuantityError::Negative(text.to_owned())),
            nano => nano.and_then(Self::from_nano).ok_or_else(|| ParseQuantityError::TooMuch(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Quantity {
    type Error = ParseQuantityError;

    fn try_from(text: String) -> Result<Self, ParseQuantityError> {
        text.parse()
    }
}

impl From<Quantity> for String {
    fn from(quantity: Quantity) -> String {
        quantity.to_string()
    }
}

impl AskedQuantity {
    /// Returns the amount.
    pub fn get(self) -> Quantity {
        self.0
    }
}

impl FromStr for AskedQuantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let asked: Quantity = text.parse()?;
        if asked.is_zero() { Err(ParseQuantityError::Nothing(text.to_owned())) } else { Ok(Self(asked)) }
    }
}

impl TryFrom<String> for AskedQuantity {
    type Error = ParseQuantityError;

    fn try_from(text: String) -> Result<Self, ParseQuantityError> {
        text.parse()
    }
}

impl From<AskedQuantity> for String {
    fn from(asked: AskedQuantity) -> String {
        asked.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Option<u128> {
        text.parse::<Quantity>().ok().map(|quantity| quantity.milli)
    }

    #[test]
    fn suffixes_scale_as_in_kubernetes() {
        for (text, milli) in [
            ("4", 4_000),
            ("0.5", 500),
            (".5", 500),
            ("1500m", 1_500),
            ("1n", 1),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("+1", 1_000),
            ("-0", 0),
        ] {
            assert_eq!(parsed(text), Some(milli), "{text}");
        }
    }

    fn refused(text: &str) -> String {
        text.parse::<Quantity>().unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "Gi", "1gi", "1KiB", "1 Gi", "1.2.3", "--1", "+-1", "0x10", "1,5", ".", "-", "1-1"] {
            assert!(refused(text).contains("is not a quantity"), "{text:?}");
        }
    }

    #[test]
    fn amounts_beyond_what_the_api_server_holds_are_refused() {
        assert_eq!(parsed("9223372036854775807"), Some(9_223_372_036_854_775_807_000));
        let many_digits = "9".repeat(50);
        for text in ["9223372036854775808", "8Ei", "9999999999999Pi", "10E", "1e99", &many_digits] {
            assert!(refused(text).contains("is more than"), "{text:?}");
        }
    }

    #[test]
    fn less_than_nothing_is_no_amount_and_nothing_cannot_be_asked_for() {
        for text in ["-1", "-3", "-1n", "-9223372036854775808", "-8Ei", "-0.5"] {
            assert_eq!(refused(text), format!("{text} is negative; write 0 or more"));
        }
        for text in ["0", "-0", "0.0", "0Gi"] {
            assert_eq!(text.parse::<Quantity>(), Ok(Quantity::default()));
            let error = text.parse::<AskedQuantity>().unwrap_err().to_string();
            assert_eq!(error, format!("{text} asks for nothing; write more than 0, or leave it out"));
        }
        let asked: AskedQuantity = serde_json::from_str("\"4Gi\"").unwrap();
        assert_eq!(asked.get(), Quantity::whole(4 << 30));
        serde_json::from_str::<AskedQuantity>("\"-4Gi\"").unwrap_err();
    }

    #[test]
    fn requests_round_up_to_the_next_step() {
        let two = Quantity::whole(2);
        assert_eq!(Quantity::whole(3).round_up(two, two), Quantity::whole(4));
        assert_eq!(Quantity::whole(1).round_up(two, two), two);
        assert_eq!(
            "2.5".parse::<Quantity>().unwrap().round_up(Quantity::whole(1), Quantity::whole(1)),
            Quantity::whole(3)
        );
    }

    #[test]
    fn people_see_binary_suffixes_only_where_exact() {
        assert_eq!(Quantity::whole(16 << 30).human(), "16Gi");
        assert_eq!(Quantity::whole(1025).human(), "1025");
        assert_eq!(Quantity::whole(0).human(), "0");
    }

    proptest! {
        #[test]
        fn text_round_trips(milli in 0_u128..1_000_000_000_000_000) {
            let quantity = Quantity { milli };
            prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn what_is_read_can_be_written_and_read_again(text in "[-+]?[0-9]{1,40}(\\.[0-9]{0,20})?([EPTGMK]i|[numkMGTPE]|e-?[0-9]{1,2})?") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                prop_assert!(quantity.milli <= MOST_MILLI);
                prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
            }
        }

        #[test]
        fn no_text_that_is_negative_or_nothing_can_be_asked_for(text in "-[0-9]{1,30}(\\.[0-9]{0,9})?([EPTGMK]i|[numkMGTPE])?|[-+]?0{1,9}(\\.0{0,9})?[KMGk]?i?") {
            prop_assert!(text.parse::<AskedQuantity>().is_err());
        }

        #[test]
        fn sums_and_steps_never_come_out_smaller(a: u64, b: u64, base: u64, step: u64) {
            let [a, b, base, step] = [a, b, base, step].map(Quantity::whole);
            prop_assert!(a.plus(b) >= a.max(b));
            prop_assert!(a.round_up(base, step) >= a);
            prop_assert_eq!(a.plus(b).minus(b), a);
        }
    }
}

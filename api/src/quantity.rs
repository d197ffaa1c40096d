//! Kubernetes quantities (`4`, `16Gi`, `1500m`), exact to a thousandth.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// An amount of a capacity. Unit: whatever the capacity counts (CPUs, bytes); resolution: one thousandth.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Quantity {
    milli: i128,
}

/// Why a text is not a quantity.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
#[error("{text:?} is not a quantity: write a number with an optional suffix, such as 4, 1500m, 16Gi or 2G")]
pub struct ParseQuantityError {
    text: String,
}

/// The API server holds at most 2^63 - 1 units; it also keeps every later sum and product inside 128 bits.
const MOST_MILLI: u128 = i64::MAX as u128 * 1000;

const BINARY: [(&str, u32); 6] = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
const DECIMAL: [(&str, i32); 9] =
    [("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Quantity {
    /// `units` whole units.
    pub fn whole(units: u64) -> Self {
        Self { milli: i128::from(units) * 1000 }
    }

    /// The amount in whole units, if it is a whole, non-negative number of them.
    pub fn as_whole(self) -> Option<u64> {
        if self.milli % 1000 == 0 { u64::try_from(self.milli / 1000).ok() } else { None }
    }

    /// The sum; saturates at the ends of the range, which no real amount reaches.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { milli: self.milli.saturating_add(other.milli) }
    }

    /// The difference, not below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { milli: self.milli.saturating_sub(other.milli).max(0) }
    }

    /// The smallest multiple of `step` above `base` that is not below this amount, as the scheduler rounds a request.
    #[must_use]
    pub fn round_up(self, base: Self, step: Self) -> Self {
        if step.milli <= 0 || self.milli <= base.milli {
            return self.max(base);
        }
        let over = self.milli - base.milli;
        let steps = (over + step.milli - 1) / step.milli;
        Self { milli: base.milli + steps * step.milli }
    }

    /// With a binary suffix where that is exact (`16Gi`), for people; the API gets [`Display`](fmt::Display).
    pub fn human(self) -> String {
        let Some(units) = self.as_whole().filter(|units| *units > 0) else { return self.to_string() };
        BINARY
            .iter()
            .find(|(_, shift)| units.trailing_zeros() >= *shift)
            .map_or_else(|| units.to_string(), |(suffix, shift)| format!("{}{suffix}", units >> shift))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli % 1000 == 0 { write!(f, "{}", self.milli / 1000) } else { write!(f, "{}m", self.milli) }
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        parse(text).map(|milli| Self { milli }).ok_or_else(|| ParseQuantityError { text: text.to_owned() })
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

/// Thousandths; amounts finer than that are rounded up, as the API server does at its own resolution.
fn parse(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (mantissa, scale) = decimal(number)?;
    let (factor, exponent) = suffix_scale(suffix)?;
    let milli = scaled(mantissa.checked_mul(factor)?, exponent - scale + 3)?;
    (milli.unsigned_abs() <= MOST_MILLI).then_some(milli)
}

/// `12.50` as (1250, 2): digits without the point, and how many stood behind it.
fn decimal(number: &str) -> Option<(i128, i32)> {
    let (sign, digits) = match number.as_bytes().first()? {
        b'-' => (-1, &number[1..]),
        b'+' => (1, &number[1..]),
        _ => (1, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    // 27 digits in all keep every product inside 128 bits for the suffixes that exist.
    let all_digits = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !all_digits || (whole.is_empty() && fraction.is_empty()) || whole.len() + fraction.len() > 27 {
        return None;
    }
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
    Some((sign * mantissa, i32::try_from(fraction.len()).ok()?))
}

/// The suffix as (factor, power of ten).
fn suffix_scale(suffix: &str) -> Option<(i128, i32)> {
    if suffix.is_empty() {
        return Some((1, 0));
    }
    if let Some((_, shift)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((1 << shift, 0));
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((1, *exponent));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-18..=18).contains(&exponent).then_some((1, exponent))
}

fn scaled(value: i128, exponent: i32) -> Option<i128> {
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 {
        return value.checked_mul(power);
    }
    Some(value.div_euclid(power) + i128::from(value.rem_euclid(power) != 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Option<i128> {
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
            ("-1", -1_000),
        ] {
            assert_eq!(parsed(text), Some(milli), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "Gi", "1gi", "1KiB", "1 Gi", "1.2.3", "--1", "1e99", "0x10", "1,5", "."] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    #[test]
    fn amounts_beyond_what_the_api_server_holds_are_refused() {
        assert_eq!(parsed("9223372036854775807"), Some(9_223_372_036_854_775_807_000));
        for text in ["9223372036854775808", "8Ei", "9999999999999Pi", "-9223372036854775808", "10E"] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
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
        fn text_round_trips(milli in -1_000_000_000_000_000_i128..1_000_000_000_000_000) {
            let quantity = Quantity { milli };
            prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn what_is_read_can_be_written_and_read_again(text in "[0-9]{1,27}(\\.[0-9]{0,9})?([EPTGMK]i|[numkMGTPE])?") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
            }
        }
    }
}

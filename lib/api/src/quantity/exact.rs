//! Quantities with the arithmetic of the API server and the scheduler.

use std::{borrow::Cow, cmp::Ordering, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    ParseQuantityError, Quantity,
    written::{BINARY, DECIMAL, NANO, Notation, Written},
};

/// An amount as the API server holds it: also less than nothing, exact to a billionth, and with its notation. Values
/// of the same amount are equal, in any notation.
#[derive(Clone, Copy, Debug)]
pub struct ExactQuantity {
    nano: i128,
    /// Power of ten in which the number is held.
    scale: i8,
    held: HeldAs,
    notation: Notation,
    kept: KeptText,
}

/// Representation in Kubernetes: small numbers in 64 bits, others in decimal; some of its functions answer for the
/// first only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HeldAs {
    Integer,
    Decimal,
}

/// A text that Kubernetes keeps as it was written although it writes the amount otherwise, such as `3e0` or `1.500`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct KeptText {
    bytes: [u8; MOST_KEPT],
    /// Length of the text; 0 for most quantities, which keep none.
    length: u8,
}

/// As much as fits where the other fields leave room; a longer text is written as any other of its amount.
const MOST_KEPT: usize = 12;

impl KeptText {
    const NONE: Self = Self { bytes: [0; MOST_KEPT], length: 0 };

    fn new(text: &str) -> Self {
        let mut kept = Self::NONE;
        match (kept.bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(bytes), Ok(length)) => {
                bytes.copy_from_slice(text.as_bytes());
                Self { length, ..kept }
            }
            _ => Self::NONE,
        }
    }

    fn text(&self) -> Option<&str> {
        let bytes = self.bytes.get(..self.length.into()).filter(|bytes| !bytes.is_empty())?;
        std::str::from_utf8(bytes).ok()
    }
}

const SCALE_OF_NANO: i8 = -9;
/// Binary amounts above this are cut down to it.
const MOST_BINARY: u128 = i64::MAX as u128 * NANO;
/// Only nothing has a scale that high.
const MOST_SCALE: i8 = 100;
/// Digits that surely fit 64 bits.
const SAFE_DIGITS: usize = 18;

impl ExactQuantity {
    /// Nothing.
    pub const ZERO: Self = Self::whole(0);

    /// `units` whole units.
    pub const fn whole(units: i64) -> Self {
        let nano = units as i128 * NANO as i128;
        Self { nano, scale: 0, held: HeldAs::Integer, notation: Notation::Decimal, kept: KeptText::NONE }
    }

    /// The same amount, written with a binary suffix where possible.
    #[must_use]
    pub const fn binary(self) -> Self {
        Self { notation: Notation::Binary, kept: KeptText::NONE, ..self }
    }

    /// True if the amount is nothing.
    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// The amount in billionths, the finest that can be written.
    pub fn billionths(self) -> i128 {
        self.nano
    }

    /// Sign of the amount: -1, 0 or 1.
    pub fn sign(self) -> i64 {
        i64::from(self.nano.signum() == 1) - i64::from(self.nano.signum() == -1)
    }

    /// Whole units, as far as Kubernetes holds the amount as a whole number: `1500m` and `2000m` are none, nor are
    /// amounts that it holds in decimal (`1Pi`, `1.5Gi`).
    pub fn as_integer(self) -> Option<i64> {
        let is_whole = self.held == HeldAs::Integer && self.scale >= 0;
        if is_whole { i64::try_from(self.nano / NANO as i128).ok() } else { None }
    }

    /// True if Kubernetes holds the amount in decimal.
    pub fn is_in_decimal(self) -> bool {
        self.held == HeldAs::Decimal
    }

    /// The same amount, held in decimal.
    #[must_use]
    pub fn in_decimal(self) -> Self {
        Self { held: HeldAs::Decimal, ..self }
    }

    /// Whole units, rounded away from zero and limited to 64 bits.
    pub fn rounded(self) -> i64 {
        let units = self.units();
        i64::try_from(units).unwrap_or(if units > 0 { i64::MAX } else { i64::MIN })
    }

    /// Thousandths of a unit, rounded away from zero and limited to 64 bits: the scheduler's count of CPU.
    pub fn rounded_milli(self) -> i64 {
        const MILLI: i128 = NANO as i128 / 1000;
        let (milli, rest) = (self.nano / MILLI, self.nano % MILLI);
        i64::try_from(milli + rest.signum()).unwrap_or(if milli > 0 { i64::MAX } else { i64::MIN })
    }

    /// The nearest floating-point number, calculated as Kubernetes does: the number it holds times a power of ten.
    pub fn as_approximate_float(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a floating-point number is asked for")]
        let base = self.at_scale(self.scale).unwrap_or_default() as f64;
        if self.scale == 0 { base } else { base * format!("1e{}", self.scale).parse::<f64>().unwrap_or(f64::NAN) }
    }

    /// The sum, if it can be counted.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let nano = self.nano.checked_add(other.nano)?;
        let notation = if self.is_zero() { other.notation } else { self.notation };
        let both_small = self.held == HeldAs::Integer && other.held == HeldAs::Integer;
        let (scale, held) = match (both_small, self.is_zero(), other.is_zero()) {
            (true, _, true) => (self.scale, self.held),
            (true, true, false) => (other.scale, other.held),
            _ => {
                let scale = self.scale.min(other.scale);
                let fits = [self.nano, other.nano, nano].into_iter().all(|nano| fits_at(nano, scale));
                (scale, if both_small && fits { HeldAs::Integer } else { HeldAs::Decimal })
            }
        };
        Some(Self { nano, scale, held, notation, kept: KeptText::NONE })
    }

    /// The difference, if it can be counted.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.checked_add(Self { nano: other.nano.checked_neg()?, ..other })
    }

    /// The sum; stays at the ends of the range, which no real amount reaches.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let most = Self { nano: self.nano.saturating_add(other.nano), kept: KeptText::NONE, ..self };
        self.checked_add(other).unwrap_or(most)
    }

    /// The difference; like [`plus`](Self::plus) at the ends.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let least = Self { nano: self.nano.saturating_sub(other.nano), kept: KeptText::NONE, ..self };
        self.checked_sub(other).unwrap_or(least)
    }

    /// The smallest multiple of `step` above `base` that is not below this amount. As in the scheduler, all three count
    /// in whole units, rounded up, unless the amount is below `base`.
    #[must_use]
    pub fn round_up(self, base: Self, step: Self) -> Self {
        if self < base {
            return base;
        }
        let [amount, from, step] = [self, base, step].map(Self::units);
        let over = whole_steps((amount - from).unsigned_abs(), u128::try_from(step).unwrap_or_default());
        Self::of_units(from.saturating_add_unsigned(over)).binary()
    }

    /// Rounds the amount away from zero to whole units.
    #[must_use]
    pub fn in_whole_units(self) -> Self {
        Self { notation: self.notation, ..Self::of_units(self.units()) }
    }

    /// Whole units, rounded away from zero.
    fn units(self) -> i128 {
        self.nano / NANO as i128 + (self.nano % NANO as i128).signum()
    }

    fn of_units(units: i128) -> Self {
        let held = if i64::try_from(units).is_ok() { HeldAs::Integer } else { HeldAs::Decimal };
        Self { nano: units.saturating_mul(NANO as i128), held, ..Self::ZERO }
    }

    /// True if Kubernetes holds both in the same way, which decides when it compares its structures.
    pub fn is_identical(self, other: Self) -> bool {
        let form = |quantity: Self| (quantity.nano, quantity.scale, quantity.notation, quantity.kept);
        self.held == HeldAs::Integer && other.held == HeldAs::Integer && form(self) == form(other)
    }

    /// The number at a power of ten, rounded towards zero.
    fn at_scale(self, scale: i8) -> Option<i128> {
        match u32::try_from(scale - SCALE_OF_NANO) {
            Ok(places) => Some(self.nano / 10_i128.checked_pow(places)?),
            Err(_) => Some(0),
        }
    }

    /// Representation of the text in the scheduler's parser: the scale, and the form of the number.
    fn held(written: &Written<'_>, nano: u128) -> (i8, HeldAs) {
        let digits = written.whole.len().max(1) + written.fraction.len();
        let places = i32::try_from(written.fraction.len()).unwrap_or(i32::MAX);
        let scale = match written.notation {
            Notation::Binary => 0,
            Notation::Decimal | Notation::Exponent => written.power.saturating_sub(places).min(MOST_SCALE.into()),
        };
        let is_small = match written.notation {
            // Three digits for ten bits, and one to be safe.
            Notation::Binary => places == 0 && digits + written.power.unsigned_abs() as usize * 3 / 10 < 15,
            Notation::Decimal | Notation::Exponent => digits <= SAFE_DIGITS && scale >= i32::from(SCALE_OF_NANO),
        };
        match is_small {
            true => (i8::try_from(scale).unwrap_or(MOST_SCALE), HeldAs::Integer),
            false if nano == MOST_BINARY && written.notation == Notation::Binary => (0, HeldAs::Decimal),
            false => (SCALE_OF_NANO, HeldAs::Decimal),
        }
    }
}

/// Rounds `over` up to a multiple of `step`: the one way in which the scheduler, and so all code here, rounds requests.
fn whole_steps(over: u128, step: u128) -> u128 {
    if step == 0 { over } else { over.div_ceil(step).saturating_mul(step) }
}

fn fits_at(nano: i128, scale: i8) -> bool {
    let unit = u32::try_from(scale - SCALE_OF_NANO).ok().and_then(|places| 10_i128.checked_pow(places));
    unit.is_none_or(|unit| i64::try_from(nano / unit).is_ok())
}

impl Default for ExactQuantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl FromStr for ExactQuantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let syntax = || ParseQuantityError::Syntax(text.to_owned());
        let too_much = || ParseQuantityError::TooMuch(text.to_owned());
        let written = Written::read(text).ok_or_else(syntax)?;
        let nano = match (written.nano(), written.notation) {
            (nano, Notation::Binary) => nano.map_or(MOST_BINARY, |nano| nano.min(MOST_BINARY)),
            (nano, _) => nano.ok_or_else(too_much)?,
        };
        let (scale, held) = Self::held(&written, nano);
        if held == HeldAs::Decimal && !written.has_digits {
            return Err(syntax());
        }
        let is_less_than_one = (1..NANO).contains(&nano) && held == HeldAs::Decimal;
        let notation = match written.notation {
            Notation::Binary if is_less_than_one => Notation::Decimal,
            notation => notation,
        };
        let nano = i128::try_from(nano).map_err(|_| too_much())?;
        let nano = if written.is_negative { -nano } else { nano };
        let plain = Self { nano, scale, held, notation, kept: KeptText::NONE };
        let is_kept = held == HeldAs::Integer && written.is_kept(text) && plain.to_string() != text;
        Ok(if is_kept { Self { kept: KeptText::new(text), ..plain } } else { plain })
    }
}

impl fmt::Display for ExactQuantity {
    /// Formats the amount in the form that the API server gives back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.kept.text() {
            return f.write_str(text);
        }
        let units = self.nano / NANO as i128;
        let is_whole = self.nano % NANO as i128 == 0;
        match self.notation {
            Notation::Binary if is_whole && units.unsigned_abs() >= 1024 => {
                let bits = units.trailing_zeros();
                let (suffix, shift) = BINARY.iter().find(|(_, shift)| bits >= *shift).copied().unwrap_or_default();
                write!(f, "{}{suffix}", units >> shift)
            }
            _ if self.is_zero() => f.write_str("0"),
            notation => self.fmt_decimal(f, notation),
        }
    }
}

impl ExactQuantity {
    /// Formats the number with an exponent that three divides, the highest that leaves a whole number.
    fn fmt_decimal(&self, f: &mut fmt::Formatter<'_>, notation: Notation) -> fmt::Result {
        let (mut number, mut exponent) = (self.nano, i32::from(SCALE_OF_NANO));
        while number % 1000 == 0 {
            (number, exponent) = (number / 1000, exponent + 3);
        }
        match DECIMAL.iter().find(|(_, power)| *power == exponent) {
            Some((suffix, _)) if notation != Notation::Exponent || exponent == 0 => write!(f, "{number}{suffix}"),
            _ => write!(f, "{number}e{exponent}"),
        }
    }
}

impl PartialEq for ExactQuantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for ExactQuantity {}

impl Ord for ExactQuantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl PartialOrd for ExactQuantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::hash::Hash for ExactQuantity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}

impl From<Quantity> for ExactQuantity {
    fn from(quantity: Quantity) -> Self {
        const NANO_IN_MILLI: i128 = 1_000_000;
        // Not above 2^63 units, a quarter of what fits.
        let milli = i128::try_from(quantity.milli).unwrap_or(i128::MAX / NANO_IN_MILLI);
        let scale = if quantity.as_whole().is_some() { 0 } else { -3 };
        let held = if fits_at(milli * NANO_IN_MILLI, scale) { HeldAs::Integer } else { HeldAs::Decimal };
        Self { nano: milli * NANO_IN_MILLI, scale, held, notation: Notation::Decimal, kept: KeptText::NONE }
    }
}

impl TryFrom<ExactQuantity> for Quantity {
    type Error = ParseQuantityError;

    /// Rounds the amount up to a thousandth.
    fn try_from(exact: ExactQuantity) -> Result<Self, ParseQuantityError> {
        let nano = u128::try_from(exact.nano).map_err(|_| ParseQuantityError::Negative(exact.to_string()))?;
        Self::from_nano(nano).ok_or_else(|| ParseQuantityError::TooMuch(exact.to_string()))
    }
}

impl Serialize for ExactQuantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ExactQuantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quantity_text(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Reads the text of a quantity. Like the API server, takes a number without quotes too, and `null` for nothing.
pub(crate) fn quantity_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    deserializer.deserialize_any(TextVisitor)
}

struct TextVisitor;

impl<'de> de::Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity, such as \"4\", \"1500m\" or \"16Gi\"")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text.trim()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.trim().to_owned()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed("0"))
    }
}

#[cfg(test)]
mod tests;

//! Notation of Kubernetes quantities: digits with a point, then a suffix or an exponent.

/// Binary suffixes and their powers of two.
pub(super) const BINARY: [(&str, u32); 6] = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
/// Decimal suffixes and their powers of ten.
pub(super) const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// Billionths in one unit: the API server tells nothing smaller apart.
pub(super) const NANO: u128 = 1_000_000_000;

/// The way an amount is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Notation {
    /// `16Gi`.
    Binary,
    /// `1500m`.
    Decimal,
    /// `12e6`.
    Exponent,
}

/// A quantity's text in parts; `+` and `-` stand apart from the digits.
pub(super) struct Written<'a> {
    pub(super) is_negative: bool,
    /// True if there is any digit in front of the suffix.
    pub(super) has_digits: bool,
    /// Digits in front of the point, without leading zeros.
    pub(super) whole: &'a str,
    /// Digits behind the point.
    pub(super) fraction: &'a str,
    pub(super) notation: Notation,
    /// Power of two in [`Notation::Binary`], of ten otherwise.
    pub(super) power: i32,
}

impl<'a> Written<'a> {
    /// Splits a text into its parts, if it is a quantity. As with the API server, digits may be missing: `Gi` is
    /// nothing.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let (notation, power) = read_suffix(suffix)?;
        let (is_negative, has_digits) = (text.starts_with('-'), !(whole.is_empty() && fraction.is_empty()));
        let whole = whole.trim_start_matches('0');
        (!text.is_empty()).then_some(Self { is_negative, has_digits, whole, fraction, notation, power })
    }

    /// Returns true if Kubernetes keeps the text, of which these are the parts: Kubernetes takes it for the text that
    /// it would write itself, looks at the digits only, and does not mind zeros in front, a plus, or an exponent of
    /// nothing.
    pub(super) fn is_kept(&self, text: &str) -> bool {
        let is_unusual = self.notation == Notation::Exponent || text.starts_with(['+', '0']) || text.contains('.');
        if !(is_unusual || text.starts_with("-0")) {
            return false;
        }
        let places = i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        match self.notation {
            Notation::Binary => places == 0 && whole.parse::<u64>().is_ok_and(|number| number % 8 != 0),
            _ => {
                let digits = [whole, self.fraction].concat();
                self.power.saturating_sub(places) % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
            }
        }
    }

    /// Billionths without the sign, the rest rounded up; `None` for more than can be counted.
    pub(super) fn nano(&self) -> Option<u128> {
        let digits = || self.whole.bytes().chain(self.fraction.bytes()).map(|digit| u128::from(digit - b'0'));
        if digits().all(|digit| digit == 0) {
            return Some(0);
        }
        let (unit, shift) = match self.notation {
            Notation::Binary => (NANO << self.power.unsigned_abs(), 0),
            Notation::Decimal | Notation::Exponent => (NANO, self.power),
        };
        let digits: Vec<u128> = digits().collect();
        let point = i32::try_from(self.whole.len()).ok()?.checked_add(shift)?;
        place(&digits, point, unit)
    }
}

/// Number that `digits` make with a point in front of the `point`th, times `unit`, rounded up.
fn place(digits: &[u128], point: i32, unit: u128) -> Option<u128> {
    let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0).min(digits.len()));
    let zeros = u32::try_from(point).map_or(0, |point| point - u32::try_from(whole.len()).unwrap_or(point));
    let whole = whole.iter().try_fold(0_u128, |sum, digit| sum.checked_mul(10)?.checked_add(*digit))?;
    let whole = if whole == 0 { 0 } else { whole.checked_mul(10_u128.checked_pow(zeros)?)?.checked_mul(unit)? };
    // From the last digit to the first: what is cut off at each is smaller than one, so the cuts never add up to one.
    let mut is_exact = true;
    let mut tenth = |rest: u128, digit: u128| {
        let sum = rest + digit * unit;
        is_exact &= sum.is_multiple_of(10);
        sum / 10
    };
    let behind = fraction.iter().rev().fold(0, |rest, digit| tenth(rest, *digit));
    // Forty places make nothing of every number that has a unit.
    let behind = (point..0).take(40).fold(behind, |rest, _| tenth(rest, 0));
    whole.checked_add(behind + u128::from(!is_exact))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn read_suffix(suffix: &str) -> Option<(Notation, i32)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Notation::Decimal, *power));
    }
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((Notation::Binary, i32::try_from(*power).ok()?));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Notation::Exponent, exponent.parse().ok()?))
}

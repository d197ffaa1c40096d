//! Times as people write them: `250ms`, `60s`, `1m30s`. For `#[serde(with = "duration")]`.

use std::{fmt, time::Duration};

use serde::{Deserializer, Serializer, de};

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Reads whole numbers with a unit each, one after the other. `None` for anything else, or beyond what 64 bits of
/// milliseconds hold.
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut millis = 0_u64;
    while !rest.is_empty() {
        let (digits, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len()));
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        millis = digits.parse::<u64>().ok()?.checked_mul(*factor)?.checked_add(millis)?;
        rest = tail.trim_start();
    }
    (!text.trim().is_empty()).then(|| Duration::from_millis(millis))
}

/// Writes what [`parse`] reads, in the largest unit that is exact.
pub fn format(duration: Duration) -> String {
    let millis = duration.as_millis();
    let exact = |(_, factor): &&(&str, u64)| millis.is_multiple_of(u128::from(*factor));
    let (unit, factor) = UNITS.iter().rev().find(exact).filter(|_| millis > 0).unwrap_or(&UNITS[1]);
    format!("{}{unit}", millis / u128::from(*factor))
}

/// Serializes as [`format()`] writes.
///
/// # Errors
/// The serializer's own.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*duration))
}

/// Deserializes what [`parse`] reads.
///
/// # Errors
/// When it is no text, or no time.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(DurationVisitor)
}

struct DurationVisitor;

impl de::Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with its unit (ms, s, m or h) in quotes, such as \"250ms\" or \"1m30s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_with_units_add_up() {
        for (text, millis) in [("250ms", 250), ("2s", 2_000), ("1m30s", 90_000), (" 1h 1ms ", 3_600_001), ("0s", 0)] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", " ", "5", "s", "5 s", "-1s", "1.5s", "5days", "1s5", "18446744073709551615h", "٣s"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(millis in 0_u64..1_000_000_000_000) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse(&format(duration)), Some(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}

//! Durations in Go's notation: `24h`, `1h30m`, `1.5h`, `0`.

use std::time::Duration;

/// Error: a text is no duration.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
#[error("{0:?} is not a duration such as 30m, 24h or 1h30m, of at most 292 years")]
pub struct ParseTtlError(String);

/// Units and their seconds, the longer first where one begins like another.
const UNITS: [(&str, f64); 5] = [("ms", 1e-3), ("us", 1e-6), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];

/// The longest duration that Go has. A sum of it and a time of today is still a time.
const LONGEST: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

/// Reads a duration in Go's notation.
///
/// # Errors
/// When it is written in another way, is longer than Go's can be, or so short that it would be 0, which means for ever.
pub fn parse_ttl(text: &str) -> Result<Duration, ParseTtlError> {
    let wrong = || ParseTtlError(text.to_owned());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.').ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(end);
        let (unit, seconds) = UNITS.into_iter().find(|(unit, _)| tail.starts_with(unit)).ok_or_else(wrong)?;
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        if part.is_zero() && number > 0.0 {
            return Err(wrong());
        }
        sum = sum.checked_add(part).ok_or_else(wrong)?;
        rest = &tail[unit.len()..];
    }
    if text.is_empty() || sum > LONGEST { Err(wrong()) } else { Ok(sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, seconds) in [
            ("0", 0.0),
            ("0s", 0.0),
            ("24h", 86_400.0),
            ("24h0m0s", 86_400.0),
            ("1.5h", 5400.0),
            ("1m30s", 90.0),
            ("250ms", 0.25),
            ("2562047h", 9_223_369_200.0),
        ] {
            assert_eq!(parse_ttl(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "1", "h", "1d", "-1h", "1h-", "1..5h", "9e9h", "99999999999999999999h", "2562048h", "0.0001us"]
        {
            assert_eq!(parse_ttl(text), Err(ParseTtlError(text.to_owned())), "{text}");
        }
    }
}

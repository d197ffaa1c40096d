//! Amounts and times as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hostler_api::Quantity;

/// Formats bytes with three significant digits and a binary unit: `61.5 GiB`.
pub(crate) fn bytes(amount: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if amount < 1024 {
        return format!("{amount} B");
    }
    // Tenths of the unit; 1023.95 and up would read as 1024.0, hence the next unit from there on.
    let mut unit = 0;
    let tenths = |unit: usize| (u128::from(amount) * 10 + (1 << (10 * unit + 9))) >> (10 * (unit + 1));
    while tenths(unit) >= 10_240 && unit + 1 < UNITS.len() {
        unit += 1;
    }
    let tenths = tenths(unit);
    let (whole, tenth) = (tenths / 10, tenths % 10);
    if tenth == 0 || whole >= 100 {
        format!("{whole} {}", UNITS[unit])
    } else {
        format!("{whole}.{tenth} {}", UNITS[unit])
    }
}

/// Formats an amount of a capacity: `4`, `61.5 GiB`.
pub(crate) fn amount(amount: Quantity) -> String {
    match amount.as_whole() {
        // The only capacities this large are bytes; nothing counts a million of anything else.
        Some(whole) if whole >= 1 << 20 => bytes(whole),
        _ => amount.to_string(),
    }
}

/// Formats the size of a page as in `hugepages-2Mi`: `2Mi`, `1Gi`.
pub(crate) fn page(bytes: u64) -> String {
    Quantity::whole(bytes).human()
}

/// Formats a number with its noun: `1 core`, `2 cores`.
pub(crate) fn count(amount: usize, noun: &str) -> String {
    if amount == 1 { format!("1 {noun}") } else { format!("{amount} {noun}s") }
}

/// Formats a duration in its two largest units: `3d 4h`, `12m 5s`.
pub(crate) fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let first = parts.iter().position(|(amount, _)| *amount > 0).unwrap_or(parts.len() - 1);
    let shown: Vec<String> = parts[first..].iter().take(2).map(|(amount, unit)| format!("{amount}{unit}")).collect();
    shown.join(" ")
}

/// Formats a moment to the second: `2026-11-22 06:31:02 UTC`. Logs can be searched for it, and it stays true while it
/// is read.
pub(crate) fn utc(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month and day that begin `days` days after 1970-01-01. Years are counted from March, so that a leap day is the
/// last day of its year; 400 years always have 146,097 days.
fn date(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // 153 days are five months, from March as from August.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well_at_every_size() {
        for (amount, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1 << 20, "1 MiB"),
            (66_035_122_176, "61.5 GiB"),
            ((1 << 30) - 1, "1 GiB"),
            (270_582_939_648, "252 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(amount), text, "{amount}");
        }
    }

    #[test]
    fn elapsed_times_show_two_units() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (725, "12m 5s"), (273_600, "3d 4h"), (86_400, "1d 0h")] {
            assert_eq!(elapsed(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}

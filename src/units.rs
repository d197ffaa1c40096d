//! Amounts and times as people read them.

use std::time::Duration;

/// Bytes with three significant digits and a binary unit: `61.5 GiB`.
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

/// The size of a page as it is written in `hugepages-2Mi`: `2Mi`, `1Gi`.
pub(crate) fn page(bytes: u64) -> String {
    hostler_api::Quantity::whole(bytes).human()
}

/// `1 core`, `2 cores`.
pub(crate) fn count(amount: usize, noun: &str) -> String {
    if amount == 1 { format!("1 {noun}") } else { format!("{amount} {noun}s") }
}

/// The two largest units: `3d 4h`, `12m 5s`.
pub(crate) fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let first = parts.iter().position(|(amount, _)| *amount > 0).unwrap_or(parts.len() - 1);
    let shown: Vec<String> = parts[first..].iter().take(2).map(|(amount, unit)| format!("{amount}{unit}")).collect();
    shown.join(" ")
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
}

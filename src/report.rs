//! How times are shown.

use std::time::Duration;

/// The two largest units: `3d 4h`, `12m 5s`.
pub fn elapsed(duration: Duration) -> String {
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
    fn elapsed_times_show_two_units() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (725, "12m 5s"), (273_600, "3d 4h"), (86_400, "1d 0h")] {
            assert_eq!(elapsed(Duration::from_secs(seconds)), text);
        }
    }
}

//! How errors and times are shown: an error with the whole chain of causes, in the log and to the kubelet.

use std::{error::Error, fmt, time::Duration};

/// Shows an error and all its causes, joined by `: `.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

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
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to write record {path}")]
    struct Outer {
        path: &'static str,
        #[source]
        source: io::Error,
    }

    #[test]
    fn a_chain_shows_every_cause_once() {
        let error = Outer { path: "/x", source: io::Error::other("disk full") };
        assert_eq!(Chain(&error).to_string(), "failed to write record /x: disk full");
    }

    #[test]
    fn elapsed_times_show_two_units() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (725, "12m 5s"), (273_600, "3d 4h"), (86_400, "1d 0h")] {
            assert_eq!(elapsed(Duration::from_secs(seconds)), text);
        }
    }
}

//! Text from outside that is shown to people: nothing in it moves a cursor, forges a line or turns the reading
//! direction.
//!
//! Names of claims, keys of opaque configuration and what firmware calls itself are written by others. They pass
//! through the daemon as they are, and through here where they reach a log or a terminal.

use std::{borrow::Cow, fmt::Write};

/// The text without anything but line ends that a terminal acts upon; each such character is shown as JSON would
/// write it (`\u001b`), so that JSON stays the same JSON.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && c != '\t' && is_active(c))
}

/// As [`plain`], for what stands on one line.
pub fn plain_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_active)
}

/// The beginning and the end of a text that is longer than `most` characters. Names of one cluster often begin alike,
/// so the end has the larger half.
pub fn cut_middle(text: &str, most: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= most {
        return Cow::Borrowed(text);
    }
    let Some(kept) = most.checked_sub(1) else { return Cow::Borrowed("") };
    let end = kept.div_ceil(2);
    let (first, last) = (text.chars().take(kept - end), text.chars().skip(length - end));
    first.chain(['…']).chain(last).collect::<String>().into()
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' if is_escaped(c) => shown.push_str("\\n"),
            '\t' if is_escaped(c) => shown.push_str("\\t"),
            c if is_escaped(c) => {
                // Writing to a text does not fail.
                let _ = write!(shown, "\\u{:04x}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    shown.into()
}

/// True for controls (C0, DEL, C1), for characters that end a line or turn the direction of writing, and for
/// invisible ones.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        assert_eq!(cut_middle("team-a/train-large-0017", 11), "team-…-0017");
        for most in 0..8 {
            assert_eq!(cut_middle("äöüßéèê", most).chars().count(), most, "{most}");
        }
        assert_eq!(cut_middle("short", 5), "short");
    }

    #[test]
    fn what_a_terminal_would_act_upon_is_shown_instead() {
        assert_eq!(plain_line("a\nb\tc"), "a\\nb\\tc");
        assert_eq!(plain("a\nb\tc"), "a\nb\tc");
        for (raw, shown) in [
            ("\u{1b}[2J", "\\u001b[2J"),
            ("\r", "\\u000d"),
            ("\u{9b}31m", "\\u009b31m"),
            ("\u{7f}", "\\u007f"),
            ("\u{202e}txt", "\\u202etxt"),
            ("\u{2028}", "\\u2028"),
        ] {
            assert_eq!(plain(raw), shown);
            assert_eq!(plain_line(raw), shown);
        }
        assert!(matches!(plain_line("läuft – 日本"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn nothing_active_is_left_and_json_stays_the_same(text in "\\PC*|[\\x00-\\u{2100}]{0,40}") {
            prop_assert!(!plain_line(&text).chars().any(is_active));
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&plain(&json)).unwrap(), text);
        }
    }
}

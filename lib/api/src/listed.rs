//! Lists in sentences that do not grow with the number of claims or devices.

use std::fmt::{Display, Write};

/// Items that a person looks at. A refusal is told to the kubelet, which repeats it, and lands in events and logs.
const FEW: usize = 3;

/// The first few of `items`, and how many more there are: `a, b, c and 4,998 more`.
pub fn few<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    listed(FEW, ", ", items)
}

/// As [`few`], for the first `most`, with `between` between them.
pub fn listed<T: Display>(most: usize, between: &str, items: impl IntoIterator<Item = T>) -> String {
    let mut items = items.into_iter();
    let mut named: Vec<String> = items.by_ref().take(most).map(|item| item.to_string()).collect();
    // "1 more" would be no shorter than its name.
    let Some(next) = items.next() else { return joined(&named, between) };
    match items.count() {
        0 => {
            named.push(next.to_string());
            joined(&named, between)
        }
        others => format!("{} and {} more", joined(&named, between), grouped(others + 1)),
    }
}

/// A question has an end of its own: `did you mean a? b: no list`.
fn joined(texts: &[String], between: &str) -> String {
    let mut all = String::new();
    for text in texts {
        match &*all {
            "" => {}
            before if before.ends_with('?') => all.push(' '),
            _ => all.push_str(between),
        }
        all.push_str(text);
    }
    all
}

/// `4998` as `4,998`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        // Writing to a text does not fail.
        let _ = text.write_char(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_counted_and_short_ones_are_whole() {
        assert_eq!(few([""; 0]), "");
        assert_eq!(few(["a", "b", "c"]), "a, b, c");
        assert_eq!(few(["a", "b", "c", "d"]), "a, b, c, d");
        assert_eq!(few(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        assert_eq!(few(1..=5001), "1, 2, 3 and 4,998 more");
        assert_eq!(listed(1, "; ", 1..=1_234_568), "1 and 1,234,567 more");
        assert_eq!(listed(3, "; ", ["did you mean a?", "no list", "c"]), "did you mean a? no list; c");
    }
}

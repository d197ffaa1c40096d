//! Colours, put on as the last thing before the terminal: on words that tell a state, and on headings.
//!
//! Nothing that makes text knows of colours, so no escape code can come from anywhere else. A word is painted where
//! it begins a cell, that is a line or what two spaces set apart.

use std::io::{self, Write};

const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";
const BOLD: &str = "1";

/// Words and their colours.
const WORDS: [(&str, &str); 30] = [
    ("FAIL", RED),
    ("absent", RED),
    ("Absent", RED),
    ("allocated", YELLOW),
    ("Available", GREEN),
    ("cordoned", YELLOW),
    ("drained", YELLOW),
    ("failed", RED),
    ("Failed", RED),
    ("Fencing", YELLOW),
    ("free", GREEN),
    ("Healthy", GREEN),
    ("held", YELLOW),
    ("in use", YELLOW),
    ("invalid", RED),
    ("Lost", RED),
    ("not ready", RED),
    ("ok", GREEN),
    ("Pending", YELLOW),
    ("prepared", GREEN),
    ("preparing", YELLOW),
    ("quarantined", RED),
    ("registered", GREEN),
    ("Releasing", YELLOW),
    ("unhealthy", RED),
    ("Unhealthy", RED),
    ("unknown", YELLOW),
    ("Unknown", YELLOW),
    ("Waiting", YELLOW),
    ("warn", YELLOW),
];

/// Paints whole lines on their way to `out`.
#[derive(Debug)]
pub(crate) struct PaintWriter<W: Write> {
    out: W,
    colours: bool,
    /// The line that has not ended yet.
    begun: Vec<u8>,
}

impl<W: Write> PaintWriter<W> {
    pub(crate) fn new(out: W, colours: bool) -> Self {
        Self { out, colours, begun: Vec::new() }
    }

    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.begun);
        match std::str::from_utf8(&line) {
            Ok(text) => self.out.write_all(painted(text).as_bytes()),
            // An archive is no text.
            Err(_) => self.out.write_all(&line),
        }
    }
}

impl<W: Write> Write for PaintWriter<W> {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        if !self.colours {
            return self.out.write(written);
        }
        for part in written.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line()?;
            }
        }
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end_line()?;
        self.out.flush()
    }
}

fn painted(line: &str) -> String {
    if is_heading(line) {
        return format!("\x1b[{BOLD}m{}\x1b[0m\n", line.trim_end());
    }
    // A line that is one cell with a colon is a field of YAML, of which the name says nothing of its value.
    let ends: &[char] = if line.trim().contains("  ") { &[',', ':', '\n'] } else { &[',', '\n'] };
    let mut text = String::new();
    for (index, cell) in line.split("  ").enumerate() {
        if index > 0 {
            text.push_str("  ");
        }
        text.push_str(&painted_cell(cell, ends));
    }
    text
}

/// The first line of a table: words in capitals, and nothing else.
fn is_heading(line: &str) -> bool {
    let capitals = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase());
    line.split_whitespace().count() > 1 && line.split_whitespace().all(capitals)
}

fn painted_cell(cell: &str, ends: &[char]) -> String {
    let start = cell.len() - cell.trim_start().len();
    let (indent, cell) = cell.split_at(start);
    let is_end = |rest: &str| rest.is_empty() || rest.starts_with(ends);
    let known = WORDS.iter().find(|(word, _)| cell.strip_prefix(word).is_some_and(is_end));
    match known {
        Some((word, colour)) => format!("{indent}\x1b[{colour}m{word}\x1b[0m{}", &cell[word.len()..]),
        None => format!("{indent}{cell}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, colours: bool) -> String {
        let mut out = Vec::new();
        let mut writer = PaintWriter::new(&mut out, colours);
        // In pieces, as formatting writes it.
        text.as_bytes().chunks(3).for_each(|piece| writer.write_all(piece).unwrap());
        writer.flush().unwrap();
        drop(writer);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn words_that_say_how_something_is_have_colours() {
        let text = "NAME  STATE\na     drained, held\nb     Unhealthy: hot\nfree  of charge\nno end";
        let expected = "\x1b[1mNAME  STATE\x1b[0m\na     \x1b[33mdrained\x1b[0m, held\nb     \x1b[31mUnhealthy\x1b[0m: hot\n\
                        \x1b[32mfree\x1b[0m  of charge\nno end";
        assert_eq!(written(text, true), expected);
    }

    #[test]
    fn a_word_within_a_sentence_or_a_name_stays_as_it_is() {
        for text in ["it is prepared\n", "prepared-later  x\n", "free of charge\n", "  - free: 3\n", "    held: 2\n"] {
            assert_eq!(written(text, true), text);
        }
    }

    #[test]
    fn pipes_get_every_byte_as_it_was() {
        let text = "FAIL  x\n";
        assert_eq!(written(text, false), text);
    }
}

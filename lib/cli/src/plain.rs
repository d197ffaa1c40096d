//! Names that others gave reach a terminal as text only. Two nets: all text for standard output and standard error
//! passes a [`PlainWriter`], and answers of the daemon pass [`for_people`] before they are put into words, since
//! only there a line end of ours differs from one that stands in a name.

use std::io::{self, Write};

use hostler_api::{plain, plain_line};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Writes text without anything that a terminal acts upon, apart from line ends. JSON stays the same JSON.
#[derive(Debug)]
pub(crate) struct PlainWriter<W> {
    out: W,
    /// True if everything is passed on as it is: an archive is no text.
    is_raw: bool,
}

impl<W: Write> PlainWriter<W> {
    pub(crate) fn new(out: W, is_raw: bool) -> Self {
        Self { out, is_raw }
    }
}

impl<W: Write> Write for PlainWriter<W> {
    /// Characters come whole: formatting writes texts, and the buffer before this writer does not cut them.
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(written) {
            Ok(text) if !self.is_raw => self.out.write_all(plain(text).as_bytes())?,
            Err(_) if !self.is_raw => self.out.write_all(plain(&String::from_utf8_lossy(written)).as_bytes())?,
            _ => self.out.write_all(written)?,
        }
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns an answer of which every text stands on one line, for people. Programs get it as it is.
pub fn for_people<T: Serialize + DeserializeOwned>(answer: T) -> T {
    let mut value = serde_json::to_value(&answer).unwrap_or_default();
    make_plain(&mut value);
    // Texts stay texts, so the shape is the same.
    serde_json::from_value(value).unwrap_or(answer)
}

fn make_plain(value: &mut Value) {
    match value {
        Value::String(text) => *text = plain_line(text).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(make_plain),
        Value::Object(fields) => {
            let plain = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                make_plain(&mut value);
                (plain_line(&name).into_owned(), value)
            });
            *fields = plain.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_text_leaves_and_an_archive_leaves_as_it_is() {
        let written = |bytes: &[u8], raw: bool| {
            let mut out = Vec::new();
            PlainWriter::new(&mut out, raw).write_all(bytes).unwrap();
            out
        };
        assert_eq!(written(b"a\n\x1b[2J", false), b"a\n\\u001b[2J");
        assert_eq!(written(b"\x28\xb5\x2f\xfd\x1b", true), b"\x28\xb5\x2f\xfd\x1b");
    }

    #[test]
    fn no_text_of_an_answer_makes_a_line_of_its_own() {
        let answer = serde_json::json!({"name\n": ["a\nready    yes", 1], "b": null});
        assert_eq!(for_people(answer), serde_json::json!({"name\\n": ["a\\nready    yes", 1], "b": null}));
    }
}

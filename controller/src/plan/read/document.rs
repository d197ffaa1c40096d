//! Cuts a text into documents before it is parsed, so that a broken one ends where the next begins.

use hostler_api::ManifestFinding;
use serde::de::DeserializeOwned;
use serde_saphyr::{Budget, MessageFormatter, UserMessageFormatter};

/// A part of a text between separators.
#[derive(Clone, Copy, Debug)]
pub(super) struct DocumentText<'a> {
    /// The text, with its separator, if it has one.
    pub(super) text: &'a str,
    /// Number of the part's first line in the whole text.
    pub(super) first_line: usize,
}

/// The documents of a text, without empty ones.
///
/// YAML lets no document contain a line that begins with its separator, nor does JSON.
pub(super) fn documents(text: &str) -> Vec<DocumentText<'_>> {
    let (mut documents, mut start, mut first_line, mut at) = (Vec::new(), 0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if is_separator(line) && at > start {
            documents.push(DocumentText { text: &text[start..at], first_line });
            (start, first_line) = (at, index + 1);
        }
        at += line.len();
    }
    documents.push(DocumentText { text: &text[start..], first_line });
    documents.retain(DocumentText::says_something);
    documents
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

impl<'a> DocumentText<'a> {
    /// The text behind the separator.
    pub(super) fn body(&self) -> &'a str {
        let text = self.text.trim_start_matches('\u{feff}');
        let body = if is_separator(text.split_inclusive('\n').next().unwrap_or_default()) { &text[3..] } else { text };
        body.trim()
    }

    /// True if the document is not empty: comments, directives and ends do not count.
    fn says_something(&self) -> bool {
        self.body().lines().any(|line| {
            let line = line.trim();
            !(line.is_empty() || line.starts_with('#') || line.starts_with('%') || line == "...")
        })
    }

    /// Reads the document as YAML.
    pub(super) fn yaml<T: DeserializeOwned>(&self) -> Result<T, ManifestFinding> {
        let limits = self.limits();
        // The booleans of YAML 1.1 are off: a request may be called `n`.
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false, budget: limits };
        serde_saphyr::from_str_with_options(self.text, options).map_err(|error| self.syntax(&error))
    }

    /// The parser's limits. A list of all devices of a large cluster is no attack: as many nodes as there are bytes are
    /// no more work than the text itself. Anchors, which can multiply content, stay limited.
    fn limits(&self) -> Option<Budget> {
        let least = Budget::default();
        let most = |usual: usize| usual.max(self.text.len());
        serde_saphyr::budget! {
            max_events: most(least.max_events),
            max_nodes: most(least.max_nodes),
            max_total_scalar_bytes: most(least.max_total_scalar_bytes),
        }
    }

    fn syntax(&self, error: &serde_saphyr::Error) -> ManifestFinding {
        let line = error.location().map(|place| self.line(place.line()));
        let reason = format!("it is not valid YAML: {}", UserMessageFormatter.format_message(error));
        ManifestFinding { line, reason, ..ManifestFinding::default() }
    }

    /// Number, in the whole text, of a line of this document.
    pub(super) fn line(&self, own: u64) -> usize {
        self.first_line + usize::try_from(own).unwrap_or_default().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_their_lines_and_empty_ones_are_none() {
        let text = "# only words\n---\na: 1\n---\n\n--- # nothing\n--- {b: 2}\n...\n---x: 3\n";
        let found: Vec<(usize, &str)> =
            documents(text).iter().map(|document| (document.first_line, document.body())).collect();
        assert_eq!(found, [(2, "a: 1"), (7, "{b: 2}\n...\n---x: 3")]);
    }

    #[test]
    fn the_shortest_document_is_read_and_a_bomb_is_none() {
        let read = |text: &str| documents(text)[0].yaml::<serde_json::Value>();
        assert_eq!(read("[]").unwrap(), serde_json::json!([]));
        let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, of) in ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"])
        {
            bomb += &format!("{name}: &{name} [*{of}, *{of}, *{of}, *{of}, *{of}, *{of}, *{of}, *{of}, *{of}]\n");
        }
        assert!(read(&bomb).unwrap_err().reason.contains("too large or too complex"), "{:?}", read(&bomb).unwrap_err());
    }

    #[test]
    fn a_mistake_has_the_line_of_the_whole_text() {
        let broken = documents("a: 1\n---\nb:\n  - x\n c: 2\n")[1].yaml::<serde_json::Value>().unwrap_err();
        assert_eq!(broken.line, Some(5), "{broken}");
        assert!(broken.reason.starts_with("it is not valid YAML: "), "{broken}");
    }
}

//! Presentation of mistakes in a manifest, alike in every program that reads manifests.

use std::fmt;

/// Something about one document of a text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ManifestFinding {
    /// Number of the document in the text, from 1, empty ones not counted; 0 for the text as a whole.
    pub document: usize,
    /// `kind namespace/name`, as far as the document says.
    pub object: String,
    /// Line of the text, from 1, where it is known.
    pub line: Option<usize>,
    /// Path of the field; empty for the object as a whole.
    pub field: String,
    /// Description of the mistake, and the fix.
    pub reason: String,
}

impl fmt::Display for ManifestFinding {
    /// `document 2 (ResourceClaim default/train), line 14: spec…: reason`, without the parts that are not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.document > 0 {
            write!(f, "document {}", self.document)?;
            if !self.object.is_empty() {
                write!(f, " ({})", self.object)?;
            }
        }
        if let Some(line) = self.line {
            write!(f, "{}line {line}", if self.document > 0 { ", " } else { "" })?;
        }
        if self.document > 0 || self.line.is_some() {
            f.write_str(": ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut finding = ManifestFinding { reason: "it is empty".to_owned(), ..ManifestFinding::default() };
        assert_eq!(finding.to_string(), "it is empty");
        finding.line = Some(3);
        assert_eq!(finding.to_string(), "line 3: it is empty");
        finding.document = 2;
        finding.field = "kind".to_owned();
        assert_eq!(finding.to_string(), "document 2, line 3: kind: it is empty");
        finding.object = "Pod default/a".to_owned();
        finding.line = None;
        assert_eq!(finding.to_string(), "document 2 (Pod default/a): kind: it is empty");
    }
}

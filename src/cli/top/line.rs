//! Lines of a page, in pieces that look different.

use crate::cli::picture::{legend::Tone, words};

/// A line in pieces that look different.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PageLine {
    pub(super) spans: Vec<PageSpan>,
}

/// A piece of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PageSpan {
    pub(super) text: String,
    pub(super) tone: Tone,
    pub(super) is_bold: bool,
    pub(super) is_dim: bool,
}

impl PageSpan {
    /// Text like any other.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Less important text.
    pub(super) fn dim(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_dim: true, ..Self::default() }
    }

    /// Text that stands out.
    pub(super) fn bold(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_bold: true, ..Self::default() }
    }

    /// Text of a colour.
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone, ..Self::default() }
    }
}

impl PageLine {
    /// A line of these pieces.
    pub(super) fn of(spans: Vec<PageSpan>) -> Self {
        Self { spans }
    }

    /// The line without looks.
    pub(super) fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// The line with no more than `width` columns; an ellipsis says where something is missing.
    pub(super) fn cut(mut self, width: usize) -> Self {
        let mut left = width;
        for span in &mut self.spans {
            let length = span.text.chars().count();
            if length > left {
                span.text = words::cut(&span.text, left);
            }
            left = left.saturating_sub(length);
        }
        self
    }
}

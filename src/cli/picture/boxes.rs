//! Parts of a drawing: boxes with words, cells and boxes in them. Sizes are whole pixels, and text is of one width, so
//! that what has room here has room in every viewer.

use super::legend::Tone;

/// Width of a character, in tenths of a pixel: no usual font of one width is wider at this size.
const CHAR_TENTHS: u32 = 74;
/// Height of a line of text.
pub(super) const LINE: u32 = 17;
/// Between a box and what is in it, and between neighbours.
pub(super) const GAP: u32 = 6;
/// A cell: two short lines, such as the number of a CPU and a letter.
pub(super) const CELL: (u32, u32) = (28, 32);
/// Height of the bar that shows shares.
pub(super) const BAR: u32 = 6;

/// The sort of a box, which decides how it looks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum BoxKind {
    /// Nothing but its contents.
    #[default]
    Invisible,
    /// A package, or whatever is outermost.
    Outer,
    /// A part within another.
    Part,
    /// A core.
    Core,
    /// A device.
    Device(Tone),
}

/// A box with its size, and where everything in it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PictureBox {
    pub(super) kind: BoxKind,
    /// Shown by viewers when the pointer is on it.
    pub(super) hint: String,
    /// Lines at its top; the first is a heading.
    pub(super) lines: Vec<TextLine>,
    /// Shares of a whole, in thousandths, from the left.
    pub(super) bar: Option<Vec<(u32, Tone)>>,
    /// Cells in a row.
    pub(super) cells: Vec<PictureCell>,
    /// Boxes within, with where they are from its corner.
    pub(super) children: Vec<(u32, u32, PictureBox)>,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// A line of text, with what stands in front of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TextLine {
    /// A small cell in front, as legends have it.
    pub(super) mark: Option<PictureCell>,
    pub(super) text: String,
    pub(super) is_heading: bool,
}

/// A small box with a sign, and a number over it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PictureCell {
    pub(super) number: String,
    pub(super) sign: char,
    pub(super) tone: Tone,
    pub(super) hint: String,
}

impl TextLine {
    /// A heading.
    pub(super) fn heading(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_heading: true, mark: None }
    }

    /// A line of text.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_heading: false, mark: None }
    }

    pub(super) fn width(&self) -> u32 {
        let mark = if self.mark.is_some() { LINE + GAP } else { 0 };
        mark + text_width(&self.text)
    }
}

/// The room that a text takes.
fn text_width(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX / 100).saturating_mul(CHAR_TENTHS).div_ceil(10)
}

impl PictureBox {
    /// The same box, made larger to stand well beside its neighbours.
    pub(super) fn stretched(mut self, width: u32, height: u32) -> Self {
        (self.width, self.height) = (self.width.max(width), self.height.max(height));
        self
    }
}

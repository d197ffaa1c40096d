//! Puts boxes into rows, so that all of them together are about as wide as a page, and a box around them.

use super::boxes::{BAR, BoxKind, CELL, GAP, LINE, PictureBox, TextLine};

/// A picture is so much wider than high, in tenths, where there is a choice.
const ASPECT_TENTHS: u64 = 16;
/// Every number of columns is tried up to this one, then each a quarter more: a thousand boxes do not need a
/// thousand tries.
const EXACT: usize = 16;

/// Boxes, and where they are.
#[derive(Debug, Default)]
struct PackedBoxes {
    placed: Vec<(u32, u32, PictureBox)>,
    width: u32,
    height: u32,
}

impl PictureBox {
    /// A box around text, cells and other boxes, as large as they need.
    pub(super) fn around(mut self, children: Vec<PictureBox>) -> Self {
        let margin = if self.kind == BoxKind::Invisible { 0 } else { GAP };
        let text = self.lines.iter().map(TextLine::width).max().unwrap_or(0);
        let mut top = margin + u32::try_from(self.lines.len()).unwrap_or(u32::MAX / 100) * LINE;
        if self.bar.is_some() {
            top += BAR + GAP / 2;
        }
        let cells = u32::try_from(self.cells.len()).unwrap_or(u32::MAX / 100) * CELL.0;
        if cells > 0 {
            top += CELL.1;
        }
        let gap = if children.is_empty() || top == margin { 0 } else { GAP };
        let packed = pack(children);
        self.width = text.max(cells).max(packed.width) + 2 * margin;
        self.height = top + gap + packed.height + margin;
        self.children = packed.placed.into_iter().map(|(x, y, child)| (x + margin, y + top + gap, child)).collect();
        self
    }
}

/// The boxes in their order, in rows of so many as make the best shape. Those of a row are equally high.
fn pack(boxes: Vec<PictureBox>) -> PackedBoxes {
    if boxes.is_empty() {
        return PackedBoxes::default();
    }
    let columns = candidates(boxes.len()).min_by_key(|columns| cost(&boxes, *columns)).unwrap_or(1);
    let mut packed = PackedBoxes::default();
    let widths = column_widths(&boxes, columns);
    let mut boxes = boxes.into_iter().peekable();
    while boxes.peek().is_some() {
        let row: Vec<PictureBox> = boxes.by_ref().take(columns).collect();
        let height = row.iter().map(|it| it.height).max().unwrap_or(0);
        let (mut x, y) = (0, if packed.height == 0 { 0 } else { packed.height + GAP });
        for (it, width) in row.into_iter().zip(&widths) {
            packed.placed.push((x, y, it.stretched(*width, height)));
            x += width + GAP;
        }
        (packed.width, packed.height) = (packed.width.max(x - GAP), y + height);
    }
    packed
}

fn candidates(boxes: usize) -> impl Iterator<Item = usize> {
    let coarse = std::iter::successors(Some(EXACT + EXACT / 4), |columns| Some(columns + columns / 4));
    (1..=EXACT).chain(coarse).take_while(move |columns| *columns == 1 || columns / 2 < boxes)
}

/// The size of a page that has room for it; of equal ones the first counts.
fn cost(boxes: &[PictureBox], columns: usize) -> u64 {
    let width: u64 = column_widths(boxes, columns).iter().map(|width| u64::from(width + GAP)).sum();
    let height: u64 =
        boxes.chunks(columns).map(|row| row.iter().map(|it| u64::from(it.height + GAP)).max().unwrap_or(0)).sum();
    (width * 10).max(height * ASPECT_TENTHS)
}

fn column_widths(boxes: &[PictureBox], columns: usize) -> Vec<u32> {
    let mut widths = vec![0; columns.min(boxes.len())];
    for row in boxes.chunks(columns) {
        for (width, it) in widths.iter_mut().zip(row) {
            *width = it.width.max(*width);
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_of_a_row_do_not_touch_and_none_is_lost() {
        let boxes: Vec<PictureBox> = (1..50_u32)
            .map(|size| PictureBox { width: size * 7 % 40 + 1, height: size * 5 % 30 + 1, ..PictureBox::default() })
            .collect();
        let packed = pack(boxes);
        assert_eq!(packed.placed.len(), 49);
        let area = |(x, y, it): &(u32, u32, PictureBox)| (*x, *y, x + it.width, y + it.height);
        for (index, one) in packed.placed.iter().map(area).enumerate() {
            assert!(one.2 <= packed.width && one.3 <= packed.height);
            for other in packed.placed.iter().map(area).skip(index + 1) {
                assert!(one.2 < other.0 || other.2 < one.0 || one.3 < other.1 || other.3 < one.1, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_thousand_boxes_are_about_as_wide_as_a_page() {
        let packed = pack(vec![PictureBox { width: 50, height: 50, ..PictureBox::default() }; 1000]);
        assert!(
            packed.width > packed.height && packed.width < 4 * packed.height,
            "{} × {}",
            packed.width,
            packed.height
        );
    }
}

//! Boxes as SVG. Whatever others have named is escaped here, in one place.

use std::fmt::Write;

use super::{
    boxes::{BAR, BoxKind, CELL, GAP, LINE, PictureBox, PictureCell, TextLine},
    legend::{COLOURS, Tone},
};

/// Around the whole picture.
const MARGIN: u32 = 12;

/// A document that every viewer shows alike: no scripts, no styles from elsewhere, one font of one width. Blanks
/// are kept: tables are aligned by them.
pub(super) fn document(picture: &PictureBox) -> String {
    let (width, height) = (picture.width + 2 * MARGIN, picture.height + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"12\" xml:space=\"preserve\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    draw(picture, MARGIN, MARGIN, &mut svg);
    svg.push_str("</svg>\n");
    svg
}

/// Formatting to a text cannot fail.
macro_rules! put {
    ($svg:expr, $($words:tt)*) => {
        let _ = writeln!($svg, $($words)*);
    };
}

fn draw(picture: &PictureBox, x: u32, y: u32, svg: &mut String) {
    let framed = picture.kind != BoxKind::Invisible;
    if framed {
        put!(svg, "<g>{}", hint(&picture.hint));
        frame(picture, x, y, svg);
    }
    let margin = if framed { GAP } else { 0 };
    let (left, mut top) = (x + margin, y + margin);
    for line in &picture.lines {
        text_line(line, left, top, svg);
        top += LINE;
    }
    if let Some(shares) = &picture.bar {
        bar(shares, left, top, picture.width - 2 * margin, svg);
        top += BAR + GAP / 2;
    }
    for (index, cell) in (0..).zip(&picture.cells) {
        draw_cell(cell, left + index * CELL.0, top, svg);
    }
    for (right, down, child) in &picture.children {
        draw(child, x + right, y + down, svg);
    }
    if framed {
        put!(svg, "</g>");
    }
}

fn frame(picture: &PictureBox, x: u32, y: u32, svg: &mut String) {
    let (fill, stroke) = match picture.kind {
        BoxKind::Invisible => return,
        BoxKind::Outer => ("#f6f6f6", "#555555"),
        BoxKind::Part => ("#ffffff", "#999999"),
        BoxKind::Core => ("#e9e9e9", "#777777"),
        BoxKind::Device(Tone::Unhealthy) => (fill(Tone::Unhealthy), "#b00020"),
        BoxKind::Device(Tone::Drained) => (fill(Tone::Drained), "#8a6d00"),
        BoxKind::Device(Tone::Offline) => (fill(Tone::Offline), "#999999"),
        BoxKind::Device(Tone::Blocked) => (fill(Tone::Blocked), "#5b6b7a"),
        BoxKind::Device(_) => ("#ffffff", "#2f6f4f"),
    };
    let (width, height) = (picture.width, picture.height);
    put!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"3\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
    );
}

fn text_line(line: &TextLine, x: u32, y: u32, svg: &mut String) {
    let mut left = x;
    if let Some(PictureCell { sign, tone, .. }) = &line.mark {
        small_box(*tone, x, y + 1, LINE, LINE - 2, svg);
        centred(&sign.to_string(), x + LINE / 2, y + 13, true, svg);
        left += LINE + GAP;
    }
    let weight = if line.is_heading { " font-weight=\"bold\"" } else { "" };
    let text = escaped(&line.text);
    put!(svg, "<text x=\"{left}\" y=\"{}\"{weight}>{text}</text>", y + 13);
}

fn bar(shares: &[(u32, Tone)], x: u32, y: u32, width: u32, svg: &mut String) {
    put!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BAR}\" fill=\"#ffffff\" stroke=\"#999999\"/>");
    let mut used = 0;
    for (share, tone) in shares {
        let share = (*share).min(1000 - used);
        let (left, right) = (x + width * used / 1000, x + width * (used + share) / 1000);
        if right > left {
            let (wide, fill) = (right - left, fill(*tone));
            put!(
                svg,
                "<rect x=\"{left}\" y=\"{y}\" width=\"{wide}\" height=\"{BAR}\" fill=\"{fill}\" stroke=\"#555555\"/>"
            );
        }
        used += share;
    }
}

fn draw_cell(cell: &PictureCell, x: u32, y: u32, svg: &mut String) {
    let (wide, high) = (CELL.0 - 2, CELL.1 - 2);
    put!(svg, "<g>{}", hint(&cell.hint));
    small_box(cell.tone, x + 1, y + 1, wide, high, svg);
    put!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"9\" fill=\"#333333\">{}</text>",
        x + CELL.0 / 2,
        y + 11,
        escaped(&cell.number)
    );
    centred(&cell.sign.to_string(), x + CELL.0 / 2, y + 26, true, svg);
    put!(svg, "</g>");
}

fn small_box(tone: Tone, x: u32, y: u32, width: u32, height: u32, svg: &mut String) {
    let dashes = if matches!(tone, Tone::Kept(_) | Tone::Offline) { " stroke-dasharray=\"3 2\"" } else { "" };
    put!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{}\" stroke=\"#777777\"{dashes}/>",
        fill(tone)
    );
}

fn centred(text: &str, x: u32, y: u32, is_bold: bool, svg: &mut String) {
    let weight = if is_bold { " font-weight=\"bold\"" } else { "" };
    put!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\"{weight}>{}</text>", escaped(text));
}

fn fill(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain | Tone::Free => "#ffffff",
        Tone::Holder(colour) | Tone::Kept(colour) => COLOURS[colour % COLOURS.len()],
        Tone::Drained => "#fff3b0",
        Tone::Unhealthy => "#f7b7b7",
        Tone::Reserved => "#d9d9d9",
        Tone::Offline => "#f0f0f0",
        Tone::Blocked => "#dbe3ea",
    }
}

fn hint(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(text)) }
}

/// A text without anything that a reader of XML acts upon, or refuses.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // None of these may stand in a document, in whatever way it is written.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_named_is_more_than_text() {
        assert_eq!(
            escaped("</text><script>'\"&\u{1b}[0m\n"),
            "&lt;/text&gt;&lt;script&gt;&#39;&quot;&amp;\u{fffd}[0m\u{fffd}"
        );
    }
}

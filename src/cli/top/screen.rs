//! A page on a terminal: what fits of it, and its colours.

use ratatui_core::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

use super::{
    head::KEYS,
    line::{PageLine, PageSpan},
    page::page,
    view::PageView,
};
use crate::cli::picture::legend::Tone;

/// Colours of holders, in the order of those of drawings, in the palette that every terminal with colours has.
const COLOURS: [u8; 12] = [39, 214, 77, 213, 141, 226, 80, 209, 110, 148, 180, 204];

/// How far down the page is moved; never further than there is something to see.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Scroll(usize);

impl Scroll {
    /// Moves it.
    pub(super) fn move_by(&mut self, lines: isize) {
        self.0 = self.0.saturating_add_signed(lines);
    }

    /// The first line that is shown of `lines`, of which `room` have a place.
    fn within(&mut self, lines: usize, room: usize) -> usize {
        self.0 = self.0.min(lines.saturating_sub(room));
        self.0
    }
}

/// Draws what fits: the head, a part of the body, and below the signs and keys, in this order of importance.
pub(super) fn draw(view: &PageView<'_>, scroll: &mut Scroll, colours: bool, buffer: &mut Buffer) {
    let area = *buffer.area();
    let page = page(view, usize::from(area.width));
    let height = usize::from(area.height);
    let foot = if height > page.head.len() + 6 { 2 } else { 0 };
    let room = height.saturating_sub(page.head.len() + foot);
    let first = scroll.within(page.body.len(), room);
    let shown = page.body.iter().skip(first).take(room);
    for (y, line) in (area.y..area.y.saturating_add(area.height)).zip(page.head.iter().chain(shown)) {
        put(line, area.x, y, colours, buffer);
    }
    if foot > 0 {
        let last = (first + room).min(page.body.len());
        let keys = format!("{KEYS} · lines {}-{last}/{}", first + 1, page.body.len());
        put(&page.signs, area.x, area.y + area.height - 2, colours, buffer);
        put(&PageLine::of(vec![PageSpan::dim(keys)]), area.x, area.y + area.height - 1, colours, buffer);
    }
}

fn put(line: &PageLine, x: u16, y: u16, colours: bool, buffer: &mut Buffer) {
    let spans: Vec<Span<'_>> = line.spans.iter().map(|span| Span::styled(&*span.text, style(span, colours))).collect();
    let width = buffer.area().width;
    buffer.set_line(x, y, &Line::from(spans), width);
}

fn style(span: &PageSpan, colours: bool) -> Style {
    let mut style = Style::new();
    if span.is_bold {
        style = style.add_modifier(Modifier::BOLD);
    }
    if span.is_dim {
        style = style.add_modifier(Modifier::DIM);
    }
    match (colours, colour(span.tone)) {
        (true, Some(colour)) => style.fg(colour),
        _ => style,
    }
}

fn colour(tone: Tone) -> Option<Color> {
    match tone {
        Tone::Plain => None,
        Tone::Free => Some(Color::Green),
        Tone::Holder(colour) | Tone::Kept(colour) => Some(Color::Indexed(COLOURS[colour % COLOURS.len()])),
        Tone::Drained => Some(Color::Yellow),
        Tone::Unhealthy => Some(Color::Red),
        Tone::Reserved | Tone::Offline | Tone::Blocked => Some(Color::DarkGray),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ratatui_core::layout::Rect;

    use super::{super::view::TopTable, *};
    use crate::usage::testing::small;

    fn drawn(width: u16, height: u16, colours: bool, scroll: &mut Scroll) -> Buffer {
        let (usage, loads) = (small(), BTreeMap::new());
        let view = PageView::of(&usage, &loads, TopTable::Claim);
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        draw(&view, scroll, colours, &mut buffer);
        buffer
    }

    fn text(buffer: &Buffer) -> Vec<String> {
        let rows = buffer.content().chunks(usize::from(buffer.area().width));
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
    }

    #[test]
    fn every_size_of_a_terminal_can_be_drawn_on() {
        for (width, height) in [(0, 0), (1, 1), (7, 3), (80, 1), (80, 10), (300, 100)] {
            drawn(width, height, true, &mut Scroll(usize::MAX));
        }
    }

    #[test]
    fn moving_ends_where_the_page_ends() {
        let mut scroll = Scroll::default();
        scroll.move_by(isize::MAX);
        let end = text(&drawn(80, 16, false, &mut scroll));
        assert!(end.iter().any(|line| line.contains("b web/front")), "{end:#?}");
        scroll.move_by(-1);
        assert_ne!(text(&drawn(80, 16, false, &mut scroll)), end, "one line up");
        assert!(text(&drawn(80, 16, false, &mut Scroll::default()))[0].starts_with("n1: 2 packages"));
    }

    #[test]
    fn without_colours_nothing_has_one_and_the_text_is_the_same() {
        let [with, without] = [true, false].map(|colours| drawn(80, 40, colours, &mut Scroll::default()));
        let coloured = |buffer: &Buffer| buffer.content().iter().filter(|cell| cell.fg != Color::Reset).count();
        assert!(coloured(&with) > 10);
        assert_eq!(coloured(&without), 0);
        assert_eq!(text(&with), text(&without));
    }
}

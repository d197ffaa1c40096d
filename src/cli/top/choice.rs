//! The choice of the user. Pure: a choice and a key make the next choice.

use super::{
    filter::PageFilter, keyboard::KeyPress, order::RowOrder, screen::Scroll, tables::headings, view::TopTable,
};

/// Choice of the tables, their order and their filter.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct TopChoice {
    pub(super) table: TopTable,
    pub(super) order: RowOrder,
    pub(super) scroll: Scroll,
    pub(super) filter: PageFilter,
    /// True while the filter is being typed: then keys are text.
    pub(super) is_typing: bool,
    /// True while keys and signs are explained.
    pub(super) has_help: bool,
}

/// The effect of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum KeyEffect {
    /// None.
    Nothing,
    /// Something else is to be shown.
    Show,
    /// The view ends.
    End,
}

impl TopChoice {
    /// Heeds a key.
    pub(super) fn press(&mut self, key: KeyPress) -> KeyEffect {
        match key {
            KeyPress::Control('c') => KeyEffect::End,
            _ if self.is_typing => self.write(key),
            KeyPress::Char('q') => KeyEffect::End,
            KeyPress::Escape => self.back(),
            _ => self.choose(key),
        }
    }

    /// A key while the filter is being typed.
    fn write(&mut self, key: KeyPress) -> KeyEffect {
        match key {
            KeyPress::Char(typed) => self.filter.push(typed),
            KeyPress::Backspace => self.filter.pop(),
            KeyPress::Control('u') => self.filter = PageFilter::default(),
            KeyPress::Enter => self.is_typing = false,
            KeyPress::Escape => (self.is_typing, self.filter) = (false, PageFilter::default()),
            _ => return self.choose(key),
        }
        // What matches may be elsewhere.
        self.scroll = Scroll::default();
        KeyEffect::Show
    }

    /// From the help, then from the filter, then out.
    fn back(&mut self) -> KeyEffect {
        if !self.has_help && self.filter.is_empty() {
            return KeyEffect::End;
        }
        if !std::mem::take(&mut self.has_help) {
            self.filter = PageFilter::default();
        }
        KeyEffect::Show
    }

    fn choose(&mut self, key: KeyPress) -> KeyEffect {
        match key {
            KeyPress::Char('c') => self.show(TopTable::Claim),
            KeyPress::Char('n') => self.show(TopTable::Namespace),
            KeyPress::Char('u') => self.show(TopTable::Node),
            KeyPress::Tab => self.show(self.table.next()),
            KeyPress::Char('/') => (self.is_typing, self.has_help) = (true, false),
            KeyPress::Char('s') => self.order = self.order.next(headings(self.table).len()),
            KeyPress::Char('r' | 'S') => self.order = self.order.reversed(),
            KeyPress::Down | KeyPress::Char('j') => self.scroll.move_by(1),
            KeyPress::Up | KeyPress::Char('k') => self.scroll.move_by(-1),
            KeyPress::PageDown | KeyPress::Char(' ') => self.scroll.move_by(10),
            KeyPress::PageUp => self.scroll.move_by(-10),
            KeyPress::Home => self.scroll = Scroll::default(),
            KeyPress::End => self.scroll.move_by(isize::MAX),
            KeyPress::Char('?' | 'h') => self.has_help = !self.has_help,
            _ => return KeyEffect::Nothing,
        }
        KeyEffect::Show
    }

    /// Each table has columns of its own, and begins with its names.
    fn show(&mut self, table: TopTable) {
        if self.table != table {
            (self.table, self.order) = (table, RowOrder::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The choice after some keys, and the effect of the last one.
    fn pressed(keys: &[KeyPress]) -> (TopChoice, KeyEffect) {
        let mut choice = TopChoice::default();
        let effects: Vec<KeyEffect> = keys.iter().map(|key| choice.press(*key)).collect();
        (choice, *effects.last().unwrap())
    }

    fn typed(text: &str) -> Vec<KeyPress> {
        text.chars().map(KeyPress::Char).collect()
    }

    #[test]
    fn the_question_mark_and_h_ask_for_help_and_lead_back() {
        for key in ['?', 'h'].map(KeyPress::Char) {
            assert!(pressed(&[key]).0.has_help);
            assert_eq!(pressed(&[key, key]).0, TopChoice::default());
            assert_eq!(pressed(&[key, KeyPress::Escape]), (TopChoice::default(), KeyEffect::Show));
        }
    }

    #[test]
    fn while_a_filter_is_typed_keys_are_text() {
        let (choice, effect) = pressed(&typed("/sqc?"));
        assert_eq!((choice.filter.text(), choice.is_typing, effect), ("sqc?", true, KeyEffect::Show));
        assert_eq!((choice.table, choice.has_help), (TopTable::Claim, false));
        let (choice, _) = pressed(&[typed("/ab"), vec![KeyPress::Backspace, KeyPress::Enter], typed("n")].concat());
        assert_eq!((choice.filter.text(), choice.is_typing, choice.table), ("a", false, TopTable::Namespace));
        let (choice, _) = pressed(&[typed("/ab"), vec![KeyPress::Control('u'), KeyPress::Char('c')]].concat());
        assert_eq!(choice.filter.text(), "c");
        let (choice, _) = pressed(&[typed("/ab"), vec![KeyPress::Down]].concat());
        assert!(choice.is_typing && choice.scroll != Scroll::default(), "arrows move all the same");
    }

    #[test]
    fn escape_leads_back_one_step_and_then_out() {
        let escape = KeyPress::Escape;
        assert_eq!(pressed(&[typed("/ab"), vec![escape]].concat()), (TopChoice::default(), KeyEffect::Show));
        let kept = [typed("/ab"), vec![KeyPress::Enter, escape]].concat();
        assert_eq!(pressed(&kept), (TopChoice::default(), KeyEffect::Show));
        assert_eq!(pressed(&[escape]).1, KeyEffect::End);
    }

    #[test]
    fn control_c_ends_at_any_time_and_q_where_it_is_no_text() {
        assert_eq!(pressed(&[typed("/a"), vec![KeyPress::Control('c')]].concat()).1, KeyEffect::End);
        assert_eq!(pressed(&typed("q")).1, KeyEffect::End);
        assert_eq!(pressed(&typed("x")), (TopChoice::default(), KeyEffect::Nothing));
    }

    #[test]
    fn the_order_goes_through_the_columns_of_the_table_and_another_table_begins_anew() {
        assert_eq!(pressed(&typed("ssss")).0, TopChoice::default());
        assert_eq!(pressed(&typed("nsss")).0.order, RowOrder::default());
        assert_eq!(pressed(&typed("r")).0.order, RowOrder::default().reversed());
        assert_eq!(pressed(&typed("sSn")).0.order, RowOrder::default());
        assert_eq!(pressed(&typed("sc")).0.order, RowOrder::default().next(4), "it is the same table");
    }
}

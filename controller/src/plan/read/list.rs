//! Long lists in YAML, item by item. As a whole, the devices of a large cluster are gigabytes of values; and a mistake
//! in one item hides no other.

use std::ops::Range;

use super::document::DocumentText;

/// A list as `kubectl get -o yaml` writes it: its head, and its items, each as a list of one.
#[derive(Debug)]
pub(super) struct ListText<'a> {
    /// The list without the items.
    pub(super) head: String,
    /// The items in their order.
    pub(super) items: Vec<DocumentText<'a>>,
}

/// The list in a document; `None` for another object, or another form of a list.
pub(super) fn list<'a>(document: &DocumentText<'a>) -> Option<ListText<'a>> {
    let text = document.text;
    let start =
        text.strip_prefix(ITEMS).map_or_else(|| text.find(FURTHER_ITEMS).map(|at| at + 1), |_| Some(0))? + ITEMS.len();
    let (mut items, mut from, mut at) = (Vec::<Range<usize>>::new(), start, start);
    for line in text[start..].split_inclusive('\n') {
        match line.as_bytes().first() {
            Some(b'-') if at > from => items.push(std::mem::replace(&mut from, at)..at),
            Some(b'-' | b' ' | b'#' | b'\n' | b'\r') => {}
            _ => break,
        }
        at += line.len();
    }
    items.push(from..at);
    let region = &text[start..at];
    // An item can refer to another one only through anchors.
    if !region.starts_with("- ") || region.contains(" &") {
        return None;
    }
    let head = format!("{}\n{}", &text[..start - ITEMS.len()], &text[at..]);
    let mut line = document.first_line + text[..start].matches('\n').count();
    let item = |range: Range<usize>| {
        let item = DocumentText { text: &text[range], first_line: line };
        line += item.text.matches('\n').count();
        item
    };
    Some(ListText { head, items: items.into_iter().map(item).collect() })
}

const ITEMS: &str = "items:\n";
const FURTHER_ITEMS: &str = "\nitems:\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(String, Vec<(usize, String)>)> {
        let list = list(&DocumentText { text, first_line: 10 })?;
        Some((list.head, list.items.iter().map(|item| (item.first_line, item.text.to_owned())).collect()))
    }

    #[test]
    fn items_keep_their_lines() {
        let text = "apiVersion: v1\nitems:\n- a: 1\n  b: |\n    - x\n\n- c: 2\nkind: List\n";
        let items = vec![(12, "- a: 1\n  b: |\n    - x\n\n".to_owned()), (16, "- c: 2\n".to_owned())];
        assert_eq!(found(text), Some(("apiVersion: v1\n\nkind: List\n".to_owned(), items)));
    }

    #[test]
    fn what_is_written_otherwise_is_left_to_the_parser() {
        for text in [
            "items: []\n",
            "a:\n  items:\n  - b\n",
            "items:\n  - a\n",
            "items:\n- a: &x 1\n- b: *x\n",
            "items:\nkind: List\n",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}

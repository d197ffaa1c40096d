//! Text as a tree.

use std::fmt;

/// A line and what belongs under it.
#[derive(Debug, Default)]
pub(super) struct TextTree {
    /// The line.
    pub(super) text: String,
    /// Lines that are drawn under it.
    pub(super) children: Vec<TextTree>,
}

impl TextTree {
    /// A line with nothing under it.
    pub(super) fn leaf(text: impl Into<String>) -> Self {
        Self { text: text.into(), children: Vec::new() }
    }

    fn draw_children(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        for (index, child) in self.children.iter().enumerate() {
            let last = index + 1 == self.children.len();
            let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            writeln!(f, "{indent}{branch}{}", child.text)?;
            child.draw_children(f, &format!("{indent}{below}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for TextTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.draw_children(f, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_join_and_end() {
        let inner = TextTree { text: "b".to_owned(), children: vec![TextTree::leaf("c")] };
        let tree = TextTree { text: "a".to_owned(), children: vec![inner, TextTree::leaf("d")] };
        assert_eq!(tree.to_string(), "a\n├─ b\n│  └─ c\n└─ d\n");
    }
}

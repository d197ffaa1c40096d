//! Links, headings and blocks of commands of a Markdown page, as far as the project's pages use Markdown.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the lines of a page outside blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let marks = line.trim_start();
        let marks = &marks[..marks.len() - marks.trim_start_matches('`').len()];
        match fence {
            Some(open) if marks.len() >= open.len() => fence = None,
            None if marks.len() >= 3 => fence = Some(marks),
            within => return within.is_none(),
        }
        false
    })
}

/// Leaves out what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// Returns the targets of links and pictures, with the numbers of their lines.
pub(super) fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        found.extend(targets.map(|target| (number, target.to_owned())));
        let definition = line.strip_prefix('[').and_then(|line| line.split_once("]: "));
        found.extend(definition.map(|(_, target)| (number, target.trim().to_owned())));
    }
    found
}

/// Returns the names by which links reach the headings of a page, as GitHub and mdBook make them.
pub(super) fn anchors(text: &str) -> BTreeSet<String> {
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        if let Some(id) = line.split("<a id=\"").nth(1).and_then(|rest| rest.split('"').next()) {
            found.insert(id.to_owned());
        }
        let Some((_, title)) = line.strip_prefix('#').and_then(|line| line.split_once(' ')) else { continue };
        let name = anchor(title);
        let count = used.entry(name.clone()).or_default();
        found.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    found
}

/// Returns the name of a heading: lower case, hyphens for spaces, and no punctuation. Of a link its text counts.
fn anchor(title: &str) -> String {
    let mut parts = title.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.split_once(')').map_or(part, |(_, rest)| rest);
    }
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the blocks of commands for a shell, in the page's order.
pub(super) fn scripts(text: &str) -> Vec<&str> {
    text.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

#[test]
fn links_and_headings_in_code_are_none() {
    let page =
        "# A `b` [c](d.md)!\n```\n# no\n[x](no.md)\n```\n`[y](no.md)` ![z](e.svg \"title\")\n## A b c\n[r]: f.md\n";
    assert_eq!(links(page), [(1, "d.md".into()), (6, "e.svg".into()), (8, "f.md".into())]);
    assert_eq!(anchors(page), BTreeSet::from(["a-b-c".to_owned(), "a-b-c-1".to_owned()]));
}

//! Links between pages: each leads to a file of the tree and to a heading that is there.

use std::path::{Component, Path, PathBuf};

use super::{
    markdown::{anchors, links},
    pages, read, root,
};

/// Returns a path without `..` and `.`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, component| {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => (),
            other => path.push(other),
        }
        path
    })
}

/// Returns what is wrong with a link of a page; `None` for a good one and for one that leads elsewhere.
fn problem(page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_owned() } else { normal(&page.parent()?.join(file)) };
    if !root().join(&path).exists() {
        return Some(format!("there is no {}", path.display()));
    }
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    let is_dead = is_page && !anchor.is_empty() && !anchors(&read(&path)).contains(anchor);
    is_dead.then(|| format!("{} has no heading #{anchor}", path.display()))
}

#[test]
fn every_link_of_every_page_leads_to_a_file_and_a_heading() {
    let mut dead = Vec::new();
    for page in pages("") {
        for (line, target) in links(&read(&page)) {
            dead.extend(problem(&page, &target).map(|problem| format!("{}:{line}: {problem}", page.display())));
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn a_link_to_what_is_not_there_is_dead() {
    let page = Path::new("docs/kubernetes.md");
    for (target, expected) in [
        ("controller.md#run-it", None),
        ("../README.md", None),
        ("https://example.com/#x", None),
        ("../README.md#no-such-heading", Some("README.md has no heading #no-such-heading")),
        ("no-such-page.md", Some("there is no docs/no-such-page.md")),
    ] {
        assert_eq!(problem(page, target).as_deref(), expected, "{target}");
    }
}

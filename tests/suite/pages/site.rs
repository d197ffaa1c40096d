//! The site that `make docs` builds from docs/: the order of its pages, whom each is for, and its links.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use super::{markdown::links, pages, read, root};

/// Kinds of readers; the README has a list of pages for each.
const READERS: [&str; 3] = ["operators", "tenants", "developers"];
/// The longest first line: one line in an editor and on the site.
const LONGEST: usize = 110;

#[test]
fn the_summary_has_every_page_once_in_four_parts() {
    let summary = read("docs/SUMMARY.md");
    let parts: Vec<&str> = summary.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    assert_eq!(parts, ["Summary", "Start", "Tasks", "Reference", "Design"]);
    let mut listed: Vec<PathBuf> =
        links(&summary).into_iter().map(|(_, target)| Path::new("docs").join(target)).collect();
    listed.sort();
    let all: Vec<PathBuf> = pages("docs").into_iter().filter(|page| !page.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, all, "docs/SUMMARY.md, and the pages that are there");
}

#[test]
fn every_page_begins_with_one_line_that_says_for_whom_it_is() {
    let mut wrong = Vec::new();
    for page in pages("docs").into_iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        let text = read(&page);
        let lines: Vec<&str> = text.lines().take(4).collect();
        let reader = lines[2].strip_prefix("*For ").and_then(|rest| rest.strip_suffix(".*")).unwrap_or_default();
        let is_reader = READERS.iter().any(|name| reader.split([' ', ',']).next() == Some(name));
        if !lines[0].starts_with("# ") || !is_reader || lines[2].chars().count() > LONGEST || !lines[3].is_empty() {
            wrong.push(format!("{}: {:?}", page.display(), lines[2]));
        }
    }
    assert!(wrong.is_empty(), "a title, an empty line, `*For {READERS:?} ….*`, an empty line: {wrong:#?}");
}

/// Returns the HTML files of the built site.
fn built(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        let entries =
            fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}: run `make docs`", next.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the values of an attribute in HTML, with the entities that addresses have resolved.
fn values(html: &str, attribute: &str) -> Vec<String> {
    let begin = format!(" {attribute}=\"");
    let values = html.split(&begin).skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
    values.map(|value| value.replace("&amp;", "&")).collect()
}

#[test]
#[ignore = "needs the site that `make docs` builds"]
fn every_link_of_the_built_site_leads_to_a_file_and_a_place() {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let site = root().join(target).join("docs");
    let pages = built(&site);
    let ids: BTreeMap<&Path, BTreeSet<String>> = pages
        .iter()
        .map(|page| (&**page, values(&fs::read_to_string(page).unwrap(), "id").into_iter().collect()))
        .collect();
    assert!(pages.len() > 20, "{pages:?}");
    let mut dead = BTreeSet::new();
    for page in pages.iter().filter(|page| !page.ends_with("404.html") && !page.ends_with("print.html")) {
        let html = fs::read_to_string(page).unwrap();
        for target in
            values(&html, "href").into_iter().chain(values(&html, "src")).filter(|target| !target.contains(':'))
        {
            let (file, place) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let is_there = path
                .canonicalize()
                .is_ok_and(|path| place.is_empty() || ids.get(&*path).is_none_or(|ids| ids.contains(place)));
            if !is_there {
                dead.insert(format!("{}: {target}", page.strip_prefix(&site).unwrap().display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

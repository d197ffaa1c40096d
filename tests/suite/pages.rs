//! Pages that users read, held to the tree and to the programs: README, docs/ and all other Markdown.

use std::{
    fs,
    path::{Path, PathBuf},
};

mod commands;
mod links;
mod markdown;
mod site;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns every Markdown file below a folder of the tree, as paths from the root, sorted. What cargo builds is left out.
fn pages(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_readme_is_read_in_five_minutes_and_shows_what_tests_have_made() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 150, "{} lines", readme.lines().count());
    for picture in ["tests/golden/picture-two-sockets.svg", "docs/pictures/page.png"] {
        assert!(readme.contains(&format!("]({picture})")), "{picture}");
    }
    let page = fs::read(root().join("docs/pictures/page.png")).unwrap();
    assert!(page.starts_with(b"\x89PNG") && page.len() <= 200_000, "{} bytes", page.len());
}

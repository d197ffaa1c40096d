//! Every captured machine can be opened.

#![cfg(test)]

use std::{fs, path::Path};

use hostler_linux::{
    SysRoot,
    archive::UnpackedCapture,
    testkit::{capture, captures},
};

/// Files, folders and links below a folder, links not followed; and the links that resolve to a place outside of it.
fn census(folder: &Path, top: &Path) -> (usize, Vec<String>) {
    let (mut count, mut outside) = (0, Vec::new());
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        count += 1;
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            let (below, more) = census(&entry.path(), top);
            count += below;
            outside.extend(more);
        } else if kind.is_symlink() {
            let escapes = entry.path().canonicalize().is_ok_and(|real| !real.starts_with(top));
            outside.extend(escapes.then(|| entry.path().display().to_string()));
        }
    }
    (count, outside)
}

fn entries_of(root: &SysRoot) -> (usize, Vec<String>) {
    let top = root.path("").canonicalize().unwrap();
    census(&top, &top)
}

#[test]
fn every_fixture_unpacks_and_no_link_leads_out() {
    for file in captures() {
        let capture = UnpackedCapture::open(&file).unwrap_or_else(|error| panic!("{}: {error:?}", file.display()));
        let (entries, outside) = entries_of(&capture.root());
        assert!(entries >= 3, "{}", file.display());
        assert_eq!((outside, capture.warnings()), (vec![], &[][..]), "{}", file.display());
    }
}

#[test]
fn a_fixture_is_unpacked_whole() {
    let Some(arm) = capture("hwloc-128arm-2pa2n8cluster4co") else { return };
    // 8261 files, 952 folders and 518 links, the top itself not counted.
    assert_eq!(entries_of(&arm.root()).0, 8261 + 951 + 518);
    assert_eq!(arm.root().text("sys/devices/system/cpu/online").unwrap().as_deref(), Some("0-127"));
    let card = capture("opae-dfl_n3000_nlb0").unwrap();
    assert_eq!(card.root().required_bytes("dev/dfl-fme.0", u64::MAX).unwrap().len(), 262_144);
}

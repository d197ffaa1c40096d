//! Captured machines of other people, which are not part of the repository: where they are, if they are here.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::archive::UnpackedCapture;

/// What the files of captures end in.
const ENDING: &str = ".tar.zst";

/// Their folder: `HOSTLER_FIXTURES`, else `shared/fixtures` beside the workspace; `None`, with a word, if absent.
pub fn captures_folder() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let folder = std::env::var_os("HOSTLER_FIXTURES").map_or_else(beside, PathBuf::from);
    if !folder.is_dir() {
        // Not `eprintln!`: the harness shows that of failed tests only.
        let _ = writeln!(io::stderr(), "skipped: {} is absent; set HOSTLER_FIXTURES", folder.display());
        return None;
    }
    Some(folder)
}

/// The files of all of them, in the order of their names; none where their folder is absent.
pub fn captures() -> Vec<PathBuf> {
    let Some(folder) = captures_folder() else { return Vec::new() };
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(ENDING));
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no capture", folder.display());
    paths
}

/// One of them, unpacked; `None` where their folder is absent.
pub fn capture(name: &str) -> Option<UnpackedCapture> {
    let file = captures_folder()?.join(format!("{name}{ENDING}"));
    Some(UnpackedCapture::open(&file).unwrap_or_else(|error| panic!("{}: {error:?}", file.display())))
}

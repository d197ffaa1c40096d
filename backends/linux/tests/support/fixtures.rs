//! Finds the captured machines that the fixture tests read.

use std::{
    io::{self, Write},
    path::PathBuf,
};

/// Their folder: `HOSTLER_FIXTURES`, else `shared/fixtures` beside the workspace; `None`, with a word, if absent.
pub(crate) fn folder() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let folder = std::env::var_os("HOSTLER_FIXTURES").map_or_else(beside, PathBuf::from);
    if !folder.is_dir() {
        // Not `eprintln!`: the harness shows that of failed tests only.
        let _ = writeln!(io::stderr(), "skipped: {} is absent; set HOSTLER_FIXTURES", folder.display());
        return None;
    }
    Some(folder)
}

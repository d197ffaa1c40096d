//! Captured machines: a tar archive must not write, or lead a reader, out of the folder that it is unpacked into.
#![no_main]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use hostler_linux::archive::UnpackedCapture;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a temporary folder can be made"));

fuzz_target!(|tar: &[u8]| {
    let archive = FOLDER.path().join("capture.tar.zst");
    fs::write(&archive, stored(tar)).expect("files can be written");
    let Ok(capture) = UnpackedCapture::open(&archive) else { return };
    inside(&capture.root().path("."), &capture.root().path(".").canonicalize().expect("the folder is there"));
});

/// Every link leads to a place in `root`, or nowhere.
fn inside(folder: &Path, root: &Path) {
    for entry in fs::read_dir(folder).expect("folders can be read").flatten() {
        let kind = entry.file_type().expect("entries have a type");
        if kind.is_symlink() {
            let target: Option<PathBuf> = entry.path().canonicalize().ok();
            assert!(target.is_none_or(|target| target.starts_with(root)), "{:?} leads outside", entry.path());
        } else if kind.is_dir() {
            inside(&entry.path(), root);
        }
    }
}

/// A zstd frame that holds `bytes` as they are, so that the fuzzer works on the archive and not on the compression.
fn stored(bytes: &[u8]) -> Vec<u8> {
    // Magic number; a header without size and checksum; a window of 8 MiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68];
    let mut chunks = bytes.chunks(1 << 17).peekable();
    if chunks.peek().is_none() {
        frame.extend([1, 0, 0]);
    }
    while let Some(chunk) = chunks.next() {
        // Last block or not; type 0 (stored); size.
        let header = u32::from(chunks.peek().is_none()) | u32::try_from(chunk.len()).expect("a block is small") << 3;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(chunk);
    }
    frame
}

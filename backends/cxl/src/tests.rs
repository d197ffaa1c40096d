//! Tests of the whole crate.

mod captured;
mod machine;
mod objects;
mod regions;

use std::path::Path;

use hostler_linux::{SysRoot, archive::Capture};

use crate::{Config, CxlBackend};

/// A moment of an emulated machine with four CXL cards: `boot`, `regions`, `hotadd`, `removed`.
fn captured(moment: &str) -> Capture {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("../linux/tests/trees");
    Capture::open(trees.join(format!("qemu-cxl-7.3.4-{moment}.tar.zst"))).unwrap()
}

/// A backend with the default configuration.
fn backend(root: &SysRoot) -> CxlBackend {
    CxlBackend::new(root.clone(), Config::default())
}

//! Tests of the whole crate.

mod accelerators;
mod captured;
mod claims;
mod gate;
mod health;
mod let_go;
mod machine;
mod made_up;
mod objects;
mod real;
mod regions;
mod removals;

use std::path::Path;

use hostler_backend::Device;

use hostler_linux::{SysRoot, archive::UnpackedCapture};

use crate::{CxlBackend, CxlBackendConfig};

/// A moment of an emulated machine with four CXL cards: `boot`, `regions`, `hotadd`, `removed`.
fn captured(moment: &str) -> UnpackedCapture {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("../linux/tests/trees");
    UnpackedCapture::open(trees.join(format!("qemu-cxl-7.3.4-{moment}.tar.zst"))).unwrap()
}

/// A backend with the default configuration.
fn backend(root: &SysRoot) -> CxlBackend {
    CxlBackend::new(root.clone(), CxlBackendConfig::default())
}

/// The device of that name.
fn device<'a>(devices: &'a [Device], name: &str) -> &'a Device {
    devices.iter().find(|device| device.name.as_str() == name).unwrap_or_else(|| panic!("no {name}: {devices:#?}"))
}

/// An attribute as text; `-` where there is none.
fn attribute(device: &Device, name: &str) -> String {
    device.attributes.get(name).map_or_else(|| "-".to_owned(), ToString::to_string)
}

//! Nodes that are made of CXL memory, which another backend offers where it is enabled.

use std::path::Path;

use hostler_backend::Backend;
use hostler_linux::archive::UnpackedCapture;

use crate::{MemoryBackend, MemoryBackendConfig};

#[test]
fn nodes_of_cxl_memory_are_left_out_where_another_backend_offers_them() {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("../linux/tests/trees");
    for (moment, cxl) in [("boot", vec![]), ("regions", vec!["node5", "node6"])] {
        let capture = UnpackedCapture::open(trees.join(format!("qemu-cxl-7.3.4-{moment}.tar.zst"))).unwrap();
        let names = |backend: MemoryBackend| -> Vec<String> {
            backend.enumerate().unwrap().devices.iter().map(|device| device.name.to_string()).collect()
        };
        let backend = MemoryBackend::new(capture.root(), MemoryBackendConfig::default());
        let (with, without) = (names(backend.clone()), names(backend.without_cxl_nodes()));
        assert_eq!(with.iter().filter(|name| !without.contains(name)).collect::<Vec<_>>(), cxl, "{moment}");
        assert!(without.contains(&"node3".to_owned()), "{moment}: {without:?}");
    }
}

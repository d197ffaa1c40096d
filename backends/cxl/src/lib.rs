//! CXL accelerators and the memory of CXL devices as devices.

mod config;
pub mod objects;
pub mod target;
#[cfg(test)]
mod tests;

use hostler_backend::{Backend, BackendError, BackendName, Enumeration};
use hostler_linux::SysRoot;

pub use config::Config;

/// The CXLs of the machine under a root.
#[derive(Clone, Debug)]
pub struct CxlBackend {
    root: SysRoot,
    config: Config,
}

impl CxlBackend {
    /// A backend for the machine under `root`.
    pub fn new(root: SysRoot, config: Config) -> Self {
        Self { root, config }
    }
}

impl Backend for CxlBackend {
    #[expect(clippy::expect_used, reason = "the literal is a DNS label")]
    fn name(&self) -> BackendName {
        BackendName::new("cxl").expect("a DNS label")
    }

    fn subsystems(&self) -> &[&'static str] {
        &["cxl", "dax", "memory", "node", "memory_tiering", "pci", "vfio", "vfio-dev"]
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        let _ = (&self.root, &self.config);
        Ok(Enumeration::default())
    }
}

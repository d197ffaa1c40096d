//! CXL accelerators and the memory of CXL devices as devices.

mod attributes;
mod config;
mod enumerate;
pub mod objects;
pub mod target;
#[cfg(test)]
mod tests;

use std::time::Duration;

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

    fn poll(&self) -> Option<Duration> {
        (!self.config.poll.is_zero()).then_some(self.config.poll)
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        Ok(enumerate::Scene::read(&self.root, &self.config).enumeration())
    }
}

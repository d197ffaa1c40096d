//! FPGA cards, their regions and accelerator functions as devices.
//!
//! `docs/fpga.md` says for operators what is offered, under which names, and when it counts as broken.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hostler_backend::{Backend, BackendError, BackendName, Enumeration};
use hostler_linux::SysRoot;

pub mod ami;
pub mod bitstream;
mod config;
pub mod dfl;
mod enumerate;
mod health;
mod known;
pub mod manager;
mod offer;
pub mod store;
mod target;
#[cfg(test)]
mod tests;
pub mod xrt;

pub use config::Config;
pub use target::Target;

use enumerate::Look;
use health::Steady;

/// The FPGAs of the machine under a root. Clones share what they remember of earlier looks.
#[derive(Clone, Debug)]
pub struct FpgaBackend {
    root: SysRoot,
    config: Config,
    steady: Arc<Mutex<Steady>>,
}

impl FpgaBackend {
    /// A backend for the machine under `root`.
    pub fn new(root: SysRoot, config: Config) -> Self {
        let steady = Arc::new(Mutex::new(Steady::new(config.poll)));
        Self { root, config, steady }
    }
}

impl Backend for FpgaBackend {
    #[expect(clippy::expect_used, reason = "the literal is a DNS label")]
    fn name(&self) -> BackendName {
        BackendName::new("fpga").expect("a DNS label")
    }

    fn subsystems(&self) -> &[&'static str] {
        // Of the platform's devices the ports and management engines; of graphics the nodes that programs open.
        &[
            "pci",
            "fpga_region",
            "fpga_manager",
            "fpga_bridge",
            "platform/dfl-",
            "dfl",
            "drm/renderD",
            "xrt_user",
            "hwmon",
            "vfio",
            "vfio-dev",
        ]
    }

    fn poll(&self) -> Option<Duration> {
        (!self.config.poll.is_zero()).then_some(self.config.poll)
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        let look = Look::read(&self.root, &self.config);
        let mut steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        look.enumeration(&mut steady, Instant::now())
            .map_err(|error| BackendError::Enumerate { reason: "bad name".to_owned(), source: Some(error.into()) })
    }
}

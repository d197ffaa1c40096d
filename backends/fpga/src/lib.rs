//! FPGA cards, their regions and accelerator functions as devices.

pub mod bitstream;
mod config;
pub mod dfl;
pub mod store;
mod target;

use hostler_backend::{Backend, BackendError, BackendName, Enumeration};
use hostler_linux::SysRoot;

pub use config::Config;
pub use target::Target;

/// The FPGAs of the machine under a root.
#[derive(Clone, Debug)]
pub struct FpgaBackend {
    root: SysRoot,
    config: Config,
}

impl FpgaBackend {
    /// A backend for the machine under `root`.
    pub fn new(root: SysRoot, config: Config) -> Self {
        Self { root, config }
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

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        let _ = (&self.root, &self.config);
        Ok(Enumeration::default())
    }
}

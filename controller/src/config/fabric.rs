//! Configuration of devices behind switches.

/// Settings for devices behind switches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FabricConfig {
    /// Seconds from a claim's allocation after which it is given another device.
    pub(crate) attach_seconds: u32,
    /// Number of devices that are worked on at the same time.
    pub(crate) workers: u32,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self { attach_seconds: 480, workers: 20 }
    }
}

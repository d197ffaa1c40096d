//! Settings of allocation.

use hostler_api::{classic::ClassicVersion, resource::DeviceClass};

/// Settings that do not change during a term.
#[derive(Clone, Debug)]
pub(crate) struct ClassicSettings {
    /// The version of the API.
    pub(crate) version: ClassicVersion,
    /// The driver that allocates.
    pub(crate) driver: String,
    /// Device classes of hostler's deployment.
    pub(crate) device_classes: Vec<DeviceClass>,
    /// True if a claim is reserved for the pod that it is allocated for; else the scheduler reserves it.
    pub(crate) reserves_for_pods: bool,
    /// True if kubelets refuse a claim without devices, as those before 1.28 do.
    pub(crate) needs_devices: bool,
}

//! Abilities of runtimes of different ages that a plugin can notice.

/// A runtime's version of NRI.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NriVersion {
    /// The runtime's own version.
    pub runtime: &'static str,
    /// The version of NRI, where the runtime tells it.
    pub nri: &'static str,
    /// The highest event there is; subscribing to a higher one is an error.
    pub last_event: i32,
    /// True if Synchronize can come in pieces.
    pub has_more: bool,
    /// True if Configure has the time limits.
    pub has_limits: bool,
    /// True if messages have a container's CDI devices.
    pub has_cdi_devices: bool,
    /// True if each event has a call of its own; else most come as `StateChange`.
    pub has_own_calls: bool,
    /// True if a plugin's own update and an event for it at the same time can lock the runtime up.
    pub locks_up: bool,
    /// True if a connecting plugin can lock the runtime up as well.
    pub locks_up_connecting: bool,
}

impl NriVersion {
    /// containerd 1.7.13, as in many distributions.
    pub const V0_4: Self = Self {
        runtime: "v1.7.13",
        nri: "",
        last_event: 11,
        has_more: false,
        has_limits: false,
        has_cdi_devices: false,
        has_own_calls: false,
        locks_up: true,
        locks_up_connecting: true,
    };
    /// containerd 1.7.30 and 2.0.
    pub const V0_8: Self =
        Self { runtime: "v1.7.30", has_more: true, has_limits: true, locks_up_connecting: false, ..Self::V0_4 };
    /// containerd 2.2.
    pub const V0_11: Self = Self { runtime: "v2.2.1", last_event: 14, has_cdi_devices: true, ..Self::V0_8 };
    /// containerd 2.3.
    pub const V0_12_0: Self = Self { runtime: "v2.3.4", nri: "v0.12.0", has_own_calls: true, ..Self::V0_11 };
    /// The first without the lock-up.
    pub const V0_12_2: Self = Self { runtime: "v2.4.0", nri: "v0.12.2", locks_up: false, ..Self::V0_12_0 };

    /// All versions.
    pub const ALL: [Self; 5] = [Self::V0_4, Self::V0_8, Self::V0_11, Self::V0_12_0, Self::V0_12_2];
}

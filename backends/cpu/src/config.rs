//! The `[backends.cpu]` section of the configuration.

use hostler_api::ConfigProblem;
use hostler_linux::IdSet;
use serde::{Deserialize, Serialize};

/// How CPUs are offered.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct CpuBackendConfig {
    /// Hardware that makes one device. Default: `numa`.
    pub mode: CpuGrouping,
    /// CPUs that are never handed out, as a kernel list such as `0-1,64-65`: those that the system, the kubelet and
    /// pods without a claim run on. Default: none.
    pub reserved: String,
    /// True if CPUs that the kernel isolates (`isolcpus=`, isolated cpuset partitions) are kept back. Default: false:
    /// they are often isolated for the very purpose of being handed out.
    pub exclude_isolated: bool,
    /// True if only whole physical cores are handed out, so that no two claims share one. Threads whose core is partly
    /// offline, reserved or not ours are left over, with a warning. Default: true.
    pub full_cores: bool,
    /// True if a claim may keep whole level 3 caches to itself (`l3Exclusive`), or from other namespaces
    /// (`isolation: l3`). The scheduler does not know of the CPUs that the claim then keeps from others, and places
    /// pods that cannot start. Default: true.
    pub allow_l3_exclusive: bool,
}

/// Grouping of CPUs: the hardware that makes one device.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuGrouping {
    /// The CPUs of a NUMA node, shared by claims.
    #[default]
    Numa,
    /// The CPUs behind a level 3 cache, shared by claims.
    L3,
    /// The CPUs of a package, shared by claims.
    Socket,
    /// All CPUs, shared by claims.
    Machine,
    /// One physical core, for one claim at a time.
    Core,
}

impl Default for CpuBackendConfig {
    fn default() -> Self {
        Self {
            mode: CpuGrouping::default(),
            reserved: String::new(),
            exclude_isolated: false,
            full_cores: true,
            allow_l3_exclusive: true,
        }
    }
}

impl CpuBackendConfig {
    /// All mistakes; none for a good configuration.
    pub fn validate(&self) -> Vec<ConfigProblem> {
        self.reserved_cpus().err().into_iter().collect()
    }

    /// The CPUs that are never handed out.
    ///
    /// # Errors
    /// When `reserved` is not a list.
    pub(crate) fn reserved_cpus(&self) -> Result<IdSet, ConfigProblem> {
        self.reserved.parse().map_err(|error| ConfigProblem::new("reserved", format!("{error}")))
    }
}

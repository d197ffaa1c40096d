//! The `[backends.fpga]` section of the configuration.

use std::path::PathBuf;

use hostler_backend::ConfigProblem;
use serde::{Deserialize, Serialize};

/// How FPGAs are offered.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Config {
    /// Folder of the bitstreams that claims may name.
    pub bitstreams: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self { bitstreams: "/var/lib/hostler/bitstreams".into() }
    }
}

impl Config {
    /// All mistakes; none for a good configuration.
    pub fn validate(&self) -> Vec<ConfigProblem> {
        let absolute = self.bitstreams.is_absolute();
        let problem = || ConfigProblem::new("bitstreams", "is not absolute; begin it with /");
        (!absolute).then(problem).into_iter().collect()
    }
}

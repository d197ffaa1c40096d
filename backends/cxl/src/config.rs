//! The `[backends.cxl]` section of the configuration.

use hostler_backend::ConfigProblem;
use serde::{Deserialize, Serialize};

/// How CXL devices are offered.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Config {}

impl Config {
    /// All mistakes; none for a good configuration.
    pub fn validate(&self) -> Vec<ConfigProblem> {
        Vec::new()
    }
}

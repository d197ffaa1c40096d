//! The section of a configuration about the log.

use serde::{Deserialize, Serialize};

/// `[log]`: level and shape of the log.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LogConfig {
    /// For people or for programs.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug`, `trace` or `off`; `TARGET=LEVEL` after a comma sets the level of one module.
    pub level: String,
}

/// The shape of a log line.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::default(), level: "info".to_owned() }
    }
}

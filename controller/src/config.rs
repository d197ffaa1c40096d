//! The controller's configuration: every key, its default, and what can be wrong with it.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use hostler_files::{FileError, read_argument};
use serde::{Deserialize, Serialize};

/// Where the controller looks for a configuration file when none is named.
pub(crate) const DEFAULT_FILE: &str = "/etc/hostler/controller.toml";

/// A file with every key has less than a kilobyte.
const MOST_BYTES: u64 = 1 << 20;

/// The whole configuration.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ControllerConfig {
    /// Kubeconfig of the controller. Default: the service account of the pod that it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where it answers: an address with a port.
    pub(crate) listen: String,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self { kubeconfig: None, listen: "127.0.0.1:9440".to_owned() }
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A key is not known, or its value is not what it should be. The parser shows the line.
    #[error("{path} is not valid")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        #[source]
        source: toml::de::Error,
    },
    /// A relative path would mean something else in every folder that the controller is started from.
    #[error("{path}: kubeconfig is {value}: write an absolute path")]
    Relative {
        /// The file.
        path: PathBuf,
        /// As it stands there.
        value: PathBuf,
    },
}

impl ControllerConfig {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_argument(path, MOST_BYTES)
            .map_err(|FileError { path, source, .. }| ConfigError::Read { path, source })?;
        let config: Self =
            toml::from_str(&text).map_err(|source| ConfigError::Invalid { path: path.to_owned(), source })?;
        match &config.kubeconfig {
            Some(value) if value.is_relative() => {
                Err(ConfigError::Relative { path: path.to_owned(), value: value.clone() })
            }
            _ => Ok(config),
        }
    }
}

impl fmt::Display for ControllerConfig {
    /// As a file that means the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hostler_api::Chain;

    use super::*;

    fn read(text: &str) -> Result<ControllerConfig, String> {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("controller.toml");
        fs::write(&path, text).unwrap();
        ControllerConfig::read(&path).map_err(|error| Chain(&error).to_string())
    }

    #[test]
    fn what_is_printed_means_the_same() {
        let config = read("kubeconfig = '/etc/hostler/kubeconfig'").unwrap();
        assert_eq!(read(&config.to_string()).unwrap(), config);
        assert_eq!(read("").unwrap(), ControllerConfig::default());
    }

    #[test]
    fn a_mistake_names_file_key_and_line() {
        let error = read("\nkubconfig = '/x'").unwrap_err();
        assert!(error.contains("controller.toml is not valid") && error.contains("line 2"), "{error}");
        assert!(error.contains("unknown field `kubconfig`, expected"), "{error}");
        let error = read("kubeconfig = 'x'").unwrap_err();
        assert!(error.ends_with("controller.toml: kubeconfig is x: write an absolute path"), "{error}");
    }
}

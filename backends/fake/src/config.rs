//! The fake's part of the daemon's configuration, `[backends.fake]`.

use std::path::PathBuf;

use hostler_api::ConfigProblem;
use serde::{Deserialize, Serialize};

/// Paths of the script and of the make-believe hardware.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FakeBackendConfig {
    /// The script. Absolute.
    pub script: PathBuf,
    /// The folder that stands for the hardware. Absolute; made when first needed. Where absent, the script's path with
    /// `.state` added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<PathBuf>,
}

impl FakeBackendConfig {
    /// All mistakes. The script itself is checked when it is read: it may come and change later.
    pub fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if self.script.as_os_str().is_empty() {
            problems.push(ConfigProblem::new("script", "is missing; write the absolute path of a script in TOML"));
        } else if !self.script.is_absolute() {
            let reason = format!("{:?} is a relative path; write an absolute one", self.script);
            problems.push(ConfigProblem::new("script", reason));
        }
        if let Some(state_dir) = self.state_dir.as_ref().filter(|dir| !dir.is_absolute()) {
            let reason = format!("{state_dir:?} is a relative path; write an absolute one, or leave it out");
            problems.push(ConfigProblem::new("state_dir", reason));
        }
        problems
    }

    /// The folder that stands for the hardware.
    pub(crate) fn state_dir(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(|| {
            let mut path = self.script.clone().into_os_string();
            path.push(".state");
            path.into()
        })
    }
}

//! `[pod_resources]`: the socket that tells which pod holds what.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{ConfigMistake, DaemonConfig, duration};

/// More often nobody polls a kubelet that others ask as well.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// `[pod_resources]`: the socket that tells which pod holds what.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PodResourcesConfig {
    /// Whether it is served.
    pub enabled: bool,
    /// Its path. Default: `pod-resources.sock` in `paths.run`.
    pub socket: Option<PathBuf>,
    /// Whether `List` is answered.
    pub list: bool,
    /// Whether `Get` is answered.
    pub get: bool,
    /// Whether `GetAllocatableResources` is answered.
    pub get_allocatable: bool,
    /// How many calls a second are answered, of all clients together.
    pub rate: u32,
    /// How many calls at once are answered, of all clients together.
    pub burst: u32,
    /// Whether the answers hold the kubelet's own as well.
    pub merge: bool,
    /// The kubelet's socket, for `merge`. Default: `pod-resources/kubelet.sock` in `paths.kubelet`.
    pub kubelet_socket: Option<PathBuf>,
    /// How often the kubelet is asked, for `merge`.
    #[serde(with = "duration")]
    pub kubelet_poll: Duration,
}

impl Default for PodResourcesConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            socket: None,
            list: true,
            get: true,
            get_allocatable: true,
            // What kubelets answer.
            rate: 100,
            burst: 10,
            merge: false,
            kubelet_socket: None,
            // All who ask a kubelet share a hundred calls a second.
            kubelet_poll: Duration::from_secs(10),
        }
    }
}

impl DaemonConfig {
    /// The socket that tells which pod holds what.
    pub fn pod_resources_socket(&self) -> PathBuf {
        self.pod_resources.socket.clone().unwrap_or_else(|| self.paths.run.join("pod-resources.sock"))
    }

    /// The socket on which the kubelet tells the same of its own.
    pub fn kubelet_pod_resources_socket(&self) -> PathBuf {
        let usual = || self.paths.kubelet.join("pod-resources/kubelet.sock");
        self.pod_resources.kubelet_socket.clone().unwrap_or_else(usual)
    }
}

/// Every broken rule of the section that is not about paths.
pub(super) fn problems(config: &PodResourcesConfig, problems: &mut Vec<ConfigMistake>) {
    for (key, calls) in [("pod_resources.rate", config.rate), ("pod_resources.burst", config.burst)] {
        if calls == 0 {
            let what = "is 0, with which no call would ever be answered";
            problems.push(ConfigMistake::new(key, what, "write 1 or more, or enabled = false"));
        }
    }
    if config.kubelet_poll < SHORTEST_POLL {
        let (key, what) = ("pod_resources.kubelet_poll", "is shorter than a second");
        problems.push(ConfigMistake::new(key, what, "write \"1s\" or more"));
    }
}

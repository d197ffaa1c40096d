//! `[pod_resources]`: the socket that tells which pod holds which devices.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{ConfigMistake, DaemonConfig, duration};

/// Shortest period of polling a kubelet, which others call as well.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// `[pod_resources]`: the socket that tells which pod holds which devices.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PodResourcesConfig {
    /// True if the socket is served.
    pub enabled: bool,
    /// The socket's path. Default: `pod-resources.sock` in `paths.run`.
    pub socket: Option<PathBuf>,
    /// True if `List` is answered.
    pub list: bool,
    /// True if `Get` is answered.
    pub get: bool,
    /// True if `GetAllocatableResources` is answered.
    pub get_allocatable: bool,
    /// Number of calls a second that are answered, of all clients together.
    pub rate: u32,
    /// Number of calls at once that are answered, of all clients together.
    pub burst: u32,
    /// True if the answers hold the kubelet's own devices as well.
    pub merge: bool,
    /// The kubelet's socket, for `merge`. Default: `pod-resources/kubelet.sock` in `paths.kubelet`.
    pub kubelet_socket: Option<PathBuf>,
    /// Period of calls to the kubelet, for `merge`.
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
            // The limits of a kubelet.
            rate: 100,
            burst: 10,
            merge: false,
            kubelet_socket: None,
            // All clients of a kubelet share a hundred calls a second.
            kubelet_poll: Duration::from_secs(10),
        }
    }
}

impl DaemonConfig {
    /// The socket that tells which pod holds which devices.
    pub fn pod_resources_socket(&self) -> PathBuf {
        self.pod_resources.socket.clone().unwrap_or_else(|| self.paths.run.join("pod-resources.sock"))
    }

    /// The socket on which the kubelet tells which pod holds which of its own devices.
    pub fn kubelet_pod_resources_socket(&self) -> PathBuf {
        let usual = || self.paths.kubelet.join("pod-resources/kubelet.sock");
        self.pod_resources.kubelet_socket.clone().unwrap_or_else(usual)
    }
}

/// Checks the section, except its paths.
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

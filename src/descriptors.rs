//! Limits for file descriptors: how many the daemon may have, and how many of them clients may take by connecting.
//!
//! Every connection costs a descriptor. A client that could open connections without limit would take descriptors from
//! the kubelet's calls, the watchdog and the work on hardware. So every socket has a limit, and all limits together
//! leave the daemon its own descriptors.

use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;
use tracing::debug;

/// Descriptors that the daemon itself has open at its busiest: files of claims, of sysfs and of devices, connections to
/// the API server and to systemd.
const OWN: u64 = 64;
/// Limit that most systems give a process, taken if the process cannot read its limit.
const USUAL: u64 = 1024;
/// Smallest number of connections with which a socket is useful.
const FEWEST: u64 = 2;

/// Raises the limit as far as that takes no privilege. The first limit of most systems is meant for programs that use
/// `select`.
pub fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map(|()| hard));
    match raised {
        Ok(limit) => debug!(limit, "descriptors"),
        // The limits of the sockets are smaller then.
        Err(error) => debug!(error = %error, "the limit of descriptors stays as it is"),
    }
}

/// A socket that clients connect to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServedSocket {
    /// Prometheus; any local user, where the address is a port.
    Metrics,
    /// Probes of the service manager or the kubelet: only the daemon's own user connects, so no other user can fill the
    /// socket.
    Probes,
    /// Prometheus on other hosts. Each connection costs a signature.
    Scrapes,
    /// The command line.
    Admin,
    /// The kubelet's calls. A kubelet keeps one connection, or a few while it starts anew.
    KubeletService,
    /// The kubelet, asking for the plugin's name and versions.
    KubeletRegistration,
    /// Agents that ask which pod holds which devices.
    PodResources,
}

impl ServedSocket {
    /// Limit for the connections at once. Further clients wait until a connection is closed.
    pub fn connections(self) -> Arc<Semaphore> {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft);
        Arc::new(Semaphore::new(usize::try_from(self.most(limit)).unwrap_or(0)))
    }

    /// The socket's part of the descriptors that the daemon does not need itself.
    fn most(self, limit: u64) -> u64 {
        let spare = limit.saturating_sub(OWN);
        let (most, part) = match self {
            // As many clients as ask in earnest at the same time, and some more.
            Self::Metrics | Self::Admin => (64, spare / 4),
            Self::KubeletService => (32, spare / 4),
            Self::PodResources | Self::KubeletRegistration | Self::Scrapes => (16, spare / 16),
            Self::Probes => (8, spare / 16),
        };
        part.clamp(FEWEST, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_together_leave_the_daemon_its_own() {
        let sockets = [
            ServedSocket::Metrics,
            ServedSocket::Probes,
            ServedSocket::Scrapes,
            ServedSocket::Admin,
            ServedSocket::KubeletService,
            ServedSocket::KubeletRegistration,
            ServedSocket::PodResources,
        ];
        for limit in [128, 256, 1024, 1 << 20, u64::MAX] {
            let taken: u64 = sockets.iter().map(|socket| socket.most(limit)).sum();
            assert!(taken + OWN <= limit, "{limit}: {taken}");
        }
        let at_256 = sockets.map(|socket| socket.most(256));
        assert_eq!(at_256, [48, 8, 12, 48, 32, 12, 12]);
        assert_eq!(sockets.map(|socket| socket.most(0)), [FEWEST; 7]);
    }
}

//! Status and gauges of the container runtime.

use super::types::AdminNri;
use crate::nri::{NriLink, NriSide, NriStatus};

/// Status for people; absent where it is switched off.
pub(super) fn status(side: &NriSide) -> Option<AdminNri> {
    let status = side.status_rx.borrow().clone();
    let (runtime, error) = match status.link {
        NriLink::Off => return None,
        NriLink::Absent => (None, None),
        NriLink::Connected { runtime } => (Some(runtime), None),
        NriLink::Lost { error } => (None, Some(error)),
    };
    Some(AdminNri {
        runtime,
        error,
        socket: side.socket.clone(),
        containers: status.containers,
        quarantined: status.quarantined,
        shared_pool: status.shared_pool.map(|cpus| cpus.to_string()),
    })
}

/// Name, meaning and value of each gauge.
pub(super) fn gauges(status: &NriStatus) -> [(&'static str, &'static str, i64); 3] {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let is_connected = matches!(status.link, NriLink::Connected { .. });
    [
        ("nri_connected", "1 while the container runtime tells of its containers", i64::from(is_connected)),
        ("nri_containers", "Containers that the runtime has told of", count(status.containers)),
        (
            "nri_quarantined",
            "Containers that are left as they are: their specification and records do not agree",
            count(status.quarantined.len()),
        ),
    ]
}

//! Parts of the daemon that the audit of containers needs.

use hostler_linux::SysRoot;

use crate::{
    audit::{AuditParts, WaitingAudit},
    claims::ClaimsHandle,
    config::DaemonConfig,
    containers::seen::SeenReader,
    metrics::Metrics,
};

/// Makes the audit, which has not begun.
pub(super) fn waiting(
    config: &DaemonConfig,
    root: &SysRoot,
    seen_rx: SeenReader,
    claims: &ClaimsHandle,
    metrics: &Metrics,
) -> WaitingAudit {
    WaitingAudit::new(AuditParts {
        root: root.clone(),
        seen_rx,
        table_rx: claims.table(),
        containers: claims.containers().clone(),
        kubelet: config.paths.kubelet.clone(),
        period: config.audit.active(),
        metrics: metrics.clone(),
    })
}

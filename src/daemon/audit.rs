//! What the audit of containers needs of the daemon.

use hostler_linux::SysRoot;

use crate::{
    audit::{AuditParts, WaitingAudit},
    claims::ClaimsHandle,
    config::DaemonConfig,
    metrics::Metrics,
};

/// The audit, before it has begun.
pub(super) fn waiting(config: &DaemonConfig, root: &SysRoot, claims: &ClaimsHandle, metrics: &Metrics) -> WaitingAudit {
    WaitingAudit::new(AuditParts {
        root: root.clone(),
        table_rx: claims.table(),
        containers: claims.containers().clone(),
        kubelet: config.paths.kubelet.clone(),
        period: config.audit.active(),
        metrics: metrics.clone(),
    })
}

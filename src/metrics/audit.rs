//! Counters of the audit of containers.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

use super::{Counters, KindLabels, Metrics};

/// Likely causes of a change to a container.
const CAUSES: [&str; 5] = ["cpu_offline", "parent", "kubelet", "systemd", "runtime"];

/// Counters and gauges of the audit. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditMetrics {
    looks: Counter<u64, AtomicU64>,
    containers: Gauge,
    degraded: Gauge,
    repairs: Counters,
    failures: Counters,
}

impl AuditMetrics {
    pub(super) fn begin_at_zero(&self) {
        for kind in CAUSES {
            drop(self.repairs.get_or_create(&KindLabels { kind }));
            drop(self.failures.get_or_create(&KindLabels { kind }));
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "audit_looks",
            "Looks at whether containers are bound as their claims say",
            self.looks.clone(),
        );
        registry.register("audit_containers", "Containers with claims, as of the last look", self.containers.clone());
        let help = "Containers that are not bound as their claims say and are left so";
        registry.register("audit_degraded_containers", help, self.degraded.clone());
        let help = "Containers that were bound anew, by the likely cause of their change";
        registry.register("audit_repairs", help, self.repairs.clone());
        let help = "Containers that could not be bound anew or were changed too often, by the likely cause";
        registry.register("audit_failures", help, self.failures.clone());
    }
}

impl Metrics {
    /// Counts a pass of the audit: its containers, and those that are left as they are.
    pub fn audited(&self, containers: usize, degraded: usize) {
        self.audit.looks.inc();
        self.audit.containers.set(i64::try_from(containers).unwrap_or(i64::MAX));
        self.audit.degraded.set(i64::try_from(degraded).unwrap_or(i64::MAX));
    }

    /// Counts a container that was put back, by the likely cause of its change.
    pub fn audit_repaired(&self, cause: &'static str) {
        self.audit.repairs.get_or_create(&KindLabels { kind: cause }).inc();
    }

    /// Counts a container that was not put back.
    pub fn audit_failed(&self, cause: &'static str) {
        self.audit.failures.get_or_create(&KindLabels { kind: cause }).inc();
    }
}

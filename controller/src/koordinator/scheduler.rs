//! Koordinator's own scheduler, which must not run beside hostler: both would write the same status.

use std::time::Duration;

use hostler_cluster::{ApiClient, ApiFailure, Collection, since_1970};
use serde::Deserialize;

/// Namespace of Koordinator.
const KOORDINATOR_NAMESPACE: &str = "koordinator-system";
/// Lease of its scheduler.
const SCHEDULER_LEASE: &str = "koord-scheduler";
/// Age from which a Lease that is not renewed counts for nothing: Koordinator's lasts 15 s.
const STALE: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SchedulerLease {
    spec: SchedulerLeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SchedulerLeaseSpec {
    holder_identity: Option<String>,
    renew_time: Option<String>,
}

/// Returns what to say of Koordinator's scheduler, if it runs. `now` is the time since 1970.
pub(super) async fn running(client: &ApiClient, now: Duration) -> Result<Option<String>, ApiFailure> {
    let leases = Collection::custom("coordination.k8s.io", "v1", "Lease", "leases").of(KOORDINATOR_NAMESPACE);
    let lease: Option<SchedulerLease> = client.find(&leases, SCHEDULER_LEASE).await?;
    Ok(lease.and_then(|lease| lease.spec.trouble(now)))
}

impl SchedulerLeaseSpec {
    fn trouble(&self, now: Duration) -> Option<String> {
        let holder = self.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
        let renewed = since_1970(self.renew_time.as_deref()?)?;
        (now.saturating_sub(renewed) < STALE).then(|| {
            format!(
                "Koordinator's scheduler runs ({holder} has the Lease {KOORDINATOR_NAMESPACE}/{SCHEDULER_LEASE}); stop \
                 it, or set capabilities.koordinator to \"off\""
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_while_it_is_held_and_renewed() {
        let now = since_1970("2026-01-01T00:01:00Z").unwrap();
        let lease = |holder: &str, renewed: &str| {
            let (holder_identity, renew_time) = (Some(holder.to_owned()), Some(renewed.to_owned()));
            SchedulerLeaseSpec { holder_identity, renew_time }.trouble(now)
        };
        assert!(lease("koord-scheduler-1_x", "2026-01-01T00:00:50.123456Z").unwrap().contains("koord-scheduler-1_x"));
        assert_eq!(lease("", "2026-01-01T00:00:50.000000Z"), None, "it was given back");
        assert_eq!(lease("koord-scheduler-1_x", "2026-01-01T00:00:00.000000Z"), None);
        assert_eq!(SchedulerLeaseSpec::default().trouble(now), None);
    }
}

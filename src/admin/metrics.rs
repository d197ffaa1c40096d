//! Metrics for Prometheus: counters, and gauges that are taken from the latest state at each scrape.

mod amounts;

use std::{fmt, time::SystemTime};

use hostler_api::{BackendName, ClaimState};
use hostler_process::{ProcessFigures, register_build};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use super::nri;
use crate::{claims::ClaimTable, inventory::Inventory, metrics::Metrics, nri::NriStatus};

/// The state from which gauges are taken.
#[derive(Clone, Copy, Debug)]
pub struct MetricsSnapshot<'a> {
    /// Devices.
    pub inventory: &'a Inventory,
    /// Claims.
    pub claims: &'a ClaimTable,
    /// The container runtime.
    pub nri: &'a NriStatus,
    /// Readiness.
    pub ready: bool,
    /// This process.
    pub process: ProcessFigures,
}

/// Renders all metrics, in OpenMetrics.
///
/// # Errors
/// Never in practice: writing to a string cannot fail.
pub fn render(counters: &Metrics, now: &MetricsSnapshot<'_>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    let ours = registry.sub_registry_with_prefix("hostler");
    counters.register(ours);
    register_devices(ours, now.inventory);
    register_claims(ours, now.claims);
    for (name, help, value) in nri::gauges(now.nri) {
        gauge(ours, name, help, value);
    }
    amounts::register(ours, now.inventory, now.claims);
    register_build(ours);
    gauge(ours, "ready", "1 if /readyz says 200: the daemon serves all that it should", i64::from(now.ready));
    now.process.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DeviceLabels {
    backend: String,
    health: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct BackendLabels {
    backend: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ClaimLabels {
    state: &'static str,
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: i64) {
    let gauge = Gauge::<i64>::default();
    gauge.set(value);
    registry.register(name, help, gauge);
}

fn register_devices(registry: &mut Registry, inventory: &Inventory) {
    let devices = Family::<DeviceLabels, Gauge>::default();
    let stale = Family::<BackendLabels, Gauge>::default();
    let name = |backend: &BackendName| backend.to_string();
    for (backend, pool) in &inventory.pools {
        stale.get_or_create(&BackendLabels { backend: name(backend) }).set(i64::from(pool.stale.is_some()));
        // All states are there from the start, so that an alert on a state works before it first occurs.
        for health in ["Healthy", "Unhealthy", "Unknown"] {
            let count = pool.devices.iter().filter(|device| device.health.as_str() == health).count();
            let labels = DeviceLabels { backend: name(backend), health };
            devices.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
    let unknown = Family::<BackendLabels, Gauge>::default();
    let unanswered = Family::<BackendLabels, Gauge>::default();
    for backend in inventory.pools.keys().chain(inventory.unknown.keys()) {
        let labels = BackendLabels { backend: name(backend) };
        let is_unknown = inventory.unknown.contains_key(backend);
        if is_unknown {
            stale.get_or_create(&labels).set(1);
        }
        unknown.get_or_create(&labels).set(i64::from(is_unknown));
        let since = inventory.unanswered.get(backend);
        let lasts = since.map_or(0, |since| SystemTime::now().duration_since(*since).unwrap_or_default().as_secs());
        unanswered.get_or_create(&labels).set(i64::try_from(lasts).unwrap_or(i64::MAX));
    }
    let help = "1 while no scan of a backend has succeeded since the start: nothing is known of its devices";
    registry.register("backend_unknown", help, unknown);
    let help = "Time for which a backend has not answered a scan, once callers do not wait for it any more; else 0";
    registry.register("backend_unanswered_seconds", help, unanswered);
    let drained = Family::<BackendLabels, Gauge>::default();
    for backend in inventory.pools.keys() {
        drained.get_or_create(&BackendLabels { backend: name(backend) }).set(0);
    }
    for (backend, _) in inventory.drains.keys() {
        drained.get_or_create(&BackendLabels { backend: name(backend) }).inc();
    }
    registry.register("devices_drained", "Devices that are out of service, there or not", drained);
    registry.register("devices", "Devices by backend and health", devices);
    let help = "1 while the last scan of a backend failed or is late; its last known devices are shown";
    registry.register("backend_stale", help, stale);
}

fn register_claims(registry: &mut Registry, table: &ClaimTable) {
    let claims = Family::<ClaimLabels, Gauge>::default();
    for state in ClaimState::ALL {
        let count = table.claims.values().filter(|view| view.state() == state).count();
        claims.get_or_create(&ClaimLabels { state: state.as_str() }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    registry.register("claims", "Claims: prepared, preparing (or stuck), quarantined", claims);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hostler_api::DeviceName;
    use hostler_backend::{Device, Health};

    use super::*;
    use crate::{
        inventory::{Drain, Pool, UnknownPool},
        metrics::{CountedOperation, FailureReason},
    };

    #[test]
    fn what_was_counted_and_what_is_there_is_rendered() {
        let metrics = Metrics::default();
        metrics.answered(CountedOperation::Prepare, None);
        metrics.answered(CountedOperation::Prepare, Some(FailureReason::Held));
        metrics.worked(CountedOperation::Prepare, false, Duration::from_secs(1));
        let mut device = Device::new(DeviceName::new("a").unwrap());
        device.health = Health::Unhealthy { reason: "hot".to_owned() };
        let pool =
            Pool { name: "n/fake".to_owned(), devices: vec![device], stale: Some("x".to_owned()), ..Pool::default() };
        let fake = BackendName::new("fake").unwrap();
        let drains = [((fake.clone(), DeviceName::new("gone").unwrap()), Drain::now(None, false))].into();
        let hung = BackendName::new("hung").unwrap();
        let unknown = UnknownPool { name: "n/hung".to_owned(), reason: "it hangs".to_owned() };
        let inventory = Inventory {
            pools: [(fake, pool.into())].into(),
            unknown: [(hung.clone(), unknown)].into(),
            unanswered: [(hung, SystemTime::now() - Duration::from_secs(3600))].into(),
            drains,
            ..Inventory::default()
        };
        let claims = ClaimTable::default();
        let process = ProcessFigures { resident_bytes: 7, cpu_seconds: 0.25, ..ProcessFigures::default() };
        let nri = NriStatus { containers: 5, ..NriStatus::default() };
        let now = MetricsSnapshot { inventory: &inventory, claims: &claims, nri: &nri, ready: true, process };
        let text = render(&metrics, &now).unwrap();
        for line in [
            "hostler_claim_operations_total{operation=\"Prepare\",outcome=\"ok\"} 1",
            "hostler_claim_operations_total{operation=\"Unprepare\",outcome=\"error\"} 0",
            "hostler_claim_failures_total{operation=\"Prepare\",reason=\"held\"} 1",
            "hostler_claim_failures_total{operation=\"Prepare\",reason=\"storage\"} 0",
            "hostler_claim_operation_seconds_count{operation=\"Prepare\",outcome=\"error\"} 1",
            "hostler_devices{backend=\"fake\",health=\"Unhealthy\"} 1",
            "hostler_devices{backend=\"fake\",health=\"Healthy\"} 0",
            "hostler_devices_drained{backend=\"fake\"} 1",
            "hostler_backend_stale{backend=\"fake\"} 1",
            "hostler_backend_unknown{backend=\"fake\"} 0",
            "hostler_backend_unknown{backend=\"hung\"} 1",
            "hostler_backend_stale{backend=\"hung\"} 1",
            "hostler_backend_unanswered_seconds{backend=\"fake\"} 0",
            "hostler_claims{state=\"quarantined\"} 0",
            "hostler_nri_connected 0",
            "hostler_nri_containers 5",
            "hostler_nri_quarantined 0",
            "hostler_nri_reconnects_total 0",
            "hostler_nri_updates_failed_total 0",
            "hostler_nri_containers_refused_total 0",
            "hostler_ready 1",
            "process_resident_memory_bytes 7",
            "process_cpu_seconds_total 0.25",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("hostler_backend_unanswered_seconds{backend=\"hung\"} 36"), "{text}");
        assert!(!text.contains("hostler_devices{backend=\"hung\""), "nobody knows how many there are: {text}");
    }
}

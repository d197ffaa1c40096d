//! Figures for Prometheus: what was counted, and gauges that are taken from the latest state when somebody asks.

use std::{fmt, time::SystemTime};

use hostler_api::{BackendName, ClaimState};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use crate::{claims::ClaimTable, inventory::Inventory, metrics::Metrics};

/// The state from which gauges are taken.
#[derive(Clone, Copy, Debug)]
pub struct MetricsSnapshot<'a> {
    /// Devices.
    pub inventory: &'a Inventory,
    /// Claims.
    pub claims: &'a ClaimTable,
    /// Readiness.
    pub ready: bool,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
}

/// Everything, in the text format of Prometheus.
///
/// # Errors
/// Never in practice: writing to a string cannot fail.
pub fn render(counters: &Metrics, now: &MetricsSnapshot<'_>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("hostler");
    counters.register(&mut registry);
    register_devices(&mut registry, now.inventory);
    register_claims(&mut registry, now.claims);
    gauge(&mut registry, "ready", "Whether the daemon serves all that it should", i64::from(now.ready));
    let rss = i64::try_from(now.rss_bytes).unwrap_or(i64::MAX);
    gauge(&mut registry, "resident_memory_bytes", "Resident memory of the daemon", rss);
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
    registry.register("backend_unknown", "Whether nothing is known of a backend's devices since the start", unknown);
    let help = "For how long a backend has not answered a scan, once nobody waits for it any more; else 0";
    registry.register_with_unit("backend_unanswered", help, Unit::Seconds, unanswered);
    let drained = Family::<BackendLabels, Gauge>::default();
    for backend in inventory.pools.keys() {
        drained.get_or_create(&BackendLabels { backend: name(backend) }).set(0);
    }
    for (backend, _) in inventory.drains.keys() {
        drained.get_or_create(&BackendLabels { backend: name(backend) }).inc();
    }
    registry.register("devices_drained", "Devices that are taken out of service, there or not", drained);
    registry.register("devices", "Devices by backend and health", devices);
    registry.register("backend_stale", "Whether the last scan of a backend failed or has not answered", stale);
}

fn register_claims(registry: &mut Registry, table: &ClaimTable) {
    let claims = Family::<ClaimLabels, Gauge>::default();
    for state in ClaimState::ALL {
        let count = table.claims.values().filter(|view| view.state() == state).count();
        claims.get_or_create(&ClaimLabels { state: state.as_str() }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    registry.register("claims", "Claims by state", claims);
}

/// Resident memory of this process, bytes; 0 if the system does not say.
pub(super) fn resident_bytes() -> u64 {
    let (Ok(mut system), Ok(pid)) = (sysinfo::System::new(), sysinfo::get_current_pid()) else { return 0 };
    let what = sysinfo::ProcessRefreshKind::nothing().with_memory().without_tasks();
    system.refresh_processes_specifics(sysinfo::ProcessesToUpdate::Some(&[pid]), false, what);
    system.process(pid).map_or(0, sysinfo::Process::memory)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hostler_api::DeviceName;
    use hostler_backend::{Device, Health};

    use super::*;
    use crate::{
        inventory::{Drain, Pool, UnknownPool},
        metrics::CountedOperation,
    };

    #[test]
    fn what_was_counted_and_what_is_there_is_rendered() {
        let metrics = Metrics::default();
        metrics.observe(CountedOperation::Prepare, true, Duration::from_millis(1));
        metrics.observe(CountedOperation::Prepare, false, Duration::from_secs(1));
        let mut device = Device::new(DeviceName::new("a").unwrap());
        device.health = Health::Unhealthy { reason: "hot".to_owned() };
        let pool =
            Pool { name: "n/fake".to_owned(), devices: vec![device], stale: Some("x".to_owned()), ..Pool::default() };
        let fake = BackendName::new("fake").unwrap();
        let drains = [((fake.clone(), DeviceName::new("gone").unwrap()), Drain::now(None, false))].into();
        let hung = BackendName::new("hung").unwrap();
        let unknown = UnknownPool { name: "n/hung".to_owned(), reason: "it hangs".to_owned() };
        let inventory = Inventory {
            pools: [(fake, pool)].into(),
            unknown: [(hung.clone(), unknown)].into(),
            unanswered: [(hung, SystemTime::now() - Duration::from_secs(3600))].into(),
            drains,
            ..Inventory::default()
        };
        let claims = ClaimTable::default();
        let text =
            render(&metrics, &MetricsSnapshot { inventory: &inventory, claims: &claims, ready: true, rss_bytes: 7 })
                .unwrap();
        for line in [
            "hostler_claim_operations_total{operation=\"Prepare\",outcome=\"ok\"} 1",
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
            "hostler_ready 1",
            "hostler_resident_memory_bytes 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("hostler_backend_unanswered_seconds{backend=\"hung\"} 36"), "{text}");
        assert!(!text.contains("hostler_devices{backend=\"hung\""), "nobody knows how many there are: {text}");
    }

    #[test]
    fn this_process_has_resident_memory() {
        assert!(resident_bytes() > 1 << 20);
    }
}

//! Figures for Prometheus, made of the view on request.

mod fabric;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::hardware::DeviceState;
use hostler_process::{ProcessFigures, register_build};
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use self::fabric::FabricMetrics;
use super::ServeState;
use crate::{
    availability::class_figures, classic::adapter::ClassicStatus, hold::adapter::HoldStatus,
    provision::adapter::ProvisionStatus, view::ClusterView, webhook_status::WebhookFigures,
};

type LabelledGauge<const LABELS: usize> = Family<[(&'static str, String); LABELS], Gauge>;
type CallCounter<const LABELS: usize> = Family<[(&'static str, &'static str); LABELS], Counter<u64, AtomicU64>>;

/// Nodes with series of their own among those that have never reported, the first by name: an alert names some, and a
/// cluster without any daemon has no thousands of series.
const MOST_UNREPORTED: usize = 50;

/// Writes all figures, in OpenMetrics.
pub(super) fn exposition(state: &ServeState) -> String {
    let mut registry = Registry::default();
    let ours = registry.sub_registry_with_prefix("hostler_controller");
    let view = state.view_rx.borrow().clone();
    register_devices(ours, &view);
    register_kinds(ours, &view);
    register_state(ours, state);
    register_classic(ours, &state.classic_rx.borrow());
    register_provisioning(ours, &state.provision_rx.borrow());
    register_holds(ours, &state.holds_rx.borrow());
    let (status, counted) = (state.fabric_rx.borrow().clone(), state.figures.fabric.borrow().clone());
    FabricMetrics { status: &status, counted: &counted, objects: &view.fabric, now: since_1970() }.register(ours);
    register_webhook(ours, &state.figures.webhook);
    let help = "Pods whose scheduling gate the API server refuses to remove, where this controller leads";
    gauge(ours, "stuck_gated_pods", help, state.figures.stuck_pods.load(Ordering::Relaxed));
    ProcessFigures::now().register(&mut registry);
    let mut text = String::new();
    // A string takes everything.
    let _ = encode(&mut text, &registry);
    text
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: impl TryInto<i64>) {
    let gauge = <Gauge>::default();
    gauge.set(number(value));
    registry.register(name, help, gauge);
}

/// Registers a gauge with one label.
fn gauges<T: TryInto<i64>>(
    registry: &mut Registry,
    (name, help, label): (&str, &str, &'static str),
    values: impl IntoIterator<Item = (impl ToString, T)>,
) {
    let family = LabelledGauge::<1>::default();
    for (value, count) in values {
        family.get_or_create(&[(label, value.to_string())]).set(number(count));
    }
    registry.register(name, help, family);
}

/// Registers devices, and the nodes whose daemons report them.
fn register_devices(registry: &mut Registry, view: &ClusterView) {
    let devices = LabelledGauge::<2>::default();
    for class in class_figures(&view.stock) {
        for state in DeviceState::ALL {
            let labels = [("class", class.class.clone()), ("state", state.to_string())];
            devices.get_or_create(&labels).set(number(class.totals.in_state(state)));
        }
    }
    let help = "Devices by class and state; a device that several classes select is in each";
    registry.register("devices", help, devices);
    let counts = view.stock.reports;
    gauges(
        registry,
        ("reporting_nodes", "Nodes that have reported, by age of their last report", "state"),
        [("reporting", counts.reporting), ("stale", counts.stale), ("unknown", counts.unknown)],
    );
    let unreported = view.daemons.unreported(&view.stock);
    gauges(
        registry,
        (
            "unreported_node",
            "1 for each node that a pod of the daemon is for and that has never reported, the first 50 by name",
            "node",
        ),
        unreported.into_iter().take(MOST_UNREPORTED).map(|node| (node, 1)),
    );
}

/// Registers what is known of each kind of objects.
fn register_kinds(registry: &mut Registry, view: &ClusterView) {
    let kinds = || view.kinds.iter().map(|(kind, status)| (kind.plural(), status));
    gauges(
        registry,
        ("objects", "Objects that are watched", "kind"),
        kinds().map(|(kind, status)| (kind, status.objects)),
    );
    gauges(
        registry,
        ("unreadable_objects", "Watched objects that cannot be understood and are left out", "kind"),
        kinds().map(|(kind, status)| (kind, status.poisoned)),
    );
    let silent = kinds().map(|(kind, status)| (kind, status.silent.as_ref().map_or(0, |it| it.0.elapsed().as_secs())));
    let help = "Time for which the API server has been silent about a kind; 0 while it is watched";
    gauges(registry, ("silent_seconds", help, "kind"), silent);
}

/// Registers the controller's findings on itself.
fn register_state(registry: &mut Registry, state: &ServeState) {
    let conditions = LabelledGauge::<2>::default();
    for finding in &**state.findings_rx.borrow() {
        let labels = [("type", finding.kind.as_str().to_owned()), ("status", finding.status.as_str().to_owned())];
        conditions.get_or_create(&labels).set(1);
    }
    registry.register("condition", "1 for the status that each condition has", conditions);
    let is_leading = state.leadership_rx.borrow().is_ours(std::time::Instant::now());
    gauge(registry, "leads", "1 if this controller writes; the sum over all should be 1", i64::from(is_leading));
    let is_ready = state.not_ready().is_empty();
    gauge(registry, "ready", "1 if /readyz says 200: everything that is needed is known", i64::from(is_ready));
    register_build(registry);
}

/// Registers claims that wait and for what, where claims are allocated here; zeros elsewhere.
fn register_classic(registry: &mut Registry, status: &ClassicStatus) {
    gauges(
        registry,
        ("classic_claims", "Claims of this driver in clusters of 1.26 to 1.31, by state", "state"),
        status.summary.claims.named(),
    );
    gauges(
        registry,
        ("classic_negotiations", "Pods that negotiate about a node, by the party that they wait for", "waits_for"),
        status.summary.contexts.named(),
    );
    writes(registry, "classic_writes", "Writes for claims of 1.26 to 1.31 since this controller leads", &status.writes);
    let help = "Calls for claims of 1.26 to 1.31 that wait until others are answered";
    gauge(registry, "classic_queued_calls", help, status.queued);
}

/// Registers ProvisioningRequests, where they are answered here.
fn register_provisioning(registry: &mut Registry, status: &ProvisionStatus) {
    gauges(
        registry,
        ("provisioning_requests", "ProvisioningRequests that this controller answers, by state", "state"),
        status.requests.iter().map(|(state, count)| (*state, *count)),
    );
    let checks = Counter::<u64, AtomicU64>::default();
    checks.inc_by(status.checks);
    let help = "Questions to the planner for ProvisioningRequests since this controller leads";
    registry.register("provisioning_checks", help, checks);
}

/// Registers Reservations, where this controller leads; nothing elsewhere.
fn register_holds(registry: &mut Registry, status: &HoldStatus) {
    gauges(
        registry,
        ("reservations", "Reservations by phase, where this controller leads", "phase"),
        status.reservations.iter().map(|(phase, count)| (*phase, *count)),
    );
    writes(registry, "reservation_writes", "Writes for Reservations since this controller leads", &status.writes);
}

fn writes(registry: &mut Registry, name: &str, help: &str, counts: &BTreeMap<(&'static str, &'static str), u64>) {
    let family = CallCounter::<2>::default();
    for ((what, outcome), count) in counts {
        family.get_or_create(&[("what", *what), ("outcome", *outcome)]).inc_by(*count);
    }
    registry.register(name, help, family);
}

/// Registers answers of the webhook, where there is one; zeros elsewhere.
fn register_webhook(registry: &mut Registry, figures: &WebhookFigures) {
    let answers = CallCounter::<1>::default();
    let WebhookFigures { led, untouched, unanswered, gated } = figures;
    for (what, count) in [("led", led), ("untouched", untouched), ("unanswered", unanswered), ("gated", gated)] {
        answers.get_or_create(&[("what", what)]).inc_by(count.load(Ordering::Relaxed));
    }
    registry.register(
        "webhook_answers",
        "Claims and gated pods that the webhook was asked about, by its answer",
        answers,
    );
}

#[cfg(test)]
mod tests {
    use axum::{body::to_bytes, http::HeaderMap};
    use hostler_process::figures_response;
    use hostler_testing::exposition::Exposition;

    use super::*;

    /// The table of docs/metrics.md is compared with a running controller as well, where nothing of this happens.
    #[tokio::test]
    async fn the_table_has_the_figures_of_work_that_few_clusters_have() {
        let mut registry = Registry::default();
        let ours = registry.sub_registry_with_prefix("hostler_controller");
        let writes = BTreeMap::from([(("status", "done"), 2)]);
        register_classic(ours, &ClassicStatus { writes: writes.clone(), ..ClassicStatus::default() });
        let requests = BTreeMap::from([("open", 1)]);
        register_provisioning(ours, &ProvisionStatus { requests, checks: 3, ..ProvisionStatus::default() });
        let reservations = BTreeMap::from([("Available", 1)]);
        register_holds(ours, &HoldStatus { reservations, writes, ..HoldStatus::default() });
        register_webhook(ours, &WebhookFigures::default());
        fabric::tests::scene_with_all(|scene| scene.register(ours));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let body = figures_response(&HeaderMap::new(), text).into_body();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let given = Exposition::parse(String::from_utf8(body.to_vec()).unwrap());
        for series in [
            "hostler_controller_classic_writes_total{what=\"status\",outcome=\"done\"}",
            "hostler_controller_reservation_writes_total{what=\"status\",outcome=\"done\"}",
        ] {
            assert_eq!(given.value(series), Some(2.0), "{}", given.text);
        }
        for (series, value) in fabric::tests::SERIES {
            assert_eq!(given.value(series), Some(value), "{series}: {}", given.text);
        }
        assert_eq!(given.differences("hostler-controller"), Vec::<String>::new());
    }
}

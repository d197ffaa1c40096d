//! Figures for Prometheus, made of the view on request.

use std::sync::atomic::Ordering;

use hostler_api::hardware::DeviceState;
use prometheus_client::{encoding::text::encode, metrics::family::Family, metrics::gauge::Gauge, registry::Registry};

use super::ServeState;
use crate::{
    availability::class_figures, classic::adapter::ClassicStatus, hold::adapter::HoldStatus,
    provision::adapter::ProvisionStatus, webhook::WebhookFigures,
};

type ClassGauge = Family<Vec<(&'static str, String)>, Gauge>;
type StateGauge = KindGauge;
type WriteGauge = Family<[(&'static str, &'static str); 2], Gauge>;
type KindGauge = Family<[(&'static str, &'static str); 1], Gauge>;

/// Writes all figures, in OpenMetrics.
pub(super) fn exposition(state: &ServeState) -> String {
    let view = state.view_rx.borrow().clone();
    let mut registry = Registry::with_prefix("hostler_controller");
    let (objects, poisoned) = (KindGauge::default(), KindGauge::default());
    for (kind, status) in &view.kinds {
        let labels = [("kind", kind.plural())];
        objects.get_or_create(&labels).set(i64::try_from(status.objects).unwrap_or(i64::MAX));
        poisoned.get_or_create(&labels).set(i64::try_from(status.poisoned).unwrap_or(i64::MAX));
    }
    let devices = ClassGauge::default();
    for class in class_figures(&view.stock) {
        for state in DeviceState::ALL {
            let labels = vec![("class", class.class.clone()), ("state", state.to_string())];
            devices.get_or_create(&labels).set(i64::from(class.totals.in_state(state)));
        }
    }
    let reports = StateGauge::default();
    let counts = view.stock.reports;
    for (state, nodes) in [("reporting", counts.reporting), ("stale", counts.stale), ("unknown", counts.unknown)] {
        reports.get_or_create(&[("state", state)]).set(i64::from(nodes));
    }
    registry.register("devices", "Devices by class and state; one that several classes select is in each", devices);
    registry.register("reporting_nodes", "Nodes that have reported, by how fresh that is", reports);
    registry.register("objects", "Objects that are watched", objects);
    registry.register("unreadable_objects", "Objects among them that cannot be understood", poisoned);
    register_process(&mut registry, state);
    register_classic(&mut registry, &state.classic_rx.borrow());
    register_provisioning(&mut registry, &state.provision_rx.borrow());
    register_holds(&mut registry, &state.holds_rx.borrow());
    register_webhook(&mut registry, &state.webhook_figures);
    let mut text = String::new();
    // A string takes everything.
    let _ = encode(&mut text, &registry);
    text
}

/// Registers claims that wait and for what, where claims are allocated here; zeros elsewhere.
fn register_classic(registry: &mut Registry, status: &ClassicStatus) {
    let (claims, contexts, writes) = (KindGauge::default(), KindGauge::default(), WriteGauge::default());
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    for (state, count) in status.summary.claims.named() {
        claims.get_or_create(&[("state", state)]).set(number(count));
    }
    for (whom, count) in status.summary.contexts.named() {
        contexts.get_or_create(&[("waits_for", whom)]).set(number(count));
    }
    for ((what, outcome), count) in &status.writes {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        writes.get_or_create(&[("what", *what), ("outcome", *outcome)]).set(count);
    }
    let queued = <Gauge>::default();
    queued.set(number(status.queued));
    registry.register("classic_claims", "Claims of classic DRA that are this driver's, by state", claims);
    registry.register("classic_negotiations", "Pods that negotiate about a node, by whom they wait for", contexts);
    registry.register("classic_writes", "Writes for classic DRA since this controller leads, by outcome", writes);
    registry.register("classic_queued_calls", "Calls that wait until others were answered", queued);
}

/// Registers ProvisioningRequests, where they are answered here.
fn register_provisioning(registry: &mut Registry, status: &ProvisionStatus) {
    let (requests, checks) = (KindGauge::default(), <Gauge>::default());
    for (state, count) in &status.requests {
        requests.get_or_create(&[("state", *state)]).set(i64::try_from(*count).unwrap_or(i64::MAX));
    }
    checks.set(i64::try_from(status.checks).unwrap_or(i64::MAX));
    registry.register("provisioning_requests", "ProvisioningRequests that are answered here, by state", requests);
    registry.register("provisioning_checks", "Questions to the planner since this controller leads", checks);
}

/// Registers Reservations, where this controller leads; nothing elsewhere.
fn register_holds(registry: &mut Registry, status: &HoldStatus) {
    let (reservations, writes) = (KindGauge::default(), WriteGauge::default());
    for (phase, count) in &status.reservations {
        reservations.get_or_create(&[("phase", *phase)]).set(i64::try_from(*count).unwrap_or(i64::MAX));
    }
    for ((what, outcome), count) in &status.writes {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        writes.get_or_create(&[("what", *what), ("outcome", *outcome)]).set(count);
    }
    registry.register("reservations", "Reservations, by phase", reservations);
    registry.register("reservation_writes", "Writes for Reservations since this controller leads, by outcome", writes);
}

/// Registers answers of the webhook, where there is one; zeros elsewhere.
fn register_webhook(registry: &mut Registry, figures: &WebhookFigures) {
    let answers = KindGauge::default();
    let WebhookFigures { led, untouched, unanswered } = figures;
    for (what, count) in [("led", led), ("untouched", untouched), ("unanswered", unanswered)] {
        let count = i64::try_from(count.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        answers.get_or_create(&[("what", what)]).set(count);
    }
    registry.register("webhook_answers", "Claims that the webhook was asked about, by what it answered", answers);
}

/// Registers the controller's findings on itself.
fn register_process(registry: &mut Registry, state: &ServeState) {
    let conditions = ClassGauge::default();
    for finding in &**state.findings_rx.borrow() {
        let labels = vec![("type", finding.kind.as_str().to_owned()), ("status", finding.status.as_str().to_owned())];
        conditions.get_or_create(&labels).set(1);
    }
    let silent = KindGauge::default();
    for (kind, status) in &state.view_rx.borrow().kinds {
        let seconds = status.silent.as_ref().map_or(0, |(since, _)| since.elapsed().as_secs());
        silent.get_or_create(&[("kind", kind.plural())]).set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
    let (leads, ready) = (<Gauge>::default(), <Gauge>::default());
    leads.set(i64::from(state.leadership_rx.borrow().is_ours(std::time::Instant::now())));
    ready.set(i64::from(state.not_ready().is_empty()));
    registry.register("condition", "Conditions, by the status that each has", conditions);
    registry.register("silent_seconds", "For how long nothing was heard of a kind; 0 while it is watched", silent);
    registry.register("leads", "Whether this controller writes", leads);
    registry.register("ready", "Whether everything that is needed is known", ready);
}

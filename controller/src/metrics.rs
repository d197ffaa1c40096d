//! Figures for Prometheus, made of the view when somebody asks.

use hostler_api::hardware::DeviceState;
use prometheus_client::{encoding::text::encode, metrics::family::Family, metrics::gauge::Gauge, registry::Registry};

use crate::{availability::class_figures, view::ClusterView};

/// What the text is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type ClassGauge = Family<Vec<(&'static str, String)>, Gauge>;
type StateGauge = KindGauge;
type KindGauge = Family<[(&'static str, &'static str); 1], Gauge>;

/// All figures, as text.
pub(crate) fn exposition(view: &ClusterView) -> String {
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
    let mut text = String::new();
    // A string takes everything.
    let _ = encode(&mut text, &registry);
    text
}

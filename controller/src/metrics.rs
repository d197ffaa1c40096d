//! Figures for Prometheus, made of the view when somebody asks.

use prometheus_client::{encoding::text::encode, metrics::family::Family, metrics::gauge::Gauge, registry::Registry};

use crate::view::ClusterView;

/// What the text is.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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
    registry.register("objects", "Objects that are watched", objects);
    registry.register("unreadable_objects", "Objects among them that cannot be understood", poisoned);
    let mut text = String::new();
    // A string takes everything.
    let _ = encode(&mut text, &registry);
    text
}

//! The pod template of a Koordinator Reservation.

use hostler_api::core::{NodeSelector, PodSpec};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ConvertNote, KOORDINATOR_SCHEDULER};

/// Prefix of resources that are parts of Koordinator's devices.
const KOORDINATOR_RESOURCES: &str = "koordinator.sh/";

/// Converts the spec of a template's pod.
pub(super) fn template(template: &mut Value) -> Vec<ConvertNote> {
    let mut notes = devices(template);
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return notes };
    if spec.get("schedulerName").is_some_and(|name| name == KOORDINATOR_SCHEDULER) {
        // kube-scheduler finds the place, whatever scheduler the owners have.
        spec.remove("schedulerName");
    }
    if let Some(node) = spec.remove("nodeName").and_then(|name| name.as_str().map(str::to_owned)) {
        go_to(spec, &node);
    }
    let has_claims = spec.get("resourceClaims").and_then(Value::as_array).is_some_and(|claims| !claims.is_empty());
    for kind in ["podAffinity", "podAntiAffinity"].into_iter().filter(|_| has_claims) {
        let affinity = spec.get_mut("affinity").and_then(|all| all.get_mut(kind)).and_then(Value::as_object_mut);
        if affinity.and_then(|it| it.remove("requiredDuringSchedulingIgnoredDuringExecution")).is_some() {
            let field = format!("spec.template.spec.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution");
            let reason = "devices are chosen without terms about other pods; choose nodes by nodeAffinity, if need be";
            notes.push(ConvertNote::missing(field, reason));
        }
    }
    if let Some(spread) = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut).filter(|_| has_claims)
    {
        let all = spread.len();
        spread.retain(|it| it["whenUnsatisfiable"] == "ScheduleAnyway");
        if spread.len() < all {
            let reason = "devices are not spread; choose nodes by nodeAffinity, if need be";
            notes.push(ConvertNote::missing("spec.template.spec.topologySpreadConstraints", reason));
        }
    }
    notes
}

/// Names amounts that mean devices: hostler keeps devices by claims.
fn devices(template: &Value) -> Vec<ConvertNote> {
    let spec = PodSpec::deserialize(&template["spec"]).unwrap_or_default();
    let requests = spec.requests();
    let names = requests.keys().filter(|name| name.starts_with(KOORDINATOR_RESOURCES));
    let note = |name: &String| {
        let reason = format!(
            "{name} is kept as an amount of the node, and no device with it; ask for devices in a \
             ResourceClaimTemplate, and name it in spec.template.spec.resourceClaims"
        );
        ConvertNote::missing("spec.template.spec.containers", reason)
    };
    names.map(note).collect()
}

/// Has the pod go to one node only.
fn go_to(spec: &mut Map<String, Value>, node: &str) {
    let selector = NodeSelector::of_node(node);
    let term = json!(selector.node_selector_terms);
    let affinity = spec.entry("affinity").or_insert_with(|| json!({}));
    let required = below(below(affinity, "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution");
    let terms = below(required, "nodeSelectorTerms");
    match terms.as_array_mut().filter(|terms| !terms.is_empty()) {
        // A term without requirements matches no node; a further requirement would make it match some.
        Some(terms) => {
            for it in terms.iter_mut().filter(|it| it.as_object().is_some_and(|it| !it.is_empty())) {
                let mut fields = it["matchFields"].as_array().cloned().unwrap_or_default();
                fields.extend(term[0]["matchFields"].as_array().cloned().unwrap_or_default());
                it["matchFields"] = Value::Array(fields);
            }
        }
        None => *terms = term,
    }
}

/// Returns a field of an object, which is made where there is none.
fn below<'a>(of: &'a mut Value, field: &str) -> &'a mut Value {
    if !of.is_object() {
        *of = json!({});
    }
    &mut of[field]
}

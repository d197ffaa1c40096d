//! Evictions: a pod goes unless a budget is against it. How many of its pods may go is what the budget's status says.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::{
        refusal::StatusError,
        resources::ObjectKind,
        slices::items,
        state::ServerState,
        store::{ObjectKey, meta},
    },
    ApiRequest, deletion,
};

const SEVERAL: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// Evicts a pod.
pub(super) fn evict(state: &mut ServerState, call: &ApiRequest) -> Result<Value, StatusError> {
    let options = call.body()?["deleteOptions"].take();
    let (key, pod) = deletion::found(state, call, &options)?;
    let is_going = !meta(&pod, "deletionTimestamp").is_empty();
    if !is_going && deletion::runs(&key, &pod) {
        count_on_budget(state, &key, &pod)?;
    }
    deletion::remove(state, call, &key, &pod, &options)?;
    Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }))
}

fn count_on_budget(state: &mut ServerState, pod: &ObjectKey, object: &Value) -> Result<(), StatusError> {
    let is_about = |(key, budget): &(&ObjectKey, &Arc<Value>)| {
        key.kind == ObjectKind::PodDisruptionBudget && key.namespace == pod.namespace && selects(budget, object)
    };
    let found: Vec<(ObjectKey, Value)> =
        state.store.objects().iter().filter(is_about).map(|(key, it)| (key.clone(), Value::clone(it))).collect();
    let (key, mut budget) = match found.len() {
        0 => return Ok(()),
        1 => found.into_iter().next().expect("there is one"),
        _ => return Err(StatusError::trouble_with(SEVERAL)),
    };
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let (allowed, desired, current) =
        (number("disruptionsAllowed"), number("desiredHealthy"), number("currentHealthy"));
    if allowed <= 0 {
        return Err(StatusError::disruption(&key.name, desired, current));
    }
    budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
    state.store.put(key, budget);
    Ok(())
}

fn selects(budget: &Value, pod: &Value) -> bool {
    let wanted = budget["spec"]["selector"]["matchLabels"].as_object();
    assert!(items(&budget["spec"]["selector"]["matchExpressions"]).is_empty(), "budgets select by labels here");
    wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value))
}

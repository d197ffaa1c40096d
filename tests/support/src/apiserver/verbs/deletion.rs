//! Deletion of objects: at once or after their finalizers, under preconditions; and the binding of a pod to its node.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::{
        list,
        refusal::StatusError,
        resources::ObjectKind,
        rules::ServerSettings,
        schema,
        slices::items,
        state::ServerState,
        store::{ObjectKey, meta},
    },
    ApiRequest,
};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

pub(super) fn delete(state: &mut ServerState, call: &ApiRequest) -> Result<Arc<Value>, StatusError> {
    let options = if call.body.is_empty() { Value::Null } else { call.body()? };
    let (key, object) = found(state, call, &options)?;
    remove(state, call, &key, &object, &options)
}

/// The object, if it is the one that is meant.
pub(super) fn found(
    state: &ServerState,
    call: &ApiRequest,
    options: &Value,
) -> Result<(ObjectKey, Arc<Value>), StatusError> {
    let key = call.key();
    let object = state.store.get(&key).ok_or_else(|| call.not_found())?;
    let wanted = &options["preconditions"];
    for (field, words, hint) in
        [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")]
    {
        let is = meta(&object, field);
        if let Some(given) = wanted[field].as_str().filter(|given| *given != is) {
            let why = format!(
                "the {words} in the precondition ({given}) does not match the {words} in record ({is}). The object might have been {hint}"
            );
            return Err(call.conflict(&key.name, &why));
        }
    }
    Ok((key, object))
}

/// Deletes an object at once, or after the finalizers, or, for a pod that runs, after the kubelet.
pub(super) fn remove(
    state: &mut ServerState,
    call: &ApiRequest,
    key: &ObjectKey,
    object: &Arc<Value>,
    options: &Value,
) -> Result<Arc<Value>, StatusError> {
    state.admit(call, "DELETE", &key.name, None, Some(object))?;
    if !call.parameter("dryRun").is_empty() {
        return Ok(Arc::clone(object));
    }
    let grace = options["gracePeriodSeconds"].as_i64().or_else(|| call.parameter("gracePeriodSeconds").parse().ok());
    let grace = if runs(key, object) { grace.unwrap_or(30) } else { 0 };
    let mut marked = Value::clone(object);
    let finalizers = finalizers_of(object, call, options);
    if finalizers.is_empty() {
        marked["metadata"].as_object_mut().expect("stored").remove("finalizers");
    } else {
        marked["metadata"]["finalizers"] = json!(finalizers);
    }
    if marked["metadata"]["deletionTimestamp"].is_null() {
        let generation = marked["metadata"]["generation"].as_u64().map(|generation| generation + 1);
        if let Some(generation) = generation {
            marked["metadata"]["generation"] = json!(generation);
        }
        marked["metadata"]["deletionTimestamp"] = json!(schema::now());
        marked["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    } else if marked["metadata"]["deletionGracePeriodSeconds"].as_i64().is_none_or(|before| grace < before) {
        marked["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    }
    if key.kind == ObjectKind::Namespace {
        marked["status"]["phase"] = json!("Terminating");
    }
    if is_due(&marked) {
        state.store.remove(key);
        marked = Value::clone(object);
        marked["metadata"]["resourceVersion"] = json!(state.store.rv().to_string());
        return Ok(Arc::new(marked));
    }
    Ok(if marked == **object { Arc::clone(object) } else { state.store.put(key.clone(), marked) })
}

pub(super) fn runs(key: &ObjectKey, object: &Value) -> bool {
    let is_done = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    key.kind == ObjectKind::Pod && object["spec"]["nodeName"].is_string() && !is_done
}

/// Returns the finalizers of a deleted object: its own, and one for the propagation to its dependents.
fn finalizers_of(object: &Value, call: &ApiRequest, options: &Value) -> Vec<String> {
    let policy = options["propagationPolicy"].as_str().unwrap_or_else(|| call.parameter("propagationPolicy"));
    let own = match policy {
        "Foreground" => Some(FOREGROUND),
        "Orphan" => Some(ORPHAN),
        _ => None,
    };
    let given = items(&object["metadata"]["finalizers"]).iter().filter_map(Value::as_str);
    let mut finalizers: Vec<String> = given.map(str::to_owned).collect();
    if !policy.is_empty() {
        finalizers.retain(|one| one != FOREGROUND && one != ORPHAN);
        finalizers.extend(own.map(str::to_owned));
    }
    finalizers
}

/// Returns true if a deleted object has no finalizer left.
pub(super) fn is_due(object: &Value) -> bool {
    let is_held = !items(&object["metadata"]["finalizers"]).is_empty();
    let has_content = object["kind"] == "Namespace" && !items(&object["spec"]["finalizers"]).is_empty();
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    !meta(object, "deletionTimestamp").is_empty() && !is_held && !has_content && grace == 0
}

/// Binds a pod to its node.
pub(super) fn bind(state: &mut ServerState, call: &ApiRequest) -> Result<Value, StatusError> {
    let (key, binding) = (call.key(), call.body()?);
    let pod = state.store.get(&key).ok_or_else(|| call.not_found())?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let current = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if !meta(&pod, "deletionTimestamp").is_empty() {
        return Err(
            call.conflict(&key.name, &format!("pod {} is being deleted, cannot be assigned to a host", key.name))
        );
    }
    if !current.is_empty() {
        return Err(call.conflict(&key.name, &format!("pod {} is already assigned to node {current:?}", key.name)));
    }
    let mut bound = Value::clone(&pod);
    bound["spec"]["nodeName"] = json!(node);
    let mut conditions: Vec<Value> = items(&pod["status"]["conditions"]).to_vec();
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(json!({ "type": "PodScheduled", "status": "True", "lastTransitionTime": schema::now() }));
    bound["status"]["conditions"] = json!(conditions);
    state.store.put(key, bound);
    Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }))
}

pub(super) fn delete_collection(
    state: &mut ServerState,
    settings: &ServerSettings,
    call: &ApiRequest,
) -> Result<Value, StatusError> {
    let selector = call.selector(settings)?;
    let (kind, namespace) = (call.target.resource.kind, call.target.namespace());
    let chosen: Vec<_> = state
        .store
        .objects()
        .iter()
        .filter(|(key, object)| key.kind == kind && key.namespace == namespace && selector.matches(object))
        .map(|(key, object)| (key.clone(), Arc::clone(object)))
        .collect();
    let options = if call.body.is_empty() { Value::Null } else { call.body()? };
    let mut deleted = Vec::new();
    for (key, object) in chosen {
        deleted.push(remove(state, call, &key, &object, &options)?);
    }
    Ok(list::of(call, deleted.iter(), json!({ "resourceVersion": state.store.rv().to_string() })))
}

//! The Reservation that is made for the claims of a pod.

use hostler_api::{
    core::{NodeSelector, PodSpec},
    reservation::{MAX_DEVICE_CLAIMS, PLACED_POD_LABEL, PLACEMENT_GATE},
};
use serde_json::{Map, Value, json};

use super::{
    attempt::{ATTEMPT, Attempt},
    context::{DirectClaim, DirectPod, DirectStep, DirectWrite},
    pinned::pins,
};

/// Fields of a pod's spec that say where it can run, and what it sets aside.
const OF_POD: [&str; 9] = [
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "containers",
    "initContainers",
    "resources",
    "overhead",
    "priority",
];

/// The fields of the pod's spec that a Reservation repeats.
pub(super) fn copied(pod: &DirectPod) -> Map<String, Value> {
    OF_POD.iter().filter_map(|field| Some(((*field).to_owned(), pod.spec.more.get(*field)?.clone()))).collect()
}

/// A Reservation for the claims of a pod that have nothing yet. Its devices come back to it when the scheduler takes
/// them from the pod: so it does not end with it, but is deleted when the pod is bound or gone.
pub(super) fn reserve(pod: &DirectPod, claims: &[(&String, &DirectClaim)], attempt: &Attempt) -> DirectStep {
    let lacking: Vec<_> = claims.iter().filter(|(_, claim)| !claim.is_allocated()).collect();
    if lacking.len() > MAX_DEVICE_CLAIMS {
        return DirectStep::Refuse(format!(
            "it has {} claims that are to be given devices, and a Reservation keeps devices for {MAX_DEVICE_CLAIMS} at most; \
             put requests together in fewer claims, or leave the scheduling gate {PLACEMENT_GATE} out",
            lacking.len()
        ));
    }
    let metadata = &pod.metadata;
    let name = attempt.name(&metadata.uid);
    let device_claims: Vec<Value> =
        lacking.iter().map(|(name, claim)| json!({"name": name, "spec": claim.spec})).collect();
    let object = json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "hostler-controller", PLACED_POD_LABEL: metadata.uid},
        },
        "spec": {
            "template": {
                "metadata": {"namespace": metadata.namespace, "annotations": {ATTEMPT: json!(attempt).to_string()}},
                "spec": without_claims(placed(copied(pod), &pins(claims), &attempt.left_out)),
            },
            "deviceClaims": device_claims, "allocateOnce": false, "ttl": "0",
            "owners": [{"object": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}}],
        },
    });
    DirectStep::Write(DirectWrite::Reserve(name, Box::new(object)))
}

/// Restricts the spec to nodes that the pins allow, without the nodes that are left out.
fn placed(mut spec: Map<String, Value>, pins: &[&NodeSelector], left_out: &[String]) -> Map<String, Value> {
    if pins.is_empty() && left_out.is_empty() {
        return spec;
    }
    let affinity = spec.remove("affinity").and_then(|it| serde_json::from_value(it).ok());
    let mut only = PodSpec { affinity, ..PodSpec::default() };
    pins.iter().for_each(|nodes| only.go_only(nodes));
    left_out.iter().for_each(|node| only.leave_out(node));
    spec.insert("affinity".to_owned(), json!(only.affinity));
    spec
}

/// Removes the claims of containers: which container uses which claim is of no matter here, and the template has none.
fn without_claims(mut spec: Map<String, Value>) -> Value {
    for kind in ["containers", "initContainers"] {
        for container in spec.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            let resources = container["resources"].take();
            *container = json!({
                "name": container["name"], "image": container["image"],
                "restartPolicy": container["restartPolicy"],
                "resources": {"requests": resources["requests"], "limits": resources["limits"]},
            });
        }
    }
    without_nulls(Value::Object(spec))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let there = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

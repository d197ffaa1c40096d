//! The controller of claims: creates them from templates, keeps their reservations, and frees unused claims.
//!
//! | What it sees | What it writes |
//! |---|---|
//! | a pod names a template, and has no claim of its own from it | a claim that the pod owns, with the name in the pod in an annotation |
//! | such a claim, and the pod's status does not name it, or names one that is gone | the pod's status, applied: of its entries only these |
//! | a pod with a node, and an allocated claim that is not reserved for it | the reservation |
//! | a reservation of a pod that is gone, done, or another one | no reservation; with the last one goes the allocation, if it is the scheduler's |
//! | a claim without allocation that lost its last reservation, or that is being deleted and is unused | no finalizer |
//! | a claim made for a pod that is done or another one, and unused | no claim |

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{ControllerCommand, ControllerWrite, event, list, text};
use crate::apiserver::ApiServerView;

const NAME: &str = "kube-controller-manager";
const MANAGER: &str = "ResourceClaimController";
/// Annotation with the entry of a pod that a claim was made for.
pub(super) const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// Held by allocated claims.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// A generated name has so many characters before its random end.
const LONGEST_BASE: usize = 58;
/// Limit of consumers of a claim.
const MOST_CONSUMERS: usize = 256;

/// The controller of claims. It remembers claims that it has freed and still holds, and missing templates that it has
/// reported.
#[derive(Debug, Default)]
pub(crate) struct ClaimController {
    freed: BTreeSet<String>,
    told: BTreeSet<(String, String)>,
}

impl ClaimController {
    pub(crate) fn next(&mut self, view: &ApiServerView<'_>) -> Option<ControllerCommand> {
        let (pods, claims) = (view.list("pods"), view.list("resourceclaims"));
        let of_pod = pods.iter().find_map(|pod| self.of_pod(view, pod, &claims));
        let write = of_pod.or_else(|| claims.iter().find_map(|claim| self.of_claim(claim, &pods)))?;
        Some(ControllerCommand {
            who: if matches!(write, ControllerWrite::ApplyStatus(_)) { MANAGER } else { NAME },
            write,
        })
    }

    fn of_pod(&mut self, view: &ApiServerView<'_>, pod: &Value, claims: &[Value]) -> Option<ControllerWrite> {
        let in_namespace: Vec<&Value> =
            claims.iter().filter(|claim| claim["metadata"]["namespace"] == pod["metadata"]["namespace"]).collect();
        if needs_claims(pod) && pod["metadata"]["deletionTimestamp"].is_null() {
            let mut statuses = Vec::new();
            for entry in list(&pod["spec"]["resourceClaims"]) {
                let Some(template) = entry["resourceClaimTemplateName"].as_str() else { continue };
                let named = generated(pod, entry);
                if in_namespace.iter().any(|claim| named.is_some_and(|name| claim["metadata"]["name"] == name)) {
                    continue;
                }
                match in_namespace.iter().find(|claim| is_for(claim, pod, entry)) {
                    Some(claim) => set_status(&mut statuses, entry, &claim["metadata"]["name"]),
                    // Of a claim that is gone the real one makes no other: it remembers for an hour that it has made
                    // it.
                    None if named.is_some() => {}
                    None => {
                        if let Some(write) = self.make(view, pod, entry, template) {
                            return Some(write);
                        }
                    }
                }
            }
            if !statuses.is_empty() {
                return Some(ControllerWrite::ApplyStatus(applied_statuses(pod, &statuses)));
            }
        }
        reservation(pod, &in_namespace)
    }

    fn make(
        &mut self,
        view: &ApiServerView<'_>,
        pod: &Value,
        entry: &Value,
        template: &str,
    ) -> Option<ControllerWrite> {
        let metadata = &pod["metadata"];
        let found = view.get("resourceclaimtemplates", &format!("{}/{template}", text(metadata, "namespace")));
        let name = text(entry, "name");
        let Some(template) = found else {
            let message = format!(
                "PodResourceClaim {name}: resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
            );
            let is_new = self.told.insert((text(metadata, "uid").to_owned(), name.to_owned()));
            let told = || event(pod, "Warning", "FailedResourceClaimCreation", &message, "resource_claim");
            return is_new.then(|| ControllerWrite::Create(told()));
        };
        let mut annotations = template["spec"]["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        annotations.insert(POD_CLAIM_NAME.to_owned(), json!(name));
        let labels = template["spec"]["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        Some(ControllerWrite::Create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {
                "generateName": base_name(text(metadata, "name"), name), "namespace": metadata["namespace"],
                "annotations": annotations, "labels": labels,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "controller": true,
                }],
            },
            "spec": template["spec"]["spec"],
        })))
    }

    fn of_claim(&mut self, claim: &Value, pods: &[Value]) -> Option<ControllerWrite> {
        let reserved = list(&claim["status"]["reservedFor"]);
        let remaining: Vec<Value> = reserved.iter().filter(|entry| is_used(claim, entry, pods)).cloned().collect();
        let finalizers = list(&claim["metadata"]["finalizers"]);
        let is_ours = finalizers.iter().any(|one| one == FINALIZER);
        let is_allocated = !claim["status"]["allocation"].is_null();
        let is_going = claim["metadata"]["deletionTimestamp"].is_string();
        let uid = text(&claim["metadata"], "uid");
        let mut changed = claim.clone();
        if remaining.len() < reserved.len() || (is_going && is_ours && is_allocated && remaining.is_empty()) {
            if remaining.is_empty() && is_ours {
                changed["status"].as_object_mut()?.remove("allocation");
                self.freed.insert(uid.to_owned());
            }
            changed["status"]["reservedFor"] = json!(remaining);
            return Some(ControllerWrite::UpdateStatus(changed));
        }
        let is_freed = self.freed.contains(uid) || is_going;
        if is_ours && !is_allocated && remaining.is_empty() && is_freed {
            self.freed.remove(uid);
            changed["metadata"]["finalizers"] = finalizers.iter().filter(|one| *one != FINALIZER).cloned().collect();
            return Some(ControllerWrite::Update(changed));
        }
        let is_orphan = remaining.is_empty() && !is_going && owner_is_done(claim, pods);
        is_orphan.then(|| ControllerWrite::Delete { object: claim.clone(), options: json!({}) })
    }
}

/// The name of the claim of an entry, if the pod's status says it.
pub(super) fn generated<'a>(pod: &'a Value, entry: &Value) -> Option<&'a str> {
    let statuses = list(&pod["status"]["resourceClaimStatuses"]);
    statuses.iter().find(|status| status["name"] == entry["name"])?["resourceClaimName"].as_str()
}

pub(super) fn is_done(pod: &Value) -> bool {
    let phase = text(&pod["status"], "phase");
    // A pod that is to go, and never had a node, never runs.
    let never_runs = pod["metadata"]["deletionTimestamp"].is_string() && text(&pod["spec"], "nodeName").is_empty();
    matches!(phase, "Succeeded" | "Failed") || never_runs
}

fn needs_claims(pod: &Value) -> bool {
    !matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed")
}

fn is_controlled_by(claim: &Value, pod: &Value) -> bool {
    let owners = list(&claim["metadata"]["ownerReferences"]);
    owners.iter().any(|owner| owner["controller"] == true && owner["uid"] == pod["metadata"]["uid"])
}

fn is_for(claim: &Value, pod: &Value, entry: &Value) -> bool {
    claim["metadata"]["annotations"][POD_CLAIM_NAME] == entry["name"] && is_controlled_by(claim, pod)
}

fn set_status(statuses: &mut Vec<Value>, entry: &Value, claim: &Value) {
    statuses.retain(|status| status["name"] != entry["name"]);
    statuses.push(json!({ "name": entry["name"], "resourceClaimName": claim }));
}

fn applied_statuses(pod: &Value, statuses: &[Value]) -> Value {
    let metadata = json!({ "name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"] });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": { "resourceClaimStatuses": statuses },
    })
}

/// `pod-claim-`, both cut in proportion where they are too long together.
fn base_name(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= LONGEST_BASE {
        return whole;
    }
    let cut = |text: &'_ str| text[..text.len() * LONGEST_BASE / whole.len()].to_owned();
    format!("{}-{}", cut(pod), cut(claim))
}

/// Returns the reservation for a pod that has its node already, of one of its claims that has its devices.
fn reservation(pod: &Value, claims: &[&Value]) -> Option<ControllerWrite> {
    let has_node = !text(&pod["spec"], "nodeName").is_empty();
    if !has_node || is_done(pod) || pod["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let names = list(&pod["spec"]["resourceClaims"])
        .iter()
        .map(|entry| entry["resourceClaimName"].as_str().or_else(|| generated(pod, entry)).unwrap_or_default());
    let names: Vec<&str> = names.collect();
    let wants = |claim: &&&Value| {
        let reserved = list(&claim["status"]["reservedFor"]);
        names.contains(&text(&claim["metadata"], "name"))
            && !claim["status"]["allocation"].is_null()
            && reserved.len() < MOST_CONSUMERS
            && reserved.iter().all(|entry| entry["uid"] != pod["metadata"]["uid"])
    };
    claims.iter().find(wants).map(|claim| ControllerWrite::UpdateStatus(reserved_for(claim, pod)))
}

/// Returns the claim with one more consumer.
pub(super) fn reserved_for(claim: &Value, pod: &Value) -> Value {
    let mut changed = claim.clone();
    let mut reserved = list(&claim["status"]["reservedFor"]).to_vec();
    reserved.push(json!({ "resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"] }));
    changed["status"]["reservedFor"] = json!(reserved);
    changed
}

/// Returns true if a consumer still uses the claim. Consumers that are no pods are never removed.
fn is_used(claim: &Value, entry: &Value, pods: &[Value]) -> bool {
    if entry["resource"] != "pods" || !text(entry, "apiGroup").is_empty() {
        return true;
    }
    let is_it = |pod: &&Value| {
        pod["metadata"]["namespace"] == claim["metadata"]["namespace"] && pod["metadata"]["uid"] == entry["uid"]
    };
    pods.iter().find(is_it).is_some_and(|pod| !is_done(pod))
}

fn owner_is_done(claim: &Value, pods: &[Value]) -> bool {
    let owners = list(&claim["metadata"]["ownerReferences"]).iter();
    let mut owners =
        owners.filter(|owner| owner["controller"] == true && owner["kind"] == "Pod" && owner["apiVersion"] == "v1");
    let Some(owner) = owners.next() else { return false };
    let is_named = |pod: &&Value| {
        pod["metadata"]["namespace"] == claim["metadata"]["namespace"] && pod["metadata"]["name"] == owner["name"]
    };
    // Of one that is not there any more, the collector takes care.
    pods.iter().find(is_named).is_some_and(|pod| pod["metadata"]["uid"] != owner["uid"] || is_done(pod))
}

//! The scheduler: gives pods nodes, and their claims devices, with hostler's own allocator, which answers as upstream's
//! does.
//!
//! ```text
//!   pod ──► can it be asked for? ──► which nodes? ──► binding: claim by claim the finalizer, then allocation and reservation
//!              │                        │                │        └─ binding conditions are waited for, then the node is bound
//!              └ waits                  └ FailedScheduling └ refused: its reservations are taken back, FailedScheduling
//! ```
//!
//! A claim is written in the order of kube-scheduler: first the finalizer, then the status with allocation, time and
//! reservation at once. An allocation of another writer is accepted, and only reserved for. Of several nodes the one
//! with the fewest pods wins, then the first by name: there are no scores but for nominations and preferences by name.

mod attempt;
mod given;

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::{
    ControllerCommand, ControllerWrite,
    claims::{FINALIZER, generated, reserved_for},
    event, identity, list, path_of, text,
};
use crate::apiserver::{ApiServerView, StatusError};
use attempt::{Answer, Attempt};
use given::GivenDevices;

/// Name of the scheduler.
pub(super) const NAME: &str = "kube-scheduler";
/// Name of the scheduler in its events.
const COMPONENT: &str = "default-scheduler";

/// A pod that has a node in mind.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub(super) pod: Value,
    pub(super) node: String,
    /// Allocations to write, by UID of the claim.
    pub(super) allocations: BTreeMap<String, Value>,
    /// The reason why the binding failed.
    pub(super) failure: Option<Failure>,
}

/// The reason why a binding failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// The reason in the condition of the pod.
    reason: &'static str,
    message: String,
    /// True if another attempt in the same state of the cluster is useful.
    is_passing: bool,
}

/// Remembers what it is about to bind, and who got nothing in which state of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    bindings: Vec<Binding>,
    given: GivenDevices,
    /// The state of the cluster in which a pod was refused, by UID of the pod.
    refused: BTreeMap<String, String>,
    outbox: VecDeque<ControllerWrite>,
    /// The pod that the last command was for.
    current: String,
}

/// The next step of a binding.
enum Next {
    Write(ControllerWrite),
    /// The binding waits for others.
    Wait,
    /// The binding failed.
    Fail(String),
    /// The binding is done.
    End,
}

impl Scheduler {
    pub(crate) fn next(&mut self, view: &ApiServerView<'_>) -> Option<ControllerCommand> {
        self.given.look(view);
        let write = self.outbox.pop_front();
        let write = write.or_else(|| self.next_of_bindings(view)).or_else(|| self.next_of_pods(view))?;
        Some(ControllerCommand { who: NAME, write })
    }

    /// Takes the outcome of a write. After a conflict, the state is read again; any other refusal ends the binding.
    pub(crate) fn told(&mut self, command: &ControllerCommand, refusal: Option<&StatusError>) {
        let Some(refusal) = refusal.filter(|refusal| refusal.code != 409) else { return };
        let is_about_claim = matches!(command.write, ControllerWrite::Update(_) | ControllerWrite::UpdateStatus(_));
        let binding = self.bindings.iter_mut().find(|binding| uid(&binding.pod) == self.current);
        if let Some(binding) =
            binding.filter(|_| is_about_claim || matches!(command.write, ControllerWrite::Bind { .. }))
        {
            let message = refusal.status()["message"].as_str().unwrap_or_default().to_owned();
            binding.failure.get_or_insert(Failure { reason: "SchedulerError", message, is_passing: false });
        }
    }

    fn next_of_bindings(&mut self, view: &ApiServerView<'_>) -> Option<ControllerWrite> {
        let mut at = 0;
        while at < self.bindings.len() {
            let binding = &mut self.bindings[at];
            match binding.next(view) {
                Next::Write(write) => {
                    uid(&binding.pod).clone_into(&mut self.current);
                    return Some(write);
                }
                Next::Wait => at += 1,
                Next::Fail(message) => {
                    binding.failure = Some(Failure { reason: "SchedulerError", message, is_passing: true });
                }
                Next::End => {
                    let binding = self.bindings.remove(at);
                    if let Some(why) = binding.failure {
                        self.refuse(view, &binding.pod, &why);
                        return self.outbox.pop_front();
                    }
                }
            }
        }
        None
    }

    fn next_of_pods(&mut self, view: &ApiServerView<'_>) -> Option<ControllerWrite> {
        let mut pods: Vec<Value> = view.list("pods").into_iter().filter(|pod| self.is_waiting(pod)).collect();
        let priority = |pod: &Value| -pod["spec"]["priority"].as_i64().unwrap_or_default();
        let age = |pod: &Value| text(&pod["metadata"], "creationTimestamp").to_owned();
        pods.sort_by_key(|pod| (priority(pod), age(pod), path_of(pod)));
        for pod in pods {
            let attempt = Attempt::new(view, &self.bindings, &self.given);
            let state = attempt.fingerprint();
            if self.refused.get(uid(&pod)) == Some(&state) {
                continue;
            }
            match attempt.place(&pod) {
                Answer::Place(binding) => {
                    self.refused.remove(uid(&pod));
                    self.bindings.push(binding);
                    return self.next_of_bindings(view).or_else(|| self.next_of_pods(view));
                }
                Answer::Deallocate(claim) => return Some(ControllerWrite::UpdateStatus(claim)),
                Answer::NotYet => {}
                Answer::No(why) => {
                    self.refuse(view, &pod, &Failure { reason: "Unschedulable", message: why, is_passing: false });
                    return self.outbox.pop_front();
                }
            }
        }
        None
    }

    fn is_waiting(&self, pod: &Value) -> bool {
        let spec = &pod["spec"];
        let scheduler = text(spec, "schedulerName");
        text(spec, "nodeName").is_empty()
            && list(&spec["schedulingGates"]).is_empty()
            && pod["metadata"]["deletionTimestamp"].is_null()
            && !matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed")
            && (scheduler.is_empty() || scheduler == COMPONENT)
            && !self.bindings.iter().any(|binding| uid(&binding.pod) == uid(pod))
    }

    /// Writes the reason, and tries again when something has changed.
    fn refuse(&mut self, view: &ApiServerView<'_>, pod: &Value, why: &Failure) {
        let Failure { reason, message, is_passing } = why;
        if !is_passing {
            let state = Attempt::new(view, &self.bindings, &self.given).fingerprint();
            self.refused.insert(uid(pod).to_owned(), state);
        }
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": reason, "message": message });
        let known = view.get("pods", &path_of(pod)).unwrap_or_default();
        let is_known = list(&known["status"]["conditions"])
            .iter()
            .any(|one| ["type", "status", "reason", "message"].iter().all(|field| one[*field] == condition[*field]));
        let mut patch = identity(pod);
        patch["status"] = json!({ "conditions": [condition] });
        if !known.is_null() && !is_known {
            self.outbox.push_back(ControllerWrite::PatchStatus(patch));
        }
        self.outbox.push_back(ControllerWrite::Create(event(pod, "Warning", "FailedScheduling", message, COMPONENT)));
    }
}

fn uid(object: &Value) -> &str {
    text(&object["metadata"], "uid")
}

/// The claims of a pod that there are, in its order; `Err`: one is missing.
pub(super) fn claims_of(view: &ApiServerView<'_>, pod: &Value) -> Result<Vec<Value>, String> {
    let namespace = text(&pod["metadata"], "namespace");
    let mut claims = Vec::new();
    for entry in list(&pod["spec"]["resourceClaims"]) {
        let name = entry["resourceClaimName"].as_str().or_else(|| generated(pod, entry));
        let name = name.ok_or_else(|| format!("pod claim {} is not there yet", entry["name"]))?;
        let claim = view.get("resourceclaims", &format!("{namespace}/{name}"));
        let claim = claim.ok_or_else(|| format!("resourceclaim {name:?} not found"))?;
        if claim["metadata"]["deletionTimestamp"].is_string() {
            return Err(format!("resourceclaim {name:?} is being deleted"));
        }
        claims.push(claim);
    }
    Ok(claims)
}

impl Binding {
    fn next(&self, view: &ApiServerView<'_>) -> Next {
        let pod = view.get("pods", &path_of(&self.pod)).filter(|pod| uid(pod) == uid(&self.pod));
        let Some(pod) = pod.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) else {
            return self.give_back(view);
        };
        if !text(&pod["spec"], "nodeName").is_empty() {
            return Next::End;
        }
        if self.failure.is_some() {
            return self.give_back(view);
        }
        let claims = match claims_of(view, &pod) {
            Ok(claims) => claims,
            Err(why) => return Next::Fail(why),
        };
        for claim in &claims {
            if let Some(next) = self.next_of_claim(claim, &pod) {
                return next;
            }
        }
        for claim in &claims {
            match readiness(claim) {
                Ok(true) => {}
                Ok(false) => return Next::Wait,
                Err(why) => return Next::Fail(why),
            }
        }
        Next::Write(ControllerWrite::Bind { pod, node: self.node.clone() })
    }

    fn next_of_claim(&self, claim: &Value, pod: &Value) -> Option<Next> {
        let name = path_of(claim);
        let is_reserved = list(&claim["status"]["reservedFor"]).iter().any(|entry| entry["uid"] == uid(pod));
        if is_reserved {
            return None;
        }
        let is_allocated = !claim["status"]["allocation"].is_null();
        let mut changed = reserved_for(claim, pod);
        match self.allocations.get(uid(claim)) {
            Some(_) if is_allocated => {
                return Some(Next::Fail(format!("claim {name} got allocated elsewhere in the meantime")));
            }
            Some(allocation) => {
                if !list(&claim["metadata"]["finalizers"]).iter().any(|one| one == FINALIZER) {
                    return Some(Next::Write(ControllerWrite::Update(with_finalizer(claim))));
                }
                changed["status"]["allocation"] = allocation.clone();
            }
            None if !is_allocated => {
                return Some(Next::Fail(format!("claim {name} got deallocated elsewhere in the meantime")));
            }
            None => {}
        }
        // Also an allocation of another writer, which the server refuses then: an allocation never changes.
        if changed["status"]["allocation"]["allocationTimestamp"].is_null() {
            changed["status"]["allocation"]["allocationTimestamp"] =
                json!(k8s_openapi::jiff::Timestamp::now().to_string());
        }
        Some(Next::Write(ControllerWrite::UpdateStatus(changed)))
    }

    /// Takes the reservations back, claim by claim.
    fn give_back(&self, view: &ApiServerView<'_>) -> Next {
        let reserved =
            |claim: &&Value| list(&claim["status"]["reservedFor"]).iter().any(|entry| entry["uid"] == uid(&self.pod));
        let claims = view.list("resourceclaims");
        let Some(claim) = claims.iter().find(reserved).filter(|_| self.failure.is_some()) else { return Next::End };
        let mut patch = identity(claim);
        patch["status"] = json!({ "reservedFor": [{ "$patch": "delete", "uid": uid(&self.pod) }] });
        Next::Write(ControllerWrite::PatchStatus(patch))
    }
}

fn with_finalizer(claim: &Value) -> Value {
    let mut changed = claim.clone();
    let mut finalizers = list(&claim["metadata"]["finalizers"]).to_vec();
    finalizers.push(json!(FINALIZER));
    changed["metadata"]["finalizers"] = json!(finalizers);
    changed
}

/// Returns true if all devices of a claim are ready for its pod; `Err` if one never will be. As upstream does, it
/// examines devices only up to the first that is not ready.
fn readiness(claim: &Value) -> Result<bool, String> {
    for result in list(&claim["status"]["allocation"]["devices"]["results"]) {
        let conditions = list(&result["bindingConditions"]);
        if conditions.is_empty() {
            continue;
        }
        let is_it = |status: &&Value| {
            ["driver", "pool", "device", "shareID"].iter().all(|field| status[*field] == result[*field])
        };
        let Some(status) = list(&claim["status"]["devices"]).iter().find(is_it) else { return Ok(false) };
        let find = |kind: &Value| {
            list(&status["conditions"]).iter().find(|one| one["type"] == *kind && one["status"] == "True")
        };
        if let Some(failed) = list(&result["bindingFailureConditions"]).iter().find_map(find) {
            let (claim, reason) = (text(&claim["metadata"], "name"), text(failed, "reason"));
            return Err(format!(
                "device binding failed: claim={claim}, reason={reason}, message={}",
                failed["message"]
            ));
        }
        if !conditions.iter().all(|kind| find(kind).is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

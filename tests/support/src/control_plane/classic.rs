//! Scheduler and controller of claims of a cluster of 1.26 to 1.31, as far as they touch claims that a driver's
//! controller allocates. They negotiate with it in an object beside each pod.
//!
//! ```text
//!   pod ──► nodes that fit? ──► potential nodes, and one that is selected ──► (the driver allocates) ──► reserved, bound
//!              └ none: the selected node is cleared first, then one claim that is in the way is to be taken back
//! ```
//!
//! As [`ControlPlane`](super::ControlPlane), each looks at the whole state and says the one write that it makes next.
//! Of several nodes the first by name is taken.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::core::NodeSelector;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{ControllerCommand, ControllerWrite, claims::is_done, list, path_of, text};
use crate::apiserver::{ApiServer, ApiServerRelease, ApiServerView};

const SCHEDULER: &str = "kube-scheduler";
const CLAIMS: &str = "kube-controller-manager";
/// Objects are stored so, whatever is served.
const STORED: &str = "resource.k8s.io/v1";
/// Nodes that drivers are asked about at once.
const MOST_NODES: usize = 128;

/// Scheduler and controller of claims, for one release.
#[derive(Clone, Copy, Debug)]
pub struct ClassicControlPlane {
    release: ApiServerRelease,
}

/// A claim, by what its pod calls it.
type PodClaims = Vec<(String, Value)>;

/// Inputs of a scheduling cycle of a pod.
struct Cycle<'v, 's> {
    plane: ClassicControlPlane,
    view: &'v ApiServerView<'s>,
    pod: &'v Value,
    claims: PodClaims,
    context: Option<Value>,
}

impl ClassicControlPlane {
    /// Returns the control plane of a cluster of this release that starts.
    pub fn new(release: ApiServerRelease) -> Self {
        Self { release }
    }

    /// Returns the resource of negotiations.
    pub fn contexts(self) -> &'static str {
        if self.release == ApiServerRelease::V1_26 { "podschedulings" } else { "podschedulingcontexts" }
    }

    fn is_devices(self) -> bool {
        self.release == ApiServerRelease::V1_31
    }

    /// Returns the next write; `None` if there is nothing to do.
    pub fn next(self, view: &ApiServerView<'_>) -> Option<ControllerCommand> {
        let write = self.next_of_claims(view).map(|write| ControllerCommand { who: CLAIMS, write });
        write.or_else(|| {
            let pods = view.list("pods");
            let write = pods.iter().find_map(|pod| self.next_of_pod(view, pod))?;
            Some(ControllerCommand { who: SCHEDULER, write })
        })
    }

    /// Makes steps until there is nothing to do; a refused write is tried again when something has changed.
    pub fn settle(self, server: &ApiServer) {
        const MOST: usize = 1_000;
        for _ in 0..MOST {
            let Some(command) = server.look(|view| self.next(view)) else { return };
            if server.carry_out(&command).is_err() {
                return;
            }
        }
        panic!("the controllers do not come to rest");
    }

    /// Runs until the task is aborted or the server is gone.
    pub fn run(self, server: &Arc<ApiServer>) -> JoinHandle<()> {
        let server = Arc::clone(server);
        let mut changes = server.changes();
        tokio::spawn(async move {
            loop {
                changes.mark_unchanged();
                self.settle(&server);
                if changes.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    /// The controller of claims.
    fn next_of_claims(self, view: &ApiServerView<'_>) -> Option<ControllerWrite> {
        let pods = view.list("pods");
        let is_alive = |uid: &Value| pods.iter().any(|pod| pod["metadata"]["uid"] == *uid && !is_done(pod));
        let of_claim = |claim: &Value| self.released(claim, &is_alive);
        let of_context = |context: &Value| {
            let is_over = !is_alive(&context["metadata"]["ownerReferences"][0]["uid"]);
            is_over.then(|| ControllerWrite::Delete { object: context.clone(), options: json!({}) })
        };
        let claims = view.list("resourceclaims");
        let write = pods.iter().find_map(|pod| self.claim_for(view, pod));
        let write = write.or_else(|| claims.iter().find_map(of_claim));
        let write = write.or_else(|| view.list(self.contexts()).iter().find_map(of_context));
        write.or_else(|| pods.iter().find_map(|pod| self.of_placed(view, pod)))
    }

    /// Removes reservations of pods that are gone; with the last one, deallocation is requested, but not in 1.26. A
    /// claim that was made for a pod is deleted with it.
    fn released(self, claim: &Value, is_alive: &dyn Fn(&Value) -> bool) -> Option<ControllerWrite> {
        let consumers = list(&claim["status"]["reservedFor"]);
        let alive: Vec<&Value> = consumers.iter().filter(|consumer| is_alive(&consumer["uid"])).collect();
        if alive.len() < consumers.len() {
            let mut changed = claim.clone();
            changed["status"]["reservedFor"] = json!(alive);
            if alive.is_empty() && self.release > ApiServerRelease::V1_26 {
                changed["status"]["deallocationRequested"] = json!(true);
            }
            return Some(ControllerWrite::UpdateStatus(changed));
        }
        let owner = &claim["metadata"]["ownerReferences"][0]["uid"];
        let is_orphan = !owner.is_null() && !is_alive(owner) && claim["metadata"]["deletionTimestamp"].is_null();
        is_orphan.then(|| ControllerWrite::Delete { object: claim.clone(), options: json!({}) })
    }

    /// The claim of an entry of a pod, under the name that it has or will have.
    fn name_of(self, pod: &Value, entry: &Value) -> Option<String> {
        let source = if entry["source"].is_object() { &entry["source"] } else { entry };
        if let Some(name) = source["resourceClaimName"].as_str() {
            return Some(name.to_owned());
        }
        let made = list(&pod["status"]["resourceClaimStatuses"]).iter().find(|it| it["name"] == entry["name"]);
        let made = made.and_then(|made| made["resourceClaimName"].as_str().map(str::to_owned));
        let by_rule = || format!("{}-{}", text(&pod["metadata"], "name"), text(entry, "name"));
        made.or_else(|| (self.release == ApiServerRelease::V1_26).then(by_rule))
    }

    /// Creates a claim from a template, and names it in the status of the pod in releases that find it there.
    fn claim_for(self, view: &ApiServerView<'_>, pod: &Value) -> Option<ControllerWrite> {
        let namespace = text(&pod["metadata"], "namespace");
        for entry in list(&pod["spec"]["resourceClaims"]) {
            let source = if entry["source"].is_object() { &entry["source"] } else { entry };
            let Some(template) = source["resourceClaimTemplateName"].as_str() else { continue };
            let name = format!("{}-{}", text(&pod["metadata"], "name"), text(entry, "name"));
            let Some(template) = view.get("resourceclaimtemplates", &format!("{namespace}/{template}")) else {
                continue;
            };
            if view.get("resourceclaims", &format!("{namespace}/{name}")).is_none() {
                let owner = json!({
                    "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
                    "controller": true,
                });
                return Some(ControllerWrite::Create(json!({
                    "apiVersion": STORED, "kind": "ResourceClaim", "spec": template["spec"]["spec"],
                    "metadata": { "name": name, "namespace": namespace, "ownerReferences": [owner] },
                })));
            }
            if self.name_of(pod, entry).is_none() {
                let mut changed = pod.clone();
                let mut statuses = list(&pod["status"]["resourceClaimStatuses"]).to_vec();
                statuses.push(json!({ "name": entry["name"], "resourceClaimName": name }));
                changed["status"]["resourceClaimStatuses"] = json!(statuses);
                return Some(ControllerWrite::UpdateStatus(changed));
            }
        }
        None
    }

    /// The claims of a pod; `None`: one is missing.
    fn claims_of(self, view: &ApiServerView<'_>, pod: &Value) -> Option<PodClaims> {
        let namespace = text(&pod["metadata"], "namespace");
        let claim = |entry: &Value| {
            let claim = view.get("resourceclaims", &format!("{namespace}/{}", self.name_of(pod, entry)?))?;
            Some((text(entry, "name").to_owned(), claim))
        };
        list(&pod["spec"]["resourceClaims"]).iter().map(claim).collect()
    }

    /// A pod that is on a node without having been scheduled with its claims.
    fn of_placed(self, view: &ApiServerView<'_>, pod: &Value) -> Option<ControllerWrite> {
        let node = pod["spec"]["nodeName"].as_str().filter(|_| !is_done(pod))?;
        let claims = self.claims_of(view, pod)?;
        let has_context = view.get(self.contexts(), &path_of(pod)).is_some();
        claims.iter().find_map(|(_, claim)| {
            if claim["status"]["allocation"].is_object() {
                return reserved(claim, pod);
            }
            let is_told = has_context || claim["status"]["deallocationRequested"] == true;
            (!is_told).then(|| ControllerWrite::Create(self.new_context(pod, json!({ "selectedNode": node }))))
        })
    }

    fn new_context(self, pod: &Value, spec: Value) -> Value {
        let metadata = &pod["metadata"];
        let owner = json!({
            "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "controller": true,
        });
        let kind = if self.release == ApiServerRelease::V1_26 { "PodScheduling" } else { "PodSchedulingContext" };
        json!({
            "apiVersion": STORED, "kind": kind, "spec": spec,
            "metadata": { "name": metadata["name"], "namespace": metadata["namespace"], "ownerReferences": [owner] },
        })
    }

    /// The scheduler.
    fn next_of_pod(self, view: &ApiServerView<'_>, pod: &Value) -> Option<ControllerWrite> {
        let context = view.get(self.contexts(), &path_of(pod));
        if is_done(pod) || list(&pod["spec"]["resourceClaims"]).is_empty() {
            return None;
        }
        let claims = self.claims_of(view, pod)?;
        if pod["spec"]["nodeName"].is_string() {
            let has_all = claims.iter().all(|(_, claim)| claim["status"]["allocation"].is_object());
            let context = context.filter(|_| has_all)?;
            return Some(ControllerWrite::Delete { object: context, options: json!({}) });
        }
        Cycle { plane: self, view, pod, claims, context }.next()
    }
}

/// Returns the write that adds a consumer, unless the pod is one.
fn reserved(claim: &Value, pod: &Value) -> Option<ControllerWrite> {
    let uid = &pod["metadata"]["uid"];
    let mut consumers = list(&claim["status"]["reservedFor"]).to_vec();
    if consumers.iter().any(|consumer| consumer["uid"] == *uid) {
        return None;
    }
    consumers.push(json!({ "resource": "pods", "name": pod["metadata"]["name"], "uid": uid }));
    let mut changed = claim.clone();
    changed["status"]["reservedFor"] = json!(consumers);
    Some(ControllerWrite::UpdateStatus(changed))
}

fn matches(selector: &Value, node: &Value) -> bool {
    let Ok(selector) = serde_json::from_value::<NodeSelector>(selector.clone()) else { return true };
    let labels: BTreeMap<String, String> =
        serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default();
    selector.matches(text(&node["metadata"], "name"), &labels)
}

fn strings(value: &Value) -> Vec<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}

impl Cycle<'_, '_> {
    fn next(&self) -> Option<ControllerWrite> {
        if !self.claims.iter().all(|(_, claim)| self.can_be_used(claim)) {
            return None;
        }
        let nodes = self.view.list("nodes");
        let feasible: Vec<&str> = nodes
            .iter()
            .filter(|node| self.claims.iter().all(|(name, claim)| self.fits(name, claim, node)))
            .map(|node| text(&node["metadata"], "name"))
            .collect();
        let Some(first) = feasible.first() else { return self.post_filter(&nodes) };
        let is_allocated = |claim: &Value| claim["status"]["allocation"].is_object();
        if !self.claims.iter().all(|(_, claim)| is_allocated(claim)) {
            return self.negotiate(&feasible);
        }
        let reservation = self.claims.iter().find_map(|(_, claim)| reserved(claim, self.pod));
        Some(reservation.unwrap_or_else(|| ControllerWrite::Bind { pod: self.pod.clone(), node: (*first).to_owned() }))
    }

    fn can_be_used(&self, claim: &Value) -> bool {
        let status = &claim["status"];
        let consumers = list(&status["reservedFor"]);
        let is_mine = consumers.iter().any(|it| it["uid"] == self.pod["metadata"]["uid"]);
        let can_share = self.plane.is_devices() || status["allocation"]["shareable"] == true;
        let is_free = consumers.is_empty() || (can_share && consumers.len() < 32);
        let is_going = status["deallocationRequested"] == true || claim["metadata"]["deletionTimestamp"].is_string();
        !is_going && (status["allocation"].is_null() || is_mine || is_free) && self.class_of(claim).is_some()
    }

    /// The part of the class that says which nodes suit it.
    fn class_of(&self, claim: &Value) -> Option<Value> {
        if self.plane.is_devices() {
            let name = claim["spec"]["devices"]["requests"][0]["deviceClassName"].as_str()?;
            return self.view.get("deviceclasses", name).map(|class| class["spec"].clone());
        }
        self.view.get("resourceclasses", claim["spec"]["resourceClassName"].as_str()?)
    }

    fn fits(&self, name: &str, claim: &Value, node: &Value) -> bool {
        let allocation = &claim["status"]["allocation"];
        if allocation.is_object() {
            let field = if self.plane.is_devices() { "nodeSelector" } else { "availableOnNodes" };
            return matches(&allocation[field], node);
        }
        let suitable = self.class_of(claim).is_none_or(|class| matches(&class["suitableNodes"], node));
        let entry = self.entry(name);
        let unsuitable = entry.map(|entry| strings(&entry["unsuitableNodes"])).unwrap_or_default();
        suitable && node["spec"]["unschedulable"] != true && !unsuitable.contains(&text(&node["metadata"], "name"))
    }

    /// Returns the drivers' answer about a claim.
    fn entry(&self, name: &str) -> Option<&Value> {
        let entries = list(&self.context.as_ref()?["status"]["resourceClaims"]);
        entries.iter().find(|entry| entry["name"] == *name)
    }

    /// The selected node is cleared first; else one claim that is in the way is to be taken back.
    fn post_filter(&self, nodes: &[Value]) -> Option<ControllerWrite> {
        if let Some(context) = self.context.as_ref().filter(|it| it["spec"]["selectedNode"].is_string()) {
            let mut changed = context.clone();
            changed["spec"].as_object_mut()?.remove("selectedNode");
            return Some(ControllerWrite::Update(changed));
        }
        let uid = &self.pod["metadata"]["uid"];
        let can_go = |claim: &Value| {
            let is_mine = list(&claim["status"]["reservedFor"]).iter().all(|consumer| consumer["uid"] == *uid);
            is_mine && claim["status"]["allocation"].is_object()
        };
        let is_in_the_way = |name: &str, claim: &Value| nodes.iter().any(|node| !self.fits(name, claim, node));
        let (_, claim) = self.claims.iter().find(|(name, claim)| can_go(claim) && is_in_the_way(name, claim))?;
        let mut changed = claim.clone();
        changed["status"]["reservedFor"] = Value::Null;
        changed["status"]["deallocationRequested"] = json!(true);
        Some(ControllerWrite::UpdateStatus(changed))
    }

    /// Drivers are asked about nodes; once all have answered about all claims, one of the nodes is selected.
    fn negotiate(&self, feasible: &[&str]) -> Option<ControllerWrite> {
        let old = self.context.as_ref().map_or_else(|| json!({}), |context| context["spec"].clone());
        let mut spec = old.clone();
        let known = strings(&old["potentialNodes"]);
        if !feasible.iter().all(|node| known.contains(node)) {
            spec["potentialNodes"] = json!(&feasible[..feasible.len().min(MOST_NODES)]);
        }
        let mut waiting = self.claims.iter().filter(|(_, claim)| claim["status"]["allocation"].is_null());
        let is_alone = self.claims.len() == 1;
        let is_kept = old["selectedNode"].as_str().is_some_and(|node| feasible.contains(&node));
        if !is_kept && (is_alone || waiting.all(|(name, _)| self.entry(name).is_some())) {
            spec["selectedNode"] = json!(feasible[0]);
        }
        match &self.context {
            None => Some(ControllerWrite::Create(self.plane.new_context(self.pod, spec))),
            Some(context) if spec != old => {
                let mut changed = context.clone();
                changed["spec"] = spec;
                Some(ControllerWrite::Update(changed))
            }
            Some(_) => None,
        }
    }
}

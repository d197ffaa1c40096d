//! An attempt to find a node for a pod, in one state of the cluster.

use std::collections::BTreeMap;

use hostler_allocator::structured::{AllocatedState, Allocator, Budget, NodeFacts, Refusal, SliceIndex};
use hostler_api::{
    KubernetesVersion,
    core::{Node, NodeSelector, Pod},
    resource::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    super::{list, places, text},
    Binding, claims_of,
    given::GivenDevices,
    readiness, uid,
};
use crate::apiserver::ApiServerView;

/// Steps of one search: what takes longer has been given up by the real one as well.
const MOST_STEPS: u64 = 1_000_000;
/// Limit of consumers of a claim.
const MOST_CONSUMERS: usize = 256;

/// The result of an attempt.
pub(super) enum Answer {
    Place(Binding),
    /// A claim is in the way, and is unused.
    Deallocate(Value),
    /// The pod cannot be scheduled yet, and no condition says so.
    NotYet,
    No(String),
}

pub(super) struct Attempt<'a> {
    view: &'a ApiServerView<'a>,
    bindings: &'a [Binding],
    given: &'a GivenDevices,
    claims: Vec<Value>,
    pods: Vec<Value>,
}

/// The kinds that decide whether a pod can be placed.
const DECISIVE: [&str; 4] = ["nodes", "resourceslices", "deviceclasses", "resourceclaims"];

impl<'a> Attempt<'a> {
    pub(super) fn new(view: &'a ApiServerView<'a>, bindings: &'a [Binding], given: &'a GivenDevices) -> Self {
        Self { view, bindings, given, claims: view.list("resourceclaims"), pods: view.list("pods") }
    }

    /// Another one where something has changed that can matter.
    pub(super) fn fingerprint(&self) -> String {
        let version = |object: &Value| format!("{}@{}", uid(object), text(&object["metadata"], "resourceVersion"));
        let decisive = DECISIVE.iter().flat_map(|plural| self.view.list(plural));
        let placed = self.pods.iter().filter(|pod| !text(&pod["spec"], "nodeName").is_empty());
        let pending = self.bindings.iter().map(|binding| uid(&binding.pod).to_owned());
        let nominated = self.pods.iter().filter(|pod| !text(&pod["status"], "nominatedNodeName").is_empty());
        let nominated = nominated.map(|pod| format!("{}>{}", uid(pod), text(&pod["status"], "nominatedNodeName")));
        decisive.map(|object| version(&object)).chain(placed.map(version)).chain(pending).chain(nominated).collect()
    }

    pub(super) fn place(&self, pod: &Value) -> Answer {
        let Ok(claims) = claims_of(self.view, pod) else { return Answer::NotYet };
        let nodes: Vec<Node> = typed(self.view.list("nodes"));
        let refuse = |why: &str| Answer::No(format!("0/{} nodes are available: {why}.", nodes.len()));
        let reserved =
            |claim: &Value| list(&claim["status"]["reservedFor"]).iter().any(|entry| entry["uid"] == uid(pod));
        let is_allocated = |claim: &&Value| !claim["status"]["allocation"].is_null();
        let is_full = |claim: &Value| list(&claim["status"]["reservedFor"]).len() >= MOST_CONSUMERS && !reserved(claim);
        if claims.iter().any(|claim| is_allocated(&claim) && is_full(claim)) {
            return refuse("resourceclaim in use");
        }
        let pending: Vec<&Value> = claims.iter().filter(|claim| !is_allocated(claim)).collect();
        let in_flight =
            |claim: &&&Value| self.bindings.iter().any(|binding| binding.allocations.contains_key(uid(claim)));
        if let Some(claim) = pending.iter().find(in_flight) {
            return refuse(&format!("resource claim {} is in the process of being allocated", super::path_of(claim)));
        }
        if let Some(missing) = self.missing_class(&pending) {
            return refuse(&missing);
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut unavailable: Vec<&Value> = Vec::new();
        let mut found: Vec<((i64, usize), Binding)> = Vec::new();
        for node in &nodes {
            let others = self.pods_on(&node.metadata.name, pod);
            let tried = self.on_node(pod, node, &others, &claims, &pending);
            match tried {
                Ok(allocations) => {
                    let binding =
                        Binding { pod: pod.clone(), node: node.metadata.name.clone(), allocations, failure: None };
                    found.push(((rank(pod, &binding.node), others.len()), binding));
                }
                Err(NodeRefusal::Node(why)) => *reasons.entry(why).or_default() += 1,
                Err(NodeRefusal::Claims(names)) => {
                    unavailable.extend(claims.iter().filter(|claim| names.contains(&uid(claim).to_owned())));
                    *reasons.entry("resourceclaim not available on the node".to_owned()).or_default() += 1;
                }
                Err(NodeRefusal::Everywhere(why)) => return refuse(&why),
            }
        }
        found.sort_by_key(|(rank, binding)| (*rank, binding.node.clone()));
        if let Some((_, binding)) = found.into_iter().next() {
            return Answer::Place(binding);
        }
        let is_mine =
            |claim: &&&Value| list(&claim["status"]["reservedFor"]).iter().all(|entry| entry["uid"] == uid(pod));
        if let Some(claim) = unavailable.iter().find(is_mine) {
            return Answer::Deallocate(deallocated(claim));
        }
        let reasons: Vec<String> = reasons.into_iter().map(|(why, count)| format!("{count} {why}")).collect();
        if reasons.is_empty() {
            Answer::No("no nodes available to schedule pods".to_owned())
        } else {
            refuse(&reasons.join(", "))
        }
    }

    fn missing_class(&self, claims: &[&Value]) -> Option<String> {
        let requests = claims.iter().flat_map(|claim| list(&claim["spec"]["devices"]["requests"]));
        let named = requests.flat_map(|request| {
            let exactly = [(text(request, "name").to_owned(), text(&request["exactly"], "deviceClassName").to_owned())];
            let subs = list(&request["firstAvailable"]).iter().map(|sub| {
                (format!("{}/{}", text(request, "name"), text(sub, "name")), text(sub, "deviceClassName").to_owned())
            });
            exactly.into_iter().chain(subs).filter(|(_, class)| !class.is_empty()).collect::<Vec<_>>()
        });
        let mut named = named;
        let missing = named.find(|(_, class)| self.view.get("deviceclasses", class).is_none());
        missing.map(|(request, class)| format!("request {request}: device class {class} does not exist"))
    }

    /// Returns the pods of a node as the scheduler counts them for a pod: also those that are being bound to it, and
    /// those of the same or a higher priority that are nominated for it, gated ones as well.
    fn pods_on(&self, node: &str, asking: &Value) -> Vec<Pod> {
        let is_done = |pod: &&Value| matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed");
        let there = self.pods.iter().filter(|pod| text(&pod["spec"], "nodeName") == node && !is_done(pod));
        let coming = self.bindings.iter().filter(|binding| binding.node == node).map(|binding| &binding.pod);
        let is_bound = |pod: &Value| {
            !text(&pod["spec"], "nodeName").is_empty() || self.bindings.iter().any(|it| uid(&it.pod) == uid(pod))
        };
        let nominated = self.pods.iter().filter(|pod| {
            text(&pod["status"], "nominatedNodeName") == node
                && !is_done(pod)
                && pod["metadata"]["deletionTimestamp"].is_null()
                && !is_bound(pod)
                && uid(pod) != uid(asking)
                && priority(pod) >= priority(asking)
        });
        typed(there.chain(coming).chain(nominated).cloned().collect())
    }

    fn on_node(
        &self,
        pod: &Value,
        node: &Node,
        others: &[Pod],
        claims: &[Value],
        pending: &[&Value],
    ) -> Result<BTreeMap<String, Value>, NodeRefusal> {
        let others: Vec<&Pod> = others.iter().collect();
        let pod: Pod =
            serde_json::from_value(pod.clone()).map_err(|error| NodeRefusal::Everywhere(error.to_string()))?;
        if let Some(why) = places::refusal(node, &pod, &others) {
            return Err(NodeRefusal::Node(why));
        }
        let away: Vec<String> =
            claims.iter().filter(|claim| !is_usable_on(claim, node)).map(|claim| uid(claim).to_owned()).collect();
        // The allocator is asked all the same: what it says of other claims comes first.
        let allocations = self.allocate(node, pending)?;
        if away.is_empty() { Ok(allocations) } else { Err(NodeRefusal::Claims(away)) }
    }

    fn allocate(&self, node: &Node, pending: &[&Value]) -> Result<BTreeMap<String, Value>, NodeRefusal> {
        if pending.is_empty() {
            return Ok(BTreeMap::new());
        }
        let slices: Vec<ResourceSlice> = typed(self.view.list("resourceslices"));
        let classes: Vec<DeviceClass> = typed(self.view.list("deviceclasses"));
        let wanted: Vec<ResourceClaim> = typed(pending.iter().map(|claim| (*claim).clone()).collect());
        let allocator = Allocator::for_version(KubernetesVersion::V1_36, classes);
        let fatal = |error: &dyn std::fmt::Display| NodeRefusal::Everywhere(error.to_string());
        let facts = NodeFacts { name: &node.metadata.name, labels: &node.metadata.labels };
        let pools = allocator.gather(facts, &SliceIndex::new(&slices)).map_err(|error| fatal(&error))?;
        let state = self.held(&allocator);
        let compiled = allocator.compile(&wanted);
        match allocator.allocate(&pools, &state, &compiled, &mut Budget::steps(MOST_STEPS)) {
            Ok(results) => {
                Ok(pending.iter().zip(results).map(|(claim, result)| (uid(claim).to_owned(), json!(result))).collect())
            }
            Err(Refusal::Fatal(error)) => Err(fatal(&error)),
            Err(_) => Err(NodeRefusal::Node("cannot allocate all claims".to_owned())),
        }
    }

    /// Returns the devices that claims have, and those that they are about to get.
    fn held(&self, allocator: &Allocator) -> AllocatedState {
        let mut state = AllocatedState::new();
        let written = self.claims.iter().filter(|claim| !claim["status"]["allocation"].is_null());
        let known: Vec<&str> = written.clone().map(uid).collect();
        let pending = self.bindings.iter().flat_map(|binding| &binding.allocations);
        let pending = pending.filter(|(claim, _)| !known.contains(&claim.as_str())).map(|(_, allocation)| allocation);
        let written = written.map(|claim| self.given.counted(&claim["status"]["allocation"]));
        for allocation in written.chain(pending.cloned()) {
            if let Ok(allocation) = serde_json::from_value::<AllocationResult>(allocation) {
                state.add(allocator.features(), &allocation);
            }
        }
        state
    }
}

/// The reason why a pod does not fit on a node.
enum NodeRefusal {
    Node(String),
    /// These claims have their devices elsewhere, or devices that never come; by UID.
    Claims(Vec<String>),
    /// No node makes a difference.
    Everywhere(String),
}

fn priority(pod: &Value) -> i64 {
    pod["spec"]["priority"].as_i64().unwrap_or_default()
}

/// Returns the rank of a node for a pod, the best first: the node that it is nominated for, then by preferences.
fn rank(pod: &Value, node: &str) -> i64 {
    if text(&pod["status"], "nominatedNodeName") == node {
        return i64::MIN;
    }
    let preferred = list(&pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]);
    let names = |term: &Value| {
        list(&term["preference"]["matchFields"])
            .iter()
            .any(|it| it["key"] == "metadata.name" && list(&it["values"]).iter().any(|name| name == node))
    };
    -preferred.iter().filter(|term| names(term)).map(|term| term["weight"].as_i64().unwrap_or_default()).sum::<i64>()
}

fn is_usable_on(claim: &Value, node: &Node) -> bool {
    let allocation = &claim["status"]["allocation"];
    let is_reachable = match &allocation["nodeSelector"] {
        Value::Null => true,
        selector => serde_json::from_value::<NodeSelector>(selector.clone())
            .is_ok_and(|selector| selector.matches(&node.metadata.name, &node.metadata.labels)),
    };
    is_reachable && (allocation.is_null() || readiness(claim).is_ok())
}

fn deallocated(claim: &Value) -> Value {
    let mut changed = claim.clone();
    if let Some(status) = changed["status"].as_object_mut() {
        status.retain(|field, _| !matches!(field.as_str(), "reservedFor" | "allocation" | "devices"));
    }
    changed
}

fn typed<T: DeserializeOwned>(objects: Vec<Value>) -> Vec<T> {
    objects.into_iter().map(|object| serde_json::from_value(object).expect("what is stored can be read")).collect()
}

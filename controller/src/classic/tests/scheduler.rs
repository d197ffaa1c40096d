//! kube-scheduler and kube-controller-manager of 1.31, step by step, as far as they touch claims of a controller.

use std::collections::BTreeSet;

use hostler_api::core::NodeSelector;
use serde_json::{Value, json};

use super::world::World;
use crate::testkit::Dice;

/// What a scheduling cycle came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cycle {
    /// There is nothing to schedule.
    Nothing,
    /// No node will do, for now.
    Unschedulable,
    /// Drivers are asked.
    Pending,
    Bound,
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

fn matches(selector: &Value, node: &Value) -> bool {
    let Ok(selector) = serde_json::from_value::<NodeSelector>(selector.clone()) else { return true };
    let labels = serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default();
    selector.matches(node["metadata"]["name"].as_str().unwrap(), &labels)
}

impl World {
    fn pod_claims(&self, pod: &Value) -> Option<Vec<(String, Value)>> {
        let claims = pod["spec"]["resourceClaims"].as_array().cloned().unwrap_or_default();
        let resolve = |claim: &Value| {
            let source = if claim["source"].is_object() { &claim["source"] } else { claim };
            let object = self.get_claim(source["resourceClaimName"].as_str()?)?;
            Some((claim["name"].as_str()?.to_owned(), object.clone()))
        };
        claims.iter().map(resolve).collect()
    }

    fn class_of(&self, claim: &Value) -> Option<Value> {
        if self.is_devices() {
            let name = claim["spec"]["devices"]["requests"][0]["deviceClassName"].as_str()?;
            return self.server.get("deviceclasses", "", name).map(|class| class["spec"].clone());
        }
        self.server.get("resourceclasses", "", claim["spec"]["resourceClassName"].as_str()?).cloned()
    }

    /// One scheduling cycle of one pod.
    pub(super) fn schedule(&mut self, name: &str, dice: &mut Dice) -> Cycle {
        let Some(pod) = self.server.get("pods", "default", name).cloned() else { return Cycle::Nothing };
        if !pod["spec"]["nodeName"].is_null() || pod["status"]["phase"] != "Pending" {
            return Cycle::Nothing;
        }
        let Some(claims) = self.pod_claims(&pod) else { return Cycle::Unschedulable };
        let uid = pod["metadata"]["uid"].clone();
        for (_, claim) in &claims {
            let consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
            let is_mine = consumers.iter().any(|it| it["uid"] == uid);
            let can_share = self.is_devices() || claim["status"]["allocation"]["shareable"] == true;
            let is_free = consumers.is_empty() || (can_share && consumers.len() < 32);
            let is_allocated = claim["status"]["allocation"].is_object();
            let is_deleting = !claim["metadata"]["deletionTimestamp"].is_null();
            let is_going = claim["status"]["deallocationRequested"] == true;
            if is_going || is_deleting || (is_allocated && !is_mine && !is_free) || self.class_of(claim).is_none() {
                return Cycle::Unschedulable;
            }
        }
        let context = self.server.get(self.contexts(), "default", name).cloned();
        let (feasible, unavailable) = self.filter(&claims, context.as_ref());
        if feasible.is_empty() {
            self.post_filter(name, &uid, &claims, context.as_ref(), &unavailable, dice);
            return Cycle::Unschedulable;
        }
        let waiting: Vec<&str> = claims
            .iter()
            .filter(|(_, claim)| claim["status"]["allocation"].is_null())
            .map(|(name, _)| &**name)
            .collect();
        let node = feasible[dice.roll(feasible.len())].clone();
        if waiting.is_empty() {
            return self.bind(name, &uid, &claims, &node);
        }
        self.negotiate(name, context.as_ref(), &waiting, &feasible, &node, dice);
        Cycle::Pending
    }

    /// Nodes that will do, and allocated claims that some node cannot use.
    fn filter(&self, claims: &[(String, Value)], context: Option<&Value>) -> (Vec<String>, BTreeSet<String>) {
        let (mut feasible, mut unavailable) = (Vec::new(), BTreeSet::new());
        for node in self.server.list("nodes") {
            let name = node["metadata"]["name"].as_str().unwrap().to_owned();
            let mut will_do = node["spec"]["unschedulable"] != true && node["status"]["isFull"] != true;
            for (claim_name, claim) in claims {
                let allocation = &claim["status"]["allocation"];
                let is_good = if allocation.is_object() {
                    let field = if self.is_devices() { "nodeSelector" } else { "availableOnNodes" };
                    let is_good = matches(&allocation[field], &node);
                    if !is_good {
                        unavailable.insert(claim_name.clone());
                    }
                    is_good
                } else {
                    let suitable = matches(&self.class_of(claim).unwrap()["suitableNodes"], &node);
                    let empty = Vec::new();
                    let entries = context.and_then(|it| it["status"]["resourceClaims"].as_array()).unwrap_or(&empty);
                    let mine = entries.iter().filter(|entry| entry["name"] == **claim_name);
                    suitable && !mine.into_iter().any(|entry| strings(&entry["unsuitableNodes"]).contains(&name))
                };
                will_do &= is_good;
            }
            if will_do {
                feasible.push(name);
            }
        }
        (feasible, unavailable)
    }

    /// The selected node is cleared first; else one claim that cannot be used is to be taken back.
    fn post_filter(
        &mut self,
        pod: &str,
        uid: &Value,
        claims: &[(String, Value)],
        context: Option<&Value>,
        unavailable: &BTreeSet<String>,
        dice: &mut Dice,
    ) {
        if context.is_some_and(|it| !it["spec"]["selectedNode"].is_null()) {
            let contexts = self.contexts();
            let clear = |object: &mut Value| drop(object["spec"].as_object_mut().unwrap().remove("selectedNode"));
            self.server.edit(contexts, "default", pod, false, clear).unwrap();
            return;
        }
        let is_only_mine = |claim: &Value| {
            claim["status"]["reservedFor"].as_array().into_iter().flatten().all(|consumer| consumer["uid"] == *uid)
        };
        let can_go: Vec<&Value> = claims
            .iter()
            .filter(|(name, it)| unavailable.contains(name) && is_only_mine(it))
            .map(|(_, it)| it)
            .collect();
        if can_go.is_empty() {
            return;
        }
        let name = can_go[dice.roll(can_go.len())]["metadata"]["name"].as_str().unwrap().to_owned();
        let _ = self.server.edit("resourceclaims", "default", &name, true, |claim| {
            claim["status"]["reservedFor"] = Value::Null;
            claim["status"]["deallocationRequested"] = json!(true);
        });
    }

    /// PreScore and Reserve.
    fn negotiate(
        &mut self,
        pod: &str,
        context: Option<&Value>,
        waiting: &[&str],
        feasible: &[String],
        node: &str,
        dice: &mut Dice,
    ) {
        let empty = Vec::new();
        let old = context.map(|it| it["spec"].clone()).unwrap_or_else(|| json!({}));
        let known = strings(&old["potentialNodes"]);
        let mut spec = old.clone();
        if !feasible.iter().all(|node| known.contains(node)) {
            let mut potential = feasible.to_vec();
            while potential.len() > 128 {
                potential.remove(dice.roll(potential.len()));
            }
            spec["potentialNodes"] = json!(potential);
        }
        let entries = context.and_then(|it| it["status"]["resourceClaims"].as_array()).unwrap_or(&empty);
        let is_answered = |name: &&str| entries.iter().any(|entry| entry["name"] == **name);
        if waiting.len() == 1 || waiting.iter().all(is_answered) {
            spec["selectedNode"] = json!(node);
        }
        if spec != old || context.is_none() {
            let potential = strings(&spec["potentialNodes"]);
            let potential: Vec<&str> = potential.iter().map(String::as_str).collect();
            let selected = spec["selectedNode"].as_str().map(str::to_owned);
            self.context(pod, selected.as_deref(), &potential);
        }
    }

    /// PreBind, Bind and PostBind.
    fn bind(&mut self, pod: &str, uid: &Value, claims: &[(String, Value)], node: &str) -> Cycle {
        for (_, claim) in claims {
            if !self.reserve(claim, pod, uid) {
                return Cycle::Unschedulable;
            }
        }
        self.server.edit("pods", "default", pod, false, |object| object["spec"]["nodeName"] = json!(node)).unwrap();
        self.server.edit("pods", "default", pod, true, |object| object["status"]["phase"] = json!("Running")).unwrap();
        self.server.delete(self.contexts(), "default", pod);
        Cycle::Bound
    }

    fn reserve(&mut self, claim: &Value, pod: &str, uid: &Value) -> bool {
        let name = claim["metadata"]["name"].as_str().unwrap();
        let consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        if consumers.iter().any(|it| it["uid"] == *uid) {
            return true;
        }
        let reserve = |object: &mut Value| {
            let consumer = json!({"resource": "pods", "name": pod, "uid": uid});
            let mut consumers = object["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
            consumers.push(consumer);
            object["status"]["reservedFor"] = json!(consumers);
        };
        self.server.edit("resourceclaims", "default", name, true, reserve).is_ok()
    }

    /// One round of kube-controller-manager over everything.
    pub(super) fn control(&mut self) {
        let pods = self.server.list("pods");
        let is_alive = |uid: &Value| {
            pods.iter().any(|pod| {
                pod["metadata"]["uid"] == *uid
                    && pod["status"]["phase"] != "Succeeded"
                    && pod["status"]["phase"] != "Failed"
            })
        };
        for claim in self.server.list("resourceclaims") {
            let name = claim["metadata"]["name"].as_str().unwrap();
            let consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
            let alive: Vec<Value> = consumers.iter().filter(|it| is_alive(&it["uid"])).cloned().collect();
            if alive.len() != consumers.len() {
                let is_unused = alive.is_empty();
                let _ = self.server.edit("resourceclaims", "default", name, true, |object| {
                    object["status"]["reservedFor"] = json!(alive);
                    if is_unused {
                        object["status"]["deallocationRequested"] = json!(true);
                    }
                });
            }
            let owner = claim["metadata"]["ownerReferences"][0]["uid"].clone();
            if !owner.is_null() && !is_alive(&owner) {
                self.server.delete("resourceclaims", "default", name);
            }
        }
        for context in self.server.list(self.contexts()) {
            if !is_alive(&context["metadata"]["ownerReferences"][0]["uid"]) {
                self.server.delete(self.contexts(), "default", context["metadata"]["name"].as_str().unwrap());
            }
        }
        for pod in pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string() && is_alive(&pod["metadata"]["uid"])) {
            self.care_for_placed(pod);
        }
    }

    /// A pod that is on a node without having been scheduled with its claims.
    fn care_for_placed(&mut self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        for (_, claim) in self.pod_claims(pod).unwrap_or_default() {
            if claim["status"]["allocation"].is_object() {
                self.reserve(&claim, name, &pod["metadata"]["uid"]);
            } else if self.server.get(self.contexts(), "default", name).is_none() {
                self.context(name, pod["spec"]["nodeName"].as_str(), &[]);
            }
        }
    }

    /// Schedules until every pod is bound or nothing changes any more. Says which pods are bound.
    pub(super) fn run(&mut self, dice: &mut Dice) -> BTreeSet<String> {
        for _ in 0..60 {
            let before = self.server.log.len();
            for pod in self.server.list("pods") {
                self.schedule(pod["metadata"]["name"].as_str().unwrap(), dice);
                self.settle();
                self.control();
                self.settle();
                self.check();
            }
            if before == self.server.log.len() {
                break;
            }
        }
        let bound = self.server.list("pods").into_iter().filter(|pod| pod["spec"]["nodeName"].is_string());
        bound.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

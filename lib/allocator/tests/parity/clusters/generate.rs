//! Random clusters: few nodes, zones, labels and namespaces, so that terms often select something, and often not.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::case::{AskedSet, ClusterCase};
use crate::generate::{chance, one_of, weighted};

const APPS: [&str; 3] = ["a", "b", "c"];
const NAMESPACES: [&str; 3] = ["one", "two", "three"];
const KEYS: [(u32, &str); 4] = [(10, "zone"), (7, "rack"), (7, "kubernetes.io/hostname"), (1, "missing")];

/// The cluster of a seed.
pub(super) fn cluster(seed: u64) -> ClusterCase {
    let rng = &mut Rng::with_seed(seed);
    let nodes = rng.usize(2..=6);
    let mut case = ClusterCase {
        name: format!("random/{seed}"),
        nodes: (0..nodes).map(|at| node(rng, at)).collect(),
        namespaces: NAMESPACES.map(|name| namespace(rng, name)).into(),
        pods: (0..rng.usize(0..=8)).map(|at| pod(rng, at, nodes)).collect(),
        set: set(rng),
        answer: None,
    };
    let rng = &mut Rng::with_seed(!seed);
    if chance(rng, 50) {
        add_priorities(rng, &mut case, nodes);
    }
    case
}

/// Adds pods that wait and are nominated for a node, priorities, and ports of nodes.
fn add_priorities(rng: &mut Rng, case: &mut ClusterCase, nodes: usize) {
    if chance(rng, 70) {
        case.set.spec["priority"] = json!(rng.i32(-1..=1));
    }
    if chance(rng, 30) {
        case.set.spec["containers"][0]["ports"] = ports(rng);
    }
    let first = case.pods.len();
    for at in first..first + rng.usize(1..=5) {
        let mut nominated = pod(rng, at, nodes);
        let node = nominated["spec"]["nodeName"].take();
        nominated["spec"]["priority"] = json!(rng.i32(-1..=1));
        if chance(rng, 30) {
            nominated["spec"]["containers"][0]["ports"] = ports(rng);
        }
        nominated["status"] = json!({"phase": "Pending", "nominatedNodeName": node});
        case.pods.push(nominated);
    }
}

fn ports(rng: &mut Rng) -> Value {
    let port = one_of(rng, &[8080, 8081]);
    json!([{"containerPort": 80, "hostPort": port, "protocol": one_of(rng, &["TCP", "UDP"])}])
}

fn node(rng: &mut Rng, at: usize) -> Value {
    let mut labels = Map::new();
    if chance(rng, 95) {
        labels.insert("kubernetes.io/hostname".into(), json!(format!("n{at}")));
    }
    if chance(rng, 90) {
        labels.insert("zone".into(), json!(one_of(rng, &["x", "y", "z"])));
    }
    if chance(rng, 80) {
        labels.insert("rack".into(), json!(one_of(rng, &["r0", "r1", ""])));
    }
    if chance(rng, 70) {
        labels.insert("disk".into(), json!(one_of(rng, &["ssd", "hdd"])));
    }
    let mut spec = json!({});
    if chance(rng, 15) {
        let effect = one_of(rng, &["NoSchedule", "NoExecute", "PreferNoSchedule"]);
        spec["taints"] = json!([{"key": "t", "value": "v", "effect": effect}]);
    }
    if chance(rng, 5) {
        spec["unschedulable"] = json!(true);
    }
    let (cpu, pods) = (rng.u32(1..=6).to_string(), rng.u32(2..=10).to_string());
    json!({"metadata": {"name": format!("n{at}"), "labels": labels}, "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": pods}}})
}

fn namespace(rng: &mut Rng, name: &str) -> Value {
    let mut labels = json!({"kubernetes.io/metadata.name": name});
    for key in ["team", "tier"] {
        if chance(rng, 60) {
            labels[key] = json!(one_of(rng, &["x", "y"]));
        }
    }
    json!({"metadata": {"name": name, "labels": labels}})
}

fn labels(rng: &mut Rng) -> Value {
    let mut labels = json!({});
    if chance(rng, 90) {
        labels["app"] = json!(one_of(rng, &APPS));
    }
    for (key, percent) in [("tier", 50), ("rev", 50), ("gen", 50)] {
        if chance(rng, percent) {
            labels[key] = json!(one_of(rng, &["1", "2"]));
        }
    }
    labels
}

fn pod(rng: &mut Rng, at: usize, nodes: usize) -> Value {
    let mut spec = json!({"nodeName": format!("n{}", rng.usize(..nodes)), "containers": [container(rng)]});
    if chance(rng, 30) {
        // What pods have in common with these labels is in their selectors since they were made.
        spec["affinity"] = json!({"podAntiAffinity": required(rng, false)});
    }
    let mut metadata = json!({"name": format!("p{at}"), "namespace": one_of(rng, &NAMESPACES), "labels": labels(rng)});
    if chance(rng, 12) {
        metadata["deletionTimestamp"] = json!("2026-07-01T00:00:00Z");
    }
    json!({"metadata": metadata, "spec": spec})
}

fn container(rng: &mut Rng) -> Value {
    json!({"name": "c", "resources": {"requests": {"cpu": one_of(rng, &["0", "500m", "1"])}}})
}

fn set(rng: &mut Rng) -> AskedSet {
    let mut spec = json!({"containers": [container(rng)]});
    let mut affinity = json!({});
    if chance(rng, 35) {
        affinity["podAffinity"] = required(rng, true);
    }
    if chance(rng, 40) {
        affinity["podAntiAffinity"] = required(rng, true);
    }
    if chance(rng, 15) {
        affinity["nodeAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": "disk", "operator": one_of(rng, &["Exists", "DoesNotExist"])}]}]}});
    }
    if affinity != json!({}) {
        spec["affinity"] = affinity;
    }
    if chance(rng, 45) {
        spec["topologySpreadConstraints"] = (0..rng.usize(1..=2)).map(|_| constraint(rng)).collect();
    }
    if chance(rng, 10) {
        spec["nodeSelector"] = json!({"disk": "ssd"});
    }
    if chance(rng, 20) {
        spec["tolerations"] = json!([{"key": "t", "operator": "Exists"}]);
    }
    let labels = serde_json::from_value(labels(rng)).expect("labels are texts");
    AskedSet { namespace: one_of(rng, &NAMESPACES).to_owned(), count: rng.u32(1..=7), labels, spec }
}

fn required(rng: &mut Rng, is_new: bool) -> Value {
    let terms: Vec<Value> = (0..weighted(rng, &[(4, 1), (2, 2), (1, 3)])).map(|_| term(rng, is_new)).collect();
    json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
}

fn term(rng: &mut Rng, is_new: bool) -> Value {
    let mut term = json!({"topologyKey": weighted(rng, &KEYS)});
    selector(rng, &mut term, ["app", "tier"], &[&APPS, &["1", "2"]]);
    if chance(rng, 25) {
        let count = rng.usize(1..=2);
        term["namespaces"] = json!(NAMESPACES[..count]);
    }
    if chance(rng, 40) {
        term["namespaceSelector"] = requirements(rng, ["team", "tier"], &[&["x", "y"], &["x", "y"]]);
        if chance(rng, 10) {
            term["namespaceSelector"] =
                json!({"matchLabels": {"kubernetes.io/metadata.name": one_of(rng, &NAMESPACES)}});
        }
    }
    if is_new && chance(rng, 20) {
        term["matchLabelKeys"] = json!(["rev", "none"]);
    }
    if is_new && chance(rng, 10) {
        term["mismatchLabelKeys"] = json!(["gen"]);
    }
    term
}

fn constraint(rng: &mut Rng) -> Value {
    let when = weighted(rng, &[(9, "DoNotSchedule"), (1, "ScheduleAnyway")]);
    let mut constraint =
        json!({"maxSkew": rng.u8(1..=3), "topologyKey": weighted(rng, &KEYS), "whenUnsatisfiable": when});
    selector(rng, &mut constraint, ["app", "tier"], &[&APPS, &["1", "2"]]);
    if when == "DoNotSchedule" && chance(rng, 25) {
        constraint["minDomains"] = json!(rng.u8(1..=4));
    }
    for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        if chance(rng, 30) {
            constraint[policy] = json!(one_of(rng, &["Honor", "Ignore"]));
        }
    }
    if chance(rng, 20) {
        constraint["matchLabelKeys"] = json!(["rev", "none"]);
    }
    constraint
}

/// Adds the selector of pods, which is seldom missing.
fn selector(rng: &mut Rng, term: &mut Value, keys: [&str; 2], values: &[&[&str]; 2]) {
    if chance(rng, 95) {
        term["labelSelector"] = requirements(rng, keys, values);
    }
}

/// A selector: what is there, what is not there, or nothing at all.
fn requirements(rng: &mut Rng, keys: [&str; 2], values: &[&[&str]; 2]) -> Value {
    let mut selector = json!({});
    if chance(rng, 45) {
        selector["matchLabels"] = json!({keys[0]: one_of(rng, values[0])});
    }
    if chance(rng, 45) {
        let expressions = (0..rng.usize(1..=2)).map(|_| {
            let at = rng.usize(..2);
            let operator = one_of(rng, &["In", "NotIn", "Exists", "DoesNotExist"]);
            let mut expression = json!({"key": keys[at], "operator": operator});
            if operator.ends_with("In") {
                expression["values"] = json!(values[at][..rng.usize(1..=values[at].len())]);
            }
            expression
        });
        selector["matchExpressions"] = expressions.collect();
    }
    selector
}

//! Large clusters: 5,000 nodes with 100 devices each, of one model of machine or of ten.

use fastrand::Rng;
use hostler_allocator::plan::{ClusterFacts, PodSet};
use hostler_api::ObjectKey;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) const NODES: usize = 5_000;
pub(crate) const DEVICES: usize = 100;
pub(crate) const SETS: usize = 32;
pub(crate) const PODS: u32 = 16_384;
const DRIVER: &str = "gpu.example";

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// All nodes of one model, nothing taken.
pub(crate) fn uniform() -> ClusterFacts {
    let mut facts = classes_and_templates();
    for node in 0..NODES {
        add_node(&mut facts, node, |device| device / 25);
    }
    facts
}

/// Ten models, and every second device taken, at random.
pub(crate) fn mixed() -> ClusterFacts {
    let (mut facts, mut rng) = (classes_and_templates(), Rng::with_seed(1));
    let models: Vec<Vec<usize>> = (0..10).map(|_| (0..DEVICES).map(|_| rng.usize(0..4)).collect()).collect();
    for node in 0..NODES {
        let model = &models[rng.usize(0..models.len())];
        let mut sorted = model.clone();
        if node % 2 == 0 {
            sorted.sort_unstable();
        }
        add_node(&mut facts, node, |device| sorted[device]);
        add_claims(&mut facts, node, &mut rng);
    }
    facts
}

/// All nodes of one model, with 20 pods of ten workloads on each.
pub(crate) fn with_pods() -> ClusterFacts {
    let mut facts = uniform();
    for at in 0..20 * NODES {
        facts.add_pod(&read(json!({
            "metadata": {"name": format!("pod-{at}"), "namespace": "default", "labels":
                {"app": format!("app-{}", at % 10), "pod-template-hash": "77d5c", "statefulset.kubernetes.io/pod-name": format!("pod-{at}")}},
            "spec": {"nodeName": format!("node-{:05}", at / 20), "containers": [{"name": "c"}]}})));
    }
    facts
}

/// Pods that are spread over all nodes.
pub(crate) fn spread() -> PodSet {
    let mut set = pods(0, PODS);
    set.labels = [("app".to_owned(), "app-0".to_owned())].into();
    set.spec.topology_spread_constraints = read(json!([{"topologyKey": "kubernetes.io/hostname", "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "app-0"}}}]));
    set
}

fn classes_and_templates() -> ClusterFacts {
    let mut facts = ClusterFacts::default();
    facts.add_class(read(json!({"metadata": {"name": "gpu"}, "spec": {"selectors":
        [{"cel": {"expression": format!("device.driver == \"{DRIVER}\"")}}]}})));
    for set in 0..SETS {
        let selector = format!(
            "device.attributes[\"{DRIVER}\"].model == \"m{}\" && \
             device.capacity[\"{DRIVER}\"].memory.compareTo(quantity(\"{}Gi\")) >= 0",
            set % 4,
            10 + set
        );
        facts.add_template(
            ObjectKey::new("default", &format!("t{set}")),
            read(json!({"devices": {"requests":
            [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
                "selectors": [{"cel": {"expression": selector}}]}}]}})),
        );
    }
    facts
}

fn add_node(facts: &mut ClusterFacts, node: usize, model: impl Fn(usize) -> usize) {
    let name = format!("node-{node:05}");
    facts.add_node(read(json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "a",
        "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
        "status": {"allocatable": {"cpu": "256", "memory": "2Ti", "pods": "110"}}})));
    let devices: Vec<Value> = (0..DEVICES).map(|at| device(node, at, model(at))).collect();
    facts.add_slice(read(
        json!({"metadata": {"name": format!("{name}-gpu")}, "spec": {"driver": DRIVER, "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}, "devices": devices}}),
    ));
}

/// Eight attributes, two of them unlike those of any other device, and two capacities.
fn device(node: usize, at: usize, model: usize) -> Value {
    json!({"name": format!("gpu-{at}"), "attributes": {
        "uuid": {"string": format!("GPU-{node:08x}-{at:04x}-4000-8000-00155d{node:06x}")},
        "serial": {"string": format!("{:013}", node * 1000 + at)},
        "model": {"string": format!("m{model}")},
        "driverVersion": {"version": "570.86.10"},
        "numa": {"int": at / 50},
        "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{:02x}", at / 4)},
        "pciBusID": {"string": format!("0000:{at:02x}:00.0")},
        "ecc": {"bool": true}},
        "capacity": {"memory": {"value": "80Gi"}, "bandwidth": {"value": "3350G"}}})
}

/// Claims that hold every second device of the node.
fn add_claims(facts: &mut ClusterFacts, node: usize, rng: &mut Rng) {
    let pool = format!("node-{node:05}");
    for at in (0..DEVICES).filter(|_| rng.bool()) {
        let name = format!("claim-{node}-{at}");
        facts.add_claim(&read(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "status": {"reservedFor": [{"resource": "pods", "name": name, "uid": name}], "allocation": {
                "devices": {"results":
                    [{"request": "gpu", "driver": DRIVER, "pool": pool, "device": format!("gpu-{at}")}]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields":
                    [{"key": "metadata.name", "operator": "In", "values": [pool]}]}]}}}})));
    }
}

/// Pods that get a claim from a template each.
pub(crate) fn pods(set: usize, count: u32) -> PodSet {
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": format!("t{set}")}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": format!("{}Gi", 1 + set % 4)}}}]});
    let (name, namespace) = (format!("set-{set}"), "default".to_owned());
    PodSet { name, namespace, count, spec: read(spec), ..PodSet::default() }
}

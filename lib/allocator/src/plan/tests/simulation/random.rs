//! Random clusters: few nodes and few devices, and every kind of thing that devices can say and claims can ask.

use fastrand::Rng;
use hostler_api::{
    ObjectKey,
    core::Node,
    resource::{DeviceClass, ResourceClaim, ResourceClaimSpec, ResourceSlice},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::plan::{ClusterFacts, PodSet};

const DRIVERS: [&str; 2] = ["gpu.example", "nic.example"];

fn read<T: DeserializeOwned>(value: Value) -> T {
    let text = value.to_string();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A cluster, and what is asked of it.
pub(super) struct RandomCluster {
    pub(super) nodes: Vec<Node>,
    pub(super) slices: Vec<ResourceSlice>,
    pub(super) classes: Vec<DeviceClass>,
    /// All of them are allocated.
    pub(super) claims: Vec<ResourceClaim>,
    pub(super) sets: Vec<RandomSet>,
}

/// What pods of a set want of each other, by the racks of their nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Apart {
    /// One pod in each rack.
    Far,
    /// No rack has two pods more than another.
    Spread,
}

/// Pods with claims of their own.
pub(super) struct RandomSet {
    name: String,
    pub(super) count: u32,
    pub(super) cpus: i64,
    /// What the pods want of each other.
    pub(super) apart: Option<Apart>,
    specs: Vec<ResourceClaimSpec>,
}

impl RandomSet {
    pub(super) fn claims(&self) -> Vec<ResourceClaim> {
        let claim = |(at, spec): (usize, &ResourceClaimSpec)| {
            let mut claim: ResourceClaim = read(json!({"apiVersion": "", "kind": "",
                "metadata": {"name": format!("c{at}"), "namespace": "default"}}));
            claim.spec = spec.clone();
            claim
        };
        self.specs.iter().enumerate().map(claim).collect()
    }

    pub(super) fn pods(&self) -> PodSet {
        let claims: Vec<Value> = (0..self.specs.len())
            .map(|at| json!({"name": format!("c{at}"), "resourceClaimTemplateName": format!("{}-c{at}", self.name)}))
            .collect();
        let cpus = self.cpus.to_string();
        let mut spec = json!({"resourceClaims": claims,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpus}}}]});
        let own = json!({"matchLabels": {"set": self.name}});
        match self.apart {
            None => {}
            Some(Apart::Far) => {
                let term = json!([{"topologyKey": "rack", "labelSelector": own}]);
                spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
            }
            Some(Apart::Spread) => {
                spec["topologySpreadConstraints"] = json!([{"topologyKey": "rack", "maxSkew": 1,
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": own}]);
            }
        }
        let labels = [("set".to_owned(), self.name.clone())].into();
        let (name, namespace) = (self.name.clone(), "default".to_owned());
        PodSet { name, namespace, count: self.count, labels, spec: read(spec), ..PodSet::default() }
    }
}

impl RandomCluster {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let nodes: Vec<String> = (0..rng.usize(1..=4)).map(|at| format!("n{at}")).collect();
        let node = |name: &String| {
            read(json!({"metadata": {"name": name, "labels": {"rack": format!("r{}", rng.u8(0..2))}},
                "status": {"allocatable": {"cpu": "8", "memory": "64Gi"}}}))
        };
        let nodes: Vec<Node> = nodes.iter().map(node).collect();
        // Machines of few models, so that nodes are alike.
        let models: Vec<Vec<Value>> = (0..rng.usize(1..=2)).map(|_| devices(&mut rng)).collect();
        let mut slices = Vec::new();
        for node in &nodes {
            for driver in DRIVERS.iter().take(rng.usize(0..=2)) {
                slices.extend(own_slices(&mut rng, driver, &node.metadata.name, &models));
            }
        }
        if rng.bool() {
            slices.extend(shared_slices(&mut rng));
        }
        let classes = vec![
            class("any", "true"),
            class("gpu", "device.driver == \"gpu.example\""),
            class("nic", "device.driver == \"nic.example\""),
        ];
        let claims = held(&mut rng, &slices);
        let sets = (0..rng.usize(1..=3)).map(|at| set(&mut rng, at)).collect();
        Self { nodes, slices, classes, claims, sets }
    }

    pub(super) fn facts(&self) -> ClusterFacts {
        let mut facts = ClusterFacts::default();
        self.nodes.iter().for_each(|node| facts.add_node(node.clone()));
        self.slices.iter().for_each(|slice| facts.add_slice(slice.clone()));
        self.classes.iter().for_each(|class| facts.add_class(class.clone()));
        self.claims.iter().for_each(|claim| facts.add_claim(claim));
        for set in &self.sets {
            for (at, spec) in set.specs.iter().enumerate() {
                facts.add_template(ObjectKey::new("default", &format!("{}-c{at}", set.name)), spec.clone());
            }
        }
        facts
    }

    pub(super) fn describe(&self) -> String {
        let slices: Vec<String> = self.slices.iter().map(|slice| serde_json::to_string(slice).unwrap()).collect();
        let claims: Vec<String> = self.claims.iter().map(|claim| serde_json::to_string(claim).unwrap()).collect();
        let sets: Vec<String> = self
            .sets
            .iter()
            .map(|set| format!("{} × {} cpus {} {:?}: {}", set.name, set.count, set.cpus, set.apart, json!(set.specs)))
            .collect();
        [slices, claims, sets].concat().join("\n")
    }
}

fn class(name: &str, expression: &str) -> DeviceClass {
    read(json!({"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}))
}

/// The devices of a machine: mostly several of a kind in a row.
fn devices(rng: &mut Rng) -> Vec<Value> {
    let mut devices: Vec<Value> = Vec::new();
    let (counted, shared) = (rng.u8(0..4) == 0, rng.u8(0..3) == 0);
    for at in 0..rng.usize(1..=6) {
        let last = devices.last().filter(|_| rng.u8(0..3) > 0).cloned();
        let mut device = last.unwrap_or_else(|| device(rng, counted, shared));
        device["name"] = json!(format!("d{at}"));
        device["attributes"]["uuid"] = json!({"string": format!("{:x}", rng.u64(..))});
        devices.push(device);
    }
    devices
}

fn device(rng: &mut Rng, counted: bool, shared: bool) -> Value {
    let mut device = json!({"attributes": {}});
    for (name, most) in [("model", 2), ("root", 3)] {
        if rng.u8(0..5) > 0 {
            device["attributes"][name] = json!({"string": format!("{}", rng.u8(0..most))});
        }
    }
    if rng.u8(0..6) == 0 {
        device["taints"] = json!([{"key": "t", "value": "v", "effect": "NoSchedule"}]);
    }
    if counted && rng.u8(0..4) > 0 {
        let value = rng.u8(1..=3).to_string();
        device["consumesCounters"] = json!([{"counterSet": "set", "counters": {"c": {"value": value}}}]);
    }
    if shared && rng.bool() {
        device["allowMultipleAllocations"] = json!(true);
        device["capacity"] = json!({"mem": {"value": "4", "requestPolicy":
            {"default": "1", "validRange": {"min": "1", "max": "3", "step": "1"}}}});
    } else if rng.u8(0..3) == 0 {
        device["capacity"] = json!({"mem": {"value": rng.u8(1..=4).to_string()}});
    }
    device
}

fn counters(devices: &[Value], total: u8) -> Value {
    if devices.iter().any(|device| device.get("consumesCounters").is_some()) {
        json!([{"name": "set", "counters": {"c": {"value": total.to_string()}}}])
    } else {
        json!([])
    }
}

fn own_slices(rng: &mut Rng, driver: &str, node: &str, models: &[Vec<Value>]) -> Vec<ResourceSlice> {
    let devices = models[rng.usize(0..models.len())].clone();
    let incomplete = rng.u8(0..12) == 0;
    let sets = counters(&devices, 5);
    let has_counters = sets != json!([]);
    // Names of pools are sometimes the same for both drivers.
    let pool = if rng.bool() { node.to_owned() } else { format!("{node}-{driver}") };
    let count = 1 + usize::from(has_counters) + usize::from(incomplete);
    let slice = |name: &str, devices: Value, sets: Value| {
        read(json!({"metadata": {"name": format!("{driver}-{node}-{name}")}, "spec": {"driver": driver,
            "nodeName": node, "devices": devices, "sharedCounters": sets,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": count}}}))
    };
    let mut slices = vec![slice("devices", json!(devices), json!([]))];
    if has_counters {
        slices.push(slice("counters", json!([]), sets));
    }
    slices
}

/// A pool that is reached over the network.
fn shared_slices(rng: &mut Rng) -> Vec<ResourceSlice> {
    let devices = devices(rng);
    let sets = counters(&devices, 4);
    let has_counters = sets != json!([]);
    let mut spec = json!({"driver": DRIVERS[rng.usize(0..2)], "devices": devices,
        "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1 + usize::from(has_counters)}});
    let rack = |rng: &mut Rng| {
        json!({"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "rack", "operator": "In", "values": [format!("r{}", rng.u8(0..2))]}]}]})
    };
    match rng.u8(0..3) {
        0 => spec["allNodes"] = json!(true),
        1 => spec["nodeSelector"] = rack(rng),
        _ => {
            spec["perDeviceNodeSelection"] = json!(true);
            for device in spec["devices"].as_array_mut().unwrap() {
                match rng.u8(0..3) {
                    0 => device["allNodes"] = json!(true),
                    1 => device["nodeSelector"] = rack(rng),
                    _ => device["nodeName"] = json!("n0"),
                }
            }
        }
    }
    let mut slices = vec![read(json!({"metadata": {"name": "fabric-devices"}, "spec": spec}))];
    if has_counters {
        spec["devices"] = json!([]);
        spec["sharedCounters"] = sets;
        slices.push(read(json!({"metadata": {"name": "fabric-counters"}, "spec": spec})));
    }
    slices
}

/// Some devices are taken already.
fn held(rng: &mut Rng, slices: &[ResourceSlice]) -> Vec<ResourceClaim> {
    let mut claims = Vec::new();
    for slice in slices {
        for device in &slice.spec.devices {
            if rng.u8(0..4) > 0 {
                continue;
            }
            let mut result = json!({"request": "r", "driver": slice.spec.driver, "pool": slice.spec.pool.name,
                "device": device.name});
            if device.allow_multiple_allocations && rng.u8(0..4) > 0 {
                result["shareID"] = json!(format!("share-{}", claims.len()));
                result["consumedCapacity"] = json!({"mem": rng.u8(1..=2).to_string()});
            }
            claims.push(read(json!({"apiVersion": "", "kind": "",
                "metadata": {"name": format!("held-{}", claims.len()), "namespace": "default"},
                "status": {"allocation": {"devices": {"results": [result]}}}})));
        }
    }
    claims
}

fn set(rng: &mut Rng, at: usize) -> RandomSet {
    let specs = (0..rng.usize(0..=2)).map(|_| read(spec(rng))).collect();
    let apart = [None, None, Some(Apart::Far), Some(Apart::Spread)][rng.usize(0..4)];
    RandomSet { name: format!("set{at}"), count: rng.u32(1..=6), cpus: rng.i64(0..=2), apart, specs }
}

fn spec(rng: &mut Rng) -> Value {
    let requests: Vec<Value> = (0..rng.usize(1..=2)).map(|at| request(rng, at)).collect();
    let attribute = format!("{}/{}", DRIVERS[rng.usize(0..2)], ["root", "model"][rng.usize(0..2)]);
    let constraints = match rng.u8(0..5) {
        0 => json!([{"matchAttribute": attribute}]),
        1 => json!([{"distinctAttribute": attribute}]),
        _ => json!([]),
    };
    json!({"devices": {"requests": requests, "constraints": constraints}})
}

fn request(rng: &mut Rng, at: usize) -> Value {
    let name = format!("r{at}");
    if rng.u8(0..4) == 0 {
        let ways: Vec<Value> = (0..2).map(|at| exactly(rng, Some(format!("s{at}")))).collect();
        return json!({"name": name, "firstAvailable": ways});
    }
    json!({"name": name, "exactly": exactly(rng, None)})
}

fn exactly(rng: &mut Rng, name: Option<String>) -> Value {
    let class = ["any", "gpu", "nic"][rng.usize(0..3)];
    let mut exactly = json!({"deviceClassName": class,
        "allocationMode": "ExactCount", "count": rng.u8(1..=2)});
    match name {
        Some(name) => exactly["name"] = json!(name),
        None if rng.u8(0..10) == 0 => exactly["adminAccess"] = json!(true),
        None => {}
    }
    if rng.u8(0..8) == 0 {
        exactly["allocationMode"] = json!("All");
        exactly.as_object_mut().unwrap().remove("count");
    }
    if rng.u8(0..3) == 0 {
        exactly["tolerations"] = json!([{"key": "t", "operator": "Exists"}]);
    }
    if rng.u8(0..4) == 0 {
        exactly["capacity"] = json!({"requests": {"mem": rng.u8(1..=2).to_string()}});
    }
    exactly["selectors"] = selectors(rng);
    exactly
}

/// What the device has nothing of is asked for seldom: that ends everything.
fn selectors(rng: &mut Rng) -> Value {
    let texts = [
        "true",
        "device.driver == \"gpu.example\"",
        "device.attributes[\"gpu.example\"].?model.orValue(\"\") != \"0\"",
        "\"root\" in device.attributes[\"gpu.example\"] || device.driver == \"nic.example\"",
        "device.attributes[device.driver].?root.orValue(\"1\") in [\"0\", \"1\"]",
        "device.allowMultipleAllocations",
        "device.attributes[\"gpu.example\"].model == \"0\"",
    ];
    if rng.bool() {
        return json!([]);
    }
    let text = texts[rng.usize(0..texts.len()).min(rng.usize(0..texts.len()))];
    json!([{"cel": {"expression": text}}])
}

//! What users, nodes and schedulers write: objects of every version.

use hostler_api::{classic::ClassicVersion, resource::DeviceClass};
use serde_json::{Value, json};

use super::world::{DRIVER, World};

/// Kinds of devices. Each has a class, and a device class of hostler.
pub(super) const KINDS: [&str; 3] = ["card", "cpu", "memory"];
/// How many CPUs a CPU device has.
pub(super) const CPUS: i64 = 8;
/// How much memory a memory device has.
pub(super) const GIBIBYTES: i64 = 16;

/// Of devices of a kind.
pub(super) fn selector(kind: &str) -> Value {
    json!({"cel": {"expression": format!("device.attributes['hostler.dev'].kind == '{kind}'")}})
}

pub(super) fn device_class(kind: &str) -> DeviceClass {
    let meta = json!({"name": format!("{kind}.{DRIVER}")});
    serde_json::from_value(json!({"metadata": meta, "spec": {"selectors": [selector(kind)]}})).unwrap()
}

/// A slice of a node's pool.
pub(super) fn slice(node: &str, pool: &str, devices: Vec<Value>) -> Value {
    let pool = json!({"name": format!("{node}/{pool}"), "generation": 1, "resourceSliceCount": 1});
    json!({"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices})
}

/// CPUs of which several claims can have a part.
pub(super) fn cpus(name: &str, numa_node: i64) -> Value {
    json!({"name": name, "attributes": {"kind": {"string": "cpu"}, "numa": {"int": numa_node}},
        "allowMultipleAllocations": true, "capacity": {"cpus": {"value": CPUS.to_string()}}})
}

/// Memory of which several claims can have a part, in steps of two gibibytes.
pub(super) fn memory(name: &str, numa_node: i64) -> Value {
    let steps = json!({"default": "2Gi", "validRange": {"min": "2Gi", "step": "2Gi"}});
    json!({"name": name, "attributes": {"kind": {"string": "memory"}, "numa": {"int": numa_node}},
        "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": format!("{GIBIBYTES}Gi"), "requestPolicy": steps}}})
}

/// What a request says that 1.31 has no fields for is taken out of it, into a configuration.
fn request_config(request: &mut Value) -> Option<Value> {
    let fields = request.as_object_mut().unwrap();
    let (optional, capacity) = (fields.remove("optional"), fields.remove("capacity"));
    if optional.is_none() && capacity.is_none() {
        return None;
    }
    let mut parameters = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "RequestConfig"});
    if let Some(optional) = optional {
        parameters["optional"] = optional;
    }
    if let Some(capacity) = capacity {
        parameters["capacity"] = capacity["requests"].clone();
    }
    Some(json!({"requests": [request["name"]], "opaque": {"driver": DRIVER, "parameters": parameters}}))
}

impl World {
    /// A class of ours; in 1.31 its devices are those of a kind.
    pub(super) fn class(&mut self, name: &str, kind: &str, extra: Value) {
        let mut class = if self.is_devices() {
            json!({"metadata": {"name": name}, "spec": {"selectors": [selector(kind)]}})
        } else {
            json!({"metadata": {"name": name}, "driverName": DRIVER})
        };
        let place = if self.is_devices() { &mut class["spec"] } else { &mut class };
        for (field, value) in extra.as_object().unwrap() {
            place[field] = value.clone();
        }
        let resource = if self.is_devices() { "deviceclasses" } else { "resourceclasses" };
        self.server.create(resource, class);
    }

    /// A node with so many whole cards.
    pub(super) fn node(&mut self, name: &str, cards: usize) {
        self.server.create(
            "nodes",
            json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}}),
        );
        self.server
            .create("nodehardware", json!({"metadata": {"name": name}, "spec": {"nodeName": name}, "status": {}}));
        self.cards(name, cards);
    }

    /// The node now has so many cards.
    pub(super) fn cards(&mut self, node: &str, cards: usize) {
        let card = |at: usize| json!({"name": format!("card-{at}"), "attributes": {"kind": {"string": "card"}}});
        self.hardware(node, json!([slice(node, "card", (0..cards).map(card).collect())]), true);
    }

    pub(super) fn hardware(&mut self, name: &str, slices: Value, is_ready: bool) {
        let ready = if is_ready { "True" } else { "False" };
        let condition = json!({"type": "Ready", "status": ready, "reason": "r", "lastTransitionTime": "t"});
        let status = json!({"conditions": [condition], "slices": slices});
        self.server.edit("nodehardware", "", name, true, |object| object["status"] = status).unwrap();
    }

    /// A claim for so many cards.
    pub(super) fn claim(&mut self, name: &str, cards: usize) {
        self.claim_for(name, json!({"requests": [{"name": "cards", "deviceClassName": "card", "count": cards}]}));
    }

    /// A claim for devices, in the words of parameters.
    pub(super) fn claim_for(&mut self, name: &str, devices: Value) {
        let spec = self.spec_for(name, devices);
        self.claim_of(name, spec);
    }

    /// What a claim for devices says. Until 1.30 they are in parameters of the same name.
    pub(super) fn spec_for(&mut self, name: &str, mut devices: Value) -> Value {
        if self.is_devices() {
            let mut config = devices["config"].as_array().cloned().unwrap_or_default();
            config.extend(devices["requests"].as_array_mut().unwrap().iter_mut().filter_map(request_config));
            devices["config"] = json!(config);
            json!({"controller": DRIVER, "devices": devices})
        } else {
            for request in devices["requests"].as_array_mut().unwrap() {
                let class = request["deviceClassName"].as_str().unwrap();
                request["deviceClassName"] = json!(format!("{class}.{DRIVER}"));
            }
            let meta = json!({"name": name, "namespace": "default"});
            self.server.create("claimparameters", json!({"metadata": meta, "spec": devices}));
            let reference = json!({"apiGroup": "hostler.dev", "kind": "ClaimParameters", "name": name});
            json!({"resourceClassName": "card", "parametersRef": reference})
        }
    }

    /// A claim for one device of a class.
    pub(super) fn claim_of_class(&mut self, name: &str, class: &str) {
        if self.is_devices() {
            let devices = json!({"requests": [{"name": "r", "deviceClassName": class}]});
            return self.claim_of(name, json!({"controller": DRIVER, "devices": devices}));
        }
        let meta = json!({"name": name, "namespace": "default"});
        let requests = json!([{"name": "r", "deviceClassName": format!("card.{DRIVER}")}]);
        self.server.create("claimparameters", json!({"metadata": meta, "spec": {"requests": requests}}));
        let reference = json!({"apiGroup": "hostler.dev", "kind": "ClaimParameters", "name": name});
        self.claim_of(name, json!({"resourceClassName": class, "parametersRef": reference}));
    }

    pub(super) fn claim_of(&mut self, name: &str, spec: Value) {
        self.server.create("resourceclaims", json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}));
    }

    /// A pod that uses existing claims.
    pub(super) fn pod(&mut self, name: &str, claims: &[&str]) -> String {
        let claims: Vec<Value> = claims
            .iter()
            .map(|claim| match self.server.version {
                ClassicVersion::V1Alpha3 => json!({"name": claim, "resourceClaimName": claim}),
                _ => json!({"name": claim, "source": {"resourceClaimName": claim}}),
            })
            .collect();
        let pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"resourceClaims": claims},
            "status": {"phase": "Pending"}});
        self.server.create("pods", pod)["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// The negotiation of a pod, as the scheduler writes it.
    pub(super) fn context(&mut self, pod: &str, selected: Option<&str>, potential: &[&str]) {
        let mut spec = json!({});
        if let Some(selected) = selected {
            spec["selectedNode"] = json!(selected);
        }
        if !potential.is_empty() {
            spec["potentialNodes"] = json!(potential);
        }
        let contexts = self.contexts();
        if self.server.get(contexts, "default", pod).is_some() {
            self.server.edit(contexts, "default", pod, false, |object| object["spec"] = spec).unwrap();
        } else {
            let uid = self.server.get("pods", "default", pod).unwrap()["metadata"]["uid"].clone();
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": true});
            let meta = json!({"name": pod, "namespace": "default", "ownerReferences": [owner]});
            self.server.create(contexts, json!({"metadata": meta, "spec": spec, "status": {}}));
        }
    }
}

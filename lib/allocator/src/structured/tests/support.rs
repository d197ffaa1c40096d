//! A small world: one node, one driver, one class, unless a test says otherwise.

use super::*;

/// Everything that an allocation depends on.
pub(super) struct World {
    pub(super) features: Features,
    pub(super) quirks: Quirks,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) classes: Vec<DeviceClass>,
    pub(super) slices: Vec<ResourceSlice>,
    pub(super) claims: Vec<ResourceClaim>,
    pub(super) state: AllocatedState,
    pub(super) budget: Budget,
}

/// All features are on and no quirk; class `any` takes every device.
pub(super) fn world() -> World {
    World {
        features: Features::all(),
        quirks: Quirks::none(),
        labels: BTreeMap::new(),
        classes: vec![class("any", "true")],
        slices: Vec::new(),
        claims: Vec::new(),
        state: AllocatedState::new(),
        budget: Budget::steps(100_000),
    }
}

pub(super) fn class(name: &str, selector: &str) -> DeviceClass {
    let spec = json!({"selectors": [{"cel": {"expression": selector}}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

/// A slice of pool `p` of driver `d` for node `n`, the only one of its pool.
pub(super) fn slice(devices: &Value) -> Value {
    json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n", "devices": devices,
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
}

/// The object with some of its fields, by their path, replaced.
pub(super) fn with(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (path, value) in changes {
        let (parent, last) = path.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.insert(last.to_owned(), value.clone());
    }
    object
}

/// Devices with these names and nothing else.
pub(super) fn devices(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

/// A request `r` for so many devices of class `any`.
pub(super) fn request(count: i64) -> Value {
    json!({"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}})
}

/// A request `r` for all devices of class `any`.
pub(super) fn all() -> Value {
    json!({"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "All"}})
}

impl World {
    pub(super) fn slice(mut self, slice: Value) -> Self {
        self.slices.push(serde_json::from_value(slice).unwrap());
        self
    }

    pub(super) fn class(mut self, class: DeviceClass) -> Self {
        self.classes.push(class);
        self
    }

    /// One more claim.
    pub(super) fn claim(mut self, devices: &Value) -> Self {
        let name = format!("c{}", self.claims.len());
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "uid": name}, "spec": {"devices": devices}});
        self.claims.push(serde_json::from_value(claim).unwrap());
        self
    }

    /// One more claim, of these requests alone.
    pub(super) fn requests(self, requests: &[Value]) -> Self {
        self.claim(&json!({"requests": requests}))
    }

    pub(super) fn without(mut self, feature: Feature) -> Self {
        self.features = self.features.without(feature);
        self
    }

    pub(super) fn quirk(mut self, quirk: Quirk) -> Self {
        self.quirks = self.quirks.with(quirk);
        self
    }

    pub(super) fn held(mut self, devices: &[&str]) -> Self {
        devices.iter().for_each(|device| self.state.hold("d", "p", device));
        self
    }

    /// The allocation of each claim.
    pub(super) fn allocate(&mut self) -> Result<Vec<AllocationResult>, Refusal> {
        let allocator = Allocator::new(self.features, self.quirks, self.classes.clone());
        let node = NodeFacts { name: "n", labels: &self.labels };
        let pools = allocator.gather(node, &SliceIndex::new(&self.slices)).unwrap();
        let claims = allocator.compile(&self.claims);
        allocator.allocate(&pools, &self.state, &claims, &mut self.budget)
    }

    /// Names of the devices that were allocated, claim after claim, with the request where it is not `r`.
    pub(super) fn chosen(mut self) -> String {
        match self.allocate() {
            Ok(allocations) => allocations.iter().map(names).collect::<Vec<_>>().join(" | "),
            Err(refusal) => refusal.to_string(),
        }
    }

    /// Why nothing could be allocated, and a node more makes no difference.
    pub(super) fn fatal(mut self) -> String {
        match self.allocate() {
            Err(Refusal::Fatal(fatal)) => fatal.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// Why nothing could be allocated on this node.
    pub(super) fn no_fit(mut self) -> String {
        match self.allocate() {
            Err(Refusal::NoFit(reason)) => reason.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// The only allocation, as JSON.
    pub(super) fn result(mut self) -> Value {
        serde_json::to_value(self.allocate().unwrap().remove(0)).unwrap()
    }
}

fn names(allocation: &AllocationResult) -> String {
    let results = allocation.devices.results.iter();
    let names =
        results.map(|it| if it.request == "r" { it.device.clone() } else { format!("{}:{}", it.request, it.device) });
    names.collect::<Vec<_>>().join(" ")
}

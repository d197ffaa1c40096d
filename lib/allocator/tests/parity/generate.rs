//! Random cases, weighted towards what goes wrong: ties, equal names of pools, taints with counters, lists of wishes, the
//! limit of 32 devices, shared devices, administrators, binding conditions and pools that are not complete.
//!
//! Names and values come from small sets, so that devices are often equal and requests often compete. Searches stay small:
//! a claim asks for a handful of devices, but for the cases that are about the limit.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::case::{Allocated, Case, ConsumedCapacity, DeviceReference, ShareReference};

mod claims;
mod devices;
mod nodes;

/// The drivers; what only one of them has is asked for with its class.
const DRIVERS: [&str; 2] = ["a.example.com", "b.example.com"];
/// Pools are called the same in both drivers more often than not.
const POOLS: [&str; 3] = ["node", "Pool-2", "rack/10"];

/// Which parts of the allocator a case is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    pub(crate) admin: bool,
    pub(crate) sharing: bool,
    pub(crate) binding: bool,
    pub(crate) taints: bool,
    pub(crate) lists: bool,
    pub(crate) counters: bool,
    pub(crate) wishes: bool,
    /// Many equal devices and large counts.
    pub(crate) wide: bool,
}

impl Features {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            admin: chance(rng, 40),
            sharing: chance(rng, 50),
            binding: chance(rng, 40),
            taints: chance(rng, 60),
            lists: chance(rng, 8),
            counters: chance(rng, 60),
            wishes: chance(rng, 70),
            wide: chance(rng, 3),
        }
    }

    fn names(self) -> Vec<String> {
        let all = [
            (self.admin, "DRAAdminAccess"),
            (self.sharing, "DRAConsumableCapacity"),
            (self.binding, "DRADeviceBindingConditions"),
            (self.taints, "DRADeviceTaints"),
            (self.lists, "DRAListTypeAttributes"),
            (self.counters, "DRAPartitionableDevices"),
            (self.wishes, "DRAPrioritizedList"),
        ];
        all.into_iter().filter(|(on, _)| *on).map(|(_, name)| name.to_owned()).collect()
    }
}

/// The case of a seed.
#[must_use]
pub(crate) fn case(seed: u64) -> Case {
    let rng = &mut Rng::with_seed(seed);
    let features = Features::draw(rng);
    let slices = devices::slices(rng, features);
    let allocated = allocated(rng, &slices);
    let mut case = Case {
        name: format!("random/{seed}"),
        features: features.names(),
        node: nodes::node(rng),
        classes: classes(rng, features),
        claims: claims::claims(rng, features),
        slices,
        allocated,
        answers: Vec::new(),
    };
    if chance(rng, 4) && !case.features.is_empty() {
        case.features.remove(rng.usize(..case.features.len()));
    }
    case
}

/// True `percent` times out of a hundred.
pub(crate) fn chance(rng: &mut Rng, percent: u32) -> bool {
    rng.u32(..100) < percent
}

/// One of them.
pub(crate) fn one_of<T: Copy>(rng: &mut Rng, items: &[T]) -> T {
    items[rng.usize(..items.len())]
}

/// One of them, by weight.
pub(crate) fn weighted<T: Copy>(rng: &mut Rng, items: &[(u32, T)]) -> T {
    let all: u32 = items.iter().map(|(weight, _)| weight).sum();
    let mut rest = rng.u32(..all);
    for (weight, item) in items {
        if rest < *weight {
            return *item;
        }
        rest -= weight;
    }
    unreachable!("the rest is less than the sum of all weights")
}

fn classes(rng: &mut Rng, features: Features) -> Vec<Value> {
    let mut classes = vec![class(rng, "any", &[]), class(rng, "odd", &[])];
    if chance(rng, 50) {
        // Written by a version that knows selectors of another kind.
        classes[1]["spec"]["selectors"] =
            one_of_these(rng, &[json!([{}]), json!([{"cel": {"expression": "false"}}, {}])]);
    } else {
        let text = claims::selector(rng, features);
        classes[1]["spec"]["selectors"] =
            json!([{"cel": {"expression": text}}, {"cel": {"expression": "device.nothing"}}]);
    }
    for driver in DRIVERS {
        let name = &driver[..1];
        let mut selectors = vec![format!("device.driver == \"{driver}\"")];
        if chance(rng, 15) {
            selectors.push(claims::selector(rng, features));
        }
        classes.push(class(rng, name, &selectors));
    }
    let mut picky = format!("has(device.attributes[\"{0}\"].x) && device.attributes[\"{0}\"].x < 2", DRIVERS[0]);
    if features.lists {
        picky = format!("device.driver == \"{}\"", DRIVERS[0]);
    }
    classes.push(class(rng, "picky", &[picky]));
    classes
}

fn class(rng: &mut Rng, name: &str, selectors: &[String]) -> Value {
    let mut spec = Map::new();
    if !selectors.is_empty() {
        let selectors = selectors.iter().map(|text| json!({"cel": {"expression": text}})).collect();
        spec.insert("selectors".into(), selectors);
    }
    if chance(rng, 25) {
        let config = |n: u32| json!({"opaque": {"driver": DRIVERS[0], "parameters": {"of": name, "n": n}}});
        spec.insert("config".into(), (0..=rng.u32(..2)).map(config).collect());
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Some devices are held as a whole and some in part, more often than not those that can be.
fn allocated(rng: &mut Rng, slices: &[Value]) -> Allocated {
    let mut allocated = Allocated::default();
    let share = one_of(rng, &[0, 0, 10, 20, 40]);
    for slice in slices {
        let spec = &slice["spec"];
        for device in spec["devices"].as_array().into_iter().flatten() {
            let reference = DeviceReference {
                driver: text(&spec["driver"]),
                pool: text(&spec["pool"]["name"]),
                device: text(&device["name"]),
            };
            let shared = device["allowMultipleAllocations"] == json!(true);
            if !chance(rng, share) {
                continue;
            }
            if shared != chance(rng, 5) {
                let capacity = consumed(rng, device);
                if chance(rng, 40) {
                    let share_id = format!("share-{}", rng.u32(..3));
                    allocated.shares.push(ShareReference { device: reference.clone(), share_id });
                }
                if chance(rng, 90) {
                    allocated.capacity.push(ConsumedCapacity { device: reference, capacity });
                }
            } else {
                allocated.devices.push(reference);
            }
        }
    }
    allocated.devices.sort();
    allocated.devices.dedup();
    allocated.capacity.dedup_by(|a, b| a.device == b.device);
    allocated
}

fn consumed(rng: &mut Rng, device: &Value) -> Value {
    let names = device["capacity"].as_object().into_iter().flat_map(Map::keys);
    names.map(|name| (name.clone(), json!(amount(rng)))).collect::<Map<_, _>>().into()
}

/// An amount; the same ones are written in several ways.
pub(crate) fn amount(rng: &mut Rng) -> &'static str {
    one_of(
        rng,
        &[
            "1Gi",
            "1Gi",
            "2Gi",
            "2048Mi",
            "3Gi",
            "4Gi",
            "4Gi",
            "1073741824",
            "0",
            "1G",
            "1500M",
            "1",
            "500m",
            "2e9",
            "3e0",
        ],
    )
}

/// One of several objects.
fn one_of_these(rng: &mut Rng, items: &[Value]) -> Value {
    items[rng.usize(..items.len())].clone()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

//! Random slices.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{DRIVERS, Features, POOLS, chance, nodes, one_of, weighted};

/// Slices of one to three pools of one or two drivers.
pub(super) fn slices(rng: &mut Rng, features: Features) -> Vec<Value> {
    let mut slices = Vec::new();
    for driver in &DRIVERS[..weighted(rng, &[(4, 1), (6, 2)])] {
        for pool in &POOLS[..weighted(rng, &[(6, 1), (3, 2), (1, 3)])] {
            pool_of(rng, features, driver, pool, &mut slices);
        }
    }
    if chance(rng, 30) {
        rng.shuffle(&mut slices);
    }
    slices
}

/// How the slices of a pool differ from one another.
struct Pool<'a> {
    driver: &'a str,
    name: &'a str,
    generation: i64,
    slice_count: i64,
    counters: bool,
    binding: bool,
}

fn pool_of(rng: &mut Rng, features: Features, driver: &str, name: &str, slices: &mut Vec<Value>) {
    let with_devices = weighted(rng, &[(6, 1), (3, 2), (1, 3)]);
    let counters = features.counters && chance(rng, 50);
    // As 1.34 has it: counters stand beside the devices that draw on them.
    let together = counters && chance(rng, 25);
    let sets = if counters && !together { weighted(rng, &[(4, 1), (1, 2)]) } else { 0 };
    let slice_count = with_devices + sets + weighted(rng, &[(90, 0), (8, 1), (1, -1)]);
    let binding = chance(rng, if features.binding { 25 } else { 3 });
    let pool = Pool { driver, name, generation: 2, slice_count, counters, binding };
    let mut first_device = 0;
    for index in 0..sets {
        let spec = json!({"sharedCounters": counter_sets(rng, index)});
        slices.push(slice(rng, &pool, features, &format!("c{index}"), &spec));
    }
    for index in 0..with_devices {
        let devices = devices(rng, features, &pool, &mut first_device);
        let mut spec = json!({"devices": devices});
        if together {
            spec["sharedCounters"] = counter_sets(rng, index);
        }
        slices.push(slice(rng, &pool, features, &format!("s{index}"), &spec));
    }
    if chance(rng, 6) {
        let generation = one_of(rng, &[1, 3]);
        let other = Pool { generation, slice_count: 1, counters: false, ..pool };
        let devices = devices(rng, features, &other, &mut 0);
        slices.push(slice(rng, &other, features, "z", &json!({"devices": devices})));
    }
}

fn slice(rng: &mut Rng, pool: &Pool<'_>, features: Features, name: &str, content: &Value) -> Value {
    let mut spec = json!({
        "driver": pool.driver,
        "pool": {"name": pool.name, "generation": pool.generation, "resourceSliceCount": pool.slice_count},
    });
    if chance(rng, 3) {
        spec["pool"]["resourceSliceCount"] = json!(pool.slice_count + one_of(rng, &[-1, 1, 1]));
    }
    let counters = content.get("sharedCounters").is_some();
    spec.as_object_mut().expect("it is an object").extend(content.as_object().cloned().unwrap_or_default());
    let own = if features.counters && !counters { 8 } else { 0 };
    match weighted(rng, &[(70, 0), (6, 1), (10, 2), (8, 3), (own, 4)]) {
        0 => spec["nodeName"] = json!("n1"),
        1 => spec["nodeName"] = json!("n2"),
        2 => spec["allNodes"] = json!(true),
        3 => spec["nodeSelector"] = nodes::selector(rng),
        _ => {
            spec["perDeviceNodeSelection"] = json!(true);
            for device in spec["devices"].as_array_mut().into_iter().flatten() {
                own_node(rng, device);
            }
        }
    }
    let driver = &pool.driver[..1];
    let pool = pool.name.to_lowercase().replace('/', "-");
    json!({"metadata": {"name": format!("{name}-{driver}-{pool}")}, "spec": spec})
}

fn own_node(rng: &mut Rng, device: &mut Value) {
    match rng.u32(..6) {
        0 => device["nodeName"] = json!("n2"),
        1 => device["allNodes"] = json!(true),
        2 => device["nodeSelector"] = nodes::selector(rng),
        _ => device["nodeName"] = json!("n1"),
    }
}

/// The sets of a slice; those of the next slice have other names.
fn counter_sets(rng: &mut Rng, index: i64) -> Value {
    let mut sets = vec![counter_set(rng, index)];
    if chance(rng, 35) {
        sets.push(counter_set(rng, index + 2));
    }
    sets.into()
}

fn counter_set(rng: &mut Rng, index: i64) -> Value {
    let name = if chance(rng, 1) { "set-0".to_owned() } else { format!("set-{index}") };
    json!({"name": name, "counters": {"m": {"value": one_of(rng, &["2", "4", "6", "8"])}, "n": {"value": one_of(rng, &["1", "2", "3000m"])}}})
}

fn devices(rng: &mut Rng, features: Features, pool: &Pool<'_>, first: &mut u32) -> Vec<Value> {
    let count = if features.wide { rng.u32(10..=24) } else { weighted(rng, &[(1, 0), (4, 1), (6, 2), (4, 3), (2, 4)]) };
    let start = *first;
    *first += count;
    let alike = chance(rng, 30).then(|| device(rng, features, pool));
    let mut devices: Vec<Value> = (start..start + count)
        .map(|number| {
            let mut device = alike.clone().unwrap_or_else(|| device(rng, features, pool));
            device["name"] = json!(format!("d{number}"));
            device
        })
        .collect();
    if chance(rng, 10) {
        rng.shuffle(&mut devices);
    }
    if chance(rng, 2) && count > 1 {
        devices[0]["name"] = devices[1]["name"].clone();
    }
    devices
}

fn device(rng: &mut Rng, features: Features, pool: &Pool<'_>) -> Value {
    let mut device = json!({"attributes": attributes(rng, features)});
    let shared = chance(rng, if features.sharing { 45 } else { 3 });
    if shared || chance(rng, 30) {
        device["capacity"] = capacities(rng, shared);
    }
    if shared {
        device["allowMultipleAllocations"] = json!(true);
    }
    if chance(rng, if features.taints { 25 } else { 3 }) {
        device["taints"] = (0..=rng.u32(..2)).map(|_| taint(rng)).collect();
    }
    if pool.counters && chance(rng, 75) {
        device["consumesCounters"] = consumption(rng);
    }
    if pool.binding && chance(rng, 60) {
        device["bindingConditions"] = json!(["example.com/ready"]);
        device["bindingFailureConditions"] = json!(["example.com/broken"]);
    }
    if pool.binding && chance(rng, 40) {
        device["bindsToNode"] = json!(true);
    }
    device
}

fn attributes(rng: &mut Rng, features: Features) -> Value {
    let mut all = Map::new();
    let lists = features.lists;
    if chance(rng, 90) {
        let scalar = json!({"int": rng.u32(..3)});
        all.insert("x".into(), if lists && chance(rng, 60) { json!({"ints": numbers(rng)}) } else { scalar });
    }
    if chance(rng, 80) {
        let scalar = json!({"string": one_of(rng, &["p", "q"])});
        let list = json!({"strings": one_of(rng, &[&["p"][..], &["q"], &["p", "q"], &["r"]])});
        all.insert("y".into(), if lists && chance(rng, 60) { list } else { scalar });
    }
    if chance(rng, 60) {
        all.insert("example.com/numa".into(), json!({"int": rng.u32(..2)}));
    }
    if chance(rng, 30) {
        all.insert("v".into(), json!({"version": one_of(rng, &["1.0.0", "1.1.0", "1.0.0"])}));
    }
    if chance(rng, 30) {
        all.insert("b".into(), json!({"bool": rng.bool()}));
    }
    // With both names at once, it is up to a Go map which one a selector sees.
    if chance(rng, 5)
        && let Some(value) = all.remove("x")
    {
        all.insert(format!("{}/x", DRIVERS[0]), value);
    }
    all.into()
}

fn numbers(rng: &mut Rng) -> &'static [i64] {
    one_of(rng, &[&[0][..], &[1], &[0, 1], &[1, 2], &[2, 0], &[0, 1, 2]])
}

fn capacities(rng: &mut Rng, shared: bool) -> Value {
    let mut all = Map::new();
    if chance(rng, 90) {
        all.insert("memory".into(), capacity(rng, shared));
    }
    if chance(rng, 25) {
        all.insert("cores".into(), cores(rng, shared));
    }
    if chance(rng, 10) {
        all.insert("example.com/links".into(), cores(rng, shared));
    }
    all.into()
}

fn capacity(rng: &mut Rng, shared: bool) -> Value {
    let value = one_of(rng, &["4Gi", "4Gi", "6Gi", "8Gi", "4096Mi", "5G", "3500Mi"]);
    if !shared || chance(rng, 50) {
        return json!({"value": value});
    }
    let policy = match rng.u32(..6) {
        0 => json!({"default": "2Gi"}),
        1 => json!({"default": "1Gi", "validValues": ["1Gi", "2Gi", "3Gi"]}),
        2 => json!({"default": "0", "validValues": ["0", "2048Mi"]}),
        3 => json!({"default": "1Gi", "validRange": {"min": "1Gi"}}),
        4 => json!({"default": "1Gi", "validRange": {"min": "512Mi", "max": "3Gi"}}),
        _ => json!({"default": "1Gi", "validRange": {"min": "512Mi", "max": "3Gi", "step": "512Mi"}}),
    };
    json!({"value": value, "requestPolicy": policy})
}

/// Of small amounts, some of which are written in odd ways.
fn cores(rng: &mut Rng, shared: bool) -> Value {
    let value = one_of(rng, &["1", "2", "4", "3e0", "1500m"]);
    if !shared || chance(rng, 50) {
        return json!({"value": value});
    }
    let policy = match rng.u32(..6) {
        0 => json!({"default": "1"}),
        1 => json!({"default": "1e0", "validValues": ["1e0", "2"]}),
        2 => json!({"validValues": ["500m", "1500m"]}),
        3 => json!({"default": "500m", "validRange": {"min": "500m", "step": "500m"}}),
        4 => json!({"validRange": {"min": "0", "max": "3", "step": "1"}}),
        _ => json!({"default": "1", "validRange": {"min": "1", "step": "1e0"}}),
    };
    json!({"value": value, "requestPolicy": policy})
}

fn taint(rng: &mut Rng) -> Value {
    let effect = one_of(rng, &["NoSchedule", "NoSchedule", "NoExecute", "None"]);
    let mut taint = json!({"key": one_of(rng, &["k", "l"]), "effect": effect});
    if chance(rng, 50) {
        taint["value"] = json!(one_of(rng, &["1", "2"]));
    }
    taint
}

/// Of one set or two.
fn consumption(rng: &mut Rng) -> Value {
    let set = if chance(rng, 80) { "set-0" } else { "set-1" };
    let mut all = vec![consumption_of(rng, set)];
    if chance(rng, 12) {
        let other = if set == "set-0" { "set-1" } else { "set-0" };
        let set = one_of(rng, &["set-2", "set-2", other]);
        all.push(consumption_of(rng, set));
    }
    all.into()
}

fn consumption_of(rng: &mut Rng, set: &str) -> Value {
    let mut counters = Map::new();
    if chance(rng, 90) {
        counters.insert("m".into(), json!({"value": one_of(rng, &["1", "2", "2", "3", "4", "8"])}));
    }
    if chance(rng, 25) || counters.is_empty() {
        counters.insert("n".into(), json!({"value": one_of(rng, &["1", "500m", "0"])}));
    }
    json!({"counterSet": set, "counters": counters})
}

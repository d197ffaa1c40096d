//! Random claims.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{DRIVERS, Features, amount, chance, one_of, weighted};

/// One to three claims.
pub(super) fn claims(rng: &mut Rng, features: Features) -> Vec<Value> {
    let count = weighted(rng, &[(1, 0), (60, 1), (30, 2), (9, 3)]);
    (0..count).map(|number| claim(rng, features, number)).collect()
}

fn claim(rng: &mut Rng, features: Features, number: u32) -> Value {
    let count = weighted(rng, &[(1, 0), (45, 1), (40, 2), (14, 3)]);
    let requests: Vec<Value> = (0..count).map(|number| request(rng, features, number)).collect();
    let names: Vec<String> = requests.iter().flat_map(names).collect();
    let mut devices = json!({"requests": requests});
    if !names.is_empty() && chance(rng, 40) {
        devices["constraints"] = (0..=rng.u32(..2)).map(|_| constraint(rng, features, &names)).collect();
    }
    if !names.is_empty() && chance(rng, 25) {
        devices["config"] = (0..=rng.u32(..2)).map(|number| config(rng, &names, number)).collect();
    }
    json!({"metadata": {"name": format!("claim-{number}"), "namespace": "default"}, "spec": {"devices": devices}})
}

/// The name of a request and those of its sub-requests.
fn names(request: &Value) -> Vec<String> {
    let name = request["name"].as_str().unwrap_or_default();
    let subs = request["firstAvailable"].as_array().into_iter().flatten();
    let subs = subs.map(|sub| format!("{name}/{}", sub["name"].as_str().unwrap_or_default()));
    std::iter::once(name.to_owned()).chain(subs).collect()
}

fn request(rng: &mut Rng, features: Features, number: u32) -> Value {
    let name = format!("r{number}");
    if chance(rng, if features.wishes { 35 } else { 2 }) {
        let subs: Vec<Value> = (0..=rng.u32(..3))
            .map(|number| {
                let mut sub = demand(rng, features);
                sub.insert("name".into(), json!(format!("s{number}")));
                sub.into()
            })
            .collect();
        return json!({"name": name, "firstAvailable": subs});
    }
    let mut exactly = demand(rng, features);
    if chance(rng, if features.admin { 20 } else { 1 }) {
        exactly.insert("adminAccess".into(), json!(chance(rng, 85)));
    }
    json!({"name": name, "exactly": exactly})
}

fn demand(rng: &mut Rng, features: Features) -> Map<String, Value> {
    let mut demand = Map::new();
    let class = weighted(rng, &[(400, "any"), (350, "a"), (150, "b"), (100, "picky"), (6, "odd"), (4, "missing")]);
    demand.insert("deviceClassName".into(), json!(class));
    if chance(rng, 12) {
        demand.insert("allocationMode".into(), json!("All"));
    } else {
        let small = weighted(rng, &[(65, 1), (25, 2), (8, 3), (1, 0)]);
        let count = if features.wide { rng.i64(4..=20) } else { small };
        demand.insert("allocationMode".into(), json!("ExactCount"));
        demand.insert("count".into(), json!(count));
    }
    if chance(rng, 35) {
        let count = weighted(rng, &[(7, 1), (3, 2), (1, 3)]);
        let selectors = (0..count).map(|_| json!({"cel": {"expression": selector(rng, features)}}));
        demand.insert("selectors".into(), selectors.collect());
    }
    if chance(rng, if features.taints { 40 } else { 3 }) {
        demand.insert("tolerations".into(), (0..=rng.u32(..2)).map(|_| toleration(rng)).collect());
    }
    if chance(rng, if features.sharing { 45 } else { 1 }) {
        demand.insert("capacity".into(), json!({"requests": requested(rng)}));
    }
    demand
}

fn requested(rng: &mut Rng) -> Map<String, Value> {
    let mut requested = Map::new();
    if chance(rng, 95) {
        requested.insert("memory".into(), json!(amount(rng)));
    }
    if chance(rng, 12) {
        requested.insert("cores".into(), json!(one_of(rng, &["1", "2", "1e0", "500m"])));
    }
    if chance(rng, 4) {
        requested.insert("example.com/links".into(), json!(one_of(rng, &["1", "0"])));
    }
    requested
}

/// Few of them fail while they run: a failure ends the search and hides what comes behind it.
pub(super) fn selector(rng: &mut Rng, features: Features) -> String {
    if chance(rng, 1) {
        return one_of(rng, &["device.nothing == 1", "device.driver", "1 +", "device.attributes.x.y == 1"]).to_owned();
    }
    let d = DRIVERS[usize::from(chance(rng, 25))];
    let here = format!("device.attributes[\"{d}\"]");
    if features.lists {
        return match rng.u32(..3) {
            0 => format!("has({here}.x) && {here}.x.includes(1)"),
            1 => format!("has({here}.y) && {here}.y.includes(\"p\")"),
            _ => format!("device.driver == \"{d}\""),
        };
    }
    match rng.u32(..20) {
        0..=4 => format!("has({here}.x) && {here}.x == {}", rng.u32(..3)),
        5..=8 => format!("{here}.?x.orValue(9) <= 1"),
        9..=12 => format!("has({here}.y) && {here}.y == \"{}\"", one_of(rng, &["p", "q"])),
        13 => "has(device.attributes[\"example.com\"].numa)".to_owned(),
        14 => format!("has({here}.v) && {here}.v.compareTo(semver(\"1.0.5\")) > 0"),
        15 => format!(
            "has(device.capacity[\"{d}\"].memory) && device.capacity[\"{d}\"].memory.isGreaterThan(quantity(\"4Gi\"))"
        ),
        16 => format!("{here}.?b.orValue(false)"),
        17 => "true".to_owned(),
        18 if features.sharing => "device.allowMultipleAllocations".to_owned(),
        18 => "!device.driver.startsWith(\"c\")".to_owned(),
        _ => format!("{here}.x == 0"),
    }
}

fn toleration(rng: &mut Rng) -> Value {
    let mut toleration = Map::new();
    if chance(rng, 85) {
        toleration.insert("key".into(), json!(one_of(rng, &["k", "l"])));
    }
    if chance(rng, 60) {
        toleration.insert("operator".into(), json!("Exists"));
    } else {
        toleration.insert("operator".into(), json!("Equal"));
        toleration.insert("value".into(), json!(one_of(rng, &["1", "2"])));
    }
    if chance(rng, 30) {
        toleration.insert("effect".into(), json!(one_of(rng, &["NoSchedule", "NoExecute"])));
    }
    if chance(rng, 10) {
        toleration.insert("effect".into(), json!("NoExecute"));
        toleration.insert("tolerationSeconds".into(), json!(one_of(rng, &[0, 30])));
    }
    toleration.into()
}

fn constraint(rng: &mut Rng, features: Features, names: &[String]) -> Value {
    let name = one_of(
        rng,
        &[
            "a.example.com/x",
            "a.example.com/y",
            "a.example.com/v",
            "a.example.com/b",
            "b.example.com/x",
            "example.com/numa",
            "example.com/numa",
        ],
    );
    let distinct = chance(rng, if features.sharing { 40 } else { 4 });
    let kind = if distinct { "distinctAttribute" } else { "matchAttribute" };
    let mut constraint = json!({ (kind): name });
    if chance(rng, 40) {
        constraint["requests"] = some_of(rng, names);
    }
    constraint
}

fn config(rng: &mut Rng, names: &[String], number: u32) -> Value {
    let mut config = json!({"opaque": {"driver": one_of(rng, &DRIVERS), "parameters": {"n": number}}});
    if chance(rng, 70) {
        config["requests"] = some_of(rng, names);
    }
    config
}

fn some_of(rng: &mut Rng, names: &[String]) -> Value {
    let mut some: Vec<&String> = names.iter().filter(|_| rng.bool()).collect();
    if some.is_empty() {
        some.push(&names[rng.usize(..names.len())]);
    }
    json!(some)
}

//! Whether an allocation keeps what it has to keep, checked from the objects alone: devices are there and free, counts are
//! met, constraints hold, taints are tolerated, and counters and capacities are not overdrawn.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::{Map, Value, json};

use crate::case::{Case, DeviceReference};

/// One device of a result, with all that is known of it.
struct Grant<'a> {
    claim: usize,
    admin: bool,
    reference: DeviceReference,
    device: &'a Value,
    /// `request` or `request/sub-request`.
    name: &'a str,
    /// What was asked for.
    demand: &'a Value,
    result: &'a Value,
}

/// Panics with what is wrong.
pub(crate) fn verify(case: &Case, fit: &[Value]) {
    let on = |gate: &str| case.features.iter().any(|feature| feature == gate);
    let grants: Vec<Grant<'_>> =
        fit.iter().enumerate().flat_map(|(claim, result)| grants(case, claim, result)).collect();
    free(case, &grants);
    for claim in 0..case.claims.len() {
        let of_claim: Vec<&Grant<'_>> = grants.iter().filter(|grant| grant.claim == claim).collect();
        counts(case, claim, &of_claim);
        constraints(case, claim, &of_claim);
    }
    if on("DRADeviceTaints") {
        grants.iter().for_each(tolerated);
    }
    if on("DRAPartitionableDevices") {
        counters(case, &grants);
    }
    if on("DRAConsumableCapacity") {
        capacities(case, &grants);
    }
}

fn grants<'a>(case: &'a Case, claim: usize, result: &'a Value) -> Vec<Grant<'a>> {
    let results = result["devices"]["results"].as_array().into_iter().flatten();
    results
        .map(|result| {
            let text = |name: &str| result[name].as_str().expect("every result has it").to_owned();
            let reference = DeviceReference { driver: text("driver"), pool: text("pool"), device: text("device") };
            let name = result["request"].as_str().expect("every result has it");
            let device = devices(case).find(|(other, _)| *other == reference);
            let (_, device) = device.unwrap_or_else(|| panic!("{reference:?} is not on the node"));
            let demand = demand(case, claim, name);
            Grant { claim, admin: result["adminAccess"] == json!(true), reference, device, name, demand, result }
        })
        .collect()
}

fn demand<'a>(case: &'a Case, claim: usize, name: &str) -> &'a Value {
    let (request, sub) = name.split_once('/').map_or((name, None), |(request, sub)| (request, Some(sub)));
    let named = |list: &'a Value, name: &str| list.as_array()?.iter().find(|item| item["name"] == json!(name));
    let found = named(&case.claims[claim]["spec"]["devices"]["requests"], request).and_then(|request| match sub {
        Some(sub) => named(&request["firstAvailable"], sub),
        None => request.get("exactly"),
    });
    found.unwrap_or_else(|| panic!("nobody asked for {name}"))
}

/// What the slices of each pool say, of the newest generation that this node sees.
fn specs(case: &Case) -> impl Iterator<Item = &Value> {
    let all = || case.slices.iter().map(|slice| &slice["spec"]);
    all().filter(move |spec| {
        let seen = all().filter(|other| pool(other) == pool(spec) && is_seen(case, other));
        seen.map(|other| other["pool"]["generation"].as_i64()).max() == Some(spec["pool"]["generation"].as_i64())
    })
}

fn is_seen(case: &Case, spec: &Value) -> bool {
    let mut devices = spec["devices"].as_array().into_iter().flatten();
    match spec["perDeviceNodeSelection"] == json!(true) {
        true => devices.any(|device| here(case, spec, device)),
        false => here(case, spec, &Value::Null),
    }
}

/// All devices of them; a slice with counters has none.
fn all_devices(case: &Case) -> impl Iterator<Item = (DeviceReference, &Value, &Value)> {
    specs(case).filter(|spec| spec.get("sharedCounters").is_none()).flat_map(|spec| {
        spec["devices"].as_array().into_iter().flatten().map(move |device| {
            let (driver, pool) = pool(spec);
            let device_name = device["name"].as_str().unwrap_or_default().to_owned();
            (DeviceReference { driver, pool, device: device_name }, spec, device)
        })
    })
}

/// Those that this node can use.
fn devices(case: &Case) -> impl Iterator<Item = (DeviceReference, &Value)> {
    let here = |(_, spec, device): &(_, &Value, &Value)| here(case, spec, device);
    all_devices(case).filter(here).map(|(reference, _, device)| (reference, device))
}

fn pool(spec: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&spec["driver"]), text(&spec["pool"]["name"]))
}

fn here(case: &Case, spec: &Value, device: &Value) -> bool {
    let place = if spec["perDeviceNodeSelection"] == json!(true) { device } else { spec };
    if let Some(name) = place.get("nodeName") {
        return *name == case.node["metadata"]["name"];
    }
    let terms = place["nodeSelector"]["nodeSelectorTerms"].as_array();
    place["allNodes"] == json!(true) || terms.is_some_and(|terms| terms.iter().any(|term| is_selected(case, term)))
}

/// A term without any requirement selects nothing.
fn is_selected(case: &Case, term: &Value) -> bool {
    let requirements = |name: &str| term[name].as_array().into_iter().flatten();
    let (labels, metadata) = (&case.node["metadata"]["labels"], &case.node["metadata"]);
    let mut fields = requirements("matchFields").map(|requirement| (requirement, metadata.get("name")));
    let mut found = requirements("matchExpressions")
        .map(|requirement| (requirement, labels.get(requirement["key"].as_str().unwrap_or_default())));
    let is_something = term.as_object().is_some_and(|term| !term.is_empty());
    is_something && fields.all(|(it, value)| is_met(it, value)) && found.all(|(it, value)| is_met(it, value))
}

fn is_met(requirement: &Value, value: Option<&Value>) -> bool {
    let values = requirement["values"].as_array();
    let is_one_of = || value.is_some_and(|value| values.is_some_and(|values| values.contains(value)));
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<i64>().ok());
    let order = || number(value?)?.partial_cmp(&number(values?.first()?)?);
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" => is_one_of(),
        "NotIn" => !is_one_of(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => order() == Some(Ordering::Greater),
        _ => order() == Some(Ordering::Less),
    }
}

fn shared(case: &Case, device: &Value) -> bool {
    let on = case.features.iter().any(|feature| feature == "DRAConsumableCapacity");
    on && device["allowMultipleAllocations"] == json!(true)
}

/// Nothing is given that somebody holds, and nothing twice.
fn free(case: &Case, grants: &[Grant<'_>]) {
    let mut given = BTreeSet::new();
    for grant in grants.iter().filter(|grant| !grant.admin) {
        assert!(!case.allocated.devices.contains(&grant.reference), "{:?} is held by others", grant.reference);
        let new = given.insert(&grant.reference);
        assert!(new || shared(case, grant.device), "{:?} is given twice", grant.reference);
    }
}

/// Each request, or one of its sub-requests, has as many devices as it asked for.
fn counts(case: &Case, claim: usize, grants: &[&Grant<'_>]) {
    assert!(grants.len() <= 32, "{} devices for one claim", grants.len());
    for request in case.claims[claim]["spec"]["devices"]["requests"].as_array().into_iter().flatten() {
        let name = request["name"].as_str().unwrap_or_default();
        let of_request = grants.iter().filter(|grant| grant.name.split('/').next() == Some(name));
        let names: BTreeSet<&str> = of_request.clone().map(|grant| grant.name).collect();
        assert!(names.len() <= 1, "{name} is satisfied by {names:?}");
        for grant in of_request.clone().filter(|grant| grant.demand["allocationMode"] == "ExactCount") {
            assert_eq!(json!(of_request.clone().count()), grant.demand["count"], "devices of {name}");
        }
    }
}

fn constraints(case: &Case, claim: usize, grants: &[&Grant<'_>]) {
    for constraint in case.claims[claim]["spec"]["devices"]["constraints"].as_array().into_iter().flatten() {
        let requests: Vec<&str> =
            constraint["requests"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let meant = |grant: &&&Grant<'_>| {
            let parent = grant.name.split('/').next().unwrap_or_default();
            requests.is_empty() || requests.contains(&grant.name) || requests.contains(&parent)
        };
        let distinct = constraint.get("distinctAttribute").is_some();
        let name =
            constraint[if distinct { "distinctAttribute" } else { "matchAttribute" }].as_str().unwrap_or_default();
        let values: Vec<BTreeSet<String>> = grants.iter().filter(meant).map(|grant| values(grant, name)).collect();
        if distinct {
            let sum: usize = values.iter().map(BTreeSet::len).sum();
            let all: BTreeSet<&String> = values.iter().flatten().collect();
            assert_eq!(sum, all.len(), "{name} is not distinct: {values:?}");
        } else if let Some(first) = values.first() {
            let common = first.iter().filter(|value| values.iter().all(|other| other.contains(*value)));
            assert!(common.count() > 0, "{name} differs: {values:?}");
        }
    }
}

/// The values of an attribute, each with its kind.
fn values(grant: &Grant<'_>, name: &str) -> BTreeSet<String> {
    let attributes = &grant.device["attributes"];
    let own = name.strip_prefix(&*grant.reference.driver).and_then(|rest| rest.strip_prefix('/'));
    let found = attributes.get(name).or_else(|| attributes.get(own?));
    let (kind, value) =
        found.and_then(Value::as_object).and_then(|value| value.iter().next()).expect("it is constrained");
    let kind = kind.trim_end_matches('s');
    match value {
        Value::Array(values) => values.iter().map(|value| format!("{kind} {value}")).collect(),
        value => [format!("{kind} {value}")].into(),
    }
}

fn tolerated(grant: &Grant<'_>) {
    for taint in grant.device["taints"].as_array().into_iter().flatten().filter(|taint| taint["effect"] != "None") {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let fits = |toleration: &Value| {
            let same = |name: &str| text(&toleration[name]) == text(&taint[name]);
            (toleration.get("key").is_none() || same("key"))
                && (toleration.get("effect").is_none() || same("effect"))
                && (toleration["operator"] == "Exists" || same("value"))
        };
        let tolerations = grant.demand["tolerations"].as_array();
        assert!(
            tolerations.is_some_and(|all| all.iter().any(fits)),
            "{taint} of {:?} is not tolerated",
            grant.reference
        );
    }
}

/// Counters of each set of each pool, whoever has taken them.
fn counters(case: &Case, grants: &[Grant<'_>]) {
    let mut left: BTreeMap<(String, String, String, String), i128> = BTreeMap::new();
    for spec in specs(case) {
        for set in spec["sharedCounters"].as_array().into_iter().flatten() {
            for (name, counter) in set["counters"].as_object().into_iter().flatten() {
                let (driver, pool) = pool(spec);
                left.insert((driver, pool, set["name"].to_string(), name.clone()), nano(&counter["value"]));
            }
        }
    }
    // A device with several holders has drawn on them once; somebody may have drawn too much before us.
    let mut holders: BTreeSet<DeviceReference> = case.allocated.devices.iter().cloned().collect();
    holders.extend(case.allocated.capacity.iter().map(|consumed| consumed.device.clone()));
    holders.extend(case.allocated.shares.iter().map(|share| share.device.clone()));
    let before = drawn(case, &holders);
    holders.extend(grants.iter().map(|grant| grant.reference.clone()));
    for (counter, amount) in drawn(case, &holders) {
        if amount > before.get(&counter).copied().unwrap_or_default() {
            let available = left.get(&counter).copied().unwrap_or_default();
            assert!(amount <= available, "{counter:?} has {available}, {amount} are drawn");
        }
    }
}

fn drawn(case: &Case, holders: &BTreeSet<DeviceReference>) -> BTreeMap<(String, String, String, String), i128> {
    let mut drawn = BTreeMap::new();
    for (reference, _, device) in all_devices(case).filter(|(reference, ..)| holders.contains(reference)) {
        for set in device["consumesCounters"].as_array().into_iter().flatten() {
            for (name, counter) in set["counters"].as_object().into_iter().flatten() {
                let (driver, pool) = (reference.driver.clone(), reference.pool.clone());
                *drawn.entry((driver, pool, set["counterSet"].to_string(), name.clone())).or_default() +=
                    nano(&counter["value"]);
            }
        }
    }
    drawn
}

/// What all shares of a device take together.
fn capacities(case: &Case, grants: &[Grant<'_>]) {
    let none = Map::new();
    for grant in grants.iter().filter(|grant| shared(case, grant.device)) {
        for (name, capacity) in grant.device["capacity"].as_object().unwrap_or(&none) {
            let here = grants.iter().filter(|other| other.reference == grant.reference);
            let taken: i128 = here.map(|other| nano(&other.result["consumedCapacity"][name])).sum();
            let others = case.allocated.capacity.iter().filter(|consumed| consumed.device == grant.reference);
            let others: i128 = others.map(|consumed| nano(&consumed.capacity[name])).sum();
            let all = nano(&capacity["value"]);
            assert!(taken + others <= all, "{name} of {:?} is {all}, {taken} and {others} are taken", grant.reference);
        }
    }
}

/// A quantity in billionths; absent is none.
pub(crate) fn nano(value: &Value) -> i128 {
    const SUFFIXES: [(&str, i128); 11] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("e9", 1_000_000_000),
        ("e8", 100_000_000),
        ("e0", 1),
        ("", 1),
    ];
    let Some(text) = value.as_str() else { return 0 };
    if let Some(milli) = text.strip_suffix('m') {
        return milli.parse::<i128>().expect("a whole number") * 1_000_000;
    }
    let suffix = SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, factor)));
    let (digits, factor) = suffix.expect("the last one fits always");
    digits.parse::<i128>().unwrap_or_else(|error| panic!("{text}: {error}")) * factor * 1_000_000_000
}

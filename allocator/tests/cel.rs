//! Selectors answer as Kubernetes does: every row of the table was answered by its own evaluator.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use hostler_allocator::{
    cel::{CelOptions, CompileError, DeviceFacts, EvaluationError, Selector},
    structured::KubernetesVersion,
};
use hostler_api::resource::SliceDevice;
use serde::Deserialize;

#[derive(Deserialize)]
struct Device {
    driver: String,
    #[serde(flatten)]
    device: SliceDevice,
}

/// A row of the table; see the README beside it.
#[derive(Debug, Deserialize)]
struct Row {
    expression: String,
    device: String,
    features: Vec<String>,
    versions: Vec<String>,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What Kubernetes said.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Outcome {
    /// The expression does not compile.
    compile: bool,
    /// Evaluating it fails.
    runtime: bool,
    matches: Option<bool>,
    /// Absent where it depends on the order of a map, which Kubernetes does not fix.
    cost: Option<u64>,
}

fn devices() -> BTreeMap<String, Device> {
    serde_json::from_str(include_str!("cel/devices.json")).unwrap()
}

fn rows() -> Vec<Row> {
    include_str!("cel/rows.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn versions(row: &Row) -> impl Iterator<Item = KubernetesVersion> {
    let named = KubernetesVersion::ALL.into_iter().filter(|version| row.versions.contains(&version.to_string()));
    named.collect::<Vec<_>>().into_iter()
}

/// What this library says; `None` where it says that it does not know.
fn outcome(row: &Row, version: KubernetesVersion, device: &Device) -> Option<Outcome> {
    let options = CelOptions::of(version, row.features.iter().any(|feature| feature == "ListTypeAttributes"));
    let selector = match Selector::compile(&row.expression, &options) {
        Ok(selector) => selector,
        Err(CompileError::Unsupported(_)) => return None,
        Err(_) => return Some(Outcome { compile: true, ..Outcome::default() }),
    };
    let facts = DeviceFacts {
        driver: &device.driver,
        attributes: &device.device.attributes,
        capacity: &device.device.capacity,
        allow_multiple_allocations: device.device.allow_multiple_allocations,
    };
    let (answer, cost) = selector.matches_at_cost(&facts);
    let cost = row.outcome.cost.map(|_| cost);
    match answer {
        Ok(matches) => Some(Outcome { matches: Some(matches), cost, ..Outcome::default() }),
        Err(EvaluationError::Unsupported(_)) => None,
        Err(_) => Some(Outcome { runtime: true, cost, ..Outcome::default() }),
    }
}

#[test]
fn selectors_answer_as_kubernetes_does() {
    let (devices, mut differing, mut count) = (devices(), Vec::new(), 0);
    for row in rows() {
        for version in versions(&row) {
            count += 1;
            let found = outcome(&row, version, &devices[&row.device]);
            if found.as_ref() != Some(&row.outcome) {
                differing.push(format!("{version} {}: expected {:?}, found {found:?}", row.expression, row.outcome));
            }
        }
    }
    assert!(count > 1000, "{count} answers");
    assert_eq!(differing, Vec::<String>::new(), "{} of {count}", differing.len());
}

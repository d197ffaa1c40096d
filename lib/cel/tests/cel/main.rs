//! Selectors answer as Kubernetes does: every row of the table was answered by its own evaluator.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and programs to compare with have to be started"
)]

use std::collections::BTreeMap;

use hostler_api::{KubernetesVersion, resource::SliceDevice};
use hostler_cel::{CelOptions, CompileError, DeviceFacts, EvaluationError, Selector};
use serde::{Deserialize, de::DeserializeOwned};

mod generate;
#[path = "../support/program.rs"]
mod program;
mod random;

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
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
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

/// The devices, as they are written or as objects.
fn devices<D: DeserializeOwned>() -> BTreeMap<String, D> {
    serde_json::from_str(include_str!("devices.json")).unwrap()
}

fn rows() -> Vec<Row> {
    include_str!("rows.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn versions(row: &Row) -> impl Iterator<Item = KubernetesVersion> {
    let named = KubernetesVersion::ALL.into_iter().filter(|version| row.versions.contains(&version.to_string()));
    named.collect::<Vec<_>>().into_iter()
}

/// What this library says; `None` where it says that it does not know.
fn outcome(row: &Row, version: KubernetesVersion, device: &Device) -> Option<Outcome> {
    let found = ours(&row.expression, &row.features, version, device)?;
    let cost = row.outcome.cost.and(found.cost);
    Some(Outcome { cost, ..found })
}

fn ours(
    expression: &str,
    features: &[impl AsRef<str>],
    version: KubernetesVersion,
    device: &Device,
) -> Option<Outcome> {
    let options = CelOptions::of(version, features.iter().any(|feature| feature.as_ref() == "ListTypeAttributes"));
    let selector = match Selector::compile(expression, &options) {
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
    let cost = Some(cost);
    match answer {
        Ok(matches) => Some(Outcome { matches: Some(matches), cost, ..Outcome::default() }),
        Err(EvaluationError::Unsupported(_)) => None,
        Err(_) => Some(Outcome { runtime: true, cost, ..Outcome::default() }),
    }
}

#[test]
fn selectors_answer_as_kubernetes_does() {
    let (devices, mut differing, mut count) = (devices::<Device>(), Vec::new(), 0);
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

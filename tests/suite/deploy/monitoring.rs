//! What people look at: figures, the table that explains them, alerts, their runbooks and the dashboard agree with each
//! other and with the real programs.

mod alerts;
mod dashboard;
mod figures;
mod prometheus;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hostler_testing::{
    binary::tool,
    exposition::{Exposition, SampleLabels, series_of},
    host::Host,
    skip::skipped,
};
use serde_json::Value;

use super::{deploy, objects};

/// Returns the figures of a real daemon, after everything that can happen to a daemon without a cluster.
fn figures_of_a_daemon() -> Exposition {
    let mut host = Host::bare("[[device]]\nname = \"card\"\n");
    host.start();
    host.manifest("first", "u1", &[("all", "fake", "card", Value::Null)]);
    host.manifest("second", "u2", &[("all", "fake", "card", Value::Null)]);
    host.run_ok(&["claim", "prepare", "first"]);
    host.run_refused(&["claim", "prepare", "second"]);
    let (code, text) = host.metrics("/metrics");
    assert_eq!(code, 200, "{text}");
    Exposition::parse(text)
}

fn page(name: &str) -> String {
    fs::read_to_string(deploy().join("../docs").join(name)).unwrap()
}

/// Returns the rules about a program.
fn rules(program: &str) -> Vec<Value> {
    let all = objects("PrometheusRule");
    let (_, rules) = all.into_iter().find(|(_, rules)| rules["metadata"]["name"] == program).unwrap();
    rules["spec"]["groups"][0]["rules"].as_array().unwrap().clone()
}

/// Returns the rules about both programs.
fn all_rules() -> Vec<Value> {
    [rules("hostler"), rules("hostler-controller")].concat()
}

/// Returns the rules as a file that Prometheus reads.
fn rule_file(rules: &[Value]) -> String {
    serde_json::json!({ "groups": [{ "name": "hostler", "rules": rules }] }).to_string()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is no text in {value}"))
}

/// Returns the title of each panel of the dashboard with each of its expressions.
fn drawn() -> Vec<(String, String)> {
    let panels = dashboard()["panels"].as_array().unwrap().clone();
    let targets = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(|target| (text(panel, "title").to_owned(), text(&target, "expr").to_owned()))
    });
    targets.collect()
}

fn dashboard() -> Value {
    let text = fs::read_to_string(deploy().join("monitoring/dashboard.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns the names in an expression that are figures, each with its selector.
fn selectors(expression: &str) -> Vec<(String, SampleLabels)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = ["hostler_", "process_"].iter().filter_map(|start| rest.find(start)).min() {
        rest = &rest[at..];
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let labels = rest[end..].strip_prefix('{').and_then(|labels| labels.split_once('}')).map_or("", |(it, _)| it);
        found.push(series_of(&format!("{}{{{labels}}}", &rest[..end])));
        rest = &rest[end..];
    }
    found
}

/// Returns the name of the metric in the table that has samples of this name.
fn metric_of(sample: &str) -> &str {
    let parts = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| sample.strip_suffix(part));
    parts.unwrap_or(sample)
}

fn promtool() -> Option<PathBuf> {
    let found = tool("promtool");
    if found.is_none() {
        skipped("needs promtool, which tools/deps.sh fetches where Debian's packages can be had");
    }
    found
}

/// Runs promtool with an input; returns its output.
fn checked(promtool: &Path, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(promtool);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() { said } else { format!("promtool failed: {said}") }
}

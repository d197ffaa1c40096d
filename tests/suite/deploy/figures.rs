//! Figures, the table that explains them, and the alerts about them: all three agree with the real daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hostler_testing::{
    binary::tool,
    host::{Host, http},
};
use serde_json::Value;

use super::{deploy, objects};

/// The answer of a daemon to a scrape.
#[derive(Debug, Default)]
struct Exposition {
    text: String,
    /// Type of each figure, by name.
    kinds: BTreeMap<String, String>,
    /// Name and labels of each sample.
    samples: Vec<(String, BTreeMap<String, String>)>,
}

impl Exposition {
    /// Reads the figures of a real daemon, after everything that can happen to a daemon without a cluster.
    fn of_a_daemon() -> Self {
        let mut host = Host::bare("[[device]]\nname = \"card\"\n");
        host.start();
        host.manifest("first", "u1", &[("all", "fake", "card", Value::Null)]);
        host.manifest("second", "u2", &[("all", "fake", "card", Value::Null)]);
        host.run_ok(&["claim", "prepare", "first"]);
        host.run_refused(&["claim", "prepare", "second"]);
        let (code, text) = host.metrics("/metrics");
        assert_eq!(code, 200, "{text}");
        Self::parse(text)
    }

    fn parse(text: String) -> Self {
        let mut found = Self { text, ..Self::default() };
        for line in found.text.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                found.kinds.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (series, _) = line.rsplit_once(' ').unwrap();
                found.samples.push(series_of(series));
            }
        }
        found
    }

    /// The description that a sample belongs to.
    fn described(&self, sample: &str) -> Option<&str> {
        let known = |name: &str| self.kinds.get_key_value(name).map(|(name, _)| name.as_str());
        let parts = ["_bucket", "_sum", "_count"].into_iter().filter_map(|part| sample.strip_suffix(part));
        known(sample).or_else(|| parts.into_iter().find_map(known))
    }

    fn value(&self, series: &str) -> Option<f64> {
        let line = self.text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok())
    }
}

/// Parses `name{label="value",…}`.
fn series_of(series: &str) -> (String, BTreeMap<String, String>) {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    // Other comparisons of a selector (`!=`, `=~`) select no label that has to be there.
    let pairs = labels.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\""));
    let pairs = pairs.filter(|(key, _)| !key.ends_with(['!', '~']));
    (name.to_owned(), pairs.map(|(key, value)| (key.to_owned(), value.trim_end_matches('"').to_owned())).collect())
}

/// The table of docs/operations.md: the labels of each figure.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `hostler_") || line.starts_with("| `process_"));
    let rows = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    rows.map(|row| {
        let labels = row[1].split(',').map(str::trim).filter(|label| !label.is_empty()).map(str::to_owned);
        (row[0].trim_matches('`').to_owned(), labels.collect())
    })
    .collect()
}

/// The alerts about a program.
fn alerts(program: &str) -> Vec<Value> {
    let all = objects("PrometheusRule");
    let (_, rules) = all.into_iter().find(|(_, rules)| rules["metadata"]["name"] == program).unwrap();
    rules["spec"]["groups"][0]["rules"].as_array().unwrap().clone()
}

/// Returns the expressions of the daemon's alerts.
fn expressions() -> Vec<(String, String)> {
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap().to_owned();
    alerts("hostler").iter().map(|rule| (text(rule, "alert"), text(rule, "expr"))).collect()
}

#[test]
fn every_alert_leads_to_a_section_that_says_what_to_do() {
    let read = |page: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page)).unwrap();
    let (operations, controller) = (read("operations.md"), read("controller.md"));
    let all = [alerts("hostler"), alerts("hostler-controller")].concat();
    for alert in &all {
        let name = alert["alert"].as_str().unwrap();
        assert!(operations.contains(&format!("\n### {name}\n")), "{name} has no section");
        let link = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert!(link.ends_with(&format!("/docs/operations.md#{}", name.to_lowercase())), "{name}: {link}");
    }
    let sections = operations.lines().filter(|line| line.starts_with("### Hostler")).count();
    assert_eq!(sections, all.len(), "a section of an alert that is gone");
    for alert in alerts("hostler-controller") {
        for (name, labels) in selectors(alert["expr"].as_str().unwrap()) {
            let row = controller.lines().find(|line| line.starts_with(&format!("| `{name}")));
            let row = row.unwrap_or_else(|| panic!("{name} is no figure of the controller"));
            assert!(labels.keys().all(|label| row.contains(&**label)), "{name} has no {labels:?}");
        }
    }
}

/// A rule file with both groups, as Prometheus reads it.
fn rule_file() -> Value {
    let group = |name: &str| serde_json::json!({ "name": name, "rules": alerts(name) });
    serde_json::json!({ "groups": [group("hostler"), group("hostler-controller")] })
}

/// Series of programs that live, that answer no scraper, and that do not exist; with the alerts that are raised then.
fn lives_and_deaths() -> Vec<(Vec<Value>, Vec<&'static str>)> {
    let series = |series: &str, values: &str| serde_json::json!({ "series": series, "values": values });
    let alive = |job: &str, value: u8| series(&format!("up{{job='{job}',instance='i'}}"), &format!("{value}x30"));
    vec![
        // Both live.
        (
            vec![
                alive("hostler-system/hostler", 1),
                series("hostler_ready{instance='i'}", "1x30"),
                alive("hostler-controller/hostler-controller", 1),
                series("hostler_controller_ready{instance='c'}", "1x30"),
                series("hostler_controller_leads{instance='c'}", "1x30"),
            ],
            vec![],
        ),
        // Both answer no scraper, and no controller leads.
        (
            vec![
                alive("hostler", 0),
                series("hostler_ready{instance='other'}", "1x30"),
                alive("hostler-controller", 0),
                series("hostler_controller_ready{instance='other'}", "1x30"),
                series("hostler_controller_leads{instance='other'}", "0x30"),
            ],
            vec!["HostlerDown", "HostlerControllerDown", "HostlerControllerNobodyLeads"],
        ),
        // Neither is there.
        (vec![alive("other", 1)], vec!["HostlerAbsent", "HostlerControllerAbsent"]),
    ]
}

#[test]
fn promtool_raises_alerts_for_programs_that_are_dead_and_none_for_those_that_live() {
    let Some(promtool) = promtool() else { return };
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yml");
    let watched = [
        "HostlerDown",
        "HostlerAbsent",
        "HostlerControllerDown",
        "HostlerControllerAbsent",
        "HostlerControllerNobodyLeads",
    ];
    let given = lives_and_deaths();
    let tests: Vec<Value> = given
        .iter()
        .map(|(series, raised)| {
            let expected = watched.map(|alert| {
                let labels = match alert {
                    "HostlerDown" => serde_json::json!({ "severity": "critical", "job": "hostler", "instance": "i" }),
                    "HostlerControllerDown" => {
                        serde_json::json!({ "severity": "warning", "job": "hostler-controller", "instance": "i" })
                    }
                    _ => serde_json::json!({ "severity": "critical" }),
                };
                let alerts = if raised.contains(&alert) {
                    vec![serde_json::json!({ "exp_labels": labels })]
                } else {
                    Vec::new()
                };
                serde_json::json!({ "eval_time": "20m", "alertname": alert, "exp_alerts": alerts })
            });
            serde_json::json!({ "interval": "1m", "input_series": series, "alert_rule_test": expected })
        })
        .collect();
    // Annotations are texts for people: the test is about which alerts there are.
    let mut bare = rule_file();
    for group in bare["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            rule.as_object_mut().unwrap().remove("annotations");
        }
    }
    fs::write(&rules, bare.to_string()).unwrap();
    let test = folder.path().join("test.yml");
    let text = serde_json::json!({ "rule_files": [rules], "evaluation_interval": "1m", "tests": tests });
    fs::write(&test, text.to_string()).unwrap();
    let said = checked(&promtool, &["test", "rules", test.to_str().unwrap()], "");
    assert!(said.contains("SUCCESS"), "{said}");
}

/// Returns the title of each panel of the dashboard with each of its expressions, and those of the variables.
fn drawn() -> Vec<(String, String)> {
    let text = fs::read_to_string(deploy().join("monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(move |target| (title.clone(), target["expr"].as_str().unwrap().to_owned()))
    });
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let asked = variables.filter_map(|variable| variable["query"]["query"].as_str());
    panels.chain(asked.map(|query| ("variable".to_owned(), query.to_owned()))).collect()
}

/// Returns the names in an expression that are figures, each with its selector.
fn selectors(expression: &str) -> Vec<(String, BTreeMap<String, String>)> {
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

#[test]
fn the_table_has_every_figure_with_its_labels_and_no_other() {
    let (given, table) = (Exposition::of_a_daemon(), table());
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<BTreeSet<String>>();
    assert_eq!(names(given.kinds.keys().collect()), names(table.keys().collect()));
    for (sample, labels) in &given.samples {
        let name = given.described(sample).unwrap_or_else(|| panic!("{sample} is not described"));
        let labels: BTreeSet<String> = labels.keys().filter(|label| *label != "le").cloned().collect();
        assert_eq!(labels, table[name], "labels of {name}");
    }
    // An event that has not happened yet is there too, as a zero.
    assert!(given.samples.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len() > 20);
}

#[test]
fn alerts_select_what_the_daemon_gives_from_its_start() {
    let given = Exposition::of_a_daemon();
    let table = table();
    let mut alerts = BTreeSet::new();
    for (alert, expression) in expressions() {
        let selectors = selectors(&expression);
        // The scraper itself tells whether the daemon answers at all.
        assert!(!selectors.is_empty() || expression.starts_with("up{job=~"), "{alert} is about nothing");
        for (name, wanted) in selectors {
            assert!(given.described(&name).is_some(), "{alert}: {name} is no figure of the daemon");
            assert!(table.contains_key(&name), "{alert}: {name} is not explained");
            let fits = |(found, labels): &(String, BTreeMap<String, String>)| {
                *found == name && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
            };
            let is_there = given.samples.iter().any(fits);
            assert!(is_there || wanted.is_empty(), "{alert}: nothing is {name} with {wanted:?}");
        }
        alerts.insert(alert);
    }
    assert!(alerts.len() >= 7, "{alerts:?}");
}

#[test]
fn the_dashboard_draws_figures_that_are_given_by_labels_that_they_have() {
    let (given, table) = (Exposition::of_a_daemon(), table());
    let drawn = drawn();
    for (panel, expression) in &drawn {
        let selectors = selectors(expression);
        assert!(!selectors.is_empty(), "{panel} is about nothing");
        for (name, wanted) in selectors {
            let figure = given.described(&name).unwrap_or_else(|| panic!("{panel}: {name} is no figure of the daemon"));
            // Capacities are those of the hardware; the others have all their values from the start.
            let unknown = wanted.keys().find(|label| !table[figure].contains(*label));
            assert_eq!(unknown, None, "{panel}: {name} has no such label");
        }
        for by in expression.split("sum by (").skip(1).filter_map(|rest| rest.split(')').next()) {
            let labels: Vec<&str> = by.split(", ").filter(|label| !["instance", "le"].contains(label)).collect();
            let known = |label: &&str| table.values().any(|of_figure| of_figure.contains(*label));
            assert!(labels.iter().all(known), "{panel}: one of {labels:?} is the label of nothing");
        }
    }
    assert!(drawn.len() > 20, "only {} expressions", drawn.len());
}

#[test]
fn promtool_understands_what_the_dashboard_draws() {
    let Some(promtool) = promtool() else { return };
    let panels = drawn().into_iter().filter(|(panel, _)| panel != "variable");
    let rules: Vec<Value> = panels
        .enumerate()
        .map(|(index, (_, expression))| {
            // Grafana puts these in before it asks.
            let asked = expression.replace("$__rate_interval", "5m").replace("$instance", ".*");
            serde_json::json!({"record": format!("drawn:{index}"), "expr": asked})
        })
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    let count = rules.len();
    fs::write(file.path(), serde_json::json!({"groups": [{"name": "drawn", "rules": rules}]}).to_string()).unwrap();
    let said = checked(&promtool, &["check", "rules", file.path().to_str().unwrap()], "");
    assert!(said.contains(&format!("SUCCESS: {count} rules found")), "{said}");
}

#[test]
fn every_figure_that_a_page_names_is_given() {
    let given = Exposition::of_a_daemon();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut named = 0;
    for page in ["operations.md", "kubernetes.md", "threat-model.md"] {
        let text = fs::read_to_string(docs.join(page)).unwrap();
        for quoted in text.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("hostler_")) {
            for (name, _) in selectors(quoted) {
                assert!(given.described(&name).is_some(), "{page}: {name} is no figure of the daemon");
                named += 1;
            }
        }
    }
    assert!(named >= 15, "only {named}");
}

#[test]
fn a_prepare_that_is_refused_is_counted_with_its_reason() {
    let given = Exposition::of_a_daemon();
    for (series, value) in [
        ("hostler_claim_operations_total{operation=\"Prepare\",outcome=\"ok\"}", 1.0),
        ("hostler_claim_operations_total{operation=\"Prepare\",outcome=\"error\"}", 1.0),
        ("hostler_claim_operations_total{operation=\"Unprepare\",outcome=\"error\"}", 0.0),
        ("hostler_claim_failures_total{operation=\"Prepare\",reason=\"held\"}", 1.0),
        ("hostler_claim_failures_total{operation=\"Prepare\",reason=\"storage\"}", 0.0),
    ] {
        assert_eq!(given.value(series), Some(value), "{series} in\n{}", given.text);
    }
}

/// The manual of the format has its place for the version: a scraper without it has to guess.
#[test]
fn the_format_of_figures_is_said_in_their_header() {
    let mut host = Host::bare("");
    host.start();
    let socket = host.path("run/metrics.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let answer = std::io::read_to_string(stream).unwrap();
    let header = "\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n";
    assert!(answer.to_lowercase().contains(header), "{answer:.400}");
    // Words of another format.
    assert!(!answer.contains("# EOF") && !answer.contains("# UNIT"), "{answer}");
    assert_eq!(http(&socket, "GET", "/healthz", "").unwrap(), (200, "ok\n".to_owned()));
}

fn promtool() -> Option<PathBuf> {
    let found = tool("promtool");
    if found.is_none() {
        println!("skipped: needs promtool, which tools/deps.sh fetches where Debian's packages can be had");
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

#[test]
fn promtool_has_nothing_to_say_about_the_figures() {
    let Some(promtool) = promtool() else { return };
    let given = Exposition::of_a_daemon();
    assert_eq!(checked(&promtool, &["check", "metrics"], &given.text), "", "{}", given.text);
    // promtool does complain of a wrong input.
    let wrong = "# TYPE hostler_claims counter\nhostler_claims 1\n";
    assert!(checked(&promtool, &["check", "metrics"], wrong).contains("no help text"));
}

#[test]
fn promtool_understands_the_alerts() {
    let Some(promtool) = promtool() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), rule_file().to_string()).unwrap();
    let said = checked(&promtool, &["check", "rules", file.path().to_str().unwrap()], "");
    let count = alerts("hostler").len() + alerts("hostler-controller").len();
    assert!(said.contains(&format!("SUCCESS: {count} rules found")), "{said}");
}

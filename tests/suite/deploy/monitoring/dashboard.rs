//! The dashboard: it draws figures that there are, by labels that they have, and has what Grafana needs of a file.

use std::{collections::BTreeSet, fs};

use hostler_testing::exposition::metric_table;
use serde_json::{Value, json};

use super::{checked, dashboard, drawn, metric_of, promtool, selectors, text};

/// Returns the labels in a list such as `by (backend, health)`.
fn grouped(expression: &str) -> impl Iterator<Item = &str> {
    let lists = expression.split(" by (").skip(1).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(", ")).filter(|label| !["instance", "le"].contains(label))
}

#[test]
fn the_dashboard_draws_figures_of_the_table_by_labels_that_they_have() {
    let table = metric_table();
    let drawn = drawn();
    for (panel, expression) in &drawn {
        let selectors = selectors(expression);
        assert!(!selectors.is_empty() || expression.starts_with("up{job=~"), "{panel} is about nothing");
        let mut labels = BTreeSet::new();
        for (name, wanted) in selectors {
            let row = table.get(metric_of(&name)).unwrap_or_else(|| panic!("{panel}: {name} is no figure"));
            let unknown = wanted.keys().find(|label| !row.labels.contains(*label));
            assert_eq!(unknown, None, "{panel}: {name} has no such label");
            labels.extend(row.labels.iter().cloned());
        }
        let unknown: Vec<&str> = grouped(expression).filter(|label| !labels.contains(*label)).collect();
        assert!(unknown.is_empty(), "{panel}: {unknown:?} are labels of nothing in {expression}");
    }
    for variable in dashboard()["templating"]["list"].as_array().unwrap() {
        for (name, _) in variable["query"]["query"].as_str().map(selectors).unwrap_or_default() {
            assert!(table.contains_key(&name), "{name} is no figure");
        }
    }
    assert!(drawn.len() > 50, "only {} expressions", drawn.len());
}

#[test]
fn the_file_has_what_grafana_needs_and_no_panel_covers_another() {
    let dashboard = dashboard();
    assert_eq!((text(&dashboard, "uid"), text(&dashboard, "title")), ("hostler", "hostler"));
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: another panel has its id");
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title} is wider than the page");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(places.insert((x, y)), "{title} covers another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!((text(panel, "type"), &panel["datasource"]), ("timeseries", &source), "{title}");
        let targets = panel["targets"].as_array().unwrap();
        let references: BTreeSet<&str> = targets.iter().map(|target| text(target, "refId")).collect();
        assert_eq!(references.len(), targets.len(), "{title}: an expression hides another");
        for target in targets {
            assert_eq!(target["datasource"], source, "{title}");
            legend_is_told(title, target);
        }
    }
    assert_eq!(text(&dashboard["templating"]["list"][0], "name"), "datasource");
}

/// A legend can name only labels that the expression leaves.
fn legend_is_told(title: &str, target: &Value) {
    let (expression, legend) = (text(target, "expr"), text(target, "legendFormat"));
    let is_summed = ["sum", "max", "count"].iter().any(|start| expression.starts_with(start));
    for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
        let kept = expression.split(" by (").skip(1).any(|rest| rest.split(')').next().unwrap().contains(label));
        assert!(kept || !is_summed, "{title}: nothing is called {label} after {expression}");
    }
}

#[test]
fn promtool_understands_what_the_dashboard_draws() {
    let Some(promtool) = promtool() else { return };
    let rules: Vec<Value> = drawn()
        .into_iter()
        .enumerate()
        .map(|(index, (_, expression))| {
            // Grafana puts these in before it asks.
            let asked = expression.replace("$__rate_interval", "5m").replace("$instance", ".*");
            json!({"record": format!("drawn:{index}"), "expr": asked})
        })
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), json!({"groups": [{"name": "drawn", "rules": rules}]}).to_string()).unwrap();
    let said = checked(&promtool, &["check", "rules", file.path().to_str().unwrap()], "");
    assert!(said.contains(&format!("SUCCESS: {} rules found", rules.len())), "{said}");
}

//! Values of the chart: their defaults are those of `deploy/`, the schema knows each of them and nothing else, and the
//! page about the installation has every switch.

use std::fs;

use serde_json::Value;

use super::{
    super::{deploy, documents, objects},
    FIELDS, PROGRAMS, chart,
};

fn values() -> Value {
    documents(&chart().join("values.yaml")).remove(0)
}

fn schema() -> Value {
    serde_json::from_str(&fs::read_to_string(chart().join("values.schema.json")).unwrap()).unwrap()
}

pub(super) fn value_at<'a>(values: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(values, |value, key| &value[key])
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

#[test]
fn fields_are_by_default_what_deploy_says() {
    let values = values();
    for (kind, path, value, _) in FIELDS {
        let (_, object) = objects(kind).remove(0);
        let default = value_at(&values, value);
        match object.pointer(path) {
            Some(field) => assert_eq!(default, field, "{value}"),
            None => assert!(is_empty(default), "{value} is {default}, and {kind} has no {path}"),
        }
    }
    for (kind, program, _) in PROGRAMS {
        let (_, object) = objects(kind).remove(0);
        let image = object.pointer("/spec/template/spec/containers/0/image").unwrap();
        assert_eq!(&values[program]["image"]["repository"], image);
        assert_eq!(values[program]["image"]["tag"], "");
    }
}

#[test]
fn chart_and_programs_have_one_version() {
    let chart = documents(&chart().join("Chart.yaml")).remove(0);
    assert_eq!((&chart["version"], &chart["appVersion"]), (&env!("CARGO_PKG_VERSION").into(), &chart["version"]));
}

/// Calls `each` with every path of the values, its default and its schema.
fn walk(path: &str, value: &Value, schema: &Value, each: &mut dyn FnMut(&str, &Value, &Value)) {
    each(path, value, schema);
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        walk(&path, &value[key], schema, each);
    }
}

#[test]
fn the_schema_knows_every_value_and_no_other() {
    let mut seen = 0;
    walk("", &values(), &schema(), &mut |path, value, schema| {
        // Helm adds it to the values of a chart that another chart brings along.
        if path == "global" {
            return;
        }
        seen += 1;
        let is_of_type = match schema["type"].as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64(),
            other => panic!("{path} is {other}"),
        };
        assert!(is_of_type, "{path}: {value} is not what the schema says");
        let Some(known) = schema["properties"].as_object() else { return };
        assert_eq!(schema["additionalProperties"], false, "{path} takes words that nothing reads");
        let unknown = value.as_object().unwrap().keys().find(|key| !known.contains_key(*key));
        assert_eq!(unknown, None, "{path}");
    });
    assert!(seen > 50, "{seen}");
}

#[test]
fn every_switch_is_in_the_table_of_the_page() {
    let page = fs::read_to_string(deploy().join("../docs/kubernetes.md")).unwrap();
    let mut switches = 0;
    walk("", &values(), &schema(), &mut |path, value, _| {
        if let Some(default) = value.as_bool() {
            let row = format!("| `{path}` | {} |", if default { "on" } else { "off" });
            assert!(page.contains(&row), "docs/kubernetes.md has no {row}");
            switches += 1;
        }
    });
    assert!(switches > 20, "{switches}");
}

/// The level is put behind this line.
#[test]
fn shipped_configurations_have_one_section_for_the_log() {
    for (.., file) in PROGRAMS {
        let text = fs::read_to_string(chart().join("files").join(file)).unwrap();
        assert_eq!(text.matches("[log]\n").count(), 1, "{file}");
        assert!(!text.contains("topology_export"), "{file}");
    }
}

//! Which nodes a selector means.

use serde_json::{Value, json};

use super::*;

fn selector(terms: &Value) -> NodeSelector {
    serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap()
}

/// Whether node `n1` with zone `a` and size `8` meets the requirement.
fn meets(requirement: &Value) -> bool {
    let labels = [("zone", "a"), ("size", "8"), ("word", "x8")];
    let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    selector(&json!([{"matchExpressions": [requirement]}])).matches("n1", &labels)
}

#[test]
fn each_operator_compares_a_label_in_its_own_way() {
    for (key, operator, values, expected) in [
        ("zone", "In", &["a", "b"][..], true),
        ("zone", "In", &["b"], false),
        ("none", "In", &["a"], false),
        ("zone", "NotIn", &["b"], true),
        ("zone", "NotIn", &["a"], false),
        ("none", "NotIn", &["a"], true),
        ("zone", "Exists", &[], true),
        ("none", "Exists", &[], false),
        ("zone", "DoesNotExist", &[], false),
        ("none", "DoesNotExist", &[], true),
        ("size", "Gt", &["7"], true),
        ("size", "Gt", &["8"], false),
        ("size", "Lt", &["9"], true),
        ("size", "Lt", &["8"], false),
        ("word", "Lt", &["9"], false),
        ("none", "Gt", &["7"], false),
        ("zone", "Like", &["a"], false),
    ] {
        assert_eq!(meets(&json!({"key": key, "operator": operator, "values": values})), expected, "{key} {operator}");
    }
}

#[test]
fn one_term_is_enough_and_in_it_everything_counts() {
    let labels = [("zone".to_owned(), "a".to_owned())].into();
    let zone = |zone: &str| json!({"key": "zone", "operator": "In", "values": [zone]});
    let name = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
    for (terms, expected) in [
        (json!([]), false),
        (json!([{}]), false),
        (json!([{"matchExpressions": [zone("b")]}, {"matchExpressions": [zone("a")]}]), true),
        (json!([{"matchExpressions": [zone("a")], "matchFields": [name("n1")]}]), true),
        (json!([{"matchExpressions": [zone("a")], "matchFields": [name("n2")]}]), false),
        (json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]), false),
        (json!([{"matchFields": [{"key": "spec.other", "operator": "In", "values": ["n1"]}]}]), false),
    ] {
        assert_eq!(selector(&terms).matches("n1", &labels), expected, "{terms}");
    }
    assert!(NodeSelector::of_node("n1").matches("n1", &labels));
    assert!(!NodeSelector::of_node("n2").matches("n1", &labels));
}

#[test]
fn a_requirement_that_means_nothing_is_named_with_its_place() {
    for (terms, expected) in [
        (json!([{"matchExpressions": [{"key": "a", "operator": "In"}]}]), "[0].matchExpressions[0]: operators In and"),
        (json!([{}, {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}]), "one whole number"),
        (json!([{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}]), "go without values"),
        (json!([{"matchExpressions": [{"key": "a b", "operator": "Exists"}]}]), "\"a b\" is not the key"),
        (json!([{"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}]), "\"-\" is not the value"),
        (json!([{"matchExpressions": [{"key": "a", "operator": "Like"}]}]), "operator Like cannot be used here"),
        (json!([{"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}]), "operator Exists cannot be used"),
        (json!([{"matchFields": [{"key": "metadata.name", "operator": "In"}]}]), "exactly one value"),
    ] {
        let error = selector(&terms).check().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_read_is_written_again() {
    let terms = json!([{"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}]);
    assert_eq!(serde_json::to_value(selector(&terms)).unwrap(), json!({"nodeSelectorTerms": terms}));
}

//! The admission policy of daemons' reports on attached cards: the API accepts it, and it lets a daemon write what it reports
//! of its own node's cards and nothing else.

use hostler_testing::apiserver::AdmissionPolicy;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use serde_json::{Value, json};

/// A change of an object.
type ObjectChange = fn(&mut Value);

const POLICY: &str = include_str!("../../deploy/fabric/node/policy.yaml");

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

#[test]
fn policy_and_binding_fit_each_other() {
    let documents = documents(POLICY);
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(documents[0].clone()).unwrap();
    assert_eq!(serde_json::to_value(&policy).unwrap(), documents[0], "a field that the API does not know");
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(documents[1].clone()).unwrap();
    assert_eq!(Some(binding.spec.policy_name), policy.metadata.name);
    assert_eq!(binding.spec.validation_actions, ["Deny"]);
}

/// The expressions over one value that has the object, the object before and the request.
fn over_one_value(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for next in text.chars().chain(['\n']) {
        if next.is_ascii_alphanumeric() || next == '_' {
            word.push(next);
            continue;
        }
        out.push_str(match &*word {
            "object" => "object.after",
            "oldObject" => "object.before",
            "request" => "object.request",
            other => other,
        });
        word.clear();
        out.push(next);
    }
    // Fields of a kind whose names are no identifiers have other names in expressions.
    out.replace("authentication.kubernetes.io/node-name", "nodeName")
}

fn refusals(after: &Value, before: &Value, request: &Value) -> Vec<String> {
    let expressions = documents(POLICY).remove(0);
    let mut policy = expressions.clone();
    for (list, field) in [("variables", "expression"), ("validations", "expression")] {
        for item in policy["spec"][list].as_array_mut().unwrap() {
            let expression = over_one_value(item[field].as_str().unwrap());
            // Variables of several types stand in one map here.
            item[field] = if list == "variables" { format!("dyn({expression})") } else { expression }.into();
        }
    }
    let refused =
        AdmissionPolicy::new(&policy).refusals(&json!({ "after": after, "before": before, "request": request }));
    refused.iter().map(|why| why.trim_start_matches("Invalid value: \"object\": ").to_owned()).collect()
}

fn attachment() -> Value {
    json!({
        "metadata": {"name": "0000000000001001-0001"},
        "spec": {"manager": "row1", "nodeName": "n1", "attempt": 1},
        "status": {"phase": "Attached", "used": true, "node": {"attempt": 0, "state": "Absent"}},
    })
}

fn request(node: &str, operation: &str, subresource: &str) -> Value {
    let extra = if node.is_empty() { json!({}) } else { json!({"nodeName": [node]}) };
    json!({"operation": operation, "subResource": subresource, "userInfo": {"username": "hostler", "extra": extra}})
}

#[test]
fn a_daemon_reports_on_cards_of_its_own_node() {
    let mut after = attachment();
    after["status"]["node"] = json!({"attempt": 1, "state": "Ready"});
    assert_eq!(refusals(&after, &attachment(), &request("n1", "UPDATE", "status")), Vec::<String>::new());
    let mut first = attachment();
    first["status"].as_object_mut().unwrap().remove("node");
    assert_eq!(refusals(&after, &first, &request("n1", "UPDATE", "status")), Vec::<String>::new());
    let other = refusals(&after, &attachment(), &request("n2", "UPDATE", "status"));
    assert_eq!(other, ["hostler may report on devices of its own node only"]);
    let nameless = refusals(&after, &attachment(), &request("", "UPDATE", "status"));
    assert!(nameless[0].starts_with("the token of hostler names no node"), "{nameless:?}");
    for (operation, subresource) in [("UPDATE", ""), ("CREATE", ""), ("DELETE", "")] {
        let refused = refusals(&after, &attachment(), &request("n1", operation, subresource));
        assert_eq!(refused, ["hostler on nodes may write the status of FabricAttachments only"], "{operation}");
    }
}

#[test]
fn a_daemon_changes_nothing_but_its_report() {
    let changes: [(&str, ObjectChange); 6] = [
        ("another phase", |object| object["status"]["phase"] = json!("Detached")),
        ("clean", |object| object["status"]["used"] = json!(false)),
        ("clean, left out", |object| _ = object["status"].as_object_mut().unwrap().remove("used")),
        ("more", |object| object["status"]["failures"] = json!(3)),
        ("a field of tomorrow", |object| object["status"]["tomorrow"] = json!({"a": 1})),
        ("no status", |object| _ = object.as_object_mut().unwrap().remove("status")),
    ];
    for (what, change) in changes {
        let mut after = attachment();
        change(&mut after);
        let refused = refusals(&after, &attachment(), &request("n1", "UPDATE", "status"));
        assert_eq!(refused, ["hostler on nodes may change status.node only"], "{what}");
    }
    let mut after = attachment();
    after["spec"]["release"] = json!(true);
    let refused = refusals(&after, &attachment(), &request("n1", "UPDATE", "status"));
    assert_eq!(refused, ["hostler on nodes may not change which device is given to which node"]);
}

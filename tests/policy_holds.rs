//! The admission policy against claims that tolerate what is held: it is what the API takes, and means what the code means. What it
//! decides is tried out on a real API server, in `holds_cluster`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use hostler_api::well_known::HELD_TAINT;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use serde_json::Value;

const POLICY: &str = include_str!("../deploy/holds/base/policy.yaml");

fn documents() -> Vec<Value> {
    serde_saphyr::from_multiple(POLICY).unwrap()
}

fn typed<T: serde::de::DeserializeOwned + serde::Serialize>(document: &Value) -> T {
    let read: T = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&read).unwrap(), document, "a field that the API does not know");
    read
}

#[test]
fn policy_and_binding_fit_each_other() {
    let documents = documents();
    let policy: ValidatingAdmissionPolicy = typed(&documents[0]);
    let binding: ValidatingAdmissionPolicyBinding = typed(&documents[1]);
    assert_eq!(Some(binding.spec.policy_name), policy.metadata.name);
    assert_eq!(binding.spec.validation_actions, ["Deny"]);
}

#[test]
fn every_place_of_a_toleration_is_looked_at_for_the_key_of_the_taint() {
    let policy: ValidatingAdmissionPolicy = typed(&documents()[0]);
    let validations = policy.spec.unwrap().validations.unwrap();
    let places = ["r.exactly.?tolerations", "all(r, r.?adminAccess", "r.?firstAvailable"];
    assert_eq!(validations.len(), places.len());
    for (validation, place) in validations.iter().zip(places) {
        assert!(validation.expression.contains(place), "{}", validation.expression);
        assert!(validation.expression.contains(&format!("in ['', '{HELD_TAINT}']")), "{}", validation.expression);
        assert!(validation.message.as_ref().unwrap().contains("status.tolerationValue"));
    }
}

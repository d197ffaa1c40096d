//! The admission policies of Reservations: that which says what a place cannot do, and that against claims that tolerate holds: the API accepts it, its meaning is that of the code, and it
//! refuses claims that would take held devices and no others. A real API server is asked in `holds_cluster`.
use hostler_api::well_known::HELD_TAINT;
use hostler_testing::apiserver::AdmissionPolicy;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use serde_json::{Value, json};

const POLICY: &str = include_str!("../../deploy/holds/base/policy.yaml");
const PLACES: &str = include_str!("../../deploy/holds/places/policy.yaml");

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

/// Returns a claim and a template of claims with this request.
fn asked(version: &str, request: &Value) -> [Value; 2] {
    let devices = json!({ "devices": { "requests": [request] } });
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": format!("resource.k8s.io/{version}"), "kind": kind,
            "metadata": { "name": "c", "namespace": "default" }, "spec": spec,
        })
    };
    [object("ResourceClaim", devices.clone()), object("ResourceClaimTemplate", json!({ "spec": devices }))]
}

/// Returns the same toleration in each place where an API has one.
fn in_all_places(toleration: &Value) -> Vec<Value> {
    let request = |more: Value| {
        let mut request = json!({ "name": "r" });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    // A harmless toleration stands before it.
    let one =
        json!({ "deviceClassName": "card", "tolerations": [{ "key": "other", "operator": "Exists" }, toleration] });
    let mut sub = one.clone();
    sub["name"] = json!("second");
    let any = json!({ "name": "first", "deviceClassName": "card" });
    let today = [json!({ "exactly": one.clone() }), json!({ "firstAvailable": [any, sub] })];
    let today = today.into_iter().flat_map(|it| asked("v1", &request(it)));
    today.chain(asked("v1beta1", &request(one))).collect()
}

fn policy() -> AdmissionPolicy {
    AdmissionPolicy::new(&documents()[0])
}

/// Returns true if the policy refuses a claim with this toleration, in every place.
fn is_refused(toleration: &Value) -> bool {
    let policy = policy();
    let answers: Vec<Vec<String>> = in_all_places(toleration).iter().map(|it| policy.refusals(it)).collect();
    let refused = answers.iter().filter(|messages| !messages.is_empty()).count();
    assert!(refused == 0 || refused == answers.len(), "not everywhere: {answers:#?}");
    for messages in answers.iter().filter(|messages| !messages.is_empty()) {
        assert!(
            matches!(&messages[..], [it] if it.contains("status.tolerationValue of the Reservation")),
            "{messages:?}"
        );
    }
    refused > 0
}

#[test]
fn a_toleration_of_all_that_is_held_is_refused_in_every_place() {
    for toleration in [
        json!({ "operator": "Exists" }),
        json!({ "operator": "Exists", "effect": "NoSchedule" }),
        json!({ "key": "", "operator": "Exists" }),
        json!({ "key": HELD_TAINT, "operator": "Exists" }),
        json!({ "key": HELD_TAINT, "operator": "Exists", "effect": "NoSchedule" }),
    ] {
        assert!(is_refused(&toleration), "{toleration}");
    }
}

#[test]
fn a_toleration_that_takes_nothing_from_others_is_let_through_in_every_place() {
    for toleration in [
        json!({ "key": HELD_TAINT, "operator": "Equal", "value": "0123456789abcdef", "effect": "NoSchedule" }),
        json!({ "key": HELD_TAINT, "value": "0123456789abcdef" }),
        // It does not let a claim have a device: the taint's effect is another.
        json!({ "key": HELD_TAINT, "operator": "Exists", "effect": "NoExecute" }),
        json!({ "operator": "Exists", "effect": "NoExecute" }),
        json!({ "key": "example.com/unhealthy", "operator": "Exists" }),
    ] {
        assert!(!is_refused(&toleration), "{toleration}");
    }
}

/// A request with admin access only observes devices, and takes none.
#[test]
fn who_asks_for_admin_access_may_tolerate_everything() {
    let policy = policy();
    for is_admin in [true, false] {
        let one =
            json!({ "deviceClassName": "card", "adminAccess": is_admin, "tolerations": [{ "operator": "Exists" }] });
        let mut old = one.clone();
        old["name"] = json!("r");
        let today = asked("v1", &json!({ "name": "r", "exactly": one }));
        for object in today.into_iter().chain(asked("v1beta1", &old)) {
            assert_eq!(policy.refusals(&object).is_empty(), is_admin, "{object}");
        }
    }
}

#[test]
fn claims_that_ask_for_nothing_or_tolerate_nothing_are_let_through() {
    let policy = policy();
    let plain = json!({ "name": "r", "exactly": { "deviceClassName": "card" } });
    let empty = [json!({ "spec": {} }), json!({ "spec": { "devices": {} } })];
    let empty = empty.into_iter().map(|it| json!({ "kind": "ResourceClaim", "spec": it["spec"] }));
    for object in asked("v1", &plain).into_iter().chain(empty) {
        assert_eq!(policy.refusals(&object), Vec::<String>::new(), "{object}");
    }
}

#[test]
fn what_a_place_cannot_do_is_said_when_a_reservation_is_written() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(PLACES).unwrap();
    typed::<ValidatingAdmissionPolicy>(&documents[0]);
    let binding: ValidatingAdmissionPolicyBinding = typed(&documents[1]);
    assert_eq!(binding.spec.validation_actions, ["Warn"], "nothing is refused");
    let policy = AdmissionPolicy::new(&documents[0]);
    let said = |pod: Value| {
        policy.refusals(&json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": { "name": "r" },
            "spec": { "template": { "spec": pod } },
        }))
    };
    let terms = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone" }] });
    let (near, far) = (json!({ "podAffinity": terms }), json!({ "podAntiAffinity": terms }));
    let spread = json!([{ "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }]);
    let claims = json!([{ "name": "gpu", "resourceClaimTemplateName": "one" }]);
    for of_places in [
        json!({}),
        json!({ "schedulerName": "default-scheduler" }),
        json!({ "affinity": near }),
        json!({ "topologySpreadConstraints": spread }),
        json!({ "resourceClaims": claims }),
    ] {
        assert_eq!(said(of_places.clone()), Vec::<String>::new(), "{of_places}");
    }
    for (pod, field) in [
        (json!({ "schedulerName": "other" }), "schedulerName"),
        (json!({ "affinity": near, "resourceClaims": claims }), "affinity"),
        (json!({ "affinity": far, "resourceClaims": claims }), "affinity"),
        (json!({ "topologySpreadConstraints": spread, "resourceClaims": claims }), "topologySpreadConstraints"),
    ] {
        let said = said(pod);
        assert!(matches!(&said[..], [it] if it.contains(&format!(": spec.template.spec.{field}: "))), "{said:?}");
    }
}

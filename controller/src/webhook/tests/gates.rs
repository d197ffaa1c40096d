//! Which pods get a gate when they are made, from the question of the API server to the answer.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::core::Pod;
use hostler_reconcile::Leadership;
use serde_json::{Value, json};

use super::claims::reservation;
use crate::{
    observed::{KindStatus, ObservedKind},
    pod_gates::{GatesPhase, WaitRules},
    reservation_object::ReservationObject,
    view::ClusterView,
    webhook::{gates::GateFacts, koordinator::translate, review::AdmissionReview},
};

const KOORDINATORS_AFFINITY: &str = "scheduling.koordinator.sh/reservation-affinity";

/// A view in which a place of two CPUs is kept for pods with the label `app: web`.
fn view() -> ClusterView {
    let mut kept: ReservationObject =
        reservation("r", json!({ "template": { "metadata": { "namespace": "default" } } }));
    let place = json!({ "state": "Held", "nodeName": "n", "requests": { "cpu": "2" } });
    kept.status.places = vec![serde_json::from_value(place).unwrap()];
    let synced = KindStatus { is_synced: true, ..KindStatus::default() };
    ClusterView {
        reservations: Arc::new(BTreeMap::from([("r".to_owned(), Arc::new(kept))])),
        kinds: ObservedKind::ALL.into_iter().map(|kind| (kind, synced.clone())).collect(),
        ..ClusterView::default()
    }
}

/// A question about a pod that a controller makes, with these fields of its spec.
fn question(operation: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "metadata": { "generateName": "web-", "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
    });
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({ "request": {
        "uid": "q", "operation": operation, "namespace": "default", "object": pod,
        "resource": { "group": "", "version": "v1", "resource": "pods" },
    } })
}

fn led(holder: Option<&str>, trouble: Option<&str>) -> Leadership {
    Leadership { holder: holder.map(Arc::from), trouble: trouble.map(Arc::from), ..Leadership::default() }
}

fn patch(view: &ClusterView, phase: GatesPhase, leadership: &Leadership, question: Value) -> Vec<Value> {
    let rules = WaitRules { places: true, ..WaitRules::default() };
    let review: AdmissionReview<Pod> = serde_json::from_value(question).unwrap();
    let pod = review.request.created_pod();
    let facts = GateFacts { view, rules: &rules, phase, leadership };
    pod.map(|pod| facts.answer(&pod).patch).unwrap_or_default()
}

#[test]
fn an_owner_is_made_with_the_gate_and_keeps_those_that_it_has() {
    let (view, other) = (view(), led(Some("other"), None));
    let answer = |spec: &Value| patch(&view, GatesPhase::On, &other, question("CREATE", spec));
    let gate = json!({ "name": "hostler.dev/reservation" });
    assert_eq!(answer(&json!({})), [json!({ "op": "add", "path": "/spec/schedulingGates", "value": [gate] })]);
    let gated = json!({ "schedulingGates": [{ "name": "x" }] });
    assert_eq!(answer(&gated), [json!({ "op": "add", "path": "/spec/schedulingGates/-", "value": gate })]);
    for untouched in [
        json!({ "schedulingGates": [gate] }),
        json!({ "schedulingGates": [{ "name": "hostler.dev/placement" }] }),
        json!({ "nodeName": "n" }),
        json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "3" } } }] }),
    ] {
        assert!(answer(&untouched).is_empty(), "{untouched}");
    }
    assert!(patch(&view, GatesPhase::On, &other, question("UPDATE", &json!({}))).is_empty());
}

#[test]
fn no_pod_is_gated_where_no_controller_leads_that_lets_it_go() {
    let view = view();
    let is_gated = |phase: GatesPhase, leadership: &Leadership| {
        !patch(&view, phase, leadership, question("CREATE", &json!({}))).is_empty()
    };
    assert!(is_gated(GatesPhase::On, &led(Some("other"), None)));
    assert!(!is_gated(GatesPhase::On, &led(None, None)), "nobody leads");
    assert!(!is_gated(GatesPhase::On, &led(Some("other"), Some("the Lease cannot be read"))));
    for phase in [GatesPhase::Unknown, GatesPhase::Off, GatesPhase::NotInstalled, GatesPhase::Forbidden] {
        assert!(!is_gated(phase, &led(Some("other"), None)), "{phase:?}");
    }
    let incomplete = ClusterView { kinds: BTreeMap::new(), ..view };
    let answer = patch(&incomplete, GatesPhase::On, &led(Some("other"), None), question("CREATE", &json!({})));
    assert!(answer.is_empty(), "not everything is known yet");
}

#[test]
fn koordinators_keys_of_a_pod_are_given_hostlers_where_its_reservations_are_served() {
    let mut pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "default", "labels": { "scheduling.koordinator.sh/reservation-ignored": "true" },
            "annotations": { KOORDINATORS_AFFINITY: r#"{"name": "night"}"# },
        },
        "spec": {},
    }))
    .unwrap();
    let mut view = view();
    let answer = translate(&view, &mut pod.clone());
    let expected = json!([
        { "op": "add", "path": "/metadata/labels/hostler.dev~1reservation-ignored", "value": "true" },
        { "op": "add", "path": "/metadata/annotations/hostler.dev~1reservation-affinity", "value": r#"{"name":"night"}"# },
    ]);
    assert_eq!((Value::from(answer.patch), answer.warnings.len()), (expected, 0));
    translate(&view, &mut pod);
    assert_eq!(pod.metadata.annotations["hostler.dev/reservation-affinity"], r#"{"name":"night"}"#);
    assert_eq!(translate(&view, &mut pod).patch.len(), 0, "a pod that has hostler's keys keeps them");
    pod.metadata.annotations = BTreeMap::from([(KOORDINATORS_AFFINITY.to_owned(), "{".to_owned())]);
    let answer = translate(&view, &mut pod);
    assert_eq!(answer.patch[0]["value"], "{", "a pod that is not understood is given nothing");
    assert!(answer.warnings[0].contains("metadata.annotations[scheduling.koordinator.sh/reservation-affinity]"));
    view.kinds.get_mut(&ObservedKind::KoordinatorReservation).unwrap().is_absent = true;
    assert_eq!(translate(&view, &mut pod).warnings.len(), 0, "they mean nothing here");
}

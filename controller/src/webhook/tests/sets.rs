//! To which Reservations pods of a ProvisioningRequest are led, and who wants to run where what is kept is.

use std::collections::BTreeMap;

use hostler_api::core::Node;
use serde_json::{Value, json};

use super::claims::{claim_of, pod, question, reservation, view, web};
use crate::{
    reservation_object::ReservationObject,
    view::ClusterView,
    webhook::{decide::WebhookFacts, pod::WebhookPod},
};

const CONSUME: (&str, &str) = ("autoscaling.x-k8s.io/consume-provisioning-request", "job");

/// What is kept for pods of a set of the request `job` that are made of this.
fn booked(set: usize, from: usize, spec: Value) -> ReservationObject {
    let more = json!({
        "owners": [{ "provisioningRequest": { "namespace": "default", "name": "job" } }],
        "template": { "metadata": { "namespace": "default" }, "spec": spec },
    });
    let mut known = reservation(&format!("provreq-4f1c-09aa-{set}-{from}"), more);
    known.labels.insert("hostler.dev/provisioning-request-uid".to_owned(), "4f1c-09aa".to_owned());
    known
}

fn spec(template: &str, node_selector: Value) -> Value {
    json!({
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }], "nodeSelector": node_selector,
        "resourceClaims": [{ "name": "gpus", "resourceClaimTemplateName": template }],
    })
}

fn of_job(spec: Value) -> WebhookPod {
    WebhookPod { spec: serde_json::from_value(spec).unwrap(), ..pod(&[], &[CONSUME]) }
}

/// What the pod's claim tolerates of the names of Reservations.
fn led(view: &ClusterView, pod: &WebhookPod) -> Vec<String> {
    let facts = WebhookFacts { view, own_driver: "hostler.dev" };
    let answer = facts.answer(&claim_of(question(&[])).unwrap(), pod);
    let Some(request) = answer.patch.iter().find(|it| it["path"] == "/spec/devices/requests/0") else {
        return Vec::new();
    };
    let value = &request["value"];
    let tolerant = [&value["exactly"], &value["firstAvailable"][0]].into_iter().find(|it| it.is_object()).unwrap();
    let values = tolerant["tolerations"].as_array().unwrap().iter().map(|it| it["value"].as_str().unwrap());
    values.map(|value| value.trim_start_matches("value-provreq-4f1c-09aa-").to_owned()).collect()
}

#[test]
fn a_pod_is_led_to_what_is_kept_for_the_set_that_it_looks_like() {
    let (small, large) = (booked(0, 0, spec("one", json!({}))), booked(1, 0, spec("two", json!({}))));
    let view = view(vec![small, large]);
    assert_eq!(led(&view, &of_job(spec("one", json!({})))), ["0-0"]);
    assert_eq!(led(&view, &of_job(spec("two", json!({})))), ["1-0"]);
    // Somebody has written more labels of nodes into it than its template has.
    assert_eq!(led(&view, &of_job(spec("two", json!({ "kubernetes.io/hostname": "n1" })))), ["1-0"]);
    // What looks like none of them is of any.
    assert_eq!(led(&view, &of_job(spec("other", json!({})))), ["0-0"]);
    let stranger = WebhookPod { spec: serde_json::from_value(spec("one", json!({}))).unwrap(), ..pod(&[], &[]) };
    assert_eq!(led(&view, &stranger), [""; 0]);
}

#[test]
fn nobody_is_led_to_what_is_kept_for_another_set_where_his_own_is_used_up() {
    let (mut small, large) = (booked(0, 0, spec("one", json!({}))), booked(1, 0, spec("two", json!({}))));
    small.status.phase = hostler_api::reservation::ReservationPhase::Succeeded;
    assert_eq!(led(&view(vec![small, large]), &of_job(spec("one", json!({})))), [""; 0]);
}

#[test]
fn sets_that_differ_in_their_nodes_only_are_told_by_these() {
    let (a, b) = (json!({ "zone": "a" }), json!({ "zone": "b" }));
    let any = booked(2, 0, spec("one", json!({})));
    let view = view(vec![booked(0, 0, spec("one", a.clone())), booked(1, 0, spec("one", b.clone())), any]);
    assert_eq!(led(&view, &of_job(spec("one", b))), ["1-0"]);
    assert_eq!(led(&view, &of_job(spec("one", a))), ["0-0"]);
    assert_eq!(led(&view, &of_job(spec("one", json!({ "zone": "c" })))), ["2-0"]);
}

#[test]
fn of_a_large_set_a_pod_takes_what_any_of_its_reservations_has_left() {
    let of_set = |set: usize, parts: usize| {
        (0..parts).map(move |at| booked(set, at * 128, spec(["one", "two"][set], json!({}))))
    };
    let all = view(of_set(0, 3).chain(of_set(1, 20)).collect());
    assert_eq!(led(&all, &of_job(spec("one", json!({})))), ["0-0", "0-128", "0-256"]);
    assert_eq!(led(&all, &of_job(spec("two", json!({})))).len(), 8, "it keeps room for tolerations of its own");
}

#[test]
fn what_other_drivers_devices_say_nothing_of_is_tolerated_with_all_values() {
    let mut parts = [booked(0, 0, spec("one", json!({}))), booked(0, 128, spec("one", json!({})))];
    for part in &mut parts {
        part.status.devices[0].driver = "gpu.example.com".to_owned();
    }
    assert_eq!(led(&view(parts.to_vec()), &of_job(spec("one", json!({})))), ["0-0", "0-128"]);
}

#[test]
fn nobody_is_led_to_devices_of_nodes_that_he_does_not_want() {
    let on = |name: &str, node: &str, state: &str| {
        let mut known = reservation(name, json!({}));
        known.status.devices[0].node_name = node.to_owned();
        known.status.devices[0].state = serde_json::from_value(json!(state)).unwrap();
        known
    };
    let wants = |view: &ClusterView, more: Value| {
        let pod = WebhookPod { spec: serde_json::from_value(more).unwrap(), ..web(&[]) };
        let facts = WebhookFacts { view, own_driver: "hostler.dev" };
        facts.choice(&claim_of(question(&[])).unwrap(), &pod).map(|(it, _)| it.name.clone())
    };
    let mut all = view(vec![on("a", "n1", "Held"), on("b", "n2", "Held"), on("c", "n3", "HandedOver")]);
    for (name, zone) in [("n1", "a"), ("n2", "b"), ("n3", "c")] {
        let mut node = Node::default();
        node.metadata.name = name.to_owned();
        node.metadata.labels = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        // Whether it takes pods now is of no matter.
        node.spec.unschedulable = true;
        all.facts.add_node(node);
    }
    let affinity = |operator: &str| {
        let term = json!({ "matchExpressions": [{ "key": "zone", "operator": operator, "values": ["b"] }] });
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } } })
    };
    for (more, expected) in [
        (json!({}), Some("a")),
        (json!({ "nodeSelector": { "zone": "b" } }), Some("b")),
        (json!({ "nodeSelector": { "zone": "c" } }), None),
        (json!({ "nodeSelector": { "zone": "d" } }), None),
        (affinity("In"), Some("b")),
        (affinity("NotIn"), Some("a")),
        (json!({ "nodeName": "n2" }), Some("b")),
    ] {
        assert_eq!(wants(&all, more.clone()).as_deref(), expected, "{more}");
    }
}

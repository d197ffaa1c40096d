//! Which claims are led where, from the question of the API server to the answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hostler_api::{ObjectKey, core::PodResourceClaim};
use serde_json::{Value, json};

use crate::{
    hold::OwnerPod,
    reservation_object::ReservationObject,
    view::ClusterView,
    webhook::{
        decide::WebhookFacts,
        pod::WebhookPod,
        review::{AdmissionReview, GeneratedClaim, ReviewedClaim, WebhookAnswer},
    },
};

const GPUS: &str = "gpu.deviceclass.resource.k8s.io/devices";

/// A question about a claim of the pod `p`, with these changes.
pub(super) fn question(more: &[(&str, Value)]) -> Value {
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true });
    let metadata = json!({
        "generateName": "p-gpus-", "namespace": "default", "ownerReferences": [owner],
        "annotations": { "resource.kubernetes.io/pod-claim-name": "gpus" },
    });
    let requests = json!([{ "name": "r", "exactly": { "deviceClassName": "gpu", "count": 1 } }]);
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "q", "operation": "CREATE", "namespace": "default",
            "resource": { "group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims" },
            "object": { "metadata": metadata, "spec": { "devices": { "requests": requests } } },
        },
    });
    for (path, value) in more {
        *review.pointer_mut(path).unwrap() = value.clone();
    }
    review
}

pub(super) fn claim_of(question: Value) -> Option<GeneratedClaim> {
    serde_json::from_value::<AdmissionReview<ReviewedClaim>>(question).unwrap().request.generated_claim()
}

pub(super) fn reservation(name: &str, more: Value) -> ReservationObject {
    let mut spec = json!({ "owners": [{ "labelSelector": { "matchLabels": { "app": "web" } } }] });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let device =
        json!({ "driver": "hostler.dev", "pool": "n", "device": "d", "deviceClassName": "gpu", "state": "Held" });
    let status = json!({
        "phase": "Available", "tolerationValue": format!("value-{name}"), "devices": [device], "allocatable": { GPUS: "2" },
    });
    ReservationObject {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        version: "1".to_owned(),
        generation: 1,
        created: Duration::ZERO,
        is_deleting: false,
        finalizers: Vec::new(),
        labels: BTreeMap::new(),
        spec: serde_json::from_value(spec).unwrap(),
        status: serde_json::from_value(status).unwrap(),
    }
}

pub(super) fn view(reservations: Vec<ReservationObject>) -> ClusterView {
    let reservations = reservations.into_iter().map(|it| (it.name.clone(), Arc::new(it)));
    ClusterView { reservations: Arc::new(reservations.collect()), ..ClusterView::default() }
}

pub(super) fn pod(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> WebhookPod {
    let map =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let owner =
        OwnerPod { uid: "u".to_owned(), labels: map(labels), annotations: map(annotations), ..OwnerPod::default() };
    WebhookPod { owner, ..WebhookPod::default() }
}

pub(super) fn web(annotations: &[(&str, &str)]) -> WebhookPod {
    pod(&[("app", "web")], annotations)
}

fn answer(view: &ClusterView, question: Value, pod: &WebhookPod) -> WebhookAnswer {
    let facts = WebhookFacts { view, own_driver: "hostler.dev" };
    facts.answer(&claim_of(question).unwrap(), pod)
}

/// The name of the Reservation that a pod is led to.
fn led(view: &ClusterView, pod: &WebhookPod) -> Option<String> {
    let answer = answer(view, question(&[]), pod);
    let choice =
        answer.patch.iter().find(|it| it["path"] == "/metadata/annotations/hostler.dev~1led-to-reservation")?;
    let choice: Value = serde_json::from_str(choice["value"].as_str().unwrap()).unwrap();
    let name = choice["name"].as_str().unwrap().to_owned();
    assert_eq!(choice["uid"], format!("uid-{name}"));
    Some(name)
}

#[test]
fn only_claims_that_are_made_for_pods_from_templates_are_looked_at() {
    let claim = claim_of(question(&[])).unwrap();
    assert_eq!(
        (&*claim.namespace, &*claim.pod.name, &*claim.pod.uid, &*claim.pod_claim),
        ("default", "p", "u", "gpus")
    );
    let owner = "/request/object/metadata/ownerReferences/0";
    for (path, value) in [
        ("/request/operation", json!("UPDATE")),
        ("/request/resource/resource", json!("pods")),
        ("/request/resource/group", json!("")),
        ("/request/resource/version", json!("v1beta1")),
        ("/request/object/metadata/annotations", json!({})),
        ("/request/object/metadata/ownerReferences", json!([])),
        (owner, json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u" })),
        (owner, json!({ "apiVersion": "apps/v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true })),
        (owner, json!({ "apiVersion": "v1", "kind": "Pod", "name": "../p", "uid": "u", "controller": true })),
        ("/request/namespace", json!("a/b")),
        ("/request/namespace", json!("")),
        ("/request/object", json!(null)),
    ] {
        assert_eq!(claim_of(question(&[(path, value.clone())])), None, "{path} {value}");
    }
    // As a scheduler makes one for extended resources: it has chosen its devices.
    let extended = json!({ "resource.kubernetes.io/extended-resource-claim": "true" });
    assert_eq!(claim_of(question(&[("/request/object/metadata/annotations", extended)])), None);
}

#[test]
fn an_owner_is_led_and_nobody_else() {
    let view = view(vec![reservation("train", json!({}))]);
    assert_eq!(led(&view, &web(&[])).unwrap(), "train");
    let stranger = answer(&view, question(&[]), &pod(&[("app", "db")], &[]));
    assert_eq!(stranger, WebhookAnswer::default());
    assert_eq!(led(&view, &pod(&[("app", "web"), ("hostler.dev/reservation-ignored", "true")], &[])), None);
}

#[test]
fn nobody_is_asked_about_where_nothing_is_kept() {
    let claim = claim_of(question(&[])).unwrap();
    let concerns = |view: &ClusterView| WebhookFacts { view, own_driver: "hostler.dev" }.concern(&claim);
    assert!(!concerns(&view(Vec::new())));
    let mut other = reservation("other", json!({}));
    other.status.allocatable.clear();
    assert!(!concerns(&view(vec![other])));
    assert!(concerns(&view(vec![reservation("train", json!({}))])));
}

#[test]
fn a_pod_says_itself_where_it_wants_to_be_led() {
    let affinity = |text: &'static str| web(&[("hostler.dev/reservation-affinity", text)]);
    let taint = json!([{ "key": "night", "value": "yes", "effect": "NoSchedule" }]);
    let mut labelled = reservation("b", json!({}));
    labelled.labels.insert("team".to_owned(), "ml".to_owned());
    let view = view(vec![reservation("a", json!({})), labelled, reservation("c", json!({ "taints": taint }))]);
    for (text, expected) in [
        ("{}", Some("a")),
        (r#"{"name": "b"}"#, Some("b")),
        (r#"{"name": "c"}"#, None),
        (r#"{"name": "c", "tolerations": [{"key": "night", "operator": "Exists"}]}"#, Some("c")),
        (r#"{"name": "none"}"#, None),
        (r#"{"reservationSelector": {"team": "ml"}}"#, Some("b")),
        (r#"{"reservationSelector": {"team": "it"}}"#, None),
    ] {
        assert_eq!(led(&view, &affinity(text)).as_deref(), expected, "{text}");
    }
    for text in ["", "a", r#"{"nmae": "b"}"#, r#"{"name": 1}"#] {
        let answer = answer(&view, question(&[]), &affinity(text));
        assert!(
            answer.patch.is_empty() && answer.warnings[0].contains("reservation-affinity cannot be understood"),
            "{answer:?}"
        );
    }
}

#[test]
fn a_pod_that_wants_exactly_as_much_is_led_to_what_is_kept_for_one_pod() {
    let claims = |count: u32| {
        let request = json!({ "name": "r", "exactly": { "deviceClassName": "gpu", "count": count } });
        json!([{ "name": "c", "spec": { "devices": { "requests": [request] } } }])
    };
    let two = reservation("two", json!({ "deviceClaims": claims(2) }));
    let mut ones = reservation("ones", json!({ "deviceClaims": claims(1), "replicas": 2 }));
    ones.created = Duration::from_secs(9);
    let view = view(vec![two, ones]);
    let exactly = |names: &'static str| web(&[("hostler.dev/exact-match-reservation", names)]);
    assert_eq!(led(&view, &web(&[])).as_deref(), Some("two"), "the older one");
    let names = r#"{"resourceNames": ["gpu.deviceclass.resource.k8s.io/devices"]}"#;
    assert_eq!(led(&view, &exactly(names)).as_deref(), Some("ones"), "one gpu for each of two pods");
    let more = r#"{"resourceNames": ["gpu.deviceclass.resource.k8s.io/devices", "cpu"]}"#;
    assert_eq!(led(&view, &exactly(more)).as_deref(), Some("ones"), "nobody asks for CPU");
    let wrong = answer(&view, question(&[]), &exactly("gpu"));
    assert!(wrong.patch.is_empty() && wrong.warnings[0].contains("exact-match-reservation"), "{wrong:?}");
}

#[test]
fn restricted_is_about_the_resources_that_are_named() {
    let strict = |names: Value| {
        let spec = json!({ "allocatePolicy": "Restricted", "restrictedResources": names });
        answer(&view(vec![reservation("strict", spec)]), question(&[("/request/object/spec", three())]), &web(&[]))
    };
    fn three() -> Value {
        json!({ "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "gpu", "count": 3 } }] } })
    }
    assert!(strict(json!([])).patch.is_empty(), "three of two");
    assert!(strict(json!([GPUS])).patch.is_empty(), "three of two");
    let aligned = strict(json!(["cpu"]));
    assert!(!aligned.patch.is_empty(), "of others than the named ones a pod may have more: {aligned:?}");
}

#[test]
fn what_is_closed_or_over_leads_nobody() {
    let mut closed = reservation("closed", json!({ "unschedulable": true }));
    assert_eq!(led(&view(vec![closed.clone()]), &web(&[])), None);
    closed.spec.unschedulable = None;
    assert!(led(&view(vec![closed.clone()]), &web(&[])).is_some());
    closed.is_deleting = true;
    assert_eq!(led(&view(vec![closed]), &web(&[])), None);
    let mut over = reservation("over", json!({}));
    over.status.phase = hostler_api::reservation::ReservationPhase::Succeeded;
    assert_eq!(led(&view(vec![over]), &web(&[])), None);
}

#[test]
fn a_pod_counts_as_a_whole() {
    let mut facts = view(vec![reservation("strict", json!({ "allocatePolicy": "Restricted" }))]);
    let spec =
        json!({ "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "gpu", "count": 2 } }] } });
    facts.facts.add_template(ObjectKey::new("default", "more"), serde_json::from_value(spec).unwrap());
    let mut whole = web(&[]);
    assert!(led(&facts, &whole).is_some(), "one of two");
    let claim = |name: &str, template: &str| PodResourceClaim {
        name: name.to_owned(),
        resource_claim_template_name: Some(template.to_owned()),
        ..PodResourceClaim::default()
    };
    whole.spec.resource_claims = vec![claim("gpus", "own"), claim("others", "more")];
    assert_eq!(led(&facts, &whole), None, "three of two");
}

#[test]
fn whoever_names_a_value_himself_is_left_alone() {
    let view = view(vec![reservation("train", json!({}))]);
    let tolerations = json!([{ "key": "hostler.dev/held", "value": "mine", "effect": "NoSchedule" }]);
    let requests = json!([{ "name": "r", "exactly": { "deviceClassName": "gpu", "tolerations": tolerations } }]);
    let own = question(&[("/request/object/spec/devices/requests", requests)]);
    assert_eq!(answer(&view, own.clone(), &web(&[])), WebhookAnswer::default());
    let facts = WebhookFacts { view: &view, own_driver: "hostler.dev" };
    assert!(!facts.concern(&claim_of(own).unwrap()), "the pod is not even asked for");
}

#[test]
fn an_answer_is_what_the_api_server_reads() {
    let answer = WebhookAnswer { patch: vec![json!({ "op": "add" })], warnings: vec!["ü".repeat(300)] };
    let review = answer.review("q");
    let response = &review["response"];
    assert_eq!(
        (&response["uid"], &response["allowed"], &response["patchType"]),
        (&json!("q"), &json!(true), &json!("JSONPatch"))
    );
    assert_eq!(STANDARD.decode(response["patch"].as_str().unwrap()).unwrap(), br#"[{"op":"add"}]"#);
    assert_eq!(response["warnings"][0].as_str().unwrap().chars().count(), 256);
    let plain = WebhookAnswer::default().review("q");
    assert_eq!(plain["response"], json!({ "uid": "q", "allowed": true }));
}

//! Which pods are made anew, and whom people are told of.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hostler_api::{ObjectKey, reservation::OwnerController};
use serde_json::{Value, json};

use super::claims::{claim_of, pod, question, reservation, view, web};
use crate::webhook::{
    decide::WebhookFacts,
    pod::{PodState, WebhookPod},
    repair::{Repair, RepairPace, WaitingPod, candidates, is_left_over, repair},
};

fn refused() -> PodState {
    PodState { phase: "Pending".to_owned(), is_refused: true, version: "7".to_owned(), ..PodState::default() }
}

fn made_by(mut pod: WebhookPod, api_version: &str, kind: &str) -> WebhookPod {
    let [api_version, kind, name, uid] = [api_version, kind, "web", "owner"].map(str::to_owned);
    pod.owner.controller = Some(OwnerController { api_version, kind, namespace: String::new(), name, uid });
    pod
}

fn decided(pod: &WebhookPod, state: &PodState, has_devices: bool, requests: Option<Value>, more: Value) -> Repair {
    let view = view(vec![reservation("train", more)]);
    let facts = WebhookFacts { view: &view, own_driver: "hostler.dev" };
    let changes: Vec<(&str, Value)> =
        requests.into_iter().map(|it| ("/request/object/spec/devices/requests", it)).collect();
    let question = question(&changes);
    let mut object = question["request"]["object"].clone();
    for (field, value) in [("name", "p-gpus-x"), ("uid", "claim-uid"), ("creationTimestamp", "1970-01-01T00:01:00Z")] {
        object["metadata"][field] = json!(value);
    }
    let claim = claim_of(question).unwrap();
    repair(&facts, &WaitingPod { claim: &claim, object: &object, pod, state, has_devices })
}

/// A pod of an owner with these claims.
fn with_claims(names: &[&str]) -> WebhookPod {
    WebhookPod { made_claims: names.iter().map(|name| (*name).to_owned()).collect(), ..web(&[]) }
}

#[test]
fn the_claim_of_a_pod_that_was_passed_by_makes_room_for_one_that_is_led_and_says_why() {
    let Repair::Lead { claim, why, .. } = plainly(&with_claims(&["p-gpus-x"]), &refused()) else { panic!() };
    let metadata = &claim["metadata"];
    assert_eq!(metadata["annotations"]["hostler.dev/instead-of"], "p-gpus-x");
    assert_eq!(metadata["annotations"]["resource.kubernetes.io/pod-claim-name"], "gpus");
    assert!(metadata["annotations"]["hostler.dev/led-to-reservation"].as_str().unwrap().contains("uid-train"));
    assert_eq!(metadata["ownerReferences"][0]["uid"], "u");
    assert!(metadata["uid"].is_null() && metadata["creationTimestamp"].is_null(), "{metadata}");
    assert!(metadata["name"].as_str().unwrap().starts_with("p-gpus-x-"), "{metadata}");
    assert!(claim["spec"].to_string().contains("\"value-train\""), "{claim}");
    assert!(why.contains("while the webhook did not answer"), "{why}");
    // The controller of claims loses the other names of a pod with several.
    assert!(matches!(plainly(&with_claims(&["p-gpus-x", "other"]), &refused()), Repair::Tell(_)));
}

#[test]
fn people_are_told_the_true_reason_for_which_a_pod_was_passed_by() {
    let said = |created: u64, generation: i64| {
        let mut later = reservation("train", json!({}));
        (later.created, later.generation) = (Duration::from_secs(created), generation);
        let view = view(vec![later]);
        let facts = WebhookFacts { view: &view, own_driver: "hostler.dev" };
        let question = question(&[]);
        let mut object = question["request"]["object"].clone();
        object["metadata"]["creationTimestamp"] = json!("1970-01-01T00:01:00Z");
        let (claim, pod, state) = (claim_of(question).unwrap(), web(&[]), refused());
        let waiting = WaitingPod { claim: &claim, object: &object, pod: &pod, state: &state, has_devices: false };
        let Repair::Tell(message) = repair(&facts, &waiting) else { panic!() };
        message
    };
    for created in [60, 300] {
        assert!(said(created, 1).contains("before the controller knew of the Reservation"), "{}", said(created, 1));
    }
    assert!(said(10, 1).contains("it was made while the webhook did not answer"));
    assert!(said(10, 2).contains("before the Reservation was changed, or while"));
}

fn plainly(pod: &WebhookPod, state: &PodState) -> Repair {
    decided(pod, state, false, None, json!({}))
}

#[test]
fn a_pod_that_somebody_makes_anew_goes() {
    for (api_version, kind) in [("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job")] {
        let Repair::Replace { owner, why } = plainly(&made_by(web(&[]), api_version, kind), &refused()) else {
            panic!("{kind}")
        };
        assert_eq!(owner, "owner");
        assert!(why.contains("Reservation train") && why.contains("p-gpus-x"), "{why}");
    }
}

#[test]
fn of_a_pod_that_nobody_makes_anew_people_are_told_what_to_write() {
    for pod in [web(&[]), made_by(web(&[]), "v1", "Pod"), made_by(web(&[]), "example.com/v1", "ReplicaSet")] {
        let Repair::Tell(message) = plainly(&pod, &refused()) else { panic!("{pod:?}") };
        assert!(message.contains("hostler.dev/held with value value-train"), "{message}");
    }
    let owned = made_by(web(&[]), "apps/v1", "ReplicaSet");
    assert!(matches!(decided(&owned, &refused(), true, None, json!({})), Repair::Tell(_)), "it has devices");
}

#[test]
fn nobody_is_touched_who_may_be_given_something_yet_or_would_not_be_led_now() {
    let owned = made_by(web(&[]), "apps/v1", "ReplicaSet");
    for state in [
        PodState { is_refused: false, ..refused() },
        PodState { has_node: true, ..refused() },
        PodState { is_deleting: true, ..refused() },
        PodState { phase: "Running".to_owned(), ..refused() },
    ] {
        assert_eq!(plainly(&owned, &state), Repair::Leave, "{state:?}");
    }
    let stranger = made_by(pod(&[("app", "db")], &[]), "apps/v1", "ReplicaSet");
    assert_eq!(plainly(&stranger, &refused()), Repair::Leave);
    let ignoring =
        made_by(pod(&[("app", "web"), ("hostler.dev/reservation-ignored", "true")], &[]), "apps/v1", "ReplicaSet");
    assert_eq!(plainly(&ignoring, &refused()), Repair::Leave);
    assert_eq!(decided(&owned, &refused(), false, None, json!({ "unschedulable": true })), Repair::Leave);
    let tolerations = json!([{ "key": "hostler.dev/held", "value": "value-train", "effect": "NoSchedule" }]);
    let led = json!([{ "name": "r", "exactly": { "deviceClassName": "gpu", "tolerations": tolerations } }]);
    assert_eq!(decided(&owned, &refused(), false, Some(led), json!({})), Repair::Leave, "it tolerates already");
    let other = json!([{ "name": "r", "exactly": { "deviceClassName": "nic" } }]);
    assert_eq!(decided(&owned, &refused(), false, Some(other), json!({})), Repair::Leave);
}

#[test]
fn pods_of_one_owner_are_made_anew_ever_more_seldom() {
    let mut pace = RepairPace::default();
    let mut times = Vec::new();
    for second in 0..24 * 3600 {
        if pace.may("a", Duration::from_secs(second)) {
            times.push(second);
        }
    }
    assert_eq!(times[..5], [0, 30, 90, 210, 450]);
    assert!(times.len() < 34, "hardly more than one an hour: {}", times.len());
    assert!(pace.may("b", Duration::from_secs(24 * 3600)), "another owner has its own pace");
    let mut crowd = RepairPace::default();
    let lucky = (0..2000).filter(|at| crowd.may(&at.to_string(), Duration::ZERO)).count();
    assert_eq!(lucky, 1024, "what is remembered is bounded");
    assert!(crowd.may("late", Duration::from_secs(600)), "and forgotten");
}

/// The claim that takes the place of `p-gpus-x`, and its pod, which has got its devices with that one all the same.
fn left_over() -> (Value, WebhookPod, PodState) {
    let Repair::Lead { claim, .. } = plainly(&with_claims(&["p-gpus-x"]), &refused()) else { panic!() };
    let state = PodState { has_node: true, phase: "Running".to_owned(), ..PodState::default() };
    (*claim, with_claims(&["p-gpus-x"]), state)
}

#[test]
fn a_claim_that_was_made_here_goes_once_its_pod_has_its_node_with_another_one() {
    let (claim, pod, state) = left_over();
    assert!(is_left_over(&claim, &pod, &state));
    assert!(is_left_over(&claim, &with_claims(&["p-gpus-x", "other"]), &state));
}

#[test]
fn no_claim_goes_that_somebody_else_made_or_that_its_pod_has_or_may_still_get() {
    let (claim, pod, state) = left_over();
    let name = claim["metadata"]["name"].as_str().unwrap();
    let mut of_others = claim.clone();
    of_others["metadata"]["annotations"].as_object_mut().unwrap().remove("hostler.dev/instead-of");
    assert!(!is_left_over(&of_others, &pod, &state), "somebody else has made it");
    of_others["metadata"].as_object_mut().unwrap().remove("annotations");
    assert!(!is_left_over(&of_others, &pod, &state), "it says nothing of itself");
    assert!(!is_left_over(&claim, &with_claims(&[name]), &state), "the pod has it");
    assert!(!is_left_over(&claim, &with_claims(&["other", name]), &state), "the pod has it among others");
    assert!(!is_left_over(&claim, &with_claims(&[]), &state), "the pod has not named any yet");
    for waits in [refused(), PodState { is_refused: false, ..refused() }] {
        assert!(!is_left_over(&claim, &pod, &waits), "the pod may still name it: {waits:?}");
    }
}

#[test]
fn what_is_left_over_is_looked_for_also_when_nothing_is_kept_any_more() {
    let (claim, ..) = left_over();
    let made = ObjectKey::new("default", claim["metadata"]["name"].as_str().unwrap());
    let of_others = ["p-gpus-x7k2p", "gpus", "train-0123456789abcde", "train-0123456789abcdeg"];
    let waiting: BTreeSet<_> =
        of_others.iter().map(|name| ObjectKey::new("default", name)).chain([made.clone()]).collect();
    let mut kept = view(vec![reservation("train", json!({}))]);
    kept.waiting_claims = Arc::new(waiting.clone());
    assert_eq!(*candidates(&kept), waiting);
    kept.reservations = Arc::default();
    assert_eq!(*candidates(&kept), BTreeSet::from([made]), "nobody else's claim is read");
}

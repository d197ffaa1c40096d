//! What is known of objects, whatever the order in which it is heard.

use std::time::{Duration, Instant};

use hostler_cluster::ObjectVersion;

use super::*;

const KIND: ObservedKind = ObservedKind::ResourceSlice;

fn stamp(uid: &str, version: u64) -> ObjectStamp {
    (&ObjectVersion { uid: uid.to_owned(), resource_version: version.to_string() }).into()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: String::new(), name: name.to_owned() }
}

fn seen(name: &str, version: u64) -> ClusterEvent {
    let slice = serde_json::from_value(serde_json::json!({
        "metadata": { "name": name },
        "spec": { "driver": "d", "nodeName": "n", "pool": { "name": "n", "generation": 1, "resourceSliceCount": 1 } },
    }));
    let content = Ok(ObservedObject::ResourceSlice(Box::new(slice.unwrap())));
    ClusterEvent::Seen(SeenObject { kind: KIND, key: key(name), stamp: stamp(name, version), content })
}

fn poisoned(name: &str, version: u64) -> ClusterEvent {
    let content = Err("spec.devices: invalid type".to_owned());
    ClusterEvent::Seen(SeenObject { kind: KIND, key: key(name), stamp: stamp(name, version), content })
}

fn gone(name: &str, version: u64) -> ClusterEvent {
    ClusterEvent::Gone(KIND, key(name), stamp(name, version))
}

/// A model that has listed these.
fn listed(names: &[&str]) -> ClusterModel {
    let mut model = ClusterModel::default();
    list(&mut model, names, 1);
    model
}

fn list(model: &mut ClusterModel, names: &[&str], version: u64) {
    let now = Instant::now();
    model.step(now, ClusterEvent::ListStarted(KIND));
    for name in names {
        model.step(now, seen(name, version));
    }
    model.step(now, ClusterEvent::ListEnded(KIND));
}

#[test]
fn what_a_list_does_not_have_is_gone_when_the_list_is_complete_and_not_before() {
    let (now, mut model) = (Instant::now(), listed(&["a", "b"]));
    model.step(now, ClusterEvent::ListStarted(KIND));
    model.step(now, seen("a", 1));
    assert_eq!(model.objects(KIND), 2);
    // It breaks, and begins anew.
    list(&mut model, &["b"], 1);
    assert_eq!(model.objects(KIND), 1);
    assert_eq!(model.step(now, gone("a", 5)), []);
}

#[test]
fn news_that_come_late_or_twice_change_nothing() {
    let (now, mut model) = (Instant::now(), listed(&["a"]));
    assert_eq!(model.step(now, seen("a", 7)), [ModelCommand::Publish]);
    for late in [7, 6, 1] {
        assert_eq!(model.step(now, seen("a", late)), [], "{late}");
    }
    assert_eq!(model.step(now, gone("a", 6)), [], "an older one is gone");
    assert_eq!(model.step(now, gone("a", 8)), [ModelCommand::Publish]);
    assert_eq!(model.step(now, seen("a", 7)), [], "it was, before it was deleted");
    assert_eq!(model.objects(KIND), 0);
    // Another object of the same name is another one, whatever its version.
    let ClusterEvent::Seen(mut reborn) = seen("a", 2) else { unreachable!() };
    reborn.stamp = stamp("another", 2);
    assert_eq!(model.step(now, ClusterEvent::Seen(reborn)), [ModelCommand::Publish]);
}

#[test]
fn what_cannot_be_understood_is_left_out_and_named_once_for_each_of_its_versions() {
    let (now, mut model) = (Instant::now(), listed(&["a", "b"]));
    let told = |commands: Vec<ModelCommand>| {
        commands.into_iter().filter(|command| matches!(command, ModelCommand::TellPoisoned { .. })).count()
    };
    assert_eq!(told(model.step(now, poisoned("a", 2))), 1);
    assert_eq!(told(model.step(now, poisoned("a", 2))), 0);
    assert_eq!(told(model.step(now, poisoned("a", 3))), 1);
    let status = model.kinds()[&KIND].clone();
    assert_eq!((status.objects, status.poisoned), (2, 1));
    assert_eq!(status.example.as_deref(), Some("ResourceSlice a: spec.devices: invalid type"));
    model.step(now, seen("a", 4));
    assert_eq!(model.kinds()[&KIND].poisoned, 0);
    model.step(now, poisoned("b", 5));
    list(&mut model, &["a"], 4);
    assert_eq!((model.kinds()[&KIND].poisoned, model.objects(KIND)), (0, 1));
}

#[test]
fn silence_begins_with_the_first_failure_and_ends_with_any_word() {
    let (now, mut model) = (Instant::now(), listed(&["a"]));
    let silent = |model: &ClusterModel| model.kinds()[&KIND].silent.clone();
    model.step(now, ClusterEvent::Interrupted(KIND, "refused".to_owned()));
    model.step(now + Duration::from_secs(9), ClusterEvent::Interrupted(KIND, "no route".to_owned()));
    assert_eq!(silent(&model), Some((now, "no route".to_owned())));
    assert_eq!(model.step(now, ClusterEvent::UpToDate(KIND)), [ModelCommand::Publish]);
    assert_eq!(silent(&model), None);
    assert_eq!(model.step(now, ClusterEvent::UpToDate(KIND)), [], "at rest nothing is shown anew");
}

#[test]
fn a_kind_that_is_not_there_is_known_to_have_nothing() {
    let (now, mut model) = (Instant::now(), listed(&["a"]));
    model.step(now, ClusterEvent::NotServed(KIND));
    let status = model.kinds()[&KIND].clone();
    assert!(status.is_absent && status.is_synced && status.objects == 0);
    model.step(now, ClusterEvent::ListStarted(KIND));
    assert!(model.kinds()[&KIND].is_absent, "what there is is known at the end of the list");
    list(&mut model, &["a"], 9);
    let status = model.kinds()[&KIND].clone();
    assert!(!status.is_absent && status.objects == 1);
}

#[test]
fn reservations_are_seen_by_their_names_until_they_are_gone() {
    let (now, mut model) = (Instant::now(), ClusterModel::default());
    let object: ReservationObject = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "training", "uid": "u", "resourceVersion": "3"},
        "spec": {"replicas": 2}, "status": {"phase": "Available"},
    }))
    .unwrap();
    let kind = ObservedKind::Reservation;
    let content = Ok(ObservedObject::Reservation(Box::new(object)));
    let seen = SeenObject { kind, key: key("training"), stamp: stamp("u", 3), content };
    assert_eq!(model.step(now, ClusterEvent::Seen(seen)), [ModelCommand::Publish]);
    let view = model.view();
    let known = &view.reservations["training"];
    assert_eq!((known.uid.as_str(), known.version.as_str(), known.spec.replicas()), ("u", "3", 2));
    assert!(!known.status.phase.is_over());
    model.step(now, ClusterEvent::Gone(kind, key("training"), stamp("u", 4)));
    assert!(model.view().reservations.is_empty() && !view.reservations.is_empty());
}

/// Something of a kind in the namespace `ml`.
fn seen_in_ml(kind: ObservedKind, name: &str, version: u64, object: ObservedObject) -> ClusterEvent {
    let key = ObjectKey::new("ml", name);
    ClusterEvent::Seen(SeenObject { kind, key, stamp: stamp(name, version), content: Ok(object) })
}

fn pod_of_claim(version: u64, spec: &serde_json::Value) -> ClusterEvent {
    let mut pod = serde_json::json!({
        "metadata": {"name": "p", "namespace": "ml", "uid": "pu"},
        "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
    });
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let pod = ObservedObject::Pod(Box::new(serde_json::from_value(pod).unwrap()));
    seen_in_ml(ObservedKind::Pod, "p", version, pod)
}

fn claim(version: u64) -> ClusterEvent {
    let claim = serde_json::json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ml", "uid": "cu"}, "spec": {},
    });
    let claim = ObservedObject::ResourceClaim(Box::new(serde_json::from_value(claim).unwrap()));
    seen_in_ml(ObservedKind::ResourceClaim, "c", version, claim)
}

#[test]
fn pods_that_are_to_be_placed_are_known_with_their_claims_until_they_are_bound() {
    let (now, mut model) = (Instant::now(), ClusterModel::default());
    let (pod, of) = (ObjectKey::new("ml", "p"), ObjectKey::new("ml", "c"));
    model.step(now, claim(1));
    assert!(model.view().marks.placed_claims.is_empty(), "nobody's");
    model.step(now, pod_of_claim(2, &serde_json::json!({"schedulingGates": [{"name": "hostler.dev/placement"}]})));
    model.step(now, claim(3));
    let marks = model.view().marks;
    assert_eq!(marks.placed[&pod].stamp, stamp("p", 2));
    assert_eq!(marks.placed_claims[&of], Some(stamp("c", 3)));
    // Without its gate it is known as long as there is a Reservation that was made for it.
    let own = serde_json::json!({"metadata": {"name": "pod-pu-1", "uid": "ru", "resourceVersion": "4"}});
    let own = ObservedObject::Reservation(Box::new(serde_json::from_value(own).unwrap()));
    let kind = ObservedKind::Reservation;
    let seen = SeenObject { kind, key: key("pod-pu-1"), stamp: stamp("ru", 4), content: Ok(own) };
    model.step(now, ClusterEvent::Seen(seen));
    model.step(now, pod_of_claim(5, &serde_json::json!({})));
    model.step(now, ClusterEvent::Gone(ObservedKind::ResourceClaim, of.clone(), stamp("c", 6)));
    let marks = model.view().marks;
    assert_eq!((marks.placed[&pod].stamp, marks.placed_claims[&of]), (stamp("p", 5), None));
    model.step(now, pod_of_claim(7, &serde_json::json!({"nodeName": "n"})));
    let marks = model.view().marks;
    assert!(marks.placed.is_empty() && marks.placed_claims.is_empty(), "it has a node");
}

//! What a Reservation says, and whom it is for.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::*;

fn spec(value: serde_json::Value) -> ReservationSpec {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_toleration_value_is_the_same_for_ever_and_another_one_for_each_uid() {
    assert_eq!(toleration_value(""), "cbf29ce484222325");
    assert_eq!(toleration_value("a"), "af63dc4c8601ec8c");
    assert_ne!(toleration_value("0d5b2c1e"), toleration_value("0d5b2c1f"));
}

#[test]
fn without_a_word_it_lasts_a_day_and_with_ttl_zero_for_ever() {
    assert_eq!(spec(json!({})).lasts().unwrap(), Some(Duration::from_secs(86_400)));
    assert_eq!(spec(json!({"ttl": "90m"})).lasts().unwrap(), Some(Duration::from_secs(5400)));
    assert_eq!(spec(json!({"ttl": "0"})).lasts().unwrap(), None);
    assert!(spec(json!({"ttl": "soon"})).lasts().is_err());
}

#[test]
fn what_cannot_be_kept_says_so_and_how_to_mend_it() {
    let claims =
        |claims: serde_json::Value| json!({"metadata": {"namespace": "n"}, "spec": {"resourceClaims": claims}});
    for (value, message) in [
        (json!({}), "nothing is asked for"),
        (json!({"template": {"spec": {"resourceClaims": "all"}}}), "no PodTemplateSpec"),
        (json!({"template": claims(json!([{"name": "a", "resourceClaimName": "b"}]))}), "names ResourceClaim b"),
        (
            json!({"template": {"spec": {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]}}}),
            "namespace of ResourceClaimTemplate t",
        ),
        (
            json!({"template": claims(json!([{"name": "a", "resourceClaimTemplateName": "t"}])),
                "deviceClaims": [{"name": "a", "spec": {}}]}),
            "has a, as has another claim",
        ),
        (
            json!({"deviceClaims": [{"name": "a", "spec": {}}],
                "replaces": {"namespace": "n", "name": "a/../b", "uid": "u"}}),
            "spec.replaces.name is \"a/../b\"",
        ),
        (
            json!({"deviceClaims": [{"name": "a", "spec": {}}],
                "replaces": {"namespace": "n/pods", "name": "b", "uid": "u"}}),
            "spec.replaces.namespace is \"n/pods\"",
        ),
    ] {
        let error = spec(value).pod_template().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let good = spec(json!({"template": claims(json!([{"name": "a", "resourceClaimTemplateName": "t"}]))}));
    assert_eq!(good.pod_template().unwrap().metadata.namespace, "n");
}

/// A pod `p` in `n` with label app=web, made by StatefulSet `web`, of ProvisioningRequest `r`.
fn is_owner(owners: &serde_json::Value) -> bool {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let annotations =
        BTreeMap::from([("cluster-autoscaler.kubernetes.io/consume-provisioning-request".to_owned(), "r".to_owned())]);
    let controller = OwnerController {
        api_version: "apps/v1".into(),
        kind: "StatefulSet".into(),
        name: "web".into(),
        uid: "c".into(),
        ..OwnerController::default()
    };
    let pod = OwnerCandidate {
        namespace: "n",
        name: "p",
        uid: "u",
        labels: &labels,
        annotations: &annotations,
        controller: Some(&controller),
    };
    spec(json!({ "owners": owners, "template": { "metadata": { "namespace": "n" } } })).is_owned_by(&pod)
}

#[test]
fn a_stranger_with_the_words_of_an_owner_in_another_namespace_is_none() {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let annotations = BTreeMap::new();
    let controller = OwnerController { kind: "Job".into(), name: "web".into(), uid: "c".into(), ..Default::default() };
    let is_owner = |owner: Value, home: Value, namespace: &str| {
        let (name, uid, controller) = ("p", "u", Some(&controller));
        let pod = OwnerCandidate { namespace, name, uid, labels: &labels, annotations: &annotations, controller };
        spec(json!({ "owners": [owner], "template": { "metadata": home } })).is_owned_by(&pod)
    };
    let said = [
        json!({ "labelSelector": { "matchLabels": { "app": "web" } } }),
        json!({ "labelSelector": {} }),
        json!({ "object": { "name": "p" } }),
        // Who controls a pod is written by whoever makes it.
        json!({ "controller": { "kind": "Job", "name": "web", "uid": "c" } }),
    ];
    for owner in said {
        assert!(is_owner(owner.clone(), json!({ "namespace": "research" }), "research"), "{owner}");
        assert!(!is_owner(owner.clone(), json!({ "namespace": "research" }), "stranger"), "{owner}");
        assert!(is_owner(owner.clone(), json!({}), "default"), "{owner}");
        assert!(!is_owner(owner.clone(), json!({}), "stranger"), "{owner}");
    }
    let elsewhere = json!({ "labelSelector": { "matchLabels": { "app": "web" } }, "object": { "namespace": "other" } });
    assert!(is_owner(elsewhere.clone(), json!({ "namespace": "research" }), "other"));
    assert!(!is_owner(elsewhere, json!({ "namespace": "research" }), "research"));
    assert!(
        is_owner(json!({ "object": { "uid": "u" } }), json!({ "namespace": "research" }), "other"),
        "a UID is the server's"
    );
}

#[test]
fn owners_are_objects_controllers_and_labels_all_of_one_entry_and_any_of_the_entries() {
    for (owners, expected) in [
        (json!([]), false),
        (json!([{}]), false),
        (json!([{"object": {}}]), true),
        (json!([{"object": {"kind": "Pod", "namespace": "n", "name": "p"}}]), true),
        (json!([{"object": {"name": "p", "uid": "other"}}]), false),
        (json!([{"controller": {"kind": "StatefulSet", "name": "web", "namespace": "n"}}]), true),
        (json!([{"controller": {"kind": "StatefulSet", "name": "web", "namespace": "m"}}]), false),
        (json!([{"labelSelector": {"matchLabels": {"app": "web"}}}]), true),
        (json!([{"labelSelector": {"matchLabels": {"app": "web"}}, "object": {"name": "q"}}]), false),
        (json!([{"labelSelector": {"matchLabels": {"app": "db"}}}, {"object": {"name": "p"}}]), true),
        (json!([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}}]), true),
        (
            json!([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}}]),
            false,
        ),
        (json!([{"labelSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}]), false),
        (json!([{"labelSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}]), true),
        (json!([{"provisioningRequest": {"namespace": "n", "name": "r"}}]), true),
        (json!([{"provisioningRequest": {"namespace": "m", "name": "r"}}]), false),
    ] {
        assert_eq!(is_owner(&owners), expected, "{owners}");
    }
}

#[test]
fn the_identity_of_a_part_is_a_uuid_and_another_one_for_each_part() {
    let one = part_share_id("u", "d/p/a 0");
    assert_eq!(one, part_share_id("u", "d/p/a 0"));
    let all: std::collections::BTreeSet<String> = ["d/p/a 0", "d/p/a 1", "d/p/b 0"]
        .iter()
        .flat_map(|part| ["u", "v"].map(|uid| part_share_id(uid, part)))
        .collect();
    assert_eq!(all.len(), 6);
    for id in all {
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
        assert!(id.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)), "{id}");
        assert_eq!((&id[14..15], "89ab".contains(&id[19..20])), ("8", true), "{id}");
    }
}

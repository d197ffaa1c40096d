//! What becomes of objects of Koordinator.
#![expect(clippy::needless_pass_by_value, reason = "values are written where they are used")]

use serde_json::{Value, json};

use super::{ConvertNote, ConvertProblem, Difference, manifest::convert};

const VERSION: &str = "scheduling.koordinator.sh/v1alpha1";

fn reservation(metadata: &Value, spec: &Value) -> Value {
    let template = json!({
        "metadata": { "namespace": "ml" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "4" } } }] },
    });
    let mut all = json!({
        "metadata": { "name": "night" },
        "spec": { "template": template, "owners": [{ "object": { "namespace": "ml" }, "labelSelector": { "matchLabels": { "a": "b" } } }] },
    });
    for (part, more) in [("metadata", metadata), ("spec", spec)] {
        for (field, value) in more.as_object().unwrap() {
            all[part][field] = value.clone();
        }
    }
    all
}

/// The object and the notes of a Reservation.
fn converted(metadata: Value, spec: Value) -> (Value, Vec<ConvertNote>) {
    let done = convert(VERSION, "Reservation", reservation(&metadata, &spec)).unwrap();
    (done.object.unwrap(), done.notes)
}

fn refused(metadata: Value, spec: Value) -> ConvertProblem {
    convert(VERSION, "Reservation", reservation(&metadata, &spec)).unwrap_err()
}

fn fields(notes: &[ConvertNote], difference: Difference) -> Vec<&str> {
    notes.iter().filter(|note| note.difference == difference).map(|note| &*note.field).collect()
}

#[test]
fn a_reservation_keeps_what_it_says_under_the_same_names() {
    let (object, notes) = converted(
        json!({
            "labels": { "scheduling.koordinator.sh/reservation-order": "3", "team": "ml" }, "uid": "u", "generation": 4,
            "annotations": {
                "scheduling.koordinator.sh/reservation-restricted-options": r#"{"resources": ["cpu"]}"#,
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
            },
        }),
        json!({
            "ttl": "2h", "allocateOnce": false, "allocatePolicy": "Restricted", "unschedulable": true,
            "taints": [{ "key": "night", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z" }],
        }),
    );
    assert_eq!(notes, []);
    assert_eq!(object["apiVersion"], "hostler.dev/v1alpha1");
    let labels = json!({ "hostler.dev/reservation-order": "3", "team": "ml" });
    assert_eq!(object["metadata"], json!({ "name": "night", "labels": labels }));
    let spec = &object["spec"];
    assert_eq!([&spec["ttl"], &spec["allocatePolicy"]], ["2h", "Restricted"]);
    assert_eq!([&spec["allocateOnce"], &spec["unschedulable"]], [&json!(false), &json!(true)]);
    assert_eq!(spec["restrictedResources"], json!(["cpu"]));
    assert_eq!(spec["taints"], json!([{ "key": "night", "effect": "NoSchedule" }]));
    assert_eq!(spec["owners"][0]["labelSelector"], json!({ "matchLabels": { "a": "b" } }));
    assert_eq!(spec["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "4");
}

#[test]
fn the_end_of_a_reservation_that_exists_stays_where_it_is() {
    let made = || json!({ "creationTimestamp": "2026-11-01T00:00:00Z" });
    let ends = |metadata, spec| {
        let (object, notes) = converted(metadata, spec);
        (object["spec"]["ttl"].clone(), object["spec"]["expires"].clone(), notes.len())
    };
    let (soon, late) = ("2026-11-01T12:00:00Z", "2026-11-09T00:00:00Z");
    assert_eq!(ends(made(), json!({ "ttl": "24h" })), (Value::Null, json!("2026-11-02T00:00:00Z"), 0));
    assert_eq!(ends(made(), json!({ "ttl": "24h0m0s", "expires": soon })), (Value::Null, json!(soon), 0));
    assert_eq!(ends(made(), json!({ "ttl": "24h", "expires": late })), (Value::Null, json!("2026-11-02T00:00:00Z"), 0));
    assert_eq!(ends(made(), json!({ "ttl": "0s" })), (json!("0"), Value::Null, 0));
    assert_eq!(ends(json!({}), json!({})), (Value::Null, Value::Null, 0));
    assert_eq!(ends(json!({}), json!({ "ttl": "1h", "expires": soon })), (Value::Null, json!(soon), 1));
    assert_eq!(ends(json!({}), json!({ "ttl": "0", "expires": soon })), (json!("0"), json!(soon), 1));
}

#[test]
fn a_pod_that_names_its_node_goes_there_whatever_else_it_asks_of_nodes() {
    let terms = |pod: Value| {
        let (object, notes) =
            converted(json!({}), json!({ "template": { "metadata": { "namespace": "ml" }, "spec": pod } }));
        assert_eq!(object["spec"]["template"]["spec"]["nodeName"], Value::Null);
        let affinity = object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"].clone();
        let terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone();
        (terms, fields(&notes, Difference::Missing).join(" "))
    };
    let here = json!([{ "key": "metadata.name", "operator": "In", "values": ["n1"] }]);
    let container = json!([{ "name": "c", "resources": { "requests": { "cpu": "1" } } }]);
    let alone = terms(json!({ "nodeName": "n1", "schedulerName": "koord-scheduler", "containers": container }));
    assert_eq!(alone, (json!([{ "matchFields": here }]), String::new()));
    let zone = json!([{ "key": "zone", "operator": "Exists" }]);
    let nodes = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchExpressions": zone }] } });
    let near = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone" }] });
    let both = json!({ "nodeAffinity": nodes, "podAffinity": near });
    let asks = |claims: Value| {
        let pod = json!({ "nodeName": "n1", "containers": container, "affinity": both, "resourceClaims": claims });
        terms(pod)
    };
    let places = asks(json!([]));
    assert_eq!(places, (json!([{ "matchExpressions": zone, "matchFields": here }]), String::new()), "places heed all");
    let (_, missing) = asks(json!([{ "name": "gpu", "resourceClaimTemplateName": "one" }]));
    assert_eq!(missing, "spec.template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution");
}

#[test]
fn what_has_no_counterpart_is_named_and_left_out() {
    let container = json!({ "name": "c", "resources": { "requests": { "koordinator.sh/gpu-core": "100" } } });
    let spread = json!([{ "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }]);
    let claims = json!([{ "name": "gpu", "resourceClaimTemplateName": "one" }]);
    let pod = json!({ "containers": [container], "topologySpreadConstraints": spread, "resourceClaims": claims });
    let (object, notes) = converted(
        json!({
            "labels": { "scheduling.koordinator.sh/pre-allocation-required": "true" },
            "annotations": { "scheduling.koordinator.sh/reservation-resize-allocatable": "{}" },
        }),
        json!({ "template": { "metadata": { "namespace": "ml" }, "spec": pod }, "hibernate": true }),
    );
    let missing = [
        "spec.hibernate",
        "metadata.labels[scheduling.koordinator.sh/pre-allocation-required]",
        "metadata.annotations[scheduling.koordinator.sh/reservation-resize-allocatable]",
        "spec.template.spec.containers",
        "spec.template.spec.topologySpreadConstraints",
    ];
    assert_eq!(fields(&notes, Difference::Missing), missing);
    assert_eq!(object["metadata"], json!({ "name": "night" }));
    assert_eq!(object["spec"]["hibernate"], Value::Null);
}

#[test]
fn what_means_something_else_is_named_and_kept() {
    let anywhere = json!([{ "labelSelector": { "matchLabels": { "a": "b" } } }]);
    let (object, notes) = converted(json!({}), json!({ "owners": anywhere, "preAllocation": true }));
    assert_eq!(fields(&notes, Difference::Differs), ["spec.preAllocation", "spec.owners[0]"]);
    assert!(notes[1].reason.contains("pods of namespace ml alone"), "{notes:?}");
    assert_eq!([&object["spec"]["owners"], &object["spec"]["preAllocation"]], [&anywhere, &json!(true)]);
}

#[test]
fn a_policy_of_pre_allocation_goes_with_it_and_never_alone() {
    let policy = json!({ "mode": "Cluster", "enableMultiple": true });
    let with = |wanted: bool| {
        let spec = json!({ "preAllocation": wanted, "preAllocationPolicy": policy });
        converted(json!({}), spec).0["spec"]["preAllocationPolicy"].clone()
    };
    assert_eq!([with(true), with(false)], [policy.clone(), Value::Null]);
}

#[test]
fn what_is_over_keeps_nothing_and_other_kinds_are_left_out() {
    let mut over = reservation(&json!({}), &json!({}));
    over["status"] = json!({ "phase": "Succeeded" });
    let done = convert(VERSION, "Reservation", over).unwrap();
    assert!(done.object.is_none() && done.notes[0].reason.contains("it is Succeeded"), "{done:?}");
    let done = convert(VERSION, "PodMigrationJob", json!({})).unwrap();
    assert!(done.object.is_none() && done.notes[0].difference == Difference::Missing, "{done:?}");
    let node = json!({ "kind": "Node" });
    assert_eq!(convert("v1", "Node", node.clone()).unwrap().object, Some(node));
}

#[test]
fn owners_and_fields_that_say_nothing_are_refused_with_the_fix() {
    let is_told = |metadata: Value, spec: Value, field: &str, words: &str| {
        let problem = refused(metadata, spec);
        assert!(problem.field == field && problem.reason.contains(words), "{field}, {words}: {problem:?}");
    };
    let owners = |owner: Value| json!({ "owners": [owner] });
    is_told(json!({}), json!({ "owners": [] }), "spec.owners", "there are none");
    is_told(json!({}), owners(json!({})), "spec.owners[0]", "it is about every pod");
    is_told(json!({}), owners(json!({ "object": { "kind": "Pod" } })), "spec.owners[0]", "write its namespace");
    is_told(json!({}), owners(json!({ "controller": { "controller": true } })), "spec.owners[0]", "write its kind");
    is_told(json!({}), json!({ "ttl": "1d" }), "spec.ttl", "is not a duration");
    is_told(json!({}), json!({ "expires": "tomorrow" }), "spec.expires", "is no time");
    is_told(json!({}), json!({ "allocatePolicy": "Often" }), "spec.allocatePolicy", "unknown variant");
    is_told(json!({}), json!({ "template": { "spec": {} } }), "", "nothing is asked for");
    is_told(json!({ "name": "" }), json!({}), "metadata.name", "give the Reservation a name");
    let options = json!({ "scheduling.koordinator.sh/reservation-restricted-options": "cpu" });
    let field = "metadata.annotations[scheduling.koordinator.sh/reservation-restricted-options]";
    is_told(json!({ "annotations": options }), json!({}), field, "write {\"resources\"");
}

fn pod(labels: Value, annotations: Value) -> Value {
    json!({ "metadata": { "labels": labels, "annotations": annotations }, "spec": { "schedulerName": "koord-scheduler" } })
}

#[test]
fn pods_and_templates_say_the_same_in_hostlers_words() {
    let affinity = r#"{"reservationSelector":{"team":"ml"},"tolerations":[{"key":"night"}]}"#;
    let koordinators = pod(
        json!({ "pod.koordinator.sh/is-pre-allocatable": "true", "koordinator.sh/qosClass": "LS" }),
        json!({
            "scheduling.koordinator.sh/reservation-affinity": affinity,
            "scheduling.koordinator.sh/exact-match-reservation": r#"{"resourceNames":["cpu"]}"#,
            "scheduling.koordinator.sh/reservation-allocated": "{}", "pod.koordinator.sh/pre-allocatable-priority": "7",
        }),
    );
    let expected = json!({
        "labels": { "hostler.dev/pre-allocatable": "true", "koordinator.sh/qosClass": "LS" },
        "annotations": {
            "hostler.dev/reservation-affinity": affinity, "hostler.dev/exact-match-reservation": r#"{"resourceNames":["cpu"]}"#,
            "hostler.dev/pre-allocatable-priority": "7",
        },
    });
    let done = convert("v1", "Pod", koordinators.clone()).unwrap();
    assert_eq!(done.object.unwrap()["metadata"], expected);
    assert_eq!(fields(&done.notes, Difference::Differs), ["spec.schedulerName"]);
    let job = json!({ "spec": { "jobTemplate": { "spec": { "template": koordinators } } } });
    let done = convert("batch/v1", "CronJob", job).unwrap();
    assert_eq!(done.object.unwrap()["spec"]["jobTemplate"]["spec"]["template"]["metadata"], expected);
    assert_eq!(fields(&done.notes, Difference::Differs), ["spec.jobTemplate.spec.template.spec.schedulerName"]);
    let own = json!({ "metadata": expected });
    assert_eq!(convert("v1", "Pod", own.clone()).unwrap().object, Some(own), "nothing of Koordinator's is in it");
}

#[test]
fn beside_a_name_nothing_else_counts_and_nonsense_is_refused() {
    let affinity = |text: &str| {
        convert("v1", "Pod", pod(json!({}), json!({ "scheduling.koordinator.sh/reservation-affinity": text })))
    };
    let done = affinity(r#"{"name":"night","reservationSelector":{"a":"b"}}"#).unwrap();
    let annotations = &done.object.unwrap()["metadata"]["annotations"];
    assert_eq!(annotations["hostler.dev/reservation-affinity"], r#"{"name":"night"}"#);
    assert!(done.notes[0].reason.contains("ignores reservationSelector"), "{:?}", done.notes);
    for wrong in ["night", r#"{"names":"night"}"#, r#"{"reservationSelector":"a"}"#, "[]"] {
        let problem = affinity(wrong).unwrap_err();
        assert_eq!(problem.field, "metadata.annotations[scheduling.koordinator.sh/reservation-affinity]");
        assert!(problem.reason.contains("write {\"name\""), "{wrong}: {problem:?}");
    }
}

//! `hostler-controller convert` as people call it: objects of Koordinator in, objects that the API server accepts out.

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use hostler_testing::apiserver::{ApiServer, ApiServerOptions, ApiServerRelease};
use serde_json::{Value, json};

use crate::rig::root;

const KOORDINATORS: &str = r#"
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata:
  name: night
  labels: {scheduling.koordinator.sh/reservation-order: "1"}
spec:
  template:
    metadata: {namespace: ml}
    spec:
      schedulerName: koord-scheduler
      containers: [{name: c, image: i, resources: {requests: {cpu: "4", memory: 8Gi}}}]
  owners: [{controller: {apiVersion: apps/v1, kind: StatefulSet, name: web, namespace: ml, controller: true}}]
  ttl: 24h
  expires: "2030-01-31T18:00:00Z"
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, namespace: ml}
spec:
  template:
    metadata: {annotations: {scheduling.koordinator.sh/reservation-affinity: '{"name": "night"}'}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ml}
"#;

fn convert(input: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostler-controller"));
    command.args(["convert", "-f", "-"]).args(more);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn texts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_converted_is_accepted_by_the_api_server_and_differences_are_told() {
    let (code, out, err) = texts(convert(KOORDINATORS, &[]));
    assert_eq!(code, Some(0), "{err}");
    let told =
        "hostler-controller: standard input: document 1 (Reservation night), line 14: spec.ttl: is a little different";
    assert!(err.starts_with(told) && err.lines().count() == 1, "{err}");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&out).unwrap();
    assert_eq!(
        objects.iter().map(|it| it["kind"].as_str().unwrap()).collect::<Vec<_>>(),
        ["Reservation", "StatefulSet", "Namespace"]
    );
    let annotations = &objects[1]["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(*annotations, json!({ "hostler.dev/reservation-affinity": r#"{"name":"night"}"# }));
    let options = ApiServerOptions { release: ApiServerRelease::V1_36, ..ApiServerOptions::default() };
    let server = ApiServer::start(options).await;
    server.create_yaml(&fs::read_to_string(root().join("deploy/crds/reservations.yaml")).unwrap());
    let made = server.try_create(objects[0].clone()).map_err(|refusal| refusal.status()).unwrap();
    assert_eq!(made["spec"]["expires"], "2030-01-31T18:00:00Z");
    assert_eq!(made["spec"]["ttl"], "24h", "the default is shown, and expires counts");
    assert_eq!(made["metadata"]["labels"], json!({ "hostler.dev/reservation-order": "1" }));
}

#[test]
fn the_example_has_a_counterpart_for_everything() {
    let example = fs::read_to_string(root().join("deploy/examples/koordinator.yaml")).unwrap();
    let (code, out, err) = texts(convert(&example, &[]));
    assert_eq!((code, &*err), (Some(0), ""));
    assert!(!out.contains("koordinator") && out.contains("hostler.dev/reservation-affinity"), "{out}");
}

#[test]
fn as_json_it_is_one_list_and_what_has_no_counterpart_ends_with_1() {
    let mut input: Value = serde_saphyr::from_multiple::<Value>(KOORDINATORS).unwrap().remove(0);
    input["metadata"]["labels"]["scheduling.koordinator.sh/pre-allocation-required"] = json!("true");
    let (code, out, err) = texts(convert(&input.to_string(), &["-o", "json"]));
    assert_eq!(code, Some(1), "{err}");
    let list: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("List"), &json!("Reservation")));
    assert!(err.contains("pre-allocation-required]: has no counterpart: what is free is kept first"), "{err}");
}

#[test]
fn every_wrong_input_is_named_with_its_document_and_field_and_nothing_is_written() {
    let good: Vec<Value> = serde_saphyr::from_multiple(KOORDINATORS).unwrap();
    let with = |pointer: &str, value: Value| {
        let mut object = good[0].clone();
        *object.pointer_mut(pointer).unwrap() = value;
        object.to_string()
    };
    let affinity = |text: &str| {
        let mut object = good[1].clone();
        let key = "scheduling.koordinator.sh/reservation-affinity";
        object["spec"]["template"]["metadata"]["annotations"][key] = json!(text);
        object.to_string()
    };
    let empty = json!({ "spec": { "containers": [{ "name": "c" }] } });
    let exact = affinity("").replace("reservation-affinity\":\"", "exact-match-reservation\":\"cpu");
    for (input, words) in [
        (String::new(), "--filename: there is no object in it"),
        ("a: [".to_owned(), "document 1, line 1"),
        (with("/apiVersion", json!("scheduling.koordinator.sh/v1")), "apiVersion: \"scheduling.koordinator.sh/v1\""),
        (with("/metadata/name", json!("")), "metadata.name: it is missing"),
        (with("/metadata/name", json!(7)), "metadata.name: invalid type"),
        (with("/spec/ttl", json!("1d")), "spec.ttl: \"1d\" is not a duration"),
        (with("/spec/ttl", json!(24)), "spec.ttl: invalid type"),
        (with("/spec/expires", json!("soon")), "spec.expires: \"soon\" is no time"),
        (with("/spec/owners", json!([])), "spec.owners: there are none"),
        (with("/spec/owners", json!([{}])), "spec.owners[0]: it is about every pod"),
        (with("/spec/owners", json!([{ "object": { "kind": "Pod" } }])), "spec.owners[0]: object is about every pod"),
        (with("/spec/template", empty), "nothing is asked for"),
        (with("/spec/template", json!("pod")), "spec.template: it is no PodTemplateSpec"),
        (affinity("night"), "spec.template.metadata.annotations[scheduling.koordinator.sh/reservation-affinity]"),
        (affinity(r#"{"name": 7}"#), "it cannot be understood: invalid type"),
        (exact, "[scheduling.koordinator.sh/exact-match-reservation]: it cannot be understood"),
    ] {
        let (code, out, err) = texts(convert(&input, &[]));
        assert_eq!((code, &*out), (Some(2), ""), "{input}: {err}");
        assert!(
            err.contains(words) && err.contains("1 problem with what was given"),
            "{input}: {err:?} lacks {words:?}"
        );
    }
    let (code, out, err) = texts(convert("", &["-f", "absent.yaml"]));
    assert!(code == Some(2) && out.is_empty() && err.contains("absent.yaml: it cannot be read"), "{err}");
}

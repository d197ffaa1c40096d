//! Kinds that somebody defined, from their definition to their end.

use std::time::Duration;

use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::apiserver::{ApiServer, ApiServerOptions, PolicyRule};

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wheels.example.dev}
spec:
  group: example.dev
  scope: Cluster
  names: {plural: wheels, kind: Wheel, shortNames: [wl], categories: [all]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1}
              colour: {type: string, enum: [red, blue], default: red}
              spokes:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string, maxLength: 5}, weight: {x-kubernetes-int-or-string: true}}
            x-kubernetes-validations:
            - {rule: "self.size < 10 || self.colour == 'blue'", message: big ones are blue}
            - {rule: "self.size >= oldSelf.size", message: it cannot shrink, fieldPath: .size}
          status:
            type: object
            properties:
              turns: {type: integer}
              labels: {type: object, additionalProperties: {type: string}}
"#;

struct Wheels {
    server: ApiServer,
    api: Api<DynamicObject>,
}

async fn wheels() -> Wheels {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    server.create_yaml(DEFINITION);
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.dev", "v1alpha1", "Wheel"));
    let api = Api::all_with(server.client("somebody").await, &kind);
    Wheels { server, api }
}

fn wheel(name: &str, spec: Value) -> DynamicObject {
    let object =
        json!({ "apiVersion": "example.dev/v1alpha1", "kind": "Wheel", "metadata": { "name": name }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

fn told<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("{other:?} is no refusal"),
    }
}

#[tokio::test]
async fn a_defined_kind_is_pruned_filled_in_and_checked() {
    let Wheels { server, api } = wheels().await;
    let made = api.create(&PostParams::default(), &wheel("w", json!({ "size": 3, "what": 1 }))).await.unwrap();
    assert_eq!(made.data["spec"], json!({ "size": 3, "colour": "red" }));
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(server.list("wheels").len(), 1);
    for (spec, expected) in [
        (json!({}), "spec.size: Required value"),
        (json!({ "size": "3" }), "spec.size in body must be of type integer: \"string\""),
        (json!({ "size": 0 }), "spec.size in body should be greater than or equal to 1"),
        (json!({ "size": 3, "colour": "green" }), "Unsupported value: \"green\": supported values: \"red\", \"blue\""),
        (json!({ "size": 12 }), "spec: Invalid value: \"object\": big ones are blue"),
        (
            json!({ "size": 3, "spokes": [{ "name": "a" }, { "name": "a" }] }),
            "spec.spokes[1]: Duplicate value: {\"name\":\"a\"}",
        ),
        (json!({ "size": 3, "spokes": [{ "name": "abcdef" }] }), "Too long: may not be more than 5 bytes"),
        (json!({ "size": 3, "spokes": [{ "name": "a", "weight": [] }] }), "must be of type integer,string: \"array\""),
    ] {
        let (code, message) = told(api.create(&PostParams::default(), &wheel("x", spec)).await);
        assert!(code == 422 && message.contains(expected), "{message} lacks {expected}");
    }
    let smaller = Patch::Merge(json!({ "spec": { "size": 2 } }));
    let (_, message) = told(api.patch("w", &PatchParams::default(), &smaller).await);
    assert!(
        message.contains("spec.size: Invalid value: 2: it cannot shrink") || message.contains("it cannot shrink"),
        "{message}"
    );
}

#[tokio::test]
async fn status_and_spec_are_written_apart_and_only_the_spec_counts_generations() {
    let Wheels { server: _server, api } = wheels().await;
    api.create(&PostParams::default(), &wheel("w", json!({ "size": 3 }))).await.unwrap();
    let both = Patch::Merge(json!({
        "metadata": { "labels": { "a": "b" } }, "spec": { "size": 4 }, "status": { "turns": 7, "labels": {} },
    }));
    let by_status = api.patch_status("w", &PatchParams::default(), &both).await.unwrap();
    assert_eq!(
        (&by_status.data["spec"]["size"], &by_status.data["status"]),
        (&json!(3), &json!({ "turns": 7, "labels": {} }))
    );
    assert_eq!((by_status.metadata.generation, by_status.metadata.labels), (Some(1), None));
    let by_main = api.patch("w", &PatchParams::default(), &both).await.unwrap();
    assert_eq!((&by_main.data["spec"]["size"], &by_main.data["status"]["turns"]), (&json!(4), &json!(7)));
    assert_eq!(by_main.metadata.generation, Some(2));
}

#[tokio::test]
async fn a_kind_is_served_from_its_definition_to_its_end() {
    let Wheels { server, api } = wheels().await;
    let client = server.client("somebody").await;
    let groups = client.list_api_groups().await.unwrap();
    assert!(groups.groups.iter().any(|group| group.name == "example.dev"));
    let served = client.list_api_group_resources("example.dev/v1alpha1").await.unwrap();
    let names: Vec<&str> = served.resources.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["wheels", "wheels/status"]);
    api.create(&PostParams::default(), &wheel("w", json!({ "size": 3 }))).await.unwrap();
    let definition = server.get("customresourcedefinitions", "wheels.example.dev").unwrap();
    assert_eq!(definition["status"]["conditions"][1]["type"], "Established");
    server.delete("customresourcedefinitions", "wheels.example.dev");
    assert_eq!(told(api.get("w").await).0, 404);
    server.create_yaml(DEFINITION);
    assert_eq!(server.list("wheels"), Vec::<Value>::new());
}

#[tokio::test]
async fn a_definition_that_means_nothing_is_refused() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    for (from, to, expected) in [
        ("name: wheels.example.dev", "name: wheel.example.dev", "must be spec.names.plural"),
        ("turns: {type: integer}", "turns: {description: none}", "must not be empty for specified object fields"),
        ("self.size >= oldSelf.size", "self.size >= oldself.size", "compilation failed"),
        ("default: red", "default: 7", "must be valid by its schema"),
        ("required: [name]", "required: []", "x-kubernetes-list-map-keys"),
    ] {
        let text = DEFINITION.replace(from, to);
        let refusal = server.try_create(serde_saphyr::from_str(&text).unwrap()).unwrap_err().status().to_string();
        assert!(refusal.contains(expected), "{refusal} lacks {expected}");
    }
}

#[tokio::test]
async fn rights_can_be_asked_for() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let rule = PolicyRule {
        api_groups: vec![String::new()],
        resources: vec!["pods".into()],
        verbs: vec!["list".into()],
        ..PolicyRule::default()
    };
    server.allow("reader", vec![rule]);
    let ask = |verb: &str| {
        let asked = json!({ "verb": verb, "group": "", "resource": "pods" });
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": { "user": "reader", "resourceAttributes": asked },
        });
        server.create(question)["status"]["allowed"].clone()
    };
    assert_eq!((ask("list"), ask("delete")), (json!(true), json!(false)));
}

#[tokio::test]
async fn leases_change_hands_by_their_version() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::default_namespaced(server.client("a").await);
    let lease = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15 } });
    let mut first = leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let mut second = first.clone();
    second.spec.as_mut().unwrap().holder_identity = Some("b".into());
    leases.replace("l", &PostParams::default(), &second).await.unwrap();
    first.spec.as_mut().unwrap().renew_time = None;
    first.spec.as_mut().unwrap().lease_duration_seconds = Some(Duration::from_secs(20).as_secs().try_into().unwrap());
    assert_eq!(told(leases.replace("l", &PostParams::default(), &first).await).0, 409);
}

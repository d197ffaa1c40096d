//! The API server of the tests, driven by the client that the daemon uses.

use hostler_testing::apiserver::{self, ApiFault, ApiServer, ApiServerOptions, ApiServerRelease, FaultEffect};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio_stream::StreamExt;

fn slice(name: &str, devices: &[&str]) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": name },
        "spec": {
            "driver": "hostler.dev", "nodeName": "worker",
            "pool": { "name": "worker/fake", "generation": 1, "resourceSliceCount": 1 },
            "devices": devices.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>(),
        },
    })
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "card", "exactly": { "deviceClassName": "fake" } }] } },
    })
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Returns the status object of a refusal.
fn refused<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> kube::core::Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("not refused: {other:?}"),
    }
}

async fn slices(server: &ApiServer) -> Api<ResourceSlice> {
    Api::all(server.client("admin").await)
}

async fn claims(server: &ApiServer) -> Api<ResourceClaim> {
    Api::default_namespaced(server.client("admin").await)
}

#[tokio::test]
async fn an_object_lives_from_create_to_delete() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let slices = slices(&server).await;
    let created = slices.create(&PostParams::default(), &typed(slice("a", &["card-0"]))).await.unwrap();
    assert!(created.uid().is_some() && created.creation_timestamp().is_some());
    assert_eq!(created.metadata.generation, Some(1));

    let mut changed = slices.get("a").await.unwrap();
    assert_eq!(changed.resource_version(), created.resource_version());
    changed.spec.devices.as_mut().unwrap()[0].name = "card-1".to_owned();
    let replaced = slices.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_eq!((replaced.metadata.generation, replaced.uid()), (Some(2), created.uid()));
    assert_ne!(replaced.resource_version(), created.resource_version());

    slices.delete("a", &DeleteParams::default()).await.unwrap();
    let gone = refused(slices.get("a").await);
    assert_eq!((gone.code, gone.reason.as_str()), (404, "NotFound"));
    assert_eq!(gone.message, "resourceslices.resource.k8s.io \"a\" not found");
    assert_eq!(server.writes("resourceslices"), 3);
}

#[tokio::test]
async fn a_watch_tells_what_came_changed_and_went() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let slices = slices(&server).await;
    server.create(slice("before", &[]));
    let listed = slices.list(&ListParams::default()).await.unwrap();
    let from = listed.metadata.resource_version.unwrap();
    let mut events = std::pin::pin!(slices.watch(&WatchParams::default(), &from).await.unwrap());
    server.create(slice("a", &[]));
    server.edit("resourceslices", "a", |slice| slice["metadata"]["labels"] = json!({ "x": "y" }));
    server.delete("resourceslices", "a");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(match events.next().await.unwrap().unwrap() {
            WatchEvent::Added(slice) => format!("+{}", slice.name_any()),
            WatchEvent::Modified(slice) => format!("~{}", slice.name_any()),
            WatchEvent::Deleted(slice) => format!("-{}", slice.name_any()),
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, ["+a", "~a", "-a"]);
}

#[tokio::test]
async fn the_status_of_a_claim_is_written_by_itself() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let claims = claims(&server).await;
    let created = claims.create(&PostParams::default(), &typed(claim("a"))).await.unwrap();
    assert_eq!(created.status.unwrap().allocation, None);
    let patch = json!({ "metadata": { "labels": { "x": "y" } }, "status": { "reservedFor": [] } });
    let status = json!({ "status": { "allocation": { "devices": { "results": [
        { "request": "card", "driver": "hostler.dev", "pool": "worker/fake", "device": "card-0" },
    ] } } } });
    let ignored = claims.patch("a", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    assert_eq!(ignored.status.unwrap().allocation, None);
    let ignored = claims.patch_status("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(ignored.metadata.labels, None);
    let written = claims.patch_status("a", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    assert_eq!(written.status.unwrap().allocation.unwrap().devices.unwrap().results.unwrap()[0].device, "card-0");
}

#[tokio::test]
async fn trouble_comes_as_often_as_it_was_announced() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let slices = slices(&server).await;
    server.create(slice("a", &[]));
    server.fail(ApiFault::new("get", "resourceslices", 1, FaultEffect::Status(500, None)));
    assert_eq!(refused(slices.get("a").await).code, 500);
    server.fail(ApiFault::new("get", "resourceslices", 1, FaultEffect::Reset));
    assert!(matches!(slices.get("a").await, Err(kube::Error::HyperError(_) | kube::Error::Service(_))));
    slices.get("a").await.unwrap();
    server.stop_listening().await;
    assert!(slices.get("a").await.is_err());
    server.listen_again().await;
    slices.get("a").await.unwrap();
}

/// Allocates card-0 of the pool to a new claim.
fn allocated(server: &ApiServer, name: &str) {
    server.create(claim(name));
    server.set_status(
        "resourceclaims",
        name,
        json!({ "allocation": {
            "devices": { "results": [
                { "request": "card", "driver": "hostler.dev", "pool": "worker/fake", "device": "card-0" },
            ] },
            "nodeSelector": { "nodeSelectorTerms": [{ "matchFields": [
                { "key": "metadata.name", "operator": "In", "values": ["worker"] },
            ] }] },
        } }),
    );
}

/// A device's status as a driver applies it to the status of a claim.
fn device_status(name: &str, ready: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "status": { "devices": [{
            "driver": "hostler.dev", "pool": "worker/fake", "device": "card-0", "data": { "serial": 7 },
            "conditions": [{
                "type": "Ready", "status": ready, "reason": "Prepared", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }] },
    })
}

/// Creates a slice with changes to a valid one; the message if it is refused.
fn try_slice(server: &ApiServer, change: impl FnOnce(&mut Value)) -> Option<String> {
    let mut slice = slice("tried", &["card-0"]);
    change(&mut slice);
    let result = server.try_create(slice);
    server.delete("resourceslices", "tried");
    result.err().map(|refusal| refusal.status()["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn who_writes_from_an_old_state_gets_a_conflict() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let slices = slices(&server).await;
    let old = slices.create(&PostParams::default(), &typed(slice("a", &[]))).await.unwrap();
    server.edit("resourceslices", "a", |slice| slice["metadata"]["labels"] = json!({ "x": "y" }));
    let status = refused(slices.replace("a", &PostParams::default(), &old).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let status = refused(slices.create(&PostParams::default(), &typed(slice("a", &[]))).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "AlreadyExists"));
    let preconditions = kube::api::Preconditions { uid: old.uid(), resource_version: old.resource_version() };
    let stale = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    assert_eq!(refused(slices.delete("a", &stale).await).code, 409);
    let uid = kube::api::Preconditions { uid: old.uid(), resource_version: None };
    slices.delete("a", &DeleteParams { preconditions: Some(uid), ..DeleteParams::default() }).await.unwrap();
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_nothing() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let slices = slices(&server).await;
    let created = slices.create(&PostParams::default(), &typed(slice("a", &["card-0"]))).await.unwrap();
    let replaced = slices.replace("a", &PostParams::default(), &created).await.unwrap();
    assert_eq!(replaced.resource_version(), created.resource_version());
}

#[tokio::test]
async fn history_that_is_gone_is_410_for_watches_and_pages() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let slices = slices(&server).await;
    for name in ["a", "b", "c"] {
        server.create(slice(name, &[]));
    }
    let page = slices.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!((page.items.len(), page.metadata.remaining_item_count), (2, Some(1)));
    let token = page.metadata.continue_.unwrap();
    server.delete("resourceslices", "c");
    let rest = slices.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!(rest.items[0].name_any(), "c", "pages are of one state");
    let from = page.metadata.resource_version.unwrap();
    server.compact();
    let gone = refused(slices.list(&ListParams::default().limit(2).continue_token(&token)).await);
    assert_eq!((gone.code, gone.reason.as_str()), (410, "Expired"));
    let mut events = std::pin::pin!(slices.watch(&WatchParams::default(), &from).await.unwrap());
    assert!(matches!(events.next().await.unwrap().unwrap(), WatchEvent::Error(status) if status.code == 410));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn selectors_choose_and_unknown_fields_are_refused() {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    let slices = slices(&server).await;
    server.create(slice("a", &[]));
    let mut other = slice("b", &[]);
    other["spec"]["nodeName"] = json!("other");
    server.create(other);
    let of = |selector: &str| ListParams::default().fields(selector);
    let chosen = slices.list(&of("spec.nodeName=worker,spec.driver=hostler.dev")).await.unwrap();
    assert_eq!(chosen.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a"]);
    assert_eq!(refused(slices.list(&of("spec.pool.name=worker/fake")).await).code, 400);
    slices.delete_collection(&DeleteParams::default(), &of("spec.nodeName=worker")).await.unwrap();
    assert_eq!(server.list("resourceslices").len(), 1);
}

#[tokio::test]
async fn pods_are_chosen_by_their_node_and_come_into_sight_when_they_are_bound_to_it() {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    let pods: Api<Pod> = Api::all(server.client("admin").await);
    let spec = json!({ "containers": [{ "name": "main", "image": "none" }] });
    let pod = |name: &str| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec });
    for (name, node) in [("here", "worker"), ("there", "other")] {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = json!(node);
        server.create(pod);
    }
    let of_node = "spec.nodeName=worker";
    let found = pods.list(&ListParams::default().fields(of_node)).await.unwrap();
    assert_eq!(found.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["here"]);
    let unknown = pods.list(&ListParams::default().fields("spec.priority=1")).await;
    assert_eq!(refused(unknown).code, 400);
    let from = found.metadata.resource_version.unwrap();
    let mut events = std::pin::pin!(pods.watch(&WatchParams::default().fields(of_node), &from).await.unwrap());
    server.create(pod("late"));
    server.edit("pods", "late", |pod| pod["spec"]["nodeName"] = json!("worker"));
    let added = events.next().await.unwrap().unwrap();
    assert!(matches!(&added, WatchEvent::Added(pod) if pod.name_any() == "late"), "{added:?}");
    server.delete("pods", "here");
    let deleted = events.next().await.unwrap().unwrap();
    assert!(matches!(&deleted, WatchEvent::Deleted(pod) if pod.name_any() == "here"), "{deleted:?}");
}

#[tokio::test]
async fn a_claim_keeps_its_spec_and_its_allocation() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let claims = claims(&server).await;
    allocated(&server, "a");
    let spec = json!({ "spec": { "devices": { "requests": [] } } });
    assert_eq!(refused(claims.patch("a", &PatchParams::default(), &Patch::Merge(&spec)).await).code, 422);
    let moved = json!([{ "op": "replace", "path": "/status/allocation/devices/results/0/device", "value": "card-1" }]);
    let moved = Patch::Merge::<Value>(
        server
            .get("resourceclaims", "a")
            .map(|mut claim| {
                claim["status"]["allocation"]["devices"]["results"][0]["device"] = moved[0]["value"].clone();
                json!({ "status": claim["status"] })
            })
            .unwrap(),
    );
    let status = refused(claims.patch_status("a", &PatchParams::default(), &moved).await);
    assert!(status.message.contains("status.allocation: Invalid value"), "{}", status.message);
    let removed = Patch::Merge(json!({ "status": { "allocation": null } }));
    claims.patch_status("a", &PatchParams::default(), &removed).await.unwrap();
}

#[tokio::test]
async fn applied_device_status_belongs_to_its_manager() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let claims = claims(&server).await;
    allocated(&server, "a");
    let params = PatchParams::apply("hostler");
    let first = claims.patch_status("a", &params, &Patch::Apply(device_status("a", "True"))).await.unwrap();
    let again = claims.patch_status("a", &params, &Patch::Apply(device_status("a", "True"))).await.unwrap();
    assert_eq!(again.resource_version(), first.resource_version(), "the same again is no write");
    let other = PatchParams::apply("other");
    let conflict = refused(claims.patch_status("a", &other, &Patch::Apply(device_status("a", "False"))).await);
    assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
    assert!(conflict.message.contains("conflict with \"hostler\""), "{}", conflict.message);
    claims.patch_status("a", &other.force(), &Patch::Apply(device_status("a", "False"))).await.unwrap();
    let mut none = device_status("a", "True");
    none["status"] = json!({});
    let left = claims.patch_status("a", &params, &Patch::Apply(&none)).await.unwrap();
    assert_eq!(left.status.unwrap().devices.unwrap().len(), 1, "the other one owns it too");
    none["metadata"]["name"] = json!("a");
    let left = claims.patch_status("a", &PatchParams::apply("other"), &Patch::Apply(&none)).await.unwrap();
    assert_eq!(left.status.unwrap().devices, None);
}

#[tokio::test]
async fn the_status_of_a_device_that_is_not_allocated_is_refused() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let claims = claims(&server).await;
    allocated(&server, "a");
    let mut status = device_status("a", "True");
    status["status"]["devices"][0]["device"] = json!("card-9");
    let refusal = refused(claims.patch_status("a", &PatchParams::apply("hostler"), &Patch::Apply(status)).await);
    assert!(refusal.message.contains("must be an allocated device"), "{}", refusal.message);
}

#[tokio::test]
async fn the_limits_of_slices_are_those_of_the_release() {
    let (new, old) = (ApiServer::of(ApiServerRelease::V1_36).await, ApiServer::of(ApiServerRelease::V1_34).await);
    let many = |count: usize| {
        move |slice: &mut Value| {
            let device = |at| json!({ "name": format!("card-{at}") });
            slice["spec"]["devices"] = (0..count).map(device).collect();
        }
    };
    assert_eq!(try_slice(&new, many(128)), None);
    assert!(try_slice(&new, many(129)).unwrap().contains("must have at most 128 items"));
    let tainted = |slice: &mut Value| {
        many(65)(slice);
        slice["spec"]["devices"][0]["taints"] = json!([{ "key": "hostler.dev/bad", "effect": "NoSchedule" }]);
    };
    assert!(try_slice(&new, tainted).unwrap().contains("must have at most 64 items"));
    assert_eq!(try_slice(&old, tainted), None, "the taint is dropped with its gate");
    let refusals = [
        ("name", json!("Card_0"), "spec.devices[0].name: Invalid value"),
        ("attributes", json!({ "no-identifier": { "int": 1 } }), "spec.devices[0].attributes[no-identifier]"),
        ("attributes", json!({ "v": { "version": "1.0" } }), "semver"),
        ("attributes", json!({ "s": { "string": "x".repeat(65) } }), "Too long"),
        ("attributes", json!({ "list": { "ints": [1, 2] } }), "exactly one value must be specified"),
        ("bindingConditions", json!(["hostler.dev/attached"]), "bindingFailureConditions: Required value"),
        ("taints", json!([{ "key": "a", "effect": "Never" }]), "Unsupported value"),
    ];
    for (field, value, wanted) in refusals {
        let message = try_slice(&new, |slice| slice["spec"]["devices"][0][field] = value).unwrap();
        assert!(message.contains(wanted), "{message}");
    }
    let both = try_slice(&new, |slice| slice["spec"]["allNodes"] = json!(true)).unwrap();
    assert!(both.contains("exactly one of"), "{both}");
}

#[tokio::test]
async fn a_range_whose_first_step_leaves_the_capacity_is_refused() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let range = |step: &'static str| {
        move |slice: &mut Value| {
            slice["spec"]["devices"][0]["allowMultipleAllocations"] = json!(true);
            slice["spec"]["devices"][0]["capacity"] = json!({ "memory": { "value": "1Gi", "requestPolicy": {
                "default": "512Mi", "validRange": { "min": "512Mi", "step": step },
            } } });
        }
    };
    assert_eq!(try_slice(&server, range("512Mi")), None);
    assert!(try_slice(&server, range("1Gi")).unwrap().contains("validRange.step"));
}

#[tokio::test]
async fn quantities_come_back_as_the_server_writes_them() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let written = ["1024Mi", "1000", "0.5", "1536Ki", "1048576", "2e3"];
    let mut wanted = slice("a", &["card-0"]);
    wanted["spec"]["devices"][0]["capacity"] =
        written.iter().enumerate().map(|(at, text)| (format!("c{at}"), json!({ "value": text }))).collect();
    let stored = server.create(wanted);
    let capacity = &stored["spec"]["devices"][0]["capacity"];
    let read: Vec<&str> = (0..written.len()).map(|at| capacity[format!("c{at}")]["value"].as_str().unwrap()).collect();
    assert_eq!(read, ["1Gi", "1k", "500m", "1536Ki", "1048576", "2e3"]);
}

#[tokio::test]
async fn one_store_speaks_the_versions_of_its_release() {
    let server = ApiServer::of(ApiServerRelease::V1_33).await;
    let client = server.client("admin").await;
    let groups = client.list_api_groups().await.unwrap();
    let group = groups.groups.into_iter().find(|group| group.name == "resource.k8s.io").unwrap();
    assert_eq!(group.versions.iter().map(|one| one.version.as_str()).collect::<Vec<_>>(), ["v1beta2", "v1beta1"]);
    let mut old = slice("a", &[]);
    old["apiVersion"] = json!("resource.k8s.io/v1beta1");
    old["spec"]["devices"] = json!([{ "name": "card-0", "basic": { "attributes": { "n": { "int": 1 } } } }]);
    server.create(old);
    let get = |version: &str| {
        let resource = kube::core::ApiResource {
            group: "resource.k8s.io".to_owned(),
            version: version.to_owned(),
            api_version: format!("resource.k8s.io/{version}"),
            kind: "ResourceSlice".to_owned(),
            plural: "resourceslices".to_owned(),
        };
        let api: Api<kube::core::DynamicObject> = Api::all_with(client.clone(), &resource);
        async move { api.get("a").await }
    };
    let flat = get("v1beta2").await.unwrap();
    assert_eq!(flat.data["spec"]["devices"][0]["attributes"]["n"]["int"], 1);
    let wrapped = get("v1beta1").await.unwrap();
    assert_eq!(wrapped.data["spec"]["devices"][0]["basic"]["attributes"]["n"]["int"], 1);
    assert!(get("v1").await.is_err(), "1.33 has no v1");
}

#[tokio::test]
async fn a_user_with_rules_may_do_nothing_else() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    allocated(&server, "a");
    let rules = "kind: ClusterRole\nrules:\n- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get]}\n\
                 - {apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [patch]}\n";
    server.allow("driver", apiserver::PolicyRule::from_yaml(rules));
    server.user("driver", Some("worker"));
    let claims: Api<ResourceClaim> = Api::default_namespaced(server.client("driver").await);
    claims.get("a").await.unwrap();
    let status = refused(claims.list(&ListParams::default()).await);
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
    assert!(status.message.contains("User \"driver\" cannot list resource \"resourceclaims\""), "{}", status.message);

    let params = PatchParams::apply("hostler");
    let ready = Patch::Apply(device_status("a", "True"));
    let lacks_the_verb = |status: kube::core::Status| {
        let cause = status.details.unwrap().causes.remove(0);
        assert_eq!((status.code, &*status.reason), (422, "Invalid"));
        assert_eq!((&*cause.reason, &*cause.field), ("FieldValueForbidden", "status.devices"));
        assert!(cause.message.contains("resource=\"resourceclaims/driver\""), "{}", cause.message);
    };
    lacks_the_verb(refused(claims.patch_status("a", &params, &ready).await));
    let granular = "kind: ClusterRole\nrules:\n- {apiGroups: [resource.k8s.io], resources: [resourceclaims/driver], \
                    resourceNames: [hostler.dev], verbs: ['associated-node:patch']}\n";
    server.allow("driver", apiserver::PolicyRule::from_yaml(granular));
    claims.patch_status("a", &params, &ready).await.unwrap();
    server.user("driver", Some("elsewhere"));
    let mut other = device_status("a", "False");
    other["status"]["devices"][0]["data"] = json!({ "serial": 8 });
    lacks_the_verb(refused(claims.patch_status("a", &params, &Patch::Apply(other)).await));
}

#[tokio::test]
async fn a_policy_may_deny_a_write() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    server.admit(|admission| match admission.object {
        Some(object) if admission.user.node.as_deref() == object["spec"]["nodeName"].as_str() => Ok(()),
        _ if admission.resource != "resourceslices" => Ok(()),
        _ => Err("not your node".to_owned()),
    });
    server.user("driver", Some("worker"));
    let slices: Api<ResourceSlice> = Api::all(server.client("driver").await);
    slices.create(&PostParams::default(), &typed(slice("a", &[]))).await.unwrap();
    let mut other = slice("b", &[]);
    other["spec"]["nodeName"] = json!("elsewhere");
    let status = refused(slices.create(&PostParams::default(), &typed(other)).await);
    assert!(status.message.contains("not your node"), "{}", status.message);
}

#[tokio::test]
async fn watches_get_bookmarks_and_end_when_the_server_likes() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let slices = slices(&server).await;
    server.create(slice("a", &[]));
    let mut events = std::pin::pin!(slices.watch(&WatchParams::default().initial_events(), "0").await.unwrap());
    assert!(matches!(events.next().await.unwrap().unwrap(), WatchEvent::Added(_)));
    assert!(matches!(events.next().await.unwrap().unwrap(), WatchEvent::Bookmark(_)));
    server.send_bookmarks();
    assert!(matches!(events.next().await.unwrap().unwrap(), WatchEvent::Bookmark(_)));
    server.close_watches();
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn the_resources_of_the_node_have_the_name_of_the_release() {
    let gates = [("DRANodeAllocatableResources".to_owned(), true)];
    for (release, known, unknown) in [
        (ApiServerRelease::V1_36, "nodeAllocatableResourceMappings", "nodeAllocatableResources"),
        (ApiServerRelease::V1_37, "nodeAllocatableResources", "nodeAllocatableResourceMappings"),
    ] {
        let server =
            ApiServer::start(ApiServerOptions { release, gates: gates.clone().into(), ..ApiServerOptions::default() })
                .await;
        let mut wanted = slice("a", &["card-0"]);
        for name in [known, unknown] {
            wanted["spec"]["devices"][0][name] = json!({ "cpu": { "overhead": {} } });
        }
        let stored = server.create(wanted);
        let device = &stored["spec"]["devices"][0];
        assert!(device[known].is_object() && device[unknown].is_null(), "{device}");
    }
}

#[tokio::test]
async fn an_answer_may_be_lost_after_the_deed() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let slices = slices(&server).await;
    server.fail(ApiFault::new("create", "resourceslices", 1, FaultEffect::LoseAnswer));
    assert!(slices.create(&PostParams::default(), &typed(slice("a", &[]))).await.is_err());
    assert!(server.get("resourceslices", "a").is_some());
    server.fail(ApiFault::new("get", "resourceslices", 1, FaultEffect::CutBody));
    assert!(slices.get("a").await.is_err());
    let log = server.log();
    assert!(log.iter().all(|logged| logged.user == "admin"));
    assert_ne!(log[0].connection, log[1].connection, "the first one was reset");
}

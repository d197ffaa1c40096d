//! The API server of the tests, driven by the client that the daemon uses.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "support/apiserver.rs"]
mod apiserver;

use apiserver::{ApiServer, Fault, How, Options};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
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

/// The status object of a refusal.
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
    let server = ApiServer::start(Options::default()).await;
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
    let server = ApiServer::start(Options::default()).await;
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
    let server = ApiServer::start(Options::default()).await;
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
    let server = ApiServer::start(Options::default()).await;
    let slices = slices(&server).await;
    server.create(slice("a", &[]));
    server.fail(Fault::new("get", "resourceslices", 1, How::Status(500, None)));
    assert_eq!(refused(slices.get("a").await).code, 500);
    server.fail(Fault::new("get", "resourceslices", 1, How::Reset));
    assert!(matches!(slices.get("a").await, Err(kube::Error::HyperError(_) | kube::Error::Service(_))));
    slices.get("a").await.unwrap();
    server.stop_listening().await;
    assert!(slices.get("a").await.is_err());
    server.listen_again().await;
    slices.get("a").await.unwrap();
}

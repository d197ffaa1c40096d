//! What a cluster of 1.31 leaves behind, after its upgrade to a release in which the scheduler allocates.

use std::sync::Arc;

use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView},
    control_plane::ControlPlane,
    controller::RunningController,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::{ClassicCluster, FINALIZER, finalizers, rules};
use crate::rig::{USER, install, options};

const PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// A cluster of 1.31 without its controller: one claim is in use, one is deleted as well, and one was left half done.
async fn left_behind() -> ClassicCluster {
    let old = ClassicCluster::start(ApiServerRelease::V1_31).await;
    old.node("n1", 4);
    let controller = old.controller().await;
    for name in ["stays", "goes"] {
        old.claim(name, 1);
        old.pod(name, &[name]);
        old.until_bound(name).await;
    }
    assert_eq!(controller.stop().await, Some(0));
    old.claim("half", 1);
    old.server.edit("resourceclaims", "half", |claim| claim["metadata"]["finalizers"] = json!([FINALIZER]));
    let time = json!("2026-01-01T00:00:00Z");
    old.server.edit("resourceclaims", "goes", |claim| claim["metadata"]["deletionTimestamp"] = time);
    old
}

/// Copies a cluster to a server of a later release: objects, with the fields that it still has.
fn upgraded(old: &ClassicCluster, server: &ApiServer) {
    for plural in ["nodes", "pods", "nodehardware", "resourceclaims"] {
        for object in old.server.list(plural) {
            let mut new = object.clone();
            new["metadata"] = json!({ "name": object["metadata"]["name"] });
            if object["metadata"]["namespace"].is_string() {
                new["metadata"]["namespace"] = object["metadata"]["namespace"].clone();
            }
            new["status"] = json!({});
            if plural == "resourceclaims" {
                // What a controller allocates is no part of later releases, and requests say what they want one level deeper.
                let requests = object["spec"]["devices"]["requests"].as_array().unwrap().iter();
                let exactly = |request: &Value| {
                    let mut exactly = request.clone();
                    exactly.as_object_mut().unwrap().remove("name");
                    json!({ "name": request["name"], "exactly": exactly })
                };
                new["spec"] = json!({ "devices": { "requests": requests.map(exactly).collect::<Vec<_>>() } });
            }
            server.create(new);
            server.edit(plural, object["metadata"]["name"].as_str().unwrap(), |new| {
                for field in ["uid", "finalizers", "deletionTimestamp"] {
                    if !object["metadata"][field].is_null() {
                        new["metadata"][field] = object["metadata"][field].clone();
                    }
                }
                if object["status"].is_object() {
                    new["status"] = object["status"].clone();
                }
                if let Some(allocation) = new["status"]["allocation"].as_object_mut() {
                    allocation.remove("controller");
                }
            });
        }
    }
}

fn grants(view: &ApiServerView<'_>) -> usize {
    let of = |hardware: &Value| hardware["spec"]["claims"].as_object().map_or(0, serde_json::Map::len);
    view.list("nodehardware").iter().map(of).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_allocated_before_the_upgrade_is_taken_back_after_it() {
    for release in [ApiServerRelease::V1_32, ApiServerRelease::V1_36] {
        let old = left_behind().await;
        let server = ApiServer::start(ApiServerOptions { release, ..ApiServerOptions::default() }).await;
        install(&server);
        server.allow(USER, rules());
        upgraded(&old, &server);
        let server = Arc::new(server);
        let plane = ControlPlane::new().run(&server);
        // It dies after its first write; another one goes on.
        let first = RunningController::start(&options(&server)).await;
        let is_protected = |view: &ApiServerView<'_>, name: &str| {
            (finalizers(&view.get("resourceclaims", name)?) == [PROTECTION]).then_some(())
        };
        let is_free = |view: &ApiServerView<'_>, name: &str| {
            finalizers(&view.get("resourceclaims", name)?).is_empty().then_some(())
        };
        server
            .until("a claim was handed over", |view| is_free(view, "half").or_else(|| is_protected(view, "stays")))
            .await;
        first.signal(Signal::SIGKILL);
        drop(first);
        server.delete("leases", "hostler-controller/hostler-controller");
        let controller = RunningController::start(&options(&server)).await;
        server.until("the claim in use is Kubernetes' own", |view| is_protected(view, "stays")).await;
        server.until("the half-done claim is free", |view| is_free(view, "half")).await;
        let one = |view: &ApiServerView<'_>| (grants(view) == 1).then_some(());
        server.until("the grant of the claim that is still to go is left", one).await;
        assert_eq!(finalizers(&server.get("resourceclaims", "goes").unwrap()), [FINALIZER], "its pod runs");
        let said = controller.get("/readyz").await.unwrap().1;
        assert!(said.contains("ClassicAllocation=False (Migrating)"), "{said}");

        server.delete("pods", "goes");
        let is_gone = |view: &ApiServerView<'_>| view.get("resourceclaims", "goes").is_none().then_some(());
        server.until("the deleted claim is gone", is_gone).await;
        server.until("no grant is left", |view| (grants(view) == 0).then_some(())).await;
        server.delete("pods", "stays");
        let is_taken_back = |view: &ApiServerView<'_>| {
            let claim = view.get("resourceclaims", "stays")?;
            (claim["status"]["allocation"].is_null() && finalizers(&claim).is_empty()).then_some(())
        };
        server.until("the claim of the pod that has gone is taken back", is_taken_back).await;
        controller
            .until("nothing is left to do", async |it| {
                it.get("/readyz").await?.1.contains("ClassicAllocation=False (NotNeeded)").then_some(())
            })
            .await;
        let refused: Vec<_> = server.log().into_iter().filter(|call| call.user == USER && call.status == 403).collect();
        assert!(refused.is_empty(), "{refused:?}");
        plane.abort();
    }
}

//! The running controller, when things go wrong between it and the API server.

use std::time::Duration;

use crate::rig::{install, objects, options, slice, slice_of};
use hostler_testing::{
    apiserver::{ApiFault, ApiServer, ApiServerRelease, FaultEffect, LoggedRequest},
    controller::RunningController,
};
use serde_json::json;

const UNREADABLE: &str = "hostler_controller_unreadable_objects{kind=\"resourceslices\"}";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_known_is_told_while_the_server_is_gone_and_what_changed_then_when_it_is_back() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    install(&server);
    for name in ["a", "b", "c"] {
        server.create(slice(name, name));
    }
    let controller = RunningController::start(&options(&server)).await;
    controller.until_answers("/readyz", 200).await;
    server.stop_listening().await;
    controller
        .until("it says that it hears nothing", async |it| {
            let (code, said) = it.get("/readyz").await?;
            (code == 200 && said.contains("Synced=False (Silent): ") && said.contains("resourceslices: last heard of"))
                .then_some(())
        })
        .await;
    controller.until_figure(&objects("resourceslices", 3)).await;
    server.delete("resourceslices", "a");
    server.create(slice("d", "d"));
    server.create(slice("e", "e"));
    server.listen_again().await;
    controller.until_figure(&objects("resourceslices", 4)).await;
    controller
        .until("it hears again", async |it| it.get("/readyz").await?.1.contains("Synced=True").then_some(()))
        .await;
    controller.until_figure("hostler_controller_leads 1").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn a_server_that_is_gone_for_minutes_is_not_drummed_at_and_all_is_well_when_it_is_back() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    install(&server);
    server.create(slice("a", "a"));
    let controller = RunningController::start(&options(&server)).await;
    controller.until_figure("hostler_controller_leads 1").await;
    let lines = controller.log().len();
    server.stop_listening().await;
    for silent in [50, 100, 150, 200] {
        controller
            .until("it has heard nothing for so long", async |it| {
                let (_, figures) = it.get("/metrics").await?;
                let name = "hostler_controller_silent_seconds{kind=\"resourceslices\"} ";
                let seconds: u64 = figures.lines().find_map(|line| line.strip_prefix(name)?.parse().ok())?;
                (seconds >= silent).then_some(())
            })
            .await;
        assert_eq!(controller.get("/healthz").await.unwrap().0, 200);
    }
    controller.until_figure("hostler_controller_leads 0").await;
    let log = controller.log();
    assert!(log.len() < lines + 250, "{} lines in 200 s:\n{}", log.len() - lines, log.join("\n"));
    server.delete("resourceslices", "a");
    server.create(slice("b", "b"));
    server.create(slice("c", "c"));
    server.compact();
    server.listen_again().await;
    controller.until_figure(&objects("resourceslices", 2)).await;
    controller.until_figure("hostler_controller_leads 1").await;
    controller.until_figure("hostler_controller_condition{type=\"Synced\",status=\"True\"} 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_later_is_waited_for() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    server.create(slice("a", "a"));
    server.stop_listening().await;
    let controller = RunningController::start(&options(&server)).await;
    let said = controller.until_answers("/readyz", 503).await;
    assert!(said.starts_with("not ready\n") && said.contains("not listed yet: nodes"), "{said}");
    controller
        .until("it says why", async |it| it.get("/readyz").await?.1.contains("nodes: failed to").then_some(()))
        .await;
    assert_eq!(controller.get("/healthz").await.unwrap().0, 200);
    server.listen_again().await;
    controller.until_answers("/readyz", 200).await;
    controller.until_figure(&objects("resourceslices", 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_has_expired_begins_with_a_list_from_which_what_is_gone_is_missing() {
    // One release tells lists as watches, and the other page by page.
    for release in [ApiServerRelease::V1_36, ApiServerRelease::V1_33] {
        let server = ApiServer::of(release).await;
        for number in 0..20 {
            server.create(slice_of(release, &format!("s{number}")));
        }
        let controller = RunningController::start(&options(&server)).await;
        controller.until_figure(&objects("resourceslices", 20)).await;
        server.stop_listening().await;
        server.delete("resourceslices", "s7");
        server.compact();
        server.listen_again().await;
        controller.until_figure(&objects("resourceslices", 19)).await;
        server.delete("resourceslices", "s8");
        server.expire_watches();
        controller.until_figure(&objects("resourceslices", 18)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_a_busy_server_has_not_begun_after_ten_seconds_is_waited_for() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    server.create(slice("a", "a"));
    server.fail(ApiFault::new("watch", "resourceslices", 1, FaultEffect::Latency(Duration::from_secs(12))));
    let controller = RunningController::start(&options(&server)).await;
    controller.until_answers("/readyz", 200).await;
    let asked = |call: &&LoggedRequest| call.resource == "resourceslices";
    assert_eq!(server.log().iter().filter(asked).count(), 1, "it was not asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_list_is_none() {
    for (release, verb) in [(ApiServerRelease::V1_36, "watch"), (ApiServerRelease::V1_33, "list")] {
        let server = ApiServer::of(release).await;
        for number in 0..600 {
            server.create(slice_of(release, &format!("s{number}")));
        }
        server.fail(ApiFault::new(verb, "resourceslices", 2, FaultEffect::CutBody));
        server.fail(ApiFault::new(verb, "resourceslices", 1, FaultEffect::Status(429, Some(1))));
        server.fail(ApiFault::new(verb, "resourceslices", 1, FaultEffect::Reset));
        let controller = RunningController::start(&options(&server)).await;
        controller.until_answers("/readyz", 200).await;
        assert!(controller.get("/metrics").await.unwrap().1.contains(&objects("resourceslices", 600)));
        assert_eq!(server.faults_left(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_object_costs_itself_alone_and_is_named() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    for name in ["good", "long", "odd", "huge", "bare"] {
        server.create(slice(name, name));
    }
    // Past all rules, as if another release had stored it, or a server had none.
    server
        .edit("resourceslices", "long", |slice| slice["metadata"]["annotations"] = json!({ "x": "y".repeat(1 << 20) }));
    server.edit("resourceslices", "odd", |slice| slice["spec"]["devices"] = json!("many"));
    server.edit("resourceslices", "huge", |slice| {
        slice["spec"]["devices"][0]["capacity"] =
            json!({ "memory": { "value": "9999999999999999999999999999999999Ei" } });
    });
    server.edit("resourceslices", "bare", |slice| slice["spec"] = json!([]));
    let controller = RunningController::start(&options(&server)).await;
    controller.until_answers("/readyz", 200).await;
    controller.until_figure(&objects("resourceslices", 5)).await;
    controller
        .until("it names one", async |it| {
            let (_, said) = it.get("/readyz").await?;
            said.contains("ObjectsReadable=False (Unreadable): ").then_some(())
        })
        .await;
    let told =
        |name: &str| controller.log().iter().filter(|line| line.contains(&format!("ResourceSlice {name}"))).count();
    assert!(told("odd") >= 1 && told("bare") >= 1, "{}", controller.log().join("\n"));
    assert_eq!((told("good"), told("long")), (0, 0));
    // The other objects go on being watched; what is mended counts again.
    server.create(slice("new", "new"));
    controller.until_figure(&objects("resourceslices", 6)).await;
    for name in ["odd", "huge", "bare"] {
        server.edit("resourceslices", name, |object| object["spec"] = slice(name, name)["spec"].clone());
    }
    controller.until_figure(&format!("{UNREADABLE} 0")).await;
}

//! Watches against an API server of the tests: selectors, servers that stream nothing, outages, refusals, objects that make no sense.

use std::time::Duration;

use hostler_cluster::{Collection, ListFreshness};
use hostler_testing::apiserver::{ApiServer, ApiServerRelease};
use serde_json::json;
use tokio::time::timeout;

use super::*;

/// Everything here happens within a pause of the watch.
const PATIENCE: Duration = Duration::from_secs(20);
const USER: &str = "watcher";

fn watch(server: &ApiServer, freshness: ListFreshness) -> ObjectWatch {
    let client = ApiClient::new(Some(&*server.kubeconfig(USER))).unwrap();
    let pods = Collection::core("Pod", "pods");
    let scope = FollowScope::selected(pods, "spec.nodeName=here", freshness, "the pods of this node");
    let pauses = RetryPauses::new(Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(50));
    ObjectWatch::new(client, scope).with_pauses(pauses)
}

fn add(server: &ApiServer, name: &str, node: &str) {
    server.create(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }));
}

async fn next(watch: &mut ObjectWatch) -> Result<FollowEvent, ApiFailure> {
    timeout(PATIENCE, watch.next()).await.unwrap()
}

/// Names of the next complete list; failures before it.
async fn list(watch: &mut ObjectWatch) -> (Vec<String>, Vec<ApiFailure>) {
    let (mut names, mut failures) = (Vec::new(), Vec::new());
    loop {
        match next(watch).await {
            Ok(FollowEvent::ListStarted) => names.clear(),
            Ok(FollowEvent::Listed(object)) => names.push(object.name().to_owned()),
            Ok(FollowEvent::ListEnded) => return (names, failures),
            Ok(_) => {}
            Err(failure) => failures.push(failure),
        }
    }
}

/// The next change.
async fn changed(watch: &mut ObjectWatch) -> String {
    loop {
        match next(watch).await.unwrap() {
            FollowEvent::Applied(object) => return format!("applied {}", object.name()),
            FollowEvent::Deleted(object) => return format!("deleted {}", object.name()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn selected_objects_come_however_the_server_lists_them() {
    for (release, freshness, lists) in [
        (ApiServerRelease::V1_36, ListFreshness::Cached, 0),
        (ApiServerRelease::V1_33, ListFreshness::Cached, 1),
        (ApiServerRelease::V1_36, ListFreshness::Newest, 1),
    ] {
        let server = ApiServer::of(release).await;
        add(&server, "a", "here");
        add(&server, "b", "there");
        let mut watch = watch(&server, freshness);
        let (names, failures) = list(&mut watch).await;
        assert_eq!((names, failures.len()), (vec!["a".to_owned()], 0), "{release:?} {freshness:?}");
        add(&server, "c", "there");
        add(&server, "d", "here");
        assert_eq!(changed(&mut watch).await, "applied d");
        server.delete("pods", "a");
        assert_eq!(changed(&mut watch).await, "deleted a");
        let listed = server.log().into_iter().filter(|call| call.resource == "pods" && call.verb == "list").count();
        assert_eq!(listed, lists, "{release:?} {freshness:?}");
    }
}

#[tokio::test]
async fn a_reader_that_looks_away_all_the_time_loses_nothing() {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    add(&server, "a", "here");
    let mut watch = watch(&server, ListFreshness::Newest);
    let mut names = Vec::new();
    let listing = async {
        loop {
            match timeout(Duration::from_micros(50), watch.next()).await {
                Ok(Ok(FollowEvent::Listed(object))) => names.push(object.name().to_owned()),
                Ok(Ok(FollowEvent::ListEnded)) => return,
                _ => {}
            }
        }
    };
    timeout(PATIENCE, listing).await.unwrap();
    assert_eq!(names, ["a"]);
    let lists = server.log().into_iter().filter(|call| call.verb == "list").count();
    assert_eq!(lists, 1, "one request serves all the looks");
}

#[tokio::test]
async fn after_a_failure_a_list_comes_again() {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    add(&server, "a", "here");
    let mut watch = watch(&server, ListFreshness::Cached);
    assert_eq!(list(&mut watch).await.0, ["a"]);
    server.stop_listening().await;
    assert!(loop {
        if let Err(failure) = next(&mut watch).await {
            break failure.is_outage();
        }
    });
    server.delete("pods", "a");
    add(&server, "b", "here");
    server.listen_again().await;
    assert_eq!(list(&mut watch).await.0, ["b"]);
}

#[tokio::test]
async fn a_refusal_names_the_objects_and_ends_when_the_role_is_granted() {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    server.allow(USER, Vec::new());
    let mut watch = watch(&server, ListFreshness::Newest);
    let failure = next(&mut watch).await.unwrap_err();
    assert_eq!(failure.code(), Some(403));
    assert!(failure.to_string().contains("list the pods of this node"), "{failure}");
    assert!(!watch.pauses().is_refused_for_long());
}

//! Who may ask what.

use std::time::Duration;

use hostler_testing::{
    apiserver::{ApiFault, FaultEffect},
    visitor::Visitor,
};
use hyper::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{CLAIMS, FABRIC, NODES, RESERVATIONS, SLICES, Scene, claim};

#[tokio::test]
async fn each_right_opens_its_own_answers() {
    let scene = Scene::start().await;
    let asked = claim("c", "none.example.com", 1).to_string();
    for (name, rights, nodes, fits) in [
        ("nothing", &[][..], 403, 403),
        ("nodes", &[NODES][..], 200, 403),
        ("slices", &[SLICES][..], 403, 200),
        ("all", &[NODES, CLAIMS, SLICES, RESERVATIONS, FABRIC][..], 200, 200),
    ] {
        let visitor = scene.visitor(name, rights);
        for path in ["/v1/nodes", "/v1/availability?by=class", "/v1/availability?by=namespace"] {
            let answer = visitor.get(path).await;
            let expected = if path.ends_with("namespace") && name == "nodes" { 403 } else { nodes };
            assert_eq!(answer.code, expected, "{name} {path}: {}", answer.body);
        }
        assert_eq!(visitor.post("/v1/fits", asked.clone()).await.code, fits, "{name}");
        let expected = json!({
            "user": name, "nodes": rights.contains(&NODES), "holders": rights.contains(&CLAIMS),
            "fits": rights.contains(&SLICES), "reservations": rights.contains(&RESERVATIONS),
            "fabric": rights.contains(&FABRIC),
        });
        assert_eq!(visitor.get("/v1/access").await.json(), expected);
    }
}

#[tokio::test]
async fn who_lacks_a_right_is_told_which() {
    let scene = Scene::start().await;
    let answer = scene.visitor("poor", &[]).get("/v1/nodes").await;
    let expected = json!({ "error": {
        "code": "forbidden",
        "message": "poor may not list nodehardware.hostler.dev; a role with this verb has to be bound to it",
    } });
    assert_eq!((answer.code, answer.json()), (403, expected));
}

#[tokio::test]
async fn without_a_good_token_nothing_of_the_cluster_is_told() {
    let scene = Scene::start().await;
    let address = scene.controller.address();
    for visitor in [scene.stranger(), Visitor::with_token(address, "made-up"), Visitor::with_token(address, "a b")] {
        for path in ["/v1/access", "/v1/nodes", "/v1/nodes/n1", "/v1/changes", "/v1/availability?by=node"] {
            let answer = visitor.get(path).await;
            assert_eq!((answer.code, answer.header("www-authenticate")), (401, "Bearer"), "{path}");
            assert_eq!(answer.json()["error"]["code"], "unauthorized");
        }
        for path in ["/v1/fits", "/v1/plans"] {
            assert_eq!(visitor.post(path, "kind: Pod").await.code, 401, "{path}");
        }
    }
}

#[tokio::test]
async fn a_token_that_is_taken_away_is_good_for_ten_seconds_at_most() {
    let scene = Scene::start().await;
    let visitor = scene.viewer();
    assert_eq!(visitor.get("/v1/access").await.code, 200);
    scene.server.forget_user("viewer");
    let taken_away = Instant::now();
    while visitor.get("/v1/access").await.code == 200 {
        assert!(taken_away.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_token_is_not_asked_about_with_every_question() {
    let scene = Scene::start().await;
    let visitor = scene.viewer();
    for _ in 0..20 {
        assert_eq!(visitor.get("/v1/access").await.code, 200);
    }
    let reviews = scene.server.log().iter().filter(|asked| asked.resource == "tokenreviews").count();
    // One, or two where the machine is so slow that ten seconds pass.
    assert!((1..=2).contains(&reviews), "{reviews}");
}

#[tokio::test]
async fn whom_the_api_server_cannot_review_is_told_to_come_again() {
    let scene = Scene::start().await;
    scene.server.fail(ApiFault::new("create", "tokenreviews", 1, FaultEffect::Status(500, None)));
    let answer = scene.viewer().get("/v1/access").await;
    assert_eq!((answer.code, answer.header("retry-after")), (503, "1"));
    assert_eq!(scene.viewer().get("/v1/access").await.code, 200);
}

#[tokio::test]
async fn methods_that_mean_nothing_are_refused_with_those_that_do() {
    let scene = Scene::start().await;
    let viewer = scene.viewer();
    for (path, allowed) in
        [("/v1/nodes", "GET,HEAD"), ("/v1/fits", "POST"), ("/", "GET,HEAD"), ("/main.js", "GET,HEAD")]
    {
        let answer = viewer.send(Method::DELETE, path, &[], "").await;
        assert_eq!((answer.code, answer.header("allow")), (405, allowed), "{path}");
    }
    assert_eq!(viewer.get("/v1/fits").await.code, 405);
    assert_eq!(viewer.get("/v1/nothing").await.code, 404);
}

//! The hardest question of one visitor, and how long another one waits for its turn.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{CLAIMS, SLICES, Scene, claim, class, node, slice};

const GPU: &str = "gpu.example.com";

/// 32 devices in eight slots. Each node has slots of its own, and so is a question of its own.
fn slotted(node: &str) -> Value {
    let mut slice = slice(node, GPU, 32);
    for (at, device) in slice["spec"]["devices"].as_array_mut().unwrap().iter_mut().enumerate() {
        device["attributes"] = json!({"gpu.example.com/slot": {"string": format!("{node}-{}", at % 8)}});
    }
    slice
}

/// Nine devices in eight slots: a search that goes on until it knows that there are none takes years.
fn pigeonhole() -> Value {
    let mut claim = claim("pigeonhole", GPU, 1);
    let exactly = claim["spec"]["devices"]["requests"][0]["exactly"].clone();
    let requests: Vec<Value> = (0..9).map(|at| json!({"name": format!("r{at}"), "exactly": exactly.clone()})).collect();
    claim["spec"]["devices"]["requests"] = json!(requests);
    claim["spec"]["devices"]["constraints"] = json!([{"distinctAttribute": "gpu.example.com/slot"}]);
    claim
}

#[tokio::test]
async fn the_hardest_questions_of_one_visitor_are_cut_short_and_let_another_one_have_its_turn() {
    let scene = Scene::with(|server| {
        server.create(class(GPU));
        for at in 0..60 {
            server.create(node(&format!("n{at}")));
            server.create(slotted(&format!("n{at}")));
        }
    })
    .await;
    let hard = pigeonhole().to_string();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ml"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "r", "resourceClaimName": "pigeonhole"}],
        },
    });
    let plan = json!({"files": [{"name": "hard", "text": format!("{hard}\n---\n{pod}")}]}).to_string();
    let (greedy, other) = (scene.visitor("greedy", &[CLAIMS, SLICES]), scene.visitor("other", &[CLAIMS, SLICES]));
    let began = Instant::now();
    let answers = async { tokio::join!(greedy.post("/v1/plans", plan), greedy.post("/v1/fits", hard)) };
    let waits = async {
        // Its question comes when both threads are busy.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let asked = Instant::now();
        let answer = other.post("/v1/fits", claim("easy", GPU, 1).to_string()).await;
        (asked.elapsed(), answer)
    };
    let ((plans, fits), (waited, easy)) = tokio::join!(answers, waits);
    assert_eq!((easy.code, &easy.json()["podSets"][0]["verdict"]), (200, &json!("fits")), "{}", easy.body);
    // A box has two seconds; the rest is for a machine that does other things as well.
    assert!(waited < Duration::from_secs(8), "{waited:?}");
    assert!(began.elapsed() < Duration::from_secs(16), "{:?}", began.elapsed());
    for answer in [plans, fits] {
        let set = answer.json()["podSets"][0].clone();
        assert_eq!((answer.code, &set["cutShort"]), (200, &json!("begun")), "{}", answer.body);
        assert_eq!(set["verdict"], "undecided");
        assert!(answer.body.contains("takes more work than there is for one asker"), "{}", answer.body);
    }
}

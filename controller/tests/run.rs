//! The running controller, against an API server.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "these tests run the binary")]

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease},
    controller::{ControllerOptions, RunningController},
};
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:hostler:hostler-controller";

fn options(server: &ApiServer) -> ControllerOptions {
    ControllerOptions {
        binary: env!("CARGO_BIN_EXE_hostler-controller").into(),
        kubeconfig: server.kubeconfig(USER),
        config: String::new(),
    }
}

fn slice(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": name },
        "spec": {
            "driver": "hostler.dev", "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "cpu-0" }],
        },
    })
}

#[tokio::test]
async fn it_is_ready_when_everything_is_listed_and_sees_what_changes_then() {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    server.create(slice("n1-a", "n1"));
    let controller = RunningController::start(&options(&server)).await;
    controller.until_answers("/readyz", 200).await;
    controller.until_figure("hostler_controller_objects{kind=\"resourceslices\"} 1").await;
    server.create(slice("n2-a", "n2"));
    controller.until_figure("hostler_controller_objects{kind=\"resourceslices\"} 2").await;
    server.delete("resourceslices", "n1-a");
    controller.until_figure("hostler_controller_objects{kind=\"resourceslices\"} 1").await;
    assert_eq!(controller.get("/healthz").await.unwrap().0, 200);
    assert_eq!(controller.stop().await, Some(0));
}

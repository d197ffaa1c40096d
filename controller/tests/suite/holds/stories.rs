//! The stories of docs/reservations.md, told by the examples that are shipped: each file does what its comment says.

use hostler_testing::apiserver::ApiServerView;
use serde_json::{Value, json};

use super::{cluster::HoldCluster, value};
use crate::rig::root;

impl HoldCluster {
    /// Applies a file of `deploy/examples`; the class that it asks for selects the cards here.
    fn apply_example(&self, file: &str) {
        self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": "fpga.hostler.dev" },
            "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"hostler.dev\"" } }] },
        }));
        self.server.create_yaml(&std::fs::read_to_string(root().join("deploy/examples").join(file)).unwrap());
    }

    /// A pod with these labels, and a claim of a template.
    fn labelled_pod(&self, name: &str, label: (&str, &str), template: &str) {
        let mut labels = json!({});
        labels[label.0] = json!(label.1);
        self.server.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
            "spec": {
                "containers": [{ "name": "c", "image": "i", "resources": { "claims": [{ "name": "card" }] } }],
                "resourceClaims": [{ "name": "card", "resourceClaimTemplateName": template }],
            },
        }));
    }

    /// Waits until so many devices of a Reservation are in this state.
    async fn until_devices(&self, name: &str, state: &str, count: usize) -> Value {
        let look = |view: &ApiServerView<'_>| {
            let object = view.get("reservations", name)?;
            let devices = object["status"]["devices"].as_array()?;
            (devices.iter().filter(|device| device["state"] == state).count() == count).then(|| object.clone())
        };
        self.server.until(&format!("{count} devices of {name} are {state}"), look).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_workload_gives_back_when_it_shrinks_is_kept_for_when_it_grows() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 2);
    let _controller = cluster.controller().await;
    cluster.apply_example("horizontal-scaling.yaml");
    let kept = cluster.until_phase("fpgas-for-encoders", "Available").await;
    assert_eq!(kept["status"]["held"], 2);
    cluster.template("any", None);
    cluster.template("kept", Some(value(&kept)));
    for pod in ["encoder-0", "encoder-1"] {
        cluster.labelled_pod(pod, ("app", "encoder"), "kept");
        assert_eq!(cluster.until_bound(pod).await, "n1");
    }
    cluster.until_devices("fpgas-for-encoders", "HandedOver", 2).await;
    // It shrinks, and somebody else would like to have what it gave back.
    cluster.server.delete("pods", "default/encoder-1");
    cluster.until_devices("fpgas-for-encoders", "Held", 1).await;
    cluster.pod("stranger", "any");
    cluster.until_refused("stranger").await;
    cluster.labelled_pod("encoder-2", ("app", "encoder"), "kept");
    assert_eq!(cluster.until_bound("encoder-2").await, "n1");
    cluster.until_devices("fpgas-for-encoders", "HandedOver", 2).await;
    assert!(cluster.server.get("pods", "default/stranger").unwrap()["spec"]["nodeName"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_has_is_kept_for_the_one_that_comes_after_it() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    cluster.template("any", None);
    cluster.labelled_pod("nightly-0", ("job", "nightly"), "any");
    assert_eq!(cluster.until_bound("nightly-0").await, "n1");
    let _controller = cluster.controller().await;
    cluster.apply_example("pre-allocation.yaml");
    let waiting = cluster.until_phase("fpga-after-nightly", "Waiting").await;
    let conditions = waiting["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|it| it["type"] == "Ready").unwrap();
    assert!(ready["message"].as_str().unwrap().starts_with("0 of 1 devices are released"), "{ready}");
    let pod = cluster.server.get("pods", "default/nightly-0").unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "it is left alone: {pod}");
    // Once it is closed nobody else gets it, however long he has waited for it.
    let is_closed = |view: &ApiServerView<'_>| {
        let slices = view.list("resourceslices");
        slices.iter().any(|it| it["spec"]["devices"][0]["taints"][0]["key"] == "hostler.dev/held").then_some(())
    };
    cluster.server.until("it is closed", is_closed).await;
    cluster.pod("stranger", "any");
    cluster.until_refused("stranger").await;
    cluster.server.delete("pods", "default/nightly-0");
    let kept = cluster.until_phase("fpga-after-nightly", "Available").await;
    cluster.template("kept", Some(value(&kept)));
    cluster.labelled_pod("nightly-1", ("job", "nightly"), "kept");
    assert_eq!(cluster.until_bound("nightly-1").await, "n1");
    cluster.until_phase("fpga-after-nightly", "Succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_for_a_job_ends_with_the_first_pod_or_with_its_time() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    let _controller = cluster.controller().await;
    cluster.apply_example("reservation.yaml");
    cluster.until_phase("fpga-for-nightly", "Available").await;
    assert_eq!(cluster.fences().len(), 1);
    // Two hours are over.
    cluster.server.edit("reservations", "fpga-for-nightly", |object| object["spec"]["ttl"] = json!("1s"));
    let failed = cluster.until_phase("fpga-for-nightly", "Failed").await;
    let conditions = failed["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|it| it["type"] == "Ready" && it["reason"] == "Expired"), "{failed}");
    cluster.until_no_fence().await;
}

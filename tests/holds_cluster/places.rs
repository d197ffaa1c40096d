//! Places on a real node: a card and the node's CPUs are kept against pods that wait for them, and go to the owner.

use serde_json::{Value, json};

use crate::{HoldingCluster, OURS, apply, deployed, eventually, exactly};

const HOLDERS: &str = "/api/v1/namespaces/hostler-places/pods";

impl HoldingCluster {
    /// Makes a pod that asks for so many CPUs, and for a card where a template of claims is named.
    fn pod_with_cpus(&self, name: &str, cpus: &str, template: Option<&str>) {
        let claims = template.map(|name| json!({"name": "card", "resourceClaimTemplateName": name}));
        self.node.create(
            &self.node.of("/api/v1", "pods"),
            &json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "resourceClaims": claims.into_iter().collect::<Vec<Value>>(),
                    "containers": [{
                        "name": "c", "image": "docker.io/library/busybox:latest", "imagePullPolicy": "Never",
                        "command": ["sleep", "3600"], "resources": {"requests": {"cpu": cpus}},
                    }],
                },
            }),
        );
    }
}

#[test]
fn a_card_and_the_cpus_of_its_node_are_kept_and_go_to_the_owner() {
    let Some(cluster) = HoldingCluster::start_with("[reservations]\nplaces = true\n") else { return };
    for file in ["holds/places/namespace.yaml", "holds/places/priority.yaml", "holds/places/rbac.yaml"] {
        apply(&cluster.node, &deployed(file));
    }
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "1200m"}}}]);
    let template = json!({"metadata": {"namespace": cluster.node.namespace()}, "spec": {"containers": containers}});
    cluster.reserve_with("e2e-place", 1, "owner", &json!({"template": template}));
    let kept = cluster.until_phase("e2e-place", "Available");
    assert_eq!(kept["status"]["places"][0]["nodeName"], kept["status"]["devices"][0]["nodeName"]);
    let value = kept["status"]["tolerationValue"].as_str().unwrap().to_owned();
    cluster.template("kept", &exactly(&value)).unwrap();
    for stranger in 0..5 {
        cluster.pod_with_cpus(&format!("stranger-{stranger}"), "900m", None);
    }
    eventually("the scheduler's refusal", || {
        let events = cluster.node.events("Pod", "stranger-4");
        events.iter().any(|it| it.contains("Insufficient cpu")).then_some(())
    });
    cluster.pod_with_cpus("owner", "1200m", Some("kept"));
    let owner = cluster.node.of("/api/v1", "pods/owner");
    eventually("the owner to run", || {
        cluster.node.get(&owner).filter(|pod| pod["status"]["phase"] == "Running").map(drop)
    });
    let done = cluster.until_phase("e2e-place", "Succeeded");
    assert_eq!(done["status"]["currentOwners"][0]["name"], "owner");
    eventually("no place holder", || cluster.node.get(HOLDERS)?["items"].as_array()?.is_empty().then_some(()));
    for pod in ["owner", "stranger-0", "stranger-1", "stranger-2", "stranger-3", "stranger-4"] {
        cluster.node.delete(&cluster.node.of("/api/v1", &format!("pods/{pod}")), 0);
    }
    assert!(cluster.node.get(&format!("{OURS}/reservations/e2e-place")).is_some());
    cluster.release("e2e-place");
    cluster.stop();
}

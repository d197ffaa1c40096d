//! The controller's bundles in a real cluster.

use std::path::Path;

use hostler_testing::{provisioning::definition, real_node::eventually};
use serde_json::json;

use super::bundle::{Installation, restarts};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/hostler-controller/deployments/hostler-controller";
const PODS: &str = "/api/v1/namespaces/hostler-controller/pods";

/// Every bundle of the controller that can be applied.
const BUNDLES: [&str; 12] = [
    "deploy/controller",
    "deploy/examples/controller",
    "deploy/provisioning",
    "deploy/holds",
    "deploy/holds/annotations",
    "deploy/holds/claims",
    "deploy/holds/direct",
    "deploy/holds/evictions",
    "deploy/holds/gates",
    "deploy/holds/repair",
    "deploy/holds/rules",
    "deploy/holds/webhook",
];

const SUMS: &str = "/apis/hostler.dev/v1alpha1/clusterhardware/cluster";

impl Installation {
    /// Waits until the controllers report that they do all that bundles bring.
    fn until_all_is_switched_on(&self) {
        let wanted = ["Reservations", "ProvisioningRequests", "Webhook"];
        eventually(&format!("{wanted:?}"), || {
            let sums = self.node.get(SUMS)?;
            let conditions = sums["status"]["conditions"].as_array()?.clone();
            let is_so = |kind: &str| conditions.iter().any(|it| it["type"] == kind && it["status"] == "True");
            wanted.into_iter().all(is_so).then_some(())
        });
    }

    fn controllers(&self) -> Vec<String> {
        let pods = self.node.get(PODS).unwrap()["items"].as_array().unwrap().clone();
        let mut names: Vec<String> = pods.iter().map(|pod| pod["metadata"]["name"].to_string()).collect();
        names.sort();
        names
    }

    /// Waits until both controllers are ready, and no others are there.
    pub fn until_controllers_are_ready(&self) {
        eventually("ready controllers", || {
            let deployment = self.node.get(DEPLOYMENT)?;
            let pods = self.node.get(PODS)?["items"].as_array()?.clone();
            let crashed = pods.iter().find(|pod| restarts(pod) > 2);
            assert!(crashed.is_none(), "{}", self.told(crashed.unwrap()));
            let status = &deployment["status"];
            let is_done = status["observedGeneration"] == deployment["metadata"]["generation"]
                && ["updatedReplicas", "readyReplicas", "replicas"].iter().all(|field| status[field] == json!(2));
            (is_done && pods.len() == 2).then_some(())
        });
    }
}

#[test]
fn each_bundle_of_the_controller_alone_has_ready_pods_and_goes() {
    let Some(cluster) = Installation::find() else { return };
    cluster.others_kinds();
    for bundle in BUNDLES.map(Path::new) {
        cluster.apply(bundle);
        cluster.until_controllers_are_ready();
        cluster.delete(bundle);
        println!("{}: ready, and gone", bundle.display());
    }
    cluster.nothing_is_left();
}

/// A capability that a bundle adds is on without a restart, and one that another bundle has switched on stays.
#[test]
fn bundles_in_any_order_end_with_all_that_they_bring_switched_on() {
    let Some(cluster) = Installation::find() else { return };
    cluster.others_kinds();
    let kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let requests = definition(&["v1"]);
    if cluster.node.get(&format!("{kinds}/{}", requests["metadata"]["name"].as_str().unwrap())).is_none() {
        cluster.node.create(kinds, &requests);
    }
    for turned in [false, true] {
        let mut order: Vec<&Path> = BUNDLES.map(Path::new).into();
        if turned {
            order.reverse();
        }
        cluster.apply(order[0]);
        cluster.until_controllers_are_ready();
        let pods = cluster.controllers();
        order[1..].iter().for_each(|bundle| cluster.apply(bundle));
        cluster.until_all_is_switched_on();
        assert_eq!(cluster.controllers(), pods, "nothing of the pods was changed");
        println!("{} first: all is on", order[0].display());
        BUNDLES.iter().for_each(|bundle| cluster.delete(Path::new(bundle)));
    }
    cluster.nothing_is_left();
}

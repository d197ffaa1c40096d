//! ProvisioningRequests, as a batch system writes them, and the devices that are kept for them.

use hostler_testing::provisioning::{KueueWorkload, definition};
use serde_json::{Value, json};

use crate::{CARDS, HoldingCluster, OURS, apply, deployed, eventually};

const GROUP: &str = "/apis/autoscaling.x-k8s.io/v1";

impl HoldingCluster {
    /// Creates a request for so many pods with a card each, as Kueue does; returns its name. The workload that would
    /// own it does not exist.
    fn request(&self, name: &str, pods: usize, parameters: &[(&str, &str)]) -> String {
        let container = json!({"name": "c", "image": "i", "resources": {"claims": [{"name": "card"}]}});
        let claims = json!([{"name": "card", "resourceClaimTemplateName": "any"}]);
        let pod = json!({"restartPolicy": "Never", "containers": [container], "resourceClaims": claims});
        let class = "check-capacity.hostler.dev";
        let workload =
            KueueWorkload { name, class, parameters, annotations: &[("ValidUntilSeconds", "3600")], pod, pods };
        let mut request = workload.request(1);
        request["metadata"]["ownerReferences"].take();
        let request = self.node.create(&self.node.of(GROUP, "provisioningrequests"), &request);
        self.node.create(&self.node.of("/api/v1", "podtemplates"), &workload.template(&request));
        workload.request_name(1)
    }

    /// Returns the condition of a request, once it has this status.
    fn until_told(&self, request: &str, kind: &str, status: &str) -> Value {
        let path = self.node.of(GROUP, &format!("provisioningrequests/{request}"));
        eventually(&format!("{request} to be told {kind}={status}"), || {
            let object = self.node.get(&path)?;
            let conditions = object["status"]["conditions"].as_array()?;
            conditions.iter().find(|it| it["type"] == kind && it["status"] == status).cloned()
        })
    }

    fn reservations(&self) -> Vec<Value> {
        let all = self.node.get(&format!("{OURS}/reservations")).unwrap();
        all["items"].as_array().cloned().unwrap_or_default()
    }
}

#[test]
fn a_request_is_told_yes_when_its_devices_are_kept_and_they_go_with_it() {
    let Some(cluster) = HoldingCluster::start_with("provisioning = \"on\"\n") else { return };
    apply(&cluster.node, &[definition(&["v1"])]);
    apply(&cluster.node, &deployed("provisioning/rbac.yaml"));
    cluster.template("any", &json!([])).unwrap();
    let job = cluster.request("first", CARDS - 1, &[("bookingSeconds", "300")]);
    cluster.until_told(&job, "Accepted", "True");
    let yes = cluster.until_told(&job, "Provisioned", "True");
    assert_eq!(yes["reason"], "CapacityIsFound");
    let kept = cluster.reservations();
    let held: u64 = kept.iter().map(|it| it["status"]["held"].as_u64().unwrap()).sum();
    assert!(kept.iter().all(|it| it["status"]["phase"] == "Available"), "{kept:?}");
    assert_eq!((held, cluster.held()), (3, CARDS - 1));
    let path = cluster.node.of(GROUP, &format!("provisioningrequests/{job}"));
    let request = cluster.node.get(&path).unwrap();
    let details = &request["status"]["provisioningClassDetails"];
    assert_eq!(details["node"], cluster.node.name());
    // A request for more than is left is told why, and none of the kept devices is for it.
    let other = cluster.request("other", 2, &[]);
    let no = cluster.until_told(&other, "Provisioned", "False");
    assert_eq!(no["reason"], "CapacityIsNotFound");
    let last = cluster.request("final", 2, &[("noRetry", "true")]);
    cluster.until_told(&last, "Failed", "True");
    // A pod without a request gets the last card, and the next one none.
    cluster.pod("quick", "any");
    eventually("the container of who came without a request", || cluster.node.pid("quick"));
    cluster.pod("late", "any");
    eventually("the refusal", || {
        cluster.node.events("Pod", "late").iter().any(|it| it.contains("cannot allocate all claims")).then_some(())
    });
    cluster.node.delete(&path, 0);
    eventually("the request to be gone", || cluster.node.get(&path).is_none().then_some(()));
    eventually("a card for who waits", || cluster.node.pid("late"));
    for pod in ["quick", "late"] {
        cluster.node.delete(&cluster.node.of("/api/v1", &format!("pods/{pod}")), 1);
    }
    for request in [other, last] {
        cluster.node.delete(&cluster.node.of(GROUP, &format!("provisioningrequests/{request}")), 0);
    }
    cluster.stop();
}

/// All cards are kept, and one of them fails: no card is free in its place until it is healthy again.
#[test]
fn a_request_whose_card_fails_is_told_so_until_a_card_is_there_in_its_place() {
    let Some(cluster) = HoldingCluster::start_with("provisioning = \"on\"\n") else { return };
    apply(&cluster.node, &[definition(&["v1"])]);
    apply(&cluster.node, &deployed("provisioning/rbac.yaml"));
    cluster.template("any", &json!([])).unwrap();
    let job = cluster.request("failing", CARDS, &[("bookingSeconds", "300")]);
    cluster.until_told(&job, "Provisioned", "True");
    let well = |count: usize| format!("[[device]]\nname = \"card\"\ncount = {count}\n");
    let broken = "[[device]]\nname = \"card-3\"\nhealth = \"unhealthy\"\nreason = \"overheats\"\n";
    cluster.host.script(&format!("{}{broken}", well(CARDS - 1)));
    let revoked = cluster.until_told(&job, "CapacityRevoked", "True");
    assert_eq!(revoked["reason"], "CapacityLost");
    assert!(revoked["message"].as_str().unwrap().contains("card-3"), "{revoked}");
    let is_told = || cluster.node.events("ProvisioningRequest", &job).iter().any(|it| it.contains("card-3"));
    eventually("the Event", || is_told().then_some(()));
    cluster.host.script(&well(CARDS));
    let replaced = cluster.until_told(&job, "CapacityRevoked", "False");
    assert_eq!(replaced["reason"], "CapacityReplaced");
    eventually("all cards to be kept", || (cluster.held() == CARDS).then_some(()));
    cluster.node.delete(&cluster.node.of(GROUP, &format!("provisioningrequests/{job}")), 0);
    eventually("no fence", || (cluster.held() == 0).then_some(()));
    cluster.stop();
}

//! Claims that pods name, gated pods, and parts of devices.

use serde_json::{Value, json};

use crate::{CARDS, HoldingCluster, OURS, RESOURCE, apply, deployed, eventually};

const PODS: &str = "/api/v1";

impl HoldingCluster {
    fn end_pod(&self, pod: &str) {
        let path = self.node.of(PODS, &format!("pods/{pod}"));
        self.node.delete(&path, 1);
        eventually("the pod to be gone", || self.node.get(&path).is_none().then_some(()));
    }

    fn claim(&self, name: &str) -> Option<Value> {
        self.node.get(&self.node.of(RESOURCE, &format!("resourceclaims/{name}")))
    }

    fn reservation(&self, name: &str) -> Option<Value> {
        self.node.get(&format!("{OURS}/reservations/{name}"))
    }

    /// Returns the state of the only device of a Reservation.
    fn state(&self, name: &str) -> Option<String> {
        self.reservation(name)?["status"]["devices"][0]["state"].as_str().map(str::to_owned)
    }

    /// Writes a card into the status of a claim that exists, as a client other than a scheduler would.
    fn give(&self, claim: &str, (pool, device): (&str, &str), more: &Value) {
        let path = self.node.of(RESOURCE, &format!("resourceclaims/{claim}"));
        self.node.change(&path, "", |claim| {
            claim["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
        });
        let result = json!({"request": "card", "driver": "hostler.dev", "pool": pool, "device": device});
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.node.name()]}]});
        let mut allocation = json!({"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}});
        more.as_object().unwrap().iter().for_each(|(field, value)| allocation[field] = value.clone());
        self.node.change(&path, "/status", |claim| claim["status"] = json!({"allocation": allocation}));
    }
}

fn card_claim(name: &str) -> Value {
    let request = json!({"name": "card", "exactly": {"deviceClassName": "kept-card"}});
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    })
}

#[test]
fn a_claim_that_pods_name_keeps_its_card_from_one_pod_to_the_next() {
    let config = "[reservations]\nreserve_image = \"docker.io/local/pause:1\"\n";
    let Some(cluster) = HoldingCluster::start_with(config) else { return };
    apply(&cluster.node, &deployed("holds/claims/rbac.yaml"));
    cluster.template("any", &json!([])).unwrap();
    let named = json!([{"name": "card", "resourceClaimTemplateName": "any"}]);
    let template = json!({"metadata": {"namespace": cluster.node.namespace()}, "spec": {"resourceClaims": named}});
    let owners = json!([{"object": {"namespace": cluster.node.namespace()}}]);
    let more = json!({
        "mode": "SharedClaim", "allocateOnce": false, "deviceClaims": [], "template": template, "owners": owners,
    });
    cluster.reserve_with("e2e-shared", 0, "", &more);
    let kept = cluster.until_phase("e2e-shared", "Available");
    let name = kept["status"]["claims"][0]["resourceClaimName"].as_str().unwrap().to_owned();
    let made = cluster.claim(&name).unwrap();
    let allocation = made["status"]["allocation"].clone();
    let consumers = made["status"]["reservedFor"].as_array().unwrap();
    assert!(consumers.iter().any(|it| it["resource"] == "reservations" && it["name"] == "e2e-shared"), "{consumers:?}");
    eventually("no pod that only asks", || {
        let pods = cluster.node.get(&cluster.node.of(PODS, "pods"))?;
        pods["items"].as_array()?.is_empty().then_some(())
    });
    // The other claims take all other cards, and never this one.
    for at in 1..CARDS {
        cluster.pod(&format!("other-{at}"), "any");
    }
    for at in 1..CARDS {
        eventually("the container of another", || cluster.node.pid(&format!("other-{at}")));
    }
    for pod in ["first", "second"] {
        cluster.node.run_pod(pod, &[json!({"name": "card", "resourceClaimName": name})], &Value::Null);
        eventually("its container", || cluster.node.pid(pod));
        eventually("the card to be his", || (cluster.state("e2e-shared")? == "HandedOver").then_some(()));
        cluster.end_pod(pod);
        eventually("the card to be kept again", || (cluster.state("e2e-shared")? == "Held").then_some(()));
        let claim = cluster.claim(&name).unwrap();
        assert_eq!(
            (&claim["metadata"]["uid"], &claim["status"]["allocation"]),
            (&made["metadata"]["uid"], &allocation)
        );
    }
    cluster.release("e2e-shared");
    assert!(cluster.claim(&name).is_none());
    cluster.pod("last", "any");
    eventually("the card for everybody", || cluster.node.pid("last"));
    for pod in (1..CARDS).map(|at| format!("other-{at}")).chain(["last".to_owned()]) {
        cluster.end_pod(&pod);
    }
    cluster.stop();
}

#[test]
fn a_gated_pod_is_given_its_card_and_bound_and_what_has_no_time_never_is() {
    let Some(cluster) = HoldingCluster::start_with("[reservations]\ndirect = true\n") else { return };
    apply(&cluster.node, &deployed("holds/direct/rbac.yaml"));
    cluster.template("any", &json!([])).unwrap();
    cluster.node.run_pod_with(
        "gated",
        &[json!({"name": "card", "resourceClaimTemplateName": "any"})],
        &json!({"schedulingGates": [{"name": "hostler.dev/placement"}]}),
    );
    eventually("the container of the gated pod", || cluster.node.pid("gated"));
    let claims = cluster.node.get(&cluster.node.of(RESOURCE, "resourceclaims")).unwrap();
    let status = &claims["items"][0]["status"];
    assert!(status["allocation"]["allocationTimestamp"].is_string(), "{status}");
    assert_eq!(status["reservedFor"][0]["name"], "gated");
    let result = &status["allocation"]["devices"]["results"][0];
    let (pool, taken) = (result["pool"].as_str().unwrap(), result["device"].as_str().unwrap());
    eventually("nothing to be kept any more", || {
        let kept = cluster.node.get(&format!("{OURS}/reservations"))?;
        (kept["items"].as_array()?.is_empty() && cluster.held() == 0).then_some(())
    });
    // For an allocation that a client wrote without its time, the scheduler adds the time, which the server refuses,
    // for ever.
    let free: Vec<String> = (0..CARDS).map(|at| format!("card-{at}")).filter(|card| card != taken).collect();
    let times = [json!({}), json!({"allocationTimestamp": "2026-01-01T00:00:00Z"})];
    for (at, (pod, time)) in ["timeless", "timed"].into_iter().zip(&times).enumerate() {
        cluster.node.create(&cluster.node.of(RESOURCE, "resourceclaims"), &card_claim(pod));
        cluster.give(pod, (pool, &free[at]), time);
        cluster.node.run_pod(pod, &[json!({"name": "card", "resourceClaimName": pod})], &Value::Null);
    }
    eventually("the container of the pod whose claim has a time", || cluster.node.pid("timed"));
    eventually("why the other one is not bound", || {
        let said = cluster.node.events("Pod", "timeless");
        said.iter().any(|it| it.contains("allocation") && it.contains("immutable")).then_some(())
    });
    assert!(!cluster.is_bound("timeless"));
    for pod in ["gated", "timed", "timeless"] {
        cluster.end_pod(pod);
    }
    cluster.stop();
}

#[test]
fn a_part_of_a_device_is_kept_and_the_rest_is_for_everybody() {
    let script = "[[device]]\nname = \"card\"\nsharing = \"shared\"\n\
                  capacity.slots = { value = 8, min = 1, step = 1, default = 8 }\n";
    let Some(cluster) = HoldingCluster::start_as(script, 1, "") else { return };
    apply(&cluster.node, &deployed("holds/base/rbac.yaml"));
    let part = |slots: u32, tolerations: Value| {
        let capacity = json!({"requests": {"slots": slots.to_string()}});
        let exactly = json!({"deviceClassName": "kept-card", "capacity": capacity, "tolerations": tolerations});
        json!({"devices": {"requests": [{"name": "card", "exactly": exactly}]}})
    };
    let template = |name: &str, spec: Value| {
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
            "spec": {"spec": spec},
        });
        cluster.node.create(&cluster.node.of(RESOURCE, "resourceclaimtemplates"), &template);
    };
    let more = json!({"deviceClaims": [{"name": "c", "spec": part(5, json!([]))}]});
    cluster.reserve_with("e2e-part", 0, "owner", &more);
    let kept = cluster.until_phase("e2e-part", "Available");
    assert_eq!(kept["status"]["devices"][0]["consumedCapacity"], json!({"slots": "5"}));
    eventually("the rest to be open", || (cluster.held() == 0).then_some(()));
    template("three", part(3, json!([])));
    template("four", part(4, json!([])));
    cluster.pod("large", "four");
    eventually("the refusal of who wants too much", || {
        cluster.node.events("Pod", "large").iter().any(|it| it.contains("cannot allocate all claims")).then_some(())
    });
    cluster.pod("small", "three");
    eventually("the container of who takes the rest", || cluster.node.pid("small"));
    let value = kept["status"]["tolerationValue"].as_str().unwrap();
    template("kept", part(5, crate::exactly(value)));
    cluster.pod("owner", "kept");
    eventually("the owner's container", || cluster.node.pid("owner"));
    cluster.until_phase("e2e-part", "Succeeded");
    assert!(!cluster.is_bound("large"));
    for pod in ["large", "small", "owner"] {
        cluster.end_pod(pod);
    }
    cluster.release("e2e-part");
    eventually("no claim of ours", || {
        let claims = cluster.node.get(&format!("{RESOURCE}/namespaces/hostler-controller/resourceclaims"))?;
        claims["items"].as_array()?.is_empty().then_some(())
    });
    cluster.stop();
}

//! Evictions while other clients evict, delete and recreate the same pods and change their budgets, and a node that is
//! deleted under load.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use hostler_testing::real_node::RealNode;
use serde_json::{Value, json};

use crate::{CARDS, HoldingCluster, OURS, RESOURCE, apply, deployed, eventually, exactly};

const ROUNDS: usize = 12;

/// Evicts and deletes a pod, and changes its budget, until it is told to stop.
fn disturb(node: &RealNode, [pod, budget]: [&str; 2], round: usize, is_over: &AtomicBool) {
    let name = pod.rsplit('/').next().unwrap();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let mut turn = round;
    while !is_over.load(Ordering::Relaxed) {
        turn += 1;
        let least = json!({"spec": {"minAvailable": turn % 2}});
        // Changes that come too late are refused.
        let _ = node.ask("PATCH", budget, "application/merge-patch+json", &least);
        let _ = match turn % 6 {
            // The budget has just been opened: a client asks again and again for an eviction that a budget forbids.
            0 => node.ask("POST", &format!("{pod}/eviction"), "application/json", &eviction),
            3 if turn > round + 8 => node.ask("DELETE", pod, "application/json", &json!({"gracePeriodSeconds": 0})),
            _ => Ok(Value::Null),
        };
        // So that the kubelet and the controller have turns in between.
        thread::sleep(Duration::from_millis(30));
    }
    let _ = node.ask("PATCH", budget, "application/merge-patch+json", &json!({"spec": {"minAvailable": 0}}));
}

impl HoldingCluster {
    fn priority_class(&self) {
        let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
        if self.node.get(&format!("{classes}/e2e-urgent")).is_none() {
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "e2e-urgent"},
                "value": 1000,
            });
            self.node.create(classes, &class);
        }
    }

    /// Checks that no device is in two claims.
    fn nothing_is_given_twice(&self) {
        let claims = self.node.get(&format!("{RESOURCE}/resourceclaims")).unwrap();
        let results = |claim: &Value| claim["status"]["allocation"]["devices"]["results"].as_array().cloned();
        let devices: Vec<Value> = claims["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(results)
            .flatten()
            .map(|it| it["device"].clone())
            .collect();
        let mut names: Vec<String> = devices.iter().map(Value::to_string).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "{devices:?}");
    }
}

#[test]
fn evictions_that_others_race_with_end_with_all_cards_kept_and_none_given_twice() {
    let Some(cluster) = HoldingCluster::start() else { return };
    let node = &cluster.node;
    apply(node, &deployed("holds/evictions/rbac.yaml"));
    cluster.priority_class();
    cluster.template("any", &json!([])).unwrap();
    let budgets = node.of("/apis/policy/v1", "poddisruptionbudgets");
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "low"}}});
    let budget =
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec});
    node.create(&budgets, &budget);
    let budget = format!("{budgets}/b");
    for round in 0..ROUNDS {
        let (low, name) = (format!("low-{round}"), format!("e2e-race-{round}"));
        let path = node.of("/api/v1", &format!("pods/{low}"));
        cluster.pod(&low, "any");
        node.change(&path, "", |pod| pod["metadata"]["labels"] = json!({"app": "low"}));
        // Half of the rounds begin before the container runs.
        if round % 2 == 0 {
            eventually("its container", || node.pid(&low));
        } else {
            eventually("it to be bound", || cluster.is_bound(&low).then_some(()));
        }
        let template = json!({"spec": {"priorityClassName": "e2e-urgent"}});
        let more = json!({"preemptionPolicy": "PreemptLowerPriority", "template": template});
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| disturb(node, [&path, &budget], round, &is_over));
            cluster.reserve_with(&name, CARDS, "urgent", &more);
            let gone = || node.get(&path).is_none().then_some(());
            eventually("the pod to be gone", gone);
            is_over.store(true, Ordering::Relaxed);
        });
        // A pod of the same name comes at once, and wants a card.
        cluster.pod(&low, "any");
        let kept = cluster.until_phase(&name, "Available");
        assert_eq!(kept["status"]["held"], CARDS, "{kept}");
        // If the first pod went before all cards were closed, the second one got a card, and had to go as well.
        let is_bound = |pod: Value| pod["spec"]["nodeName"].is_string();
        assert!(!node.get(&path).is_some_and(is_bound), "a stranger got what is kept");
        cluster.nothing_is_given_twice();
        node.delete(&path, 0);
        cluster.release(&name);
    }
    eventually("no fence", || (cluster.held() == 0).then_some(()));
    cluster.stop();
}

/// The slices and NodeHardware of a node go with the Node object; the kubelet that starts again makes another Node of
/// the same name.
#[test]
fn a_node_that_is_deleted_under_load_and_made_anew_has_what_is_kept_on_it_again() {
    let Some(cluster) = HoldingCluster::start() else { return };
    let node = &cluster.node;
    cluster.reserve("e2e-anew", 2, "owner");
    let kept = cluster.until_phase("e2e-anew", "Available");
    let value = kept["status"]["tolerationValue"].as_str().unwrap().to_owned();
    cluster.template("any", &json!([])).unwrap();
    cluster.template("kept", &exactly(&value)).unwrap();
    cluster.pod("before", "any");
    eventually("its container", || node.pid("before"));
    let path = format!("/api/v1/nodes/{}", node.name());
    let uid = node.get(&path).unwrap()["metadata"]["uid"].clone();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Strangers come and go all the time, and want every card that is open.
        scope.spawn(|| {
            let pods = node.of("/api/v1", "pods");
            let mut turn = 0;
            while !is_over.load(Ordering::Relaxed) {
                turn += 1;
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("stranger-{turn}")},
                    "spec": {
                        "tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
                        "resourceClaims": [{"name": "card", "resourceClaimTemplateName": "any"}],
                        "containers": [{
                            "name": "c", "image": "docker.io/library/busybox:latest", "imagePullPolicy": "Never",
                            "command": ["sleep", "5"], "resources": {"claims": [{"name": "card"}]},
                        }],
                    },
                });
                let _ = node.ask("POST", &pods, "application/json", &pod);
                let old = format!("{pods}/stranger-{}", turn - 3);
                let _ = node.ask("DELETE", &old, "application/json", &json!({"gracePeriodSeconds": 0}));
                thread::sleep(Duration::from_millis(200));
            }
        });
        node.delete(&path, 0);
        eventually("the slices to go with the node", || (cluster.fences()?.is_empty()).then_some(()));
        node.restart_kubelet();
        eventually("another node of the name", || node.get(&path).filter(|it| it["metadata"]["uid"] != uid).map(drop));
        node.renew_token();
        eventually("the cards", || (cluster.fences()?.len() == CARDS).then_some(()));
        eventually("two to be kept again", || (cluster.held() == 2).then_some(()));
        let kept = cluster.until_phase("e2e-anew", "Available");
        assert_eq!(kept["status"]["tolerationValue"], value);
        cluster.nothing_is_given_twice();
        is_over.store(true, Ordering::Relaxed);
    });
    cluster.pod("owner", "kept");
    eventually("the owner's container", || node.pid("owner"));
    cluster.until_phase("e2e-anew", "Succeeded");
    cluster.nothing_is_given_twice();
    // The garbage collector may delete the old Node's object at any time, and the daemon makes another.
    eventually("a NodeHardware of the node of today", || {
        let hardware = node.get(&format!("{OURS}/nodehardware/{}", node.name()))?;
        (hardware["metadata"]["ownerReferences"][0]["uid"] != uid).then_some(())
    });
    cluster.release("e2e-anew");
    cluster.stop();
}

//! The running controller in clusters of 1.26, 1.30 and 1.31, where it allocates claims: each test runs the real binary against
//! an API server, a scheduler and a controller of claims that do what those of the release do.

mod cluster;
mod upgrade;

use hostler_testing::{
    apiserver::{ApiFault, ApiServerRelease, ApiServerView, FaultEffect, LoggedRequest},
    controller::RunningController,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::cluster::{ClassicCluster, DRIVER, FINALIZER, finalizers, rules};
use crate::rig::{self, USER};

const RELEASES: [ApiServerRelease; 3] = [ApiServerRelease::V1_26, ApiServerRelease::V1_30, ApiServerRelease::V1_31];

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_its_node_and_its_device_and_what_it_had_is_free_when_it_is_gone() {
    for release in RELEASES {
        let cluster = ClassicCluster::start(release).await;
        cluster.node("n1", 0);
        cluster.node("n2", 1);
        let controller = cluster.controller().await;
        cluster.claim("c", 1);
        cluster.pod("p", &["c"]);
        assert_eq!(cluster.until_bound("p").await, "n2", "{release:?}");
        let claim = cluster.server.get("resourceclaims", "c").unwrap();
        assert_eq!(finalizers(&claim), [FINALIZER]);
        let by = if release == ApiServerRelease::V1_31 {
            &claim["status"]["allocation"]["controller"]
        } else {
            &claim["status"]["driverName"]
        };
        assert_eq!(by, DRIVER);
        assert_eq!(
            cluster.given(),
            [("n2/cpu/card-0".to_owned(), claim["metadata"]["uid"].as_str().unwrap().to_owned())].into()
        );
        controller.until_figure("hostler_controller_classic_claims{state=\"allocated\"} 1").await;
        cluster.server.delete("pods", "p");
        cluster.let_go("c");
        cluster.until_free("c").await;
        controller.until_figure("hostler_controller_classic_claims{state=\"allocated\"} 0").await;
        cluster.check_rest();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_says_why_and_gets_its_device_as_soon_as_there_is_one() {
    for release in RELEASES {
        let cluster = ClassicCluster::start(release).await;
        cluster.node("n1", 1);
        cluster.node("n2", 1);
        let controller = cluster.controller().await;
        cluster.claim("c", 2);
        cluster.pod("p", &["c"]);
        let words = cluster.until_told("c", "WaitingForDevices").await;
        assert!(words.starts_with("no node will do, not n1"), "{words}");
        controller.until_figure("hostler_controller_classic_negotiations{waits_for=\"devices\"} 1").await;
        cluster.cards("n2", 2);
        assert_eq!(cluster.until_bound("p").await, "n2");
        controller.until_figure("hostler_controller_classic_negotiations{waits_for=\"devices\"} 0").await;
        cluster.check_rest();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_share_a_claim_and_it_goes_with_the_last_one() {
    for release in RELEASES {
        let cluster = ClassicCluster::start(release).await;
        cluster.node("n1", 1);
        let _controller = cluster.controller().await;
        cluster.claim("c", 1);
        cluster.pod("p1", &["c"]);
        cluster.pod("p2", &["c"]);
        for pod in ["p1", "p2"] {
            assert_eq!(cluster.until_bound(pod).await, "n1");
        }
        assert_eq!(cluster.given().len(), 1);
        cluster.server.delete("pods", "p1");
        let has_one = |view: &ApiServerView<'_>| {
            let claim = view.get("resourceclaims", "c")?;
            (claim["status"]["reservedFor"].as_array()?.len() == 1 && claim["status"]["allocation"].is_object())
                .then_some(())
        };
        cluster.server.until("one pod is left", has_one).await;
        cluster.server.delete("pods", "p2");
        cluster.let_go("c");
        cluster.until_free("c").await;
        cluster.check_rest();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_on_the_network_is_used_from_one_node_after_the_other_and_counts_as_no_node() {
    for release in RELEASES {
        let cluster = ClassicCluster::start(release).await;
        for node in ["n1", "n2", "n3"] {
            cluster.node(node, 0);
        }
        cluster.switch("switch", &["n1", "n2"]);
        let controller = cluster.controller().await;
        controller.until_figure("hostler_controller_reporting_nodes{state=\"reporting\"} 3").await;
        let mut used = Vec::new();
        for (claim, pod) in [("c", "p"), ("d", "q")] {
            cluster.claim(claim, 1);
            cluster.pod(pod, &[claim]);
            used.push(cluster.until_bound(pod).await);
            let given: Vec<String> = cluster.given().into_keys().collect();
            assert_eq!(given, ["switch/cpu/card-0"]);
            cluster.server.delete("pods", pod);
            cluster.let_go(claim);
            cluster.until_free(claim).await;
            cluster.check_rest();
        }
        assert!(used.iter().all(|node| ["n1", "n2"].contains(&&**node)), "{used:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immediate_claim_is_allocated_without_a_pod_until_1_30() {
    for release in [ApiServerRelease::V1_26, ApiServerRelease::V1_28] {
        let cluster = ClassicCluster::start(release).await;
        cluster.node("n1", 1);
        let _controller = cluster.controller().await;
        let mut spec = cluster.wish("c", 1);
        spec["allocationMode"] = json!("Immediate");
        cluster.parameters("c", 1);
        cluster.claim_with("c", &spec);
        let is_allocated = |view: &ApiServerView<'_>| {
            view.get("resourceclaims", "c")?["status"]["allocation"].is_object().then_some(())
        };
        cluster.server.until("the claim is allocated", is_allocated).await;
        cluster.pod("p", &["c"]);
        assert_eq!(cluster.until_bound("p").await, "n1");
        cluster.check_rest();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_are_missing_are_told_and_served_as_soon_as_they_are_there() {
    for release in [ApiServerRelease::V1_26, ApiServerRelease::V1_30] {
        let cluster = ClassicCluster::start(release).await;
        cluster.node("n1", 1);
        let _controller = cluster.controller().await;
        cluster.claim_with("c", &cluster.wish("later", 1));
        cluster.pod("p", &["c"]);
        let words = cluster.until_told("c", "Failed").await;
        assert!(words.contains("spec.parametersRef") && words.contains("later"), "{words}");
        cluster.parameters("later", 1);
        assert_eq!(cluster.until_bound("p").await, "n1");
        cluster.check_rest();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_gate_is_off_a_condition_says_so_and_nobodys_claim_is_touched() {
    let cluster = ClassicCluster::with_gate(ApiServerRelease::V1_31, false).await;
    cluster.node("n1", 1);
    let controller = RunningController::start(&cluster.options()).await;
    controller.until_figure("hostler_controller_condition{type=\"ClassicAllocation\",status=\"False\"} 1").await;
    let said = controller.get("/readyz").await.unwrap().1;
    assert!(said.contains("FieldsDropped") && said.contains("DRAControlPlaneController"), "{said}");
    cluster.claim("c", 1);
    let claim = cluster.server.get("resourceclaims", "c").unwrap();
    assert!(claim["spec"]["controller"].is_null() && finalizers(&claim).is_empty(), "{claim}");
    let claims = cluster.server.list("resourceclaims");
    assert_eq!(claims.len(), 1, "the example is not stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_1_31_whose_parameters_a_patch_would_rewrite_is_allocated_and_taken_back() {
    let cluster = ClassicCluster::start(ApiServerRelease::V1_31).await;
    cluster.node("n1", 1);
    let _controller = cluster.controller().await;
    let text = r#"{ "kind": "CpuConfig",  "apiVersion": "hostler.dev/v1alpha1", "spread": "l3" }"#;
    let mut wish = cluster.wish("c", 1);
    wish["devices"]["config"] = json!([{ "opaque": { "driver": DRIVER, "parameters": "TEXT" } }]);
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourceClaim",
        "metadata": { "name": "c", "namespace": "default" }, "spec": wish,
    });
    cluster.server.create_json(&claim.to_string().replace("\"TEXT\"", text));
    let patch = json!({ "metadata": { "finalizers": ["example.org/any"] } });
    let refusal = cluster.server.try_merge(&claim, &patch).unwrap_err().status().to_string();
    assert!(refusal.contains("422") && refusal.contains("immutable"), "{refusal}");
    cluster.pod("p", &["c"]);
    assert_eq!(cluster.until_bound("p").await, "n1");
    let claim = cluster.server.get("resourceclaims", "c").unwrap();
    assert_eq!(finalizers(&claim), [FINALIZER]);
    assert!(claim["spec"].to_string().contains(r#"CpuConfig\",  \"#), "every space is where it was: {claim}");
    cluster.server.delete("pods", "p");
    cluster.until_free("c").await;
    cluster.check_rest();
}

/// Pods with a claim each, which all fit.
fn pods(cluster: &ClassicCluster, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|at| format!("p{at}")).collect();
    for name in &names {
        let claim = format!("c-{name}");
        cluster.claim(&claim, 1);
        cluster.pod(name, &[&claim]);
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_any_write_loses_and_doubles_nothing() {
    for release in RELEASES {
        let cluster = ClassicCluster::start(release).await;
        cluster.node("n1", 4);
        cluster.node("n2", 4);
        let names = pods(&cluster, 8);
        let is_write = |call: &&LoggedRequest| {
            let is_of_claim = call.verb == "update" && call.resource == "resourceclaims";
            call.user == USER && (call.verb == "patch" || is_of_claim)
        };
        let writes = || cluster.server.log().iter().filter(is_write).count();
        // Of each claim there are four writes; each of these dies after another one.
        for after in [1, 2, 3, 5, 7, 4, 6, 1] {
            let controller = RunningController::start(&cluster.options()).await;
            let before = writes();
            let is_done =
                || names.iter().all(|pod| cluster.server.get("pods", pod).unwrap()["spec"]["nodeName"].is_string());
            controller.until("it has written", async |_| (writes() >= before + after || is_done()).then_some(())).await;
            controller.signal(Signal::SIGKILL);
            drop(controller);
            cluster.given();
            cluster.drop_lease();
        }
        let _controller = cluster.controller().await;
        for pod in &names {
            cluster.until_bound(pod).await;
        }
        assert_eq!(cluster.given().len(), 8);
        cluster.check_rest();
        for pod in &names {
            cluster.server.delete("pods", pod);
            cluster.let_go(&format!("c-{pod}"));
        }
        for pod in &names {
            cluster.until_free(&format!("c-{pod}")).await;
        }
        cluster.check_rest();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_and_storms_of_conflicts_delay_and_spoil_nothing() {
    for release in RELEASES {
        let cluster = ClassicCluster::start(release).await;
        cluster.node("n1", 6);
        let _controller = cluster.controller().await;
        // What is read to be written anew is no patch.
        let of_claims = if release == ApiServerRelease::V1_31 { "update" } else { "patch" };
        for (verb, resource) in
            [(of_claims, "resourceclaims"), ("patch", "resourceclaims/status"), ("patch", "nodehardware")]
        {
            cluster.server.fail(ApiFault::new(verb, resource, 2, FaultEffect::Status(409, None)));
            cluster.server.fail(ApiFault::new(verb, resource, 1, FaultEffect::LoseAnswer));
        }
        let names = pods(&cluster, 3);
        for pod in &names {
            cluster.until_bound(pod).await;
        }
        cluster.server.stop_listening().await;
        cluster.claim("during", 1);
        cluster.pod("during", &["during"]);
        cluster.server.delete("pods", "p0");
        cluster.let_go("c-p0");
        cluster.server.listen_again().await;
        assert_eq!(cluster.until_bound("during").await, "n1");
        cluster.until_free("c-p0").await;
        assert_eq!(cluster.given().len(), 3);
        cluster.check_rest();
    }
}

/// Whether a rule allows what was asked.
fn is_needed(resource: &str, verb: &str, asked: &[LoggedRequest]) -> bool {
    asked.iter().any(|call| call.verb == verb && call.resource == resource)
}

#[tokio::test(flavor = "multi_thread")]
async fn its_roles_allow_all_that_allocating_takes_and_nothing_that_it_never_does() {
    let mut asked: Vec<LoggedRequest> = Vec::new();
    for release in RELEASES {
        let cluster = ClassicCluster::start(release).await;
        cluster.node("n1", 1);
        cluster.node("n2", 0);
        let controller = cluster.controller().await;
        cluster.claim("c", 1);
        cluster.pod("p", &["c"]);
        cluster.until_bound("p").await;
        cluster.claim("d", 1);
        cluster.pod("q", &["d"]);
        cluster.until_told("d", "WaitingForDevices").await;
        assert_eq!(controller.stop().await, Some(0));
        asked.extend(cluster.server.log().into_iter().filter(|call| call.user == USER && !call.resource.is_empty()));
    }
    let refused: Vec<&LoggedRequest> = asked.iter().filter(|call| call.status == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let file = std::fs::read_to_string(rig::root().join("deploy/classic/rbac.yaml")).unwrap();
    for rule in hostler_testing::apiserver::PolicyRule::from_yaml(&file) {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                // The same words about the same claim come twice only after a restart; only a controller that has news of two ages
                // asks for a claim, until 1.30; and no class here says which nodes suit it.
                let rare = [("events", "patch"), ("nodes", "patch")];
                let is_rare = rare.contains(&(resource.as_str(), verb.as_str()));
                assert!(is_rare || is_needed(resource, verb, &asked), "nothing needs the verb {verb} on {resource}");
            }
        }
    }
    assert!(rules().len() > 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_today_is_left_alone() {
    let server = hostler_testing::apiserver::ApiServer::of(ApiServerRelease::V1_36).await;
    rig::install(&server);
    let controller = RunningController::start(&rig::options(&server)).await;
    controller.until_figure("hostler_controller_leads 1").await;
    let said = controller
        .until("it says that there is nothing to do", async |it| {
            let (_, said) = it.get("/readyz").await?;
            said.contains("ClassicAllocation=False (NotNeeded)").then_some(said)
        })
        .await;
    assert!(!said.contains("FieldsDropped"));
    let asked: Vec<Value> = server.log().iter().map(|call| json!(call.resource)).collect();
    assert!(!asked.contains(&json!("podschedulingcontexts")), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_each_version_gets_its_cpus() {
    for (release, file) in [
        (ApiServerRelease::V1_26, "v1alpha1.yaml"),
        (ApiServerRelease::V1_28, "v1alpha2.yaml"),
        (ApiServerRelease::V1_30, "v1alpha2.yaml"),
        (ApiServerRelease::V1_31, "v1alpha3.yaml"),
    ] {
        let cluster = ClassicCluster::bare(release).await;
        cluster.node_of_cpus("n1", 2);
        cluster.node_of_cpus("n2", 6);
        let _controller = cluster.controller().await;
        let text = std::fs::read_to_string(rig::root().join("deploy/classic/examples").join(file)).unwrap();
        cluster.server.create_yaml(&text);
        assert_eq!(cluster.until_bound("four-cpus").await, "n2", "{release:?}");
        let hardware = cluster.server.get("nodehardware", "n2").unwrap();
        let grants = hardware["spec"]["claims"].as_object().unwrap();
        let given: Vec<&Value> =
            grants.values().map(|grant| &grant["devices"][0]["consumedCapacity"]["cpus"]).collect();
        assert_eq!(given, ["4"]);
        let claim = cluster.server.list("resourceclaims").remove(0);
        let said = claim["status"]["allocation"].to_string();
        assert!(
            said.contains("fullCores") && said.contains("ResourceHandle") && !said.contains("RequestConfig"),
            "{said}"
        );
    }
}

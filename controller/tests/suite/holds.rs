//! The running controller keeps devices for whom they were promised: each test runs the real binary against an API server, a
//! scheduler, a controller of claims, and daemons that do what NodeHardware says.

mod claims;
mod cluster;
mod conflicts;
mod direct;
mod evictions;
mod gates;
mod koordinator;
mod page;
mod partitions;
mod parts;
mod people;
mod picture;
mod places;
mod pooled;
mod refusals;
mod repair;
mod requests;
mod schedulers;
mod stories;
mod strangers;
mod switched;
mod told;
mod upgrade;
mod webhook;

use std::process::Command;

use hostler_testing::{
    apiserver::{ApiFault, ApiServerView, FaultEffect, LoggedRequest},
    controller::RunningController,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::cluster::{HoldCluster, rules, rules_in};
use crate::rig::{USER, install_rules_for_devices};

fn value(reservation: &Value) -> &str {
    reservation["status"]["tolerationValue"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_goes_to_the_owner_and_to_nobody_before_him() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    let controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({}));
    let kept = cluster.until_phase("r", "Available").await;
    assert_eq!(cluster.fences(), [format!("n1/fake/card-0={}", value(&kept))]);
    assert_eq!((&kept["status"]["held"], &kept["status"]["nodeName"]), (&json!(1), &json!("n1")));
    cluster.template("any", None);
    cluster.pod("stranger", "any");
    cluster.until_refused("stranger").await;
    cluster.template("kept", Some(value(&kept)));
    cluster.pod("owner", "kept");
    assert_eq!(cluster.until_bound("owner").await, "n1");
    let done = cluster.until_phase("r", "Succeeded").await;
    assert_eq!(done["status"]["currentOwners"][0]["name"], "owner");
    cluster.until_no_fence().await;
    assert!(cluster.server.get("pods", "default/stranger").unwrap()["spec"]["nodeName"].is_null());
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_expired_or_is_deleted_is_open_to_everybody() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 2);
    let _controller = cluster.controller().await;
    cluster.reserve("short", 1, "nobody", &json!({ "ttl": "8s" }));
    cluster.reserve("deleted", 1, "nobody", &json!({}));
    cluster.until_phase("deleted", "Available").await;
    let failed = cluster.until_phase("short", "Failed").await;
    let ready = failed["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap();
    assert_eq!(ready["reason"], "Expired");
    cluster.ask_to_go("deleted");
    cluster.until_no_fence().await;
    cluster.server.until("it is gone", |view| view.get("reservations", "deleted").is_none().then_some(())).await;
    cluster.template("any", None);
    for pod in ["a", "b"] {
        cluster.pod(pod, "any");
        assert_eq!(cluster.until_bound(pod).await, "n1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_it_waits_and_takes_what_becomes_free() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 0);
    let _controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({}));
    let look = |view: &hostler_testing::apiserver::ApiServerView<'_>| {
        let conditions = view.get("reservations", "r")?["status"]["conditions"].take();
        conditions.as_array()?.iter().any(|it| it["reason"] == "Unschedulable").then_some(())
    };
    cluster.server.until("it is said that there is none", look).await;
    cluster.node("n2", 1);
    let kept = cluster.until_phase("r", "Available").await;
    assert_eq!(kept["status"]["nodeName"], "n2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_after_any_write_loses_and_doubles_nothing() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 2);
    cluster.node("n2", 2);
    for at in 0..4 {
        cluster.reserve(&format!("r{at}"), 1, &format!("owner{at}"), &json!({}));
    }
    let writes = || cluster.server.log().iter().filter(|call| call.user == USER && call.verb == "patch").count();
    let is_done = || (0..4).all(|at| phase(&cluster, at) == "Available");
    for after in [1, 2, 3, 5, 1, 4] {
        let controller = RunningController::start(&cluster.options()).await;
        let before = writes();
        controller.until("it has written", async |_| (writes() >= before + after || is_done()).then_some(())).await;
        controller.signal(Signal::SIGKILL);
        drop(controller);
        cluster.drop_lease();
    }
    let _controller = cluster.controller().await;
    let mut fences = Vec::new();
    for at in 0..4 {
        let kept = cluster.until_phase(&format!("r{at}"), "Available").await;
        let device = &kept["status"]["devices"][0];
        let path = |field: &str| device[field].as_str().unwrap().to_owned();
        fences.push(format!("{}/{}={}", path("pool"), path("device"), value(&kept)));
    }
    fences.sort();
    assert_eq!(cluster.fences(), fences, "each has a device of its own, and no other is closed");
}

fn phase(cluster: &HoldCluster, at: usize) -> String {
    let object = cluster.server.get("reservations", &format!("r{at}")).unwrap();
    object["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_that_leads_next_goes_on_where_the_last_one_stopped() {
    let cluster = HoldCluster::without_daemons().await;
    cluster.node("n1", 1);
    let first = cluster.controller().await;
    let second = RunningController::start(&cluster.options()).await;
    cluster.reserve("r", 1, "owner", &json!({}));
    let is_asked = |view: &hostler_testing::apiserver::ApiServerView<'_>| {
        view.get("nodehardware", "n1")?["spec"]["holds"].is_array().then_some(())
    };
    cluster.server.until("the node is told", is_asked).await;
    assert_eq!(first.stop().await, Some(0));
    let mut cluster = cluster;
    cluster.run_daemons();
    let kept = cluster.until_phase("r", "Available").await;
    assert_eq!(cluster.fences(), [format!("n1/fake/card-0={}", value(&kept))]);
    assert_eq!(second.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_conflicts_and_an_outage_delay_and_spoil_nothing() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 2);
    let _controller = cluster.controller().await;
    for resource in ["reservations/status", "reservations", "nodehardware"] {
        cluster.server.fail(ApiFault::new("patch", resource, 1, FaultEffect::Status(409, None)));
    }
    cluster.server.fail(ApiFault::new("patch", "nodehardware", 1, FaultEffect::LoseAnswer));
    cluster.reserve("r", 1, "owner", &json!({}));
    cluster.until_phase("r", "Available").await;
    cluster.server.stop_listening().await;
    cluster.reserve("during", 1, "other", &json!({}));
    cluster.server.listen_again().await;
    cluster.until_phase("during", "Available").await;
    assert_eq!(cluster.fences().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn people_are_told_what_is_kept_for_whom() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    let _controller = cluster.controller().await;
    cluster.reserve("r", 1, "owner", &json!({ "ttl": "2h" }));
    let kept = cluster.until_phase("r", "Available").await;
    let holds = |format: &str| {
        let kubeconfig = cluster.server.kubeconfig(USER);
        let output = Command::new(env!("CARGO_BIN_EXE_hostler-controller"))
            .args(["holds", "-o", format, "--kubeconfig"])
            .arg(kubeconfig)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let table = holds("table");
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["r", "Available", "1/1", "n1", "Pod", "default/owner", "-", "2h", "from", "creation"], "{table}");
    assert!(holds("wide").contains(&format!("hostler.dev/held={}", value(&kept))), "{}", holds("wide"));
    let json: Value = serde_json::from_str(&holds("json")).unwrap();
    assert_eq!(json["reservations"][0]["devices"][0]["device"], "card-0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_of_another_driver_is_closed_by_a_rule_for_as_long_as_it_is_kept() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 0);
    cluster.serve_rules();
    cluster.other_driver("n1");
    // Whether there are rules is asked once in a term: no answer is neither yes nor no.
    cluster.server.fail(ApiFault::new("get", "devicetaintrules", 2, FaultEffect::Status(503, None)));
    let _controller = cluster.controller().await;
    cluster.reserve_of_other_driver("r");
    let kept = cluster.until_phase("r", "Available").await;
    let rules = cluster.server.list("devicetaintrules");
    assert_eq!(
        rules.iter().map(|rule| rule["spec"].clone()).collect::<Vec<_>>(),
        [json!({
            "deviceSelector": { "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0" },
            "taint": { "key": "hostler.dev/held", "value": value(&kept), "effect": "NoSchedule" },
        })]
    );
    cluster.ask_to_go("r");
    cluster.server.until("it is gone", |view| view.get("reservations", "r").is_none().then_some(())).await;
    assert!(cluster.server.list("devicetaintrules").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_not_read_its_roles_yet_makes_nobody_forget_rules() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 0);
    cluster.serve_rules();
    cluster.other_driver("n1");
    let controller = cluster.controller().await;
    cluster.reserve_of_other_driver("r");
    let kept = cluster.until_phase("r", "Available").await;
    assert_eq!(controller.stop().await, Some(0));
    let before = cluster.server.writes("reservations/status") + cluster.server.writes("devicetaintrules");
    for (verb, resource) in [("list", "reservations"), ("get", "devicetaintrules")] {
        cluster.server.fail(ApiFault::new(verb, resource, 2, FaultEffect::Status(403, None)));
    }
    let _controller = cluster.controller().await;
    assert_eq!(cluster.server.faults_left(), 0);
    assert_eq!(cluster.server.writes("reservations/status") + cluster.server.writes("devicetaintrules"), before);
    let now = cluster.server.get("reservations", "r").unwrap();
    assert_eq!((&now["status"], cluster.server.list("devicetaintrules").len()), (&kept["status"], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_a_scheduler_ignores_are_not_made_and_those_of_before_go_with_their_reservation() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 0);
    cluster.serve_rules();
    cluster.other_driver("n1");
    let controller = cluster.controller().await;
    cluster.reserve_of_other_driver("r");
    cluster.until_phase("r", "Available").await;
    assert_eq!(controller.stop().await, Some(0));
    cluster.scheduler("kube-scheduler-a", "v1.36.2");
    let controller = cluster.controller().await;
    cluster.ask_to_go("r");
    cluster.server.until("it is gone", |view| view.get("reservations", "r").is_none().then_some(())).await;
    assert!(cluster.server.list("devicetaintrules").is_empty(), "the rule of before is watched");
    cluster.reserve_of_other_driver("s");
    let refused = |view: &ApiServerView<'_>| {
        let conditions = view.get("reservations", "s")?["status"]["conditions"].take();
        let messages = conditions.as_array()?.iter().filter_map(|it| it["message"].as_str().map(str::to_owned));
        messages.into_iter().any(|it| it.contains("kubernetes#139651")).then_some(())
    };
    cluster.server.until("the defect is named", refused).await;
    assert!(cluster.server.list("devicetaintrules").is_empty());
    assert_eq!(controller.stop().await, Some(0));
    // Who knows better says so.
    let mut options = cluster.options();
    options.config.push_str("oldest_scheduler = \"1.36.3\"\n");
    let _controller = RunningController::start(&options).await;
    cluster.until_phase("s", "Available").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_for_rules_that_comes_while_the_controller_leads_is_noticed() {
    let cluster = HoldCluster::start().await;
    cluster.node("n1", 1);
    install_rules_for_devices(&cluster.server);
    cluster.scheduler("kube-scheduler-a", "v1.37.0");
    cluster.other_driver("n1");
    let controller = cluster.controller().await;
    cluster.reserve("own", 1, "owner", &json!({}));
    cluster.until_phase("own", "Available").await;
    cluster.reserve_of_other_driver("r");
    let refused = |view: &ApiServerView<'_>| {
        let conditions = view.get("reservations", "r")?["status"]["conditions"].take();
        let messages = conditions.as_array()?.iter().filter_map(|it| it["message"].as_str().map(str::to_owned));
        messages.into_iter().any(|it| it.contains("apply deploy/holds/rules")).then_some(())
    };
    cluster.server.until("the role is named that lacks", refused).await;
    cluster.allow(&["rules"]);
    cluster.until_phase("r", "Available").await;
    assert_eq!(cluster.server.list("devicetaintrules").len(), 1);
    // What was kept before is kept all the time: nothing was written to its node.
    let log = cluster.server.log();
    let told = log.iter().filter(|call| call.user == USER && call.resource == "nodehardware" && call.verb == "patch");
    assert_eq!(told.count(), 1);
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn its_roles_allow_all_that_holding_takes_and_nothing_that_it_never_does() {
    let cluster = HoldCluster::start().await;
    cluster.allow(&["annotations"]);
    cluster.node("n1", 1);
    let mut options = cluster.options();
    options.config.push_str("keep_seconds = 1\n");
    let controller = RunningController::start(&options).await;
    cluster.reserve("r", 1, "owner", &json!({}));
    let kept = cluster.until_phase("r", "Available").await;
    cluster.template("kept", Some(value(&kept)));
    cluster.pod("owner", "kept");
    cluster.until_phase("r", "Succeeded").await;
    cluster.until_no_fence().await;
    // One that was over for long goes by itself.
    cluster.server.until("it is gone", |view| view.get("reservations", "r").is_none().then_some(())).await;
    // Claims stand for parts until their owner comes.
    cluster.shared_node("n2", 8);
    cluster.reserve_part("p", 5, "owner-of-part", &json!({}));
    let kept = cluster.until_phase("p", "Available").await;
    cluster.until_accounted(1).await;
    cluster.template_of_part("part", 5, Some(value(&kept)));
    cluster.pod("owner-of-part", "part");
    cluster.until_accounted(0).await;
    cluster.server.until("it is gone", |view| view.get("reservations", "p").is_none().then_some(())).await;
    assert_eq!(controller.stop().await, Some(0));
    let log = cluster.server.log();
    let asked: Vec<&LoggedRequest> = log.iter().filter(|call| call.user == USER && !call.resource.is_empty()).collect();
    let refused: Vec<&&LoggedRequest> = asked.iter().filter(|call| call.status == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let files = ["deploy/holds/base/rbac.yaml", "deploy/holds/annotations/rbac.yaml"];
    for rule in files.iter().flat_map(|file| rules_in(file)) {
        for (resource, verb) in
            rule.resources.iter().flat_map(|resource| rule.verbs.iter().map(move |verb| (resource, verb)))
        {
            // The same words about the same object come twice only after a restart.
            let is_rare = (resource.as_str(), verb.as_str()) == ("events", "patch");
            // Nobody asks for it: the server looks for it where an allocation is written.
            let asked_as = resource.strip_suffix("/binding").map(|it| format!("{it}/status"));
            let asked_as = asked_as.as_ref().unwrap_or(resource);
            let is_needed = asked.iter().any(|call| call.verb == verb && call.resource == *asked_as);
            assert!(is_rare || is_needed, "nothing needs the verb {verb} on {resource}");
        }
    }
    assert!(rules().len() > 5);
}

//! A node's report of its hardware: the real daemon keeps a NodeHardware on an API server in this process, which has
//! the shipped CRD and checks objects by it.

use std::{fs, time::Duration};

use hostler_testing::{
    apiserver::{ApiFault, ApiServer, ApiServerOptions, FaultEffect, LoggedRequest, PolicyRule},
    host::{Host, wait_for},
    kubelet::{Kubelet, KubeletRelease, claim},
};
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:hostler-system:hostler";
const HARDWARE: &str = "nodehardware";
const STATUS: &str = "nodehardware/status";
const SCRIPT: &str = "[[device]]\nname = \"card\"\ncount = 4\nnuma_node = 0\n";

fn shipped(file: &str) -> String {
    fs::read_to_string(format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}})
}

struct Rig {
    server: ApiServer,
    host: Host,
}

impl Rig {
    /// Makes a daemon that may do what the shipped role allows, in a cluster without the CRD; it is not started yet.
    async fn new(cluster: &str) -> Self {
        Self::granted(&shipped("cluster/rbac.yaml"), cluster).await
    }

    async fn granted(role: &str, cluster: &str) -> Self {
        let server = ApiServer::start(ApiServerOptions::default()).await;
        server.create(node());
        server.allow(USER, PolicyRule::from_yaml(role));
        server.user(USER, Some("node"));
        let host = Host::bare_with(SCRIPT, "");
        let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
        let kubeconfig = server.kubeconfig(USER);
        let cluster = format!("[cluster]\nmode = \"kubernetes\"\nkubeconfig = {kubeconfig:?}\n{cluster}");
        fs::write(host.path("hostler.toml"), config.replace("[cluster]\n", &cluster)).unwrap();
        Self { server, host }
    }

    /// Starts a daemon in a cluster that has the CRD.
    async fn started() -> Self {
        let mut rig = Self::new("").await;
        rig.install();
        rig.host.start();
        rig
    }

    fn install(&self) {
        self.server.create_yaml(&shipped("crds/nodehardware.yaml"));
    }

    /// Waits until the object has this many cards, allocated and free.
    async fn until(&self, capacity: u32, allocated: u32, free: u32) -> Value {
        let what = format!("{capacity} cards, {allocated} of them allocated, {free} free");
        self.server
            .until(&what, |view| {
                let object = view.get(HARDWARE, "node")?;
                let devices = &object["status"]["devices"];
                let says =
                    (devices["capacity"] == capacity, devices["allocated"] == allocated, devices["free"] == free);
                (says == (true, true, true)).then_some(object)
            })
            .await
    }

    fn cards(&self, count: u32) {
        self.host.script(&SCRIPT.replace("count = 4", &format!("count = {count}")));
        self.host.run_ok(&["status", "--rescan"]);
    }

    fn wait_for_error(&self, part: &str) {
        wait_for(part, || {
            let told = self.host.get("/v1/status")["hardware"].take();
            (told["reported"] == false && told["error"].as_str()?.contains(part)).then_some(())
        });
    }

    fn wait_until_reported(&self) {
        wait_for("the report", || (self.host.get("/v1/status")["hardware"]["reported"] == true).then_some(()));
    }

    /// Returns the number of reports that were written, with any answer of the server.
    fn writes(&self) -> usize {
        self.server.writes(STATUS)
    }

    /// Waits until so many reports were answered, and counts them.
    async fn until_writes(&self, count: usize) -> usize {
        let answered = |log: &[LoggedRequest]| log.iter().filter(|it| it.resource == STATUS).count() >= count;
        self.server.until("reports", |view| answered(view.log()).then_some(())).await;
        self.writes()
    }

    /// Allocates a card to a claim and prepares it as the kubelet would.
    async fn prepare(&self, name: &str, card: &str) {
        let created = self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "fake"}}]}},
        }));
        let result = json!({"request": "r", "driver": "hostler.dev", "pool": "node/fake", "device": card});
        let status = json!({"allocation": {"devices": {"results": [result]}}});
        self.server.set_status("resourceclaims", &format!("default/{name}"), status);
        let claim = claim("default", name, created["metadata"]["uid"].as_str().unwrap());
        let mut plugin = Kubelet::new(self.host.path("kubelet"), KubeletRelease::V1_36).register().await.unwrap();
        plugin.prepare(std::slice::from_ref(&claim)).await.unwrap().remove(&claim.uid).unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_object_follows_hardware_and_claims_with_one_write_for_a_change() {
    let rig = Rig::started().await;
    let object = rig.until(4, 0, 4).await;
    let status = &object["status"];
    assert_eq!(object["spec"], json!({"nodeName": "node"}));
    let owner = &object["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("Node"), &rig.server.get("nodes", "node").unwrap()["metadata"]["uid"])
    );
    assert_eq!(
        (&status["driver"], &status["hostlerVersion"]),
        (&json!("hostler.dev"), &json!(env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(status["bootID"], rig.host.get("/v1/status")["boot_id"]);
    let fake = status["backends"].as_array().unwrap().iter().find(|backend| backend["name"] == "fake").unwrap();
    assert_eq!(fake["classes"], json!([{"name": "fake.hostler.dev", "zones": [{"numaNode": 0, "capacity": 4}]}]));
    assert_eq!(rig.until_writes(1).await, 1);
    rig.prepare("train", "card-1").await;
    let object = rig.until(4, 1, 3).await;
    assert_eq!(rig.until_writes(2).await, 2, "a claim on its way and one that is ready look alike from here");
    let before = &status["conditions"][0]["lastTransitionTime"];
    assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], *before, "nothing became other than it was");
    rig.cards(6);
    rig.until(6, 1, 5).await;
    assert_eq!(rig.until_writes(3).await, 3);
    assert!(rig.host.run_ok(&["status"]).contains("hardware reported\n"));
    assert!(
        rig.host.metrics("/metrics").1.contains("hostler_node_hardware_writes_total 4\n"),
        "one of them made the object"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_drained_or_does_not_work_is_not_free() {
    let rig = Rig::started().await;
    rig.until(4, 0, 4).await;
    rig.host.run_ok(&["device", "drain", "fake/card-0"]);
    let drained = rig.until(4, 0, 3).await;
    assert_eq!(drained["status"]["devices"]["drained"], 1);
    assert_eq!(drained["status"]["devices"]["allocatable"], 3);
    rig.host
        .script(&format!("{SCRIPT}\n[[device]]\nname = \"broken\"\nhealth = \"unhealthy\"\nreason = \"it smells\"\n"));
    rig.host.run_ok(&["status", "--rescan"]);
    let broken = rig.until(5, 0, 3).await;
    assert_eq!(broken["status"]["devices"]["unhealthy"], 1);
    let healthy = &broken["status"]["conditions"][1];
    assert_eq!(
        (&healthy["type"], &healthy["status"], &healthy["reason"]),
        (&json!("Healthy"), &json!("False"), &json!("DevicesFail"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_changes_are_few_writes() {
    let rig = Rig::started().await;
    rig.until(4, 0, 4).await;
    let (before, began) = (rig.writes(), std::time::Instant::now());
    for count in 5..=104 {
        rig.cards(count);
    }
    rig.until(104, 0, 104).await;
    // One for each second that the changes took, at most, and one for the last change.
    let seconds = began.elapsed().as_secs() as usize + 1;
    let writes = rig.writes() - before;
    assert!(writes <= seconds + 1, "{writes} writes in {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_starts_again_says_once_that_it_lives_and_keeps_the_times() {
    let mut rig = Rig::started().await;
    let before = rig.until(4, 0, 4).await;
    rig.host.kill();
    rig.host.start();
    rig.server
        .until("a sign of life", |view| {
            (view.log().iter().filter(|it| it.resource == HARDWARE).count() > 1).then_some(())
        })
        .await;
    rig.wait_until_reported();
    let after = rig.server.get(HARDWARE, "node").unwrap();
    assert_eq!(rig.until_writes(2).await, 2);
    for time in ["/status/lastChangeTime", "/status/conditions/0/lastTransitionTime", "/metadata/uid"] {
        assert_eq!(after.pointer(time), before.pointer(time), "{time}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_changed_in_the_object_is_mended_with_the_next_report() {
    let rig = Rig::started().await;
    rig.until(4, 0, 4).await;
    rig.server.edit(HARDWARE, "node", |object| {
        object["status"]["devices"]["free"] = json!(0);
        object["status"]["backends"] = json!([]);
    });
    rig.cards(5);
    let mended = rig.until(5, 0, 5).await;
    assert!(!mended["status"]["backends"].as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_somebody_deletes_is_there_again_at_once() {
    let rig = Rig::started().await;
    let mut before = rig.until(4, 0, 4).await;
    // The node does not change, so that only the watch can remind the daemon; the second time it must have gone on.
    for _ in 0..2 {
        assert!(rig.server.delete(HARDWARE, "node"));
        let anew = rig.until(4, 0, 4).await;
        assert_ne!(anew["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(anew["metadata"]["ownerReferences"], before["metadata"]["ownerReferences"]);
        before = anew;
    }
    rig.wait_until_reported();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_made_anew_owns_the_next_object() {
    let rig = Rig::started().await;
    rig.until(4, 0, 4).await;
    // The node's objects go with it.
    rig.server.delete("nodes", "node");
    rig.server.delete(HARDWARE, "node");
    rig.cards(5);
    rig.wait_for_error("waits for its Node object");
    let node = rig.server.create(node());
    let object = rig.until(5, 0, 5).await;
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_an_earlier_node_left_is_taken_over() {
    let mut rig = Rig::new("").await;
    rig.install();
    rig.server.create(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware",
        "metadata": {"name": "node", "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "another"}]},
        "spec": {"nodeName": "node"},
    }));
    rig.host.start();
    let object = rig.until(4, 0, 4).await;
    let uid = rig.server.get("nodes", "node").unwrap()["metadata"]["uid"].clone();
    let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
    assert!(owners.iter().any(|owner| owner["uid"] == uid), "{owners:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_crd_everything_else_works_and_with_it_reports_begin() {
    let mut rig = Rig::new("").await;
    rig.host.start();
    rig.wait_for_error("the API server has no NodeHardware (hostler.dev/v1alpha1): apply deploy/crds");
    wait_for("the devices to be published", || {
        (rig.host.get("/v1/status")["publication"]["synced"] == true).then_some(())
    });
    rig.cards(5);
    rig.prepare("train", "card-1").await;
    assert_eq!(rig.host.log().matches("the hardware of this node is not reported").count(), 1, "it is told once");
    rig.install();
    rig.cards(6);
    rig.until(6, 1, 5).await;
    rig.wait_until_reported();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_refusal_is_asked_again_soon_and_names_no_role() {
    // An API server that has just started refuses every client until it has read its roles.
    let role = shipped("cluster/rbac.yaml");
    let mut rig = Rig::granted(&role.replace("[nodehardware", "[others"), "").await;
    rig.install();
    rig.host.start();
    rig.wait_for_error("it is asked again soon");
    assert!(!rig.host.get("/v1/status")["hardware"]["error"].as_str().unwrap().contains("deploy/cluster"));
    rig.server.allow(USER, PolicyRule::from_yaml(&role));
    // The node does not change: no event reminds the daemon.
    rig.until(4, 0, 4).await;
    rig.wait_until_reported();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_silence_for_ever_does_not_end_the_daemon() {
    let mut rig = Rig::new("").await;
    rig.install();
    rig.server.fail(ApiFault::new("*", "*", 20, FaultEffect::Status(503, Some(u64::MAX))));
    rig.host.start();
    rig.wait_for_error("the server is currently unable to handle the request");
    rig.server.heal();
    rig.host.run_ok(&["status"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_read_claims_says_so_until_it_can() {
    let rig = Rig::started().await;
    let ready = |status: &str, reason: &str| {
        let (status, reason) = (status.to_owned(), reason.to_owned());
        rig.server.until("the condition Ready", move |view| {
            let conditions = view.get(HARDWARE, "node")?["status"]["conditions"].take();
            let ready = conditions.as_array()?.iter().find(|it| it["type"] == "Ready")?.clone();
            (ready["status"] == status && ready["reason"] == reason).then_some(ready)
        })
    };
    ready("True", "BackendsAnswered").await;
    rig.server.fail(ApiFault::new("get", "resourceclaims", u32::MAX, FaultEffect::Status(401, None)));
    let train = claim("default", "train", "train-uid");
    let mut plugin = Kubelet::new(rig.host.path("kubelet"), KubeletRelease::V1_36).register().await.unwrap();
    plugin.prepare(std::slice::from_ref(&train)).await.unwrap().remove(&train.uid).unwrap().unwrap_err();
    let said = ready("False", "ClaimsUnreadable").await;
    assert!(said["message"].as_str().unwrap().contains("does not accept the credentials"), "{said}");
    rig.server.heal();
    ready("True", "BackendsAnswered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_refuses_is_told_in_its_words() {
    let mut rig = Rig::new("").await;
    rig.install();
    rig.server.admit(|write| match write.resource {
        HARDWARE => Err("ValidatingAdmissionPolicy 'p' denied request: the token of hostler names no node".to_owned()),
        _ => Ok(()),
    });
    rig.host.start();
    rig.wait_for_error("the token of hostler names no node, or set cluster.node_hardware = false");
    assert!(rig.server.get(HARDWARE, "node").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_sat_out_and_the_last_state_is_told() {
    let rig = Rig::started().await;
    rig.until(4, 0, 4).await;
    rig.server.stop_listening().await;
    rig.cards(5);
    rig.wait_for_error("NodeHardware node");
    rig.cards(7);
    rig.server.listen_again().await;
    rig.until(7, 0, 7).await;
    rig.wait_until_reported();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_now_and_then_gets_a_right_object() {
    let rig = Rig::started().await;
    rig.until(4, 0, 4).await;
    for (count, code) in [(5, 503), (6, 500), (7, 429)] {
        rig.server.fail(ApiFault::new("*", STATUS, 2, FaultEffect::Status(code, None)));
        rig.cards(count);
        rig.until(count, 0, count).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_killed_at_any_step_leaves_what_the_next_one_makes_right() {
    let mut rig = Rig::new("").await;
    rig.install();
    let steps = [("get", "nodes"), ("get", HARDWARE), ("patch", HARDWARE), ("patch", STATUS)];
    let mut count = 4;
    for (verb, resource) in steps {
        // Before the server does it, and after.
        for effect in [FaultEffect::Hang, FaultEffect::Latency(Duration::from_secs(3600)), FaultEffect::LoseAnswer] {
            rig.server.delete(HARDWARE, "node");
            rig.server.fail(ApiFault::new(verb, resource, 1, effect));
            count += 1;
            rig.host.script(&SCRIPT.replace("count = 4", &format!("count = {count}")));
            rig.host.start();
            wait_for("the step", || (rig.server.faults_left() == 0).then_some(()));
            rig.host.kill();
            rig.server.heal();
            rig.host.start();
            let object = rig.until(count, 0, count).await;
            assert_eq!(
                object["metadata"]["ownerReferences"].as_array().unwrap().len(),
                1,
                "{verb} {resource} {effect:?}"
            );
            rig.host.kill();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_leads_to_no_second_change() {
    let rig = Rig::started().await;
    rig.until(4, 0, 4).await;
    rig.server.fail(ApiFault::new("patch", STATUS, 1, FaultEffect::LoseAnswer));
    rig.cards(5);
    let changed = rig.until(5, 0, 5).await;
    rig.wait_for_error("NodeHardware node");
    rig.wait_until_reported();
    assert_eq!(rig.server.get(HARDWARE, "node").unwrap(), changed, "what was written all the same is seen");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_reported_where_that_is_switched_off() {
    let mut rig = Rig::new("node_hardware = false\n").await;
    rig.install();
    rig.host.start();
    wait_for("the devices to be published", || {
        (rig.host.get("/v1/status")["publication"]["synced"] == true).then_some(())
    });
    assert!(!rig.server.log().iter().any(|call| call.resource.starts_with(HARDWARE)));
    assert_eq!(rig.host.get("/v1/status")["hardware"], Value::Null);
}

//! Claims that are read before the kubelet asks for them: the real daemon, an API server in this process, and a
//! kubelet. Every way in which a read claim could be outdated.

use std::{fs, time::Duration};

use hostler_proto::dra_v1::{Claim, Device};
use hostler_testing::{
    apiserver::{ApiFault, ApiServer, ApiServerRelease, FaultEffect, PolicyRule},
    host::{Host, wait_for},
    kubelet::{self, Kubelet, KubeletPlugin, claim},
};
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:hostler-system:hostler";
const SCRIPT: &str = "[[device]]\nname = \"card\"\ncount = 40\n";

/// A cluster of one node, whose daemon is registered with its kubelet.
struct Rig {
    server: ApiServer,
    host: Host,
    plugin: KubeletPlugin,
}

impl Rig {
    async fn started() -> Self {
        let server = ApiServer::of(ApiServerRelease::V1_36).await;
        server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
        server.user(USER, Some("node"));
        let mut host = Host::bare(SCRIPT);
        let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
        // Writes of claim statuses read claims as well: they are off here.
        let kubeconfig = server.kubeconfig(USER);
        let cluster = format!("[cluster]\nmode = \"kubernetes\"\nclaim_status = false\nkubeconfig = {kubeconfig:?}\n");
        fs::write(host.path("hostler.toml"), config.replace("[cluster]\n", &cluster)).unwrap();
        host.start();
        let plugin = Self::register(&host).await;
        let rig = Self { server, host, plugin };
        rig.wait_for_pods(0);
        rig
    }

    async fn register(host: &Host) -> KubeletPlugin {
        Kubelet::new(host.path("kubelet"), kubelet::KubeletRelease::V1_36).register().await.unwrap()
    }

    fn wait_for_pods(&self, count: usize) {
        wait_for("the pods to be known", || {
            let told = self.host.get("/v1/status")["pods"].take();
            (told["known"] == true && told["pods"] == count).then_some(())
        });
    }

    /// Creates a pod that the scheduler has not bound yet; returns its UID.
    fn create_pod(&self, name: &str, claim: &Value) -> String {
        let pod = self.server.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "none"}], "resourceClaims": [claim]},
        }));
        pod["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn create_claim(&self, name: &str, owner: Option<(&str, &str)>) -> Claim {
        let owners: Vec<Value> = owner
            .iter()
            .map(|(pod, uid)| json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": true}))
            .collect();
        let object = self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {
                "name": name, "namespace": "default", "ownerReferences": owners,
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            },
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "fake"}}]}},
        }));
        claim("default", name, object["metadata"]["uid"].as_str().unwrap())
    }

    /// Writes an allocation as the scheduler does: the device, and the pods that it is for.
    fn give(&self, claim: &Claim, device: &str, pods: &[(&str, &str)]) {
        let reserved: Vec<Value> =
            pods.iter().map(|(name, uid)| json!({"resource": "pods", "name": name, "uid": uid})).collect();
        let result = json!({"request": "r", "driver": "hostler.dev", "pool": "node/fake", "device": device});
        let status = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved});
        self.server.set_status("resourceclaims", &format!("default/{}", claim.name), status);
    }

    /// Removes the allocation, as a controller does for a claim that is not used any more.
    fn free(&self, claim: &Claim) {
        let path = format!("default/{}", claim.name);
        let mut status = self.server.get("resourceclaims", &path).unwrap()["status"].take();
        status["reservedFor"] = json!([]);
        self.server.set_status("resourceclaims", &path, status);
        self.server.set_status("resourceclaims", &path, json!({}));
    }

    /// Creates a pod with a claim that was made for it and allocated before the pod is bound.
    fn schedule(&self, name: &str, device: &str) -> (String, Claim) {
        let uid = self.create_pod(name, &json!({"name": "dev", "resourceClaimTemplateName": "one"}));
        let object = format!("{name}-dev-x7");
        let claim = self.create_claim(&object, Some((name, &uid)));
        let told = json!({"phase": "Pending", "resourceClaimStatuses": [{"name": "dev", "resourceClaimName": object}]});
        self.server.set_status("pods", &format!("default/{name}"), told);
        self.give(&claim, device, &[(name, &uid)]);
        (uid, claim)
    }

    fn bind(&self, pod: &str) {
        self.server.edit("pods", pod, |pod| pod["spec"]["nodeName"] = json!("node"));
    }

    /// Does the same as [`Rig::schedule`], binds the pod, and waits until its claim was read.
    fn bound(&self, name: &str, device: &str) -> (String, Claim) {
        let kept = self.reads("kept");
        let (uid, claim) = self.schedule(name, device);
        self.bind(name);
        self.wait_for_reads("kept", kept + 1);
        (uid, claim)
    }

    async fn prepare(&mut self, claim: &Claim) -> Result<Vec<Device>, String> {
        self.plugin.prepare(std::slice::from_ref(claim)).await.unwrap().remove(&claim.uid).unwrap()
    }

    async fn device(&mut self, claim: &Claim) -> String {
        self.prepare(claim).await.unwrap().remove(0).device_name
    }

    fn reads(&self, kind: &str) -> u64 {
        self.host.figure(&format!("hostler_claim_reads_total{{kind=\"{kind}\"}}"))
    }

    fn wait_for_reads(&self, kind: &str, count: u64) {
        wait_for(&format!("{count} reads to be {kind}"), || (self.reads(kind) >= count).then_some(()));
    }

    /// Returns the number of requests for the object of a claim so far.
    fn gets(&self, claim: &Claim) -> usize {
        let is_get = |verb: &str, name: Option<&str>| verb == "get" && name == Some(&claim.name);
        self.server.log().iter().filter(|call| is_get(call.verb, call.name.as_deref())).count()
    }

    /// Troubles the next read of this claim. The claim that the daemon asks for at its start, to see whether claims can
    /// be read, is another one, and its answer may still be on its way.
    fn trouble(&self, claim: &Claim, how: FaultEffect) {
        let fault = ApiFault::new("get", "resourceclaims", 1, how);
        self.server.fail(ApiFault { name: Some(claim.name.clone()), ..fault });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_pod_that_waits_is_read_before_the_kubelet_asks_and_not_again() {
    let mut rig = Rig::started().await;
    let (_, claim) = rig.bound("train", "card-3");
    assert_eq!(rig.device(&claim).await, "card-3");
    assert_eq!((rig.reads("ahead"), rig.reads("asked"), rig.gets(&claim)), (1, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_were_bound_before_an_outage_start_during_it() {
    let mut rig = Rig::started().await;
    let (_, own) = rig.bound("train", "card-0");
    let pod = rig.create_pod("other", &json!({"name": "dev", "resourceClaimName": "shared"}));
    let named = rig.create_claim("shared", None);
    rig.give(&named, "card-1", &[("other", &pod)]);
    rig.bind("other");
    rig.wait_for_pods(2);
    rig.server.stop_listening().await;
    assert_eq!(rig.device(&own).await, "card-0");
    let asked = rig.host.prepare_in_vain(&rig.plugin, &named);
    rig.server.listen_again().await;
    assert_eq!(asked.await.unwrap().unwrap()[0].device_name, "card-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_nothing_is_believed_from_before() {
    let mut rig = Rig::started().await;
    let (_, claim) = rig.bound("train", "card-0");
    rig.server.stop_listening().await;
    rig.host.kill();
    rig.host.start();
    rig.plugin = Rig::register(&rig.host).await;
    let asked = rig.host.prepare_in_vain(&rig.plugin, &claim);
    rig.server.listen_again().await;
    assert_eq!(asked.await.unwrap().unwrap()[0].device_name, "card-0");
}

/// The name and the UID of the claim stay, and its devices change: the claim that was read for the old pod would be
/// wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_made_anew_with_a_named_claim_gets_what_that_has_now() {
    let mut rig = Rig::started().await;
    let (_, claim) = rig.bound("train", "card-0");
    rig.server.delete("pods", "default/train");
    rig.wait_for_pods(0);
    rig.free(&claim);
    let uid = rig.create_pod("train", &json!({"name": "dev", "resourceClaimName": claim.name}));
    rig.give(&claim, "card-1", &[("train", &uid)]);
    rig.bind("train");
    assert_eq!(rig.device(&claim).await, "card-1");
    assert_eq!((rig.reads("ahead"), rig.reads("asked")), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_has_ended_leaves_its_claim_to_whoever_gets_it_next() {
    let mut rig = Rig::started().await;
    let (_, claim) = rig.bound("train", "card-0");
    let next = rig.create_pod("next", &json!({"name": "dev", "resourceClaimName": claim.name}));
    let mut status = rig.server.get("pods", "default/train").unwrap()["status"].take();
    status["phase"] = json!("Failed");
    rig.server.set_status("pods", "default/train", status);
    rig.free(&claim);
    rig.give(&claim, "card-1", &[("next", &next)]);
    rig.bind("next");
    rig.wait_for_pods(2);
    assert_eq!(rig.device(&claim).await, "card-1");
    assert_eq!((rig.reads("ahead"), rig.reads("asked")), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_not_reserved_yet_can_be_allocated_anew_and_is_not_believed() {
    let mut rig = Rig::started().await;
    let uid = rig.create_pod("train", &json!({"name": "dev", "resourceClaimTemplateName": "one"}));
    let claim = rig.create_claim("train-dev-x7", Some(("train", &uid)));
    let told = json!({"resourceClaimStatuses": [{"name": "dev", "resourceClaimName": claim.name}]});
    rig.server.set_status("pods", "default/train", told);
    rig.give(&claim, "card-0", &[]);
    rig.bind("train");
    wait_for("the claim to be looked at", || (rig.gets(&claim) == 1).then_some(()));
    rig.free(&claim);
    rig.give(&claim, "card-1", &[("train", &uid)]);
    assert_eq!(rig.device(&claim).await, "card-1");
    assert_eq!((rig.reads("kept"), rig.reads("ahead"), rig.reads("asked")), (0, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_behind_the_kubelet_costs_a_read_and_nothing_else() {
    let mut rig = Rig::started().await;
    // The next watch never begins; the list before it does not have the next claims.
    rig.server.fail(ApiFault::new("watch", "pods", 1, FaultEffect::Hang));
    rig.server.close_watches();
    wait_for("the watch to be asked for", || (rig.server.faults_left() == 0).then_some(()));
    let (_, claim) = rig.schedule("train", "card-0");
    rig.bind("train");
    assert_eq!(rig.device(&claim).await, "card-0");
    assert_eq!((rig.reads("kept"), rig.reads("asked")), (0, 1));
}

/// The watch still shows the pod for which a claim of this name was read; the kubelet is further.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_the_same_name_with_another_uid_is_read() {
    let mut rig = Rig::started().await;
    let (uid, old) = rig.bound("train", "card-0");
    rig.server.delete("resourceclaims", &format!("default/{}", old.name));
    let new = rig.create_claim(&old.name, Some(("train", &uid)));
    rig.give(&new, "card-1", &[("train", &uid)]);
    assert_ne!(old.uid, new.uid);
    assert_eq!(rig.device(&new).await, "card-1");
    let error = rig.prepare(&old).await.unwrap_err();
    assert!(error.contains("it was deleted and made anew"), "{error}");
    assert_eq!(rig.reads("ahead"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_is_forgotten_when_pods_may_not_be_watched_any_more() {
    let mut rig = Rig::started().await;
    let (_, claim) = rig.bound("train", "card-0");
    let path = format!("{}/deploy/cluster/rbac.yaml", env!("CARGO_MANIFEST_DIR"));
    rig.server.allow(USER, PolicyRule::from_yaml(&fs::read_to_string(path).unwrap()));
    rig.server.close_watches();
    wait_for("the watch to be refused", || (rig.host.get("/v1/status")["pods"]["known"] == false).then_some(()));
    assert_eq!(rig.device(&claim).await, "card-0");
    assert_eq!((rig.reads("ahead"), rig.reads("asked")), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_joins_a_read_that_is_under_way() {
    let mut rig = Rig::started().await;
    let (_, claim) = rig.schedule("train", "card-0");
    rig.trouble(&claim, FaultEffect::Latency(Duration::from_millis(200)));
    rig.bind("train");
    wait_for("the read to begin", || (rig.server.faults_left() == 0).then_some(()));
    assert_eq!(rig.device(&claim).await, "card-0");
    assert_eq!((rig.reads("asked"), rig.gets(&claim)), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_stalls_or_fails_holds_nobody_up() {
    for trouble in [FaultEffect::Hang, FaultEffect::Status(500, None), FaultEffect::Reset, FaultEffect::CutBody] {
        let mut rig = Rig::started().await;
        let (_, claim) = rig.schedule("train", "card-0");
        rig.trouble(&claim, trouble);
        rig.bind("train");
        wait_for("the read to begin", || (rig.server.faults_left() == 0).then_some(()));
        assert_eq!(rig.device(&claim).await, "card-0", "{trouble:?}");
        assert_eq!((rig.reads("ahead"), rig.reads("joined"), rig.reads("asked")), (0, 0, 1), "{trouble:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_pods_gets_what_it_was_given() {
    let mut rig = Rig::started().await;
    let claims: Vec<Claim> =
        (0..40).map(|index| rig.schedule(&format!("p{index}"), &format!("card-{index}")).1).collect();
    (0..40).for_each(|index| rig.bind(&format!("p{index}")));
    rig.wait_for_reads("kept", 40);
    rig.server.stop_listening().await;
    let answers = rig.plugin.prepare(&claims).await.unwrap();
    for (index, claim) in claims.iter().enumerate() {
        let devices = answers[&claim.uid].as_ref().unwrap();
        assert_eq!(devices[0].device_name, format!("card-{index}"));
    }
    assert_eq!(rig.reads("ahead"), 40);
}

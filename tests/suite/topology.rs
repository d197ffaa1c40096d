//! Objects of this node for topology-aware schedulers: the real daemon exports them to an API server in this process.

use std::fs;

use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions, PolicyRule},
    host::{Host, wait_for},
    kubelet::{Kubelet, KubeletRelease, claim},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:hostler-system:hostler";
const TOPOLOGIES: &str = "noderesourcetopologies";
const CLASS: &str = "deviceclass.resource.kubernetes.io/fake.hostler.dev";
const SCRIPT: &str = "[[device]]\nname = \"card\"\ncount = 4\nnuma_node = 0\n";

struct Rig {
    server: ApiServer,
    host: Host,
}

impl Rig {
    /// Makes a daemon that may do what the shipped roles allow, with the CRD installed or not; it is not started yet.
    async fn new(topology: bool) -> Self {
        let server = ApiServer::start(ApiServerOptions { topology, ..ApiServerOptions::default() }).await;
        server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
        for file in ["cluster/rbac.yaml", "components/pods/rbac.yaml", "components/topology/rbac.yaml"] {
            let role = fs::read_to_string(format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            server.allow(USER, PolicyRule::from_yaml(&role));
        }
        server.user(USER, Some("node"));
        let export = "[topology_export]\nenabled = true\ntopology_manager_policy = \"single-numa-node\"\n";
        let host = Host::bare_with(SCRIPT, export);
        // One node; a machine without any would have no zone.
        for (file, text) in [("online", "0"), ("possible", "0"), ("node0/distance", "10"), ("node0/cpulist", "0-3")] {
            let path = host.path(&format!("machine/sys/devices/system/node/{file}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
        let kubeconfig = server.kubeconfig(USER);
        let cluster = format!("[cluster]\nmode = \"kubernetes\"\nkubeconfig = {kubeconfig:?}\n");
        fs::write(host.path("hostler.toml"), config.replace("[cluster]\n", &cluster)).unwrap();
        Self { server, host }
    }

    async fn started() -> Self {
        let mut rig = Self::new(true).await;
        rig.host.start();
        rig
    }

    /// Waits until the object has this many cards allocatable and available.
    async fn until_cards(&self, allocatable: &str, available: &str) -> Value {
        let what = format!("{allocatable} are allocatable, {available} available");
        self.server
            .until(&what, |view| {
                let object = view.get(TOPOLOGIES, "node")?;
                let cards = object["zones"][0]["resources"].as_array()?.iter().find(|it| it["name"] == CLASS)?;
                (cards["allocatable"] == allocatable && cards["available"] == available).then_some(object.clone())
            })
            .await
    }

    fn wait_for_error(&self, part: &str) {
        wait_for(part, || {
            let told = self.host.get("/v1/status")["topology"].take();
            (told["exported"] == false && told["error"].as_str()?.contains(part)).then_some(())
        });
    }

    async fn others(&self) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "topology.node.k8s.io".to_owned(),
            version: "v1alpha2".to_owned(),
            api_version: "topology.node.k8s.io/v1alpha2".to_owned(),
            kind: "NodeResourceTopology".to_owned(),
            plural: TOPOLOGIES.to_owned(),
        };
        Api::all_with(self.server.client("exporter").await, &resource)
    }
}

fn foreign() -> Value {
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "node"},
        "zones": [{"name": "node-7", "type": "Node"}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_object_follows_hardware_and_claims_and_goes_with_the_node() {
    let rig = Rig::started().await;
    let object = rig.until_cards("4", "4").await;
    assert_eq!(object["zones"][0]["name"], "node-0");
    assert_eq!(object["zones"][0]["costs"], json!([{"name": "node-0", "value": 10}]));
    assert_eq!(object["attributes"], json!([{"name": "topologyManagerPolicy", "value": "single-numa-node"}]));
    let node = rig.server.get("nodes", "node").unwrap();
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    let created = rig.server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "train"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "fake"}}]}},
    }));
    let result = json!({"request": "r", "driver": "hostler.dev", "pool": "node/fake", "device": "card-1"});
    let status = json!({"allocation": {"devices": {"results": [result]}}});
    rig.server.set_status("resourceclaims", "default/train", status);
    let claim = claim("default", "train", created["metadata"]["uid"].as_str().unwrap());
    let mut plugin = Kubelet::new(rig.host.path("kubelet"), KubeletRelease::V1_36).register().await.unwrap();
    plugin.prepare(std::slice::from_ref(&claim)).await.unwrap().remove(&claim.uid).unwrap().unwrap();
    rig.until_cards("4", "3").await;
    rig.host.script(&SCRIPT.replace("count = 4", "count = 6"));
    rig.host.run_ok(&["status", "--rescan"]);
    rig.until_cards("6", "5").await;
    assert!(rig.host.run_ok(&["status"]).contains("topology exported\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_says_what_it_should_is_not_written_again() {
    let mut rig = Rig::started().await;
    let before = rig.until_cards("4", "4").await;
    rig.host.kill();
    rig.host.start();
    wait_for("the export", || (rig.host.get("/v1/status")["topology"]["exported"] == true).then_some(()));
    assert_eq!(rig.server.get(TOPOLOGIES, "node").unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_somebody_deletes_is_there_again_at_once() {
    let rig = Rig::started().await;
    let uid = |object: &Value| object["metadata"]["uid"].clone();
    let mut last = rig.until_cards("4", "4").await;
    for _ in 0..3 {
        rig.server.delete(TOPOLOGIES, "node");
        let again = rig.until_cards("4", "4").await;
        assert_ne!(uid(&again), uid(&last));
        last = again;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_crd_everything_else_works_and_the_reason_is_told() {
    let mut rig = Rig::new(false).await;
    rig.host.start();
    rig.wait_for_error("the API server has no NodeResourceTopology (topology.node.k8s.io/v1alpha2): install its CRD");
    wait_for("the devices to be published", || {
        (rig.host.get("/v1/status")["publication"]["synced"] == true).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_exporter_has_written_is_left_alone_and_he_is_named() {
    let mut rig = Rig::new(true).await;
    let params = PostParams { field_manager: Some("nfd-topology-updater".to_owned()), ..PostParams::default() };
    let object = serde_json::from_value(foreign()).unwrap();
    rig.others().await.create(&params, &object).await.unwrap();
    let before = rig.server.get(TOPOLOGIES, "node").unwrap();
    rig.host.start();
    rig.wait_for_error("another exporter writes NodeResourceTopology node, and is left alone");
    rig.wait_for_error("nfd-topology-updater");
    assert_eq!(rig.server.get(TOPOLOGIES, "node").unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exporter_that_comes_later_takes_over_and_is_not_fought() {
    let rig = Rig::started().await;
    rig.until_cards("4", "4").await;
    let params = PatchParams { field_manager: Some("other".to_owned()), ..PatchParams::default() };
    let zones = json!({"zones": foreign()["zones"]});
    rig.others().await.patch("node", &params, &Patch::Merge(zones)).await.unwrap();
    rig.host.script(&SCRIPT.replace("count = 4", "count = 6"));
    rig.host.run_ok(&["status", "--rescan"]);
    rig.wait_for_error("is left alone");
    assert_eq!(rig.server.get(TOPOLOGIES, "node").unwrap()["zones"][0]["name"], "node-7");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_exported_unless_it_is_asked_for() {
    let mut rig = Rig::new(true).await;
    let config = fs::read_to_string(rig.host.path("hostler.toml")).unwrap();
    fs::write(
        rig.host.path("hostler.toml"),
        config.replace("\nenabled = true\ntopology", "\nenabled = false\ntopology"),
    )
    .unwrap();
    rig.host.start();
    wait_for("the devices to be published", || {
        (rig.host.get("/v1/status")["publication"]["synced"] == true).then_some(())
    });
    assert!(!rig.server.log().iter().any(|call| call.resource == TOPOLOGIES));
    assert_eq!(rig.host.get("/v1/status")["topology"], Value::Null);
}

//! Cards that a fabric manager attaches: the real daemon, on a made-up machine with CXL cards, against an API server in this
//! process that has the shipped kinds and gives the daemon the shipped rights.

use std::{
    collections::BTreeSet,
    fs,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use hostler::{
    admin::EventLog,
    config::DaemonConfig,
    daemon::{self, ConfigReload, RunningMachine},
    log::ProcessLog,
};
use hostler_linux::testkit::{
    CxlCard, CxlHost, CxlKernel, CxlMachine, FakePciFunction, MachineTree, cxl_function, plug_node,
};
use hostler_proto::dra_v1::{Claim, Device};
use hostler_testing::{
    apiserver::{AdmissionAttributes, ApiServer, ApiServerOptions, ApiServerView, PolicyRule},
    host::Host,
    kubelet::{Kubelet, KubeletPlugin, KubeletRelease, claim},
};
use nix::sys::signal::{Signal, raise};
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:hostler-system:hostler";
const ATTACHMENTS: &str = "fabricattachments";
const SLICES: &str = "resourceslices";
const POOL: &str = "fabric/row1/cxl";
/// The object of the accelerator of [`accelerator`].
const ACCELERATOR: &str = "0000000012345678-0001";
const UUID: &str = "918eda4d-2b69-432f-b0d3-dc2a8d80a351";

fn shipped(file: &str) -> String {
    fs::read_to_string(format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Name of the object of a card.
fn object_of(serial: u64) -> String {
    format!("{serial:016x}-0001")
}

/// An accelerator whose driver works, with serial number 0x12345678.
fn accelerator(tree: &MachineTree) -> FakePciFunction {
    let function = cxl_function("0000:21:00.0", 2, true, 16 << 30);
    let function = FakePciFunction { driver: Some("shiny".to_owned()), ..function };
    function.plug(tree);
    plug_node(tree, &function, "accel/accel0", "accel/accel0", "261:0");
    function
}

fn remove(tree: &MachineTree, function: &FakePciFunction) {
    fs::remove_file(tree.path("sys/bus/pci/devices").join(&function.address)).unwrap();
    fs::remove_dir_all(tree.path(function.folder())).unwrap();
}

fn published(view: &ApiServerView<'_>) -> BTreeSet<String> {
    view.list(SLICES).iter().flat_map(devices).collect()
}

fn devices(slice: &Value) -> BTreeSet<String> {
    let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
    devices.filter_map(|device| Some(device["name"].as_str()?.to_owned())).collect()
}

struct Rig {
    server: ApiServer,
    host: Host,
    /// Every device that was ever in a slice.
    ever: Arc<Mutex<BTreeSet<String>>>,
}

impl Rig {
    /// A daemon of the machine in `tree`, in a cluster without FabricAttachments. It is not started yet.
    async fn new(tree: &MachineTree, role: &str) -> Self {
        let server = ApiServer::start(ApiServerOptions::default()).await;
        server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
        server.allow(USER, PolicyRule::from_yaml(role));
        server.user(USER, Some("node"));
        server.create_yaml(&shipped("crds/nodehardware.yaml"));
        let ever = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = ever.clone();
        server.admit(move |write: &AdmissionAttributes<'_>| {
            if write.resource == SLICES {
                seen.lock().unwrap().extend(write.object.map(devices).unwrap_or_default());
            }
            Ok(())
        });
        tree.file("proc/sys/kernel/random/boot_id", "3b5ad29e-6c4f-4f0c-9d33-0d3b6dd6c1a2");
        tree.file("sys/class/dmi/id/product_uuid", UUID.to_ascii_uppercase());
        let host = Host::bare("");
        let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
        let cluster = format!("[cluster]\nmode = \"kubernetes\"\nkubeconfig = {:?}\n", server.kubeconfig(USER));
        let config = config.replace("[cluster]\n", &cluster).replace("[backends.cxl]\nenabled = false\n", "");
        let config = config.replace(&format!("{:?}", host.path("machine")), &format!("{:?}", tree.path("")));
        fs::write(host.path("hostler.toml"), config).unwrap();
        Self { server, host, ever }
    }

    async fn started(tree: &MachineTree) -> Self {
        let role = format!("{}\n---\n{}", shipped("cluster/rbac.yaml"), shipped("fabric/node/rbac.yaml"));
        let mut rig = Self::new(tree, &role).await;
        rig.server.create_yaml(&shipped("crds/fabric/fabricattachments.yaml"));
        rig.host.start();
        rig
    }

    /// Writes an object as the controller does, in this phase.
    fn attach(&self, name: &str, serial: u64, node: &str, phase: &str) {
        let bytes = serial.to_be_bytes().map(|byte| format!("{byte:02X}")).join("-");
        self.server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "FabricAttachment", "metadata": {"name": name},
            "spec": {"manager": "row1", "domain": "cxl", "device": format!("{bytes}:0001"), "nodeName": node, "attempt": 0},
        }));
        self.phase(name, phase);
    }

    fn phase(&self, name: &str, phase: &str) {
        self.server.edit(ATTACHMENTS, name, |object| object["status"]["phase"] = json!(phase));
    }

    fn release(&self, name: &str) {
        self.server.edit(ATTACHMENTS, name, |object| object["spec"]["release"] = json!(true));
        self.phase(name, "Releasing");
    }

    async fn until_published(&self, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        self.server.until(&format!("{wanted:?} are published"), |view| (published(view) == wanted).then_some(())).await;
    }

    /// Waits for a report with this state, whose message has this part.
    async fn until_reported(&self, name: &str, state: &str, part: &str) -> Value {
        let look = |view: &ApiServerView<'_>| {
            let report = view.get(ATTACHMENTS, name)?["status"]["node"].take();
            let says = report["message"].as_str().unwrap_or_default().contains(part);
            (report["state"] == state && says).then_some(report)
        };
        self.server.until(&format!("the report {state} {part}"), look).await
    }

    fn rescan(&self) {
        self.host.run_ok(&["status", "--rescan"]);
    }

    fn assert_never_published(&self, device: &str) {
        assert!(!self.ever.lock().unwrap().contains(device), "{device} was offered");
    }

    async fn kubelet(&self) -> KubeletPlugin {
        Kubelet::new(self.host.path("kubelet"), KubeletRelease::V1_36).register().await.unwrap()
    }

    /// A claim that was given a device behind a switch, which the controller has attached.
    fn allocate(&self, name: &str, device: &str) -> Claim {
        let object = self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cxl"}}]}},
        }));
        let result = json!({"request": "r", "driver": "hostler.dev", "pool": POOL, "device": device});
        let attached = json!({"driver": "hostler.dev", "pool": POOL, "device": device, "conditions": [attached()]});
        let key = format!("default/{name}");
        self.server.set_status(
            "resourceclaims",
            &key,
            json!({"allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": ["node"]}]}]},
            }}),
        );
        self.server.edit("resourceclaims", &key, |object| object["status"]["devices"] = json!([attached]));
        claim("default", name, object["metadata"]["uid"].as_str().unwrap())
    }
}

fn attached() -> Value {
    json!({"type": "hostler.dev/attached", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

async fn prepare(kubelet: &mut KubeletPlugin, claim: &Claim) -> Result<Vec<Device>, String> {
    kubelet.prepare(std::slice::from_ref(claim)).await.unwrap().remove(&claim.uid).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_is_attached_is_reported_and_never_offered_as_the_nodes_own() {
    let tree = MachineTree::new();
    let mut cxl = CxlHost::new(&tree);
    cxl.plug(&CxlCard::new(0xa));
    let rig = Rig::started(&tree).await;
    rig.until_published(&["memory-a"]).await;
    rig.attach(&object_of(0xb), 0xb, "node", "Attaching");
    rig.until_reported(&object_of(0xb), "Absent", "").await;
    // Attached to this node by mistake: its object is another node's.
    rig.attach(&object_of(0xc), 0xc, "other", "Attaching");
    for serial in [0xb, 0xc, 0xd] {
        cxl.plug(&CxlCard::new(serial));
    }
    rig.rescan();
    let report = rig.until_reported(&object_of(0xb), "Ready", "").await;
    assert_eq!((&report["device"], &report["attempt"]), (&json!("cxl/memory-b"), &json!(0)));
    assert!(report["since"].is_string(), "{report}");
    rig.until_published(&["memory-a", "memory-d"]).await;
    assert_eq!(rig.server.get(ATTACHMENTS, &object_of(0xc)).unwrap()["status"]["node"], Value::Null);
    rig.assert_never_published("memory-b");
    rig.assert_never_published("memory-c");
    let counted = |view: &ApiServerView<'_>| {
        let status = view.get("nodehardware", "node")?["status"].take();
        (status["devices"]["capacity"] == 2).then_some(status)
    };
    let status = rig.server.until("the node has two cards", counted).await;
    assert_eq!(status["systemUUID"], UUID);
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "card", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cxl.hostler.dev"}}]}},
    });
    fs::write(rig.host.path("claim.json"), template.to_string()).unwrap();
    let fit = rig.host.run_ok(&["explain", "fit", "-f", rig.host.path("claim.json").to_str().unwrap(), "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&fit).unwrap()["times"], 2, "{fit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_kind_or_the_right_to_see_it_all_cards_are_the_nodes_own() {
    let tree = MachineTree::new();
    let mut cxl = CxlHost::new(&tree);
    cxl.plug(&CxlCard::new(0xa));
    let role = format!("{}\n---\n{}", shipped("cluster/rbac.yaml"), shipped("fabric/node/rbac.yaml"));
    let mut rig = Rig::new(&tree, &role).await;
    rig.host.start();
    rig.until_published(&["memory-a"]).await;
    cxl.plug(&CxlCard::new(0xb));
    rig.rescan();
    rig.until_published(&["memory-a", "memory-b"]).await;
    // The same without the role, once it is sure that the server has read its roles.
    let rig = {
        let mut rig = Rig::new(&tree, &shipped("cluster/rbac.yaml")).await;
        rig.server.create_yaml(&shipped("crds/fabric/fabricattachments.yaml"));
        rig.host.start();
        rig
    };
    rig.until_published(&["memory-a", "memory-b"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_has_the_card_with_its_serial_number_under_the_names_of_its_allocation() {
    let tree = MachineTree::new();
    accelerator(&tree);
    let rig = Rig::started(&tree).await;
    rig.attach(ACCELERATOR, 0x1234_5678, "node", "Attached");
    rig.until_reported(ACCELERATOR, "Ready", "").await;
    let mut kubelet = rig.kubelet().await;
    let train = rig.allocate("train", ACCELERATOR);
    let prepared = prepare(&mut kubelet, &train).await.unwrap();
    assert_eq!((&*prepared[0].pool_name, &*prepared[0].device_name), (POOL, ACCELERATOR));
    let files = rig.host.files("cdi");
    let spec = fs::read_to_string(rig.host.path("cdi").join(&files[0])).unwrap();
    assert!(spec.contains("/dev/accel/accel0"), "{spec}");
    // What the scheduler waited for stays: a second pod of the claim is bound by it.
    let told = |view: &ApiServerView<'_>| {
        let devices = view.get("resourceclaims", "default/train")?["status"]["devices"].take();
        let conditions = devices[0]["conditions"].as_array()?.clone();
        conditions.iter().any(|condition| condition["type"] == "Ready").then_some(conditions)
    };
    let conditions = rig.server.until("the device is told", told).await;
    assert!(conditions.contains(&attached()), "{conditions:?}");
    assert!(conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"), "{conditions:?}");
    assert!(rig.host.run_ok(&["explain", "claim", "default/train"]).contains(ACCELERATOR));
    // A second claim cannot have it.
    let second = rig.allocate("eval", ACCELERATOR);
    let error = prepare(&mut kubelet, &second).await.unwrap_err();
    assert!(error.contains("is already prepared for claim"), "{error}");
    kubelet.unprepare(std::slice::from_ref(&train)).await.unwrap().remove(&train.uid).unwrap().unwrap();
    assert_eq!(rig.host.files("cdi"), Vec::<String>::new());
    let missing = rig.allocate("missing", &object_of(0xdead));
    let error = prepare(&mut kubelet, &missing).await.unwrap_err();
    assert!(error.contains("fabric manager row1 attaches it; `kubectl get fabricattachment"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_in_use_is_not_let_go_of_before_its_claim_is_taken_back_whatever_dies_meanwhile() {
    let tree = MachineTree::new();
    let function = accelerator(&tree);
    let mut rig = Rig::started(&tree).await;
    rig.attach(ACCELERATOR, 0x1234_5678, "node", "Attached");
    let mut kubelet = rig.kubelet().await;
    let train = rig.allocate("train", ACCELERATOR);
    prepare(&mut kubelet, &train).await.unwrap();
    rig.release(ACCELERATOR);
    rig.until_reported(ACCELERATOR, "Releasing", "claim default/train has it").await;
    rig.host.kill();
    rig.server.edit(ATTACHMENTS, ACCELERATOR, |object| _ = object["status"].as_object_mut().unwrap().remove("node"));
    rig.host.start();
    rig.until_reported(ACCELERATOR, "Releasing", "claim default/train has it").await;
    let mut kubelet = rig.kubelet().await;
    kubelet.unprepare(std::slice::from_ref(&train)).await.unwrap().remove(&train.uid).unwrap().unwrap();
    // Files of a made-up machine have no kernel that does what is written into them.
    rig.until_reported(ACCELERATOR, "Releasing", "it is not detached, and that is tried again").await;
    rig.host.kill();
    remove(&tree, &function);
    rig.host.start();
    let report = rig.until_reported(ACCELERATOR, "Released", "").await;
    assert_eq!(report["erased"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_the_kernel_does_not_let_go_is_told_and_tried_again() {
    let tree = MachineTree::new();
    let card = CxlHost::new(&tree).plug(&CxlCard::new(0xb));
    let name = object_of(0xb);
    let rig = Rig::started(&tree).await;
    rig.attach(&name, 0xb, "node", "Ready");
    rig.until_reported(&name, "Ready", "").await;
    rig.server.edit(ATTACHMENTS, &name, |object| object["status"]["used"] = json!(true));
    rig.release(&name);
    // Files of a made-up machine have no kernel that does what is written into them.
    rig.until_reported(&name, "Releasing", "it is not detached, and that is tried again").await;
    remove(&tree, &card.function);
    fs::remove_file(tree.path("sys/bus/cxl/devices").join(format!("mem{}", card.index))).unwrap();
    rig.rescan();
    let report = rig.until_reported(&name, "Released", "it is gone").await;
    assert_eq!(report["erased"], Value::Null, "nothing has erased it");
    rig.assert_never_published("memory-b");
}

/// The daemon in this process, on a kernel that plays what its writes do.
#[test]
fn a_card_is_erased_before_and_after_its_use_and_taken_out_of_the_system() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(erased_and_detached())));
    // Threads of a daemon that was not stopped would keep the test for ever.
    runtime.shutdown_timeout(Duration::from_millis(100));
    ended.unwrap();
}

async fn erased_and_detached() {
    let (tree, name) = (Arc::new(MachineTree::new()), object_of(0xb));
    let card = CxlHost::new(&tree).plug(&CxlCard::new(0xb));
    tree.file(card.memdev.join("security/sanitize"), "").file(card.function.folder().join("remove"), "");
    tree.link("sys/bus/cxl/drivers/cxl_mem/mem0", &card.memdev);
    let kernel = CxlKernel::new(tree.clone(), CxlMachine::default());
    let role = format!("{}\n---\n{}", shipped("cluster/rbac.yaml"), shipped("fabric/node/rbac.yaml"));
    let rig = Rig::new(&tree, &role).await;
    rig.server.create_yaml(&shipped("crds/fabric/fabricattachments.yaml"));
    let config = DaemonConfig::load_or_default(Some(&rig.host.path("hostler.toml"))).unwrap();
    let machine = RunningMachine::running(kernel.root()).unwrap();
    let (log, events) = (ProcessLog::start(&config.log).unwrap(), EventLog::default());
    let reload = ConfigReload { file: None, read: config.clone(), log, events };
    let scene = async {
        rig.attach(&name, 0xb, "node", "Pending");
        rig.server.edit(ATTACHMENTS, &name, |object| object["spec"]["erase"] = json!(true));
        rig.phase(&name, "Attached");
        let ready = rig.until_reported(&name, "Ready", "").await;
        assert_eq!((&ready["erased"], kernel.sanitized().len()), (&json!("Sanitize"), 1));
        rig.server.edit(ATTACHMENTS, &name, |object| object["status"]["used"] = json!(true));
        rig.phase(&name, "Ready");
        rig.release(&name);
        let released = rig.until_reported(&name, "Released", "").await;
        assert_eq!((&released["erased"], &released["message"]), (&json!("Sanitize"), &Value::Null));
        assert_eq!((kernel.sanitized().len(), kernel.dead()), (2, None));
        assert!(!tree.path(card.function.folder()).exists(), "its function is gone");
        rig.assert_never_published("memory-b");
        raise(Signal::SIGTERM).unwrap();
    };
    tokio::join!(daemon::run(config, machine, reload), scene).0.unwrap();
}

//! The running reconciler over sockets: an API server, a scheduler that waits for binding conditions, the controller of
//! claims, and one task that plays daemons, the publisher of slices and kubelets.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use hostler_api::{
    ObjectKey,
    fabric::{DeviceIdentity, FabricAttachment, fabric_pool},
};
use hostler_cluster::ApiClient;
use hostler_fabric::{FabricConnection, FabricProvider, ObjectPath, Provider, fake::FakeFabric};
use hostler_process::Tasks;
use hostler_reconcile::{ControllerParts, Leadership, ObjectStamp};
use hostler_testing::{
    apiserver::{ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView},
    control_plane::ControlPlane,
};
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

use super::super::{AttachmentParts, start};
use crate::{
    config::{FabricConfig, FabricManagerConfig},
    fabric::board::{FabricReadings, ManagerReading},
    observed::{AttachmentObject, FabricObjects, KindStatus, ObservedKind},
    testkit::over,
    view::ClusterView,
};

const ATTACHMENTS: &str = "fabricattachments";
const SLICE: &str = "fabric";

struct FabricStage {
    server: Arc<ApiServer>,
    fabric: FakeFabric,
    tasks: Tasks,
    running: Vec<tokio::task::JoinHandle<()>>,
    _leader: (watch::Sender<Leadership>, watch::Sender<Arc<FabricReadings>>),
}

impl Drop for FabricStage {
    fn drop(&mut self) {
        self.tasks.stop_token().cancel();
        self.running.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl FabricStage {
    async fn start(fabric: FakeFabric) -> Self {
        let options = ApiServerOptions { release: ApiServerRelease::V1_36, ..ApiServerOptions::default() };
        let server = Arc::new(ApiServer::start(options).await);
        set_up(&server);
        let (view_tx, view_rx) = watch::channel(Arc::new(ClusterView::default()));
        let (tasks, _ended_rx) = Tasks::new();
        let running = vec![
            ControlPlane::new().run(&server),
            tasks.job(show(server.clone(), view_tx)),
            tasks.job(play(server.clone(), fabric.clone())),
        ];
        let inventory = Some(Arc::new(fabric.inventory().await.unwrap().watched()));
        let provider = Arc::new(Provider::Fake(fabric.clone()));
        let reading = ManagerReading { provider, inventory, error: None };
        let readings =
            FabricReadings { managers: BTreeMap::from([("m".to_owned(), reading)]), ..FabricReadings::default() };
        let (readings_tx, readings_rx) = watch::channel(Arc::new(readings));
        let until = Some(Instant::now() + Duration::from_secs(3600));
        let (leader_tx, leadership_rx) = watch::channel(Leadership { until, ..Leadership::default() });
        let client = ApiClient::new(Some(&*server.kubeconfig("controller"))).unwrap();
        let manager = FabricManagerConfig { name: "m".to_owned(), ..FabricManagerConfig::default() };
        let config = FabricConfig { managers: vec![manager], ..FabricConfig::default() };
        let parts = AttachmentParts::new(config, "hostler.dev".to_owned(), readings_rx);
        let parts = AttachmentParts { late_call: Duration::ZERO, ..parts };
        let controller = ControllerParts { client, view_rx, leadership_rx, tasks: tasks.clone() };
        start(parts, controller);
        Self { server, fabric, tasks, running, _leader: (leader_tx, readings_tx) }
    }

    fn pod(&self) {
        self.server.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "memory"}]}}],
                "resourceClaims": [{"name": "memory", "resourceClaimName": "c"}],
            },
        }));
    }

    /// Waits until the pod has a node. Returns the node and the device of the claim.
    async fn until_bound(&self) -> (String, String) {
        self.server
            .until("the pod is bound", |view| {
                let node = view.get("pods", "default/p")?["spec"]["nodeName"].as_str()?.to_owned();
                let claim = view.get("resourceclaims", "default/c")?;
                let device = claim["status"]["allocation"]["devices"]["results"][0]["device"].as_str()?.to_owned();
                let told = claim["status"]["devices"].as_array()?.iter().find(|it| it["device"] == *device)?.clone();
                let condition =
                    told["conditions"].as_array()?.iter().find(|it| it["type"] == "hostler.dev/attached")?;
                assert_eq!(condition["status"], "True", "the pod was bound before its device was attached: {claim}");
                Some((node, device))
            })
            .await
    }
}

fn set_up(server: &ApiServer) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    server.create_yaml(&fs::read_to_string(root.join("deploy/crds/fabric/fabricattachments.yaml")).unwrap());
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "cxl"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == \"hostler.dev\""}}]},
    }));
    for node in ["n0", "n1"] {
        server.create(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": node},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "110"}},
        }));
    }
    let device = |at| {
        json!({
            "name": FakeFabric::device(at).device_name(), "bindsToNode": true,
            "bindingConditions": ["hostler.dev/attached"],
            "bindingFailureConditions": ["hostler.dev/attach-failed"],
        })
    };
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": SLICE},
        "spec": {
            "driver": "hostler.dev", "allNodes": true, "devices": [device(0), device(1)],
            "pool": {"name": fabric_pool("m", "d"), "generation": 1, "resourceSliceCount": 1},
        },
    }));
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cxl"}}]}},
    }));
}

/// Shows the server as a view.
async fn show(server: Arc<ApiServer>, view_tx: watch::Sender<Arc<ClusterView>>) {
    const KINDS: [&str; 4] = [ATTACHMENTS, "resourceclaims", "resourceslices", "nodes"];
    let mut known = Vec::new();
    loop {
        let changed = |view: &ApiServerView<'_>| {
            let lists: Vec<Vec<Value>> = KINDS.iter().map(|kind| view.list(kind)).collect();
            (lists != known).then_some(lists)
        };
        if let Ok(lists) = timeout(Duration::from_secs(20), server.until("something changes", changed)).await {
            view_tx.send_replace(Arc::new(view_of(&lists)));
            known = lists;
        }
    }
}

fn view_of(lists: &[Vec<Value>]) -> ClusterView {
    let mut view = ClusterView::default();
    let synced = || KindStatus { is_synced: true, ..KindStatus::default() };
    view.kinds = ObservedKind::ALL.into_iter().map(|kind| (kind, synced())).collect();
    let stamp = |object: &Value| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        ObjectStamp::from(&over(&text("uid"), &text("resourceVersion")))
    };
    let mut fabric = FabricObjects::default();
    for object in &lists[0] {
        let attachment: FabricAttachment = serde_json::from_value(object.clone()).unwrap();
        let name = attachment.metadata.name.clone();
        fabric.attachments.insert(name, Arc::new(AttachmentObject { stamp: stamp(object), attachment }));
    }
    for at in 0..2 {
        fabric.system_uuids.insert(format!("n{at}"), FakeFabric::host(at).unwrap());
    }
    view.fabric = Arc::new(fabric);
    for object in &lists[1] {
        let claim = serde_json::from_value(object.clone()).unwrap();
        let key = ObjectKey::new("default", object["metadata"]["name"].as_str().unwrap());
        FabricObjects::see_claim(&mut view.fabric, &key, stamp(object), &claim);
    }
    lists[2].iter().for_each(|object| view.facts.add_slice(serde_json::from_value(object.clone()).unwrap()));
    lists[3].iter().for_each(|object| view.facts.add_node(serde_json::from_value(object.clone()).unwrap()));
    view
}

/// Something that daemons or the publisher do next.
enum ActorWrite {
    Report(String, Value),
    Taints(Value),
}

/// Plays daemons, the publisher and kubelets.
async fn play(server: Arc<ApiServer>, fabric: FakeFabric) {
    loop {
        let next = |view: &ApiServerView<'_>| report(view, &fabric).or_else(|| taints(view));
        match timeout(Duration::from_secs(20), server.until("somebody has to do something", next)).await {
            Ok(ActorWrite::Report(name, report)) => {
                server.edit(ATTACHMENTS, &name, |object| object["status"]["node"] = report);
            }
            Ok(ActorWrite::Taints(devices)) => {
                server.edit("resourceslices", SLICE, |slice| slice["spec"]["devices"] = devices);
            }
            Err(_) => {}
        }
    }
}

fn report(view: &ApiServerView<'_>, fabric: &FakeFabric) -> Option<ActorWrite> {
    view.list(ATTACHMENTS).into_iter().find_map(|object| {
        let name = object["metadata"]["name"].as_str()?.to_owned();
        let device = DeviceIdentity::of_device_name(&name)?;
        let is_there = fabric.connections().iter().any(|it| it.devices == [device] && it.key.is_some());
        let is_released = object["spec"]["release"] == true;
        let mut report = json!({"attempt": object["spec"]["attempt"]});
        report["state"] = json!(match (is_released, is_there) {
            (true, _) => "Released",
            (false, true) => "Ready",
            (false, false) => "Absent",
        });
        if is_released && is_there {
            report["erased"] = json!("Sanitize");
        }
        let known = &object["status"]["node"];
        let is_news = known["attempt"] != report["attempt"] || known["state"] != report["state"];
        is_news.then_some(ActorWrite::Report(name, report))
    })
}

fn taints(view: &ApiServerView<'_>) -> Option<ActorWrite> {
    let mut devices = view.get("resourceslices", SLICE)?["spec"]["devices"].clone();
    let mut is_news = false;
    for device in devices.as_array_mut()? {
        let attachment = view.get(ATTACHMENTS, device["name"].as_str()?);
        let is_closed =
            attachment.is_some_and(|it| it["status"]["phase"] != "Detached" || it["status"]["retryAt"].is_string());
        let taint = json!({"key": "hostler.dev/fabric", "value": "attached", "effect": "NoSchedule"});
        if is_closed != device["taints"][0].is_object() {
            is_news = true;
            device["taints"] = if is_closed { json!([taint]) } else { json!([]) };
        }
    }
    is_news.then_some(ActorWrite::Taints(devices))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_bound_when_its_device_is_attached_and_all_is_given_back_when_it_is_gone() {
    let stage = FabricStage::start(FakeFabric::rack(2, 2)).await;
    stage.pod();
    let (node, device) = stage.until_bound().await;
    let [connection] = &*stage.fabric.connections() else { panic!("{:?}", stage.fabric.connections()) };
    let host: u32 = node.strip_prefix('n').unwrap().parse().unwrap();
    assert_eq!((&connection.host, connection.devices[0].device_name()), (&FakeFabric::host(host), device.clone()));
    let attachment = stage.server.get(ATTACHMENTS, &device).unwrap();
    assert_eq!((&attachment["status"]["phase"], &attachment["status"]["used"]), (&json!("Ready"), &json!(true)));
    stage.server.delete("pods", "default/p");
    stage.server.until("the attachment is gone", |view| view.list(ATTACHMENTS).is_empty().then_some(())).await;
    assert!(stage.fabric.connections().is_empty());
    let claim = stage.server.get("resourceclaims", "default/c").unwrap();
    assert!(claim["status"]["allocation"].is_null(), "{claim}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_device_cannot_be_attached_is_given_another_one() {
    let fabric = FakeFabric::rack(2, 2);
    // Another program has given the first device to a host.
    fabric.change(|parts| {
        parts.connections.push(FabricConnection {
            path: ObjectPath::new("/fabric/connections/other"),
            id: "other program".to_owned(),
            initiators: vec![ObjectPath::new("/fabric/initiators/0")],
            targets: vec![ObjectPath::new("/fabric/targets/0")],
            ..FabricConnection::default()
        });
    });
    let stage = FabricStage::start(fabric).await;
    stage.pod();
    let (_, device) = stage.until_bound().await;
    assert_eq!(device, FakeFabric::device(1).device_name());
    let failed = FakeFabric::device(0).device_name();
    let free = stage.server.until("the failed device is let go of", |view| {
        let found = view.get(ATTACHMENTS, &failed)?;
        (found["status"]["phase"] == "Detached").then_some(found)
    });
    let status = &free.await["status"];
    assert_eq!((&status["failures"], &status["reason"]), (&json!(1), &json!("Failed")));
    assert!(status["message"].as_str().unwrap().contains("other program"), "it says who holds the device: {status}");
    let told = stage.server.until("the user is told", |view| {
        view.list("events").into_iter().find(|event| event["reason"] == "DeviceNotAttached")
    });
    assert_eq!(told.await["involvedObject"]["name"], "c");
}

//! Devices behind switches that Reservations keep: they are attached to the nodes that were chosen before an owner comes,
//! all of them or none.

use std::{fs, sync::Arc, time::Duration};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerView},
    controller::RunningController,
    provisioning::definition,
    redfish::{PlayedRedfish, PlayedWrite, host_uuid},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    cluster::{HoldCluster, rules, rules_in},
    value,
};
use crate::rig::{USER, root};

const ATTACHMENTS: &str = "fabricattachments";
const POOL: &str = "fabric/row1/rack";

/// A rack whose hosts are the nodes of a cluster, with daemons that see what is attached.
struct RackCluster {
    rack: PlayedRedfish,
    cluster: HoldCluster,
    daemons: tokio::task::JoinHandle<()>,
}

impl Drop for RackCluster {
    fn drop(&mut self) {
        self.daemons.abort();
    }
}

impl RackCluster {
    async fn start(nodes: u32, devices: u32) -> Self {
        let rack = PlayedRedfish::rack(nodes, devices).await;
        let cluster = HoldCluster::start().await;
        let server = &cluster.server;
        server.create_yaml(&fs::read_to_string(root().join("deploy/crds/fabric/fabricattachments.yaml")).unwrap());
        Self::allow(server);
        for at in 0..nodes {
            let name = format!("n{at}");
            cluster.node(&name, 0);
            server.edit("nodes", &name, |node| node["metadata"]["labels"] = json!({ "kubernetes.io/hostname": name }));
            server.edit("nodehardware", &name, |it| it["status"]["systemUUID"] = json!(host_uuid(at).to_lowercase()));
        }
        let daemons = tokio::spawn(report(cluster.server.clone()));
        Self { rack, cluster, daemons }
    }

    fn allow(server: &ApiServer) {
        let more = ["deploy/fabric/rbac.yaml", "deploy/provisioning/rbac.yaml"];
        server.allow(USER, rules().into_iter().chain(more.into_iter().flat_map(rules_in)).collect());
    }

    /// A request of the atomic class for so many pods with a device each.
    fn ask(&self, name: &str, pods: u32) {
        let server = &self.cluster.server;
        server.create(definition(&["v1"]));
        self.cluster.template("any", None);
        let spec = json!({
            "containers": [{ "name": "c", "image": "i", "resources": { "claims": [{ "name": "card" }] } }],
            "resourceClaims": [{ "name": "card", "resourceClaimTemplateName": "any" }],
        });
        server.create(json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "workers", "namespace": "default" },
            "template": { "spec": spec },
        }));
        server.create(json!({
            "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "provisioningClassName": "atomic-scale-up.hostler.dev",
                "podSets": [{ "podTemplateRef": { "name": "workers" }, "count": pods }],
            },
        }));
    }

    async fn until_provisioned(&self, name: &str, status: &str, reason: &str) -> Value {
        let look = |view: &ApiServerView<'_>| {
            let request = view.get("provisioningrequests", name)?;
            let told = condition(&request, "Provisioned")?;
            (told["status"] == status && told["reason"] == reason).then_some(request)
        };
        self.cluster.server.until(&format!("{name} is told {status} ({reason})"), look).await
    }

    async fn controller(&self) -> RunningController {
        let mut options = self.cluster.options();
        options.config = options.config.replace("[capabilities]\n", "[capabilities]\nprovisioning = \"on\"\n");
        let manager = format!(
            "[fabric]\npoll_seconds = 1\n[[fabric.managers]]\nname = 'row1'\n\
             redfish = {{ address = '{}', allow_plain_http = true, read_seconds = 2 }}\n",
            self.rack.url()
        );
        options.config.push_str(&manager);
        RunningController::start(&options).await
    }

    /// Waits until so many devices of the rack are offered: before, there is no room for anyone.
    async fn until_offered(&self, count: usize) {
        let look = |view: &ApiServerView<'_>| {
            let slices = view.list("resourceslices");
            let devices = slices.iter().filter_map(|slice| slice["spec"]["devices"].as_array()).flatten();
            (devices.count() == count).then_some(())
        };
        self.cluster.server.until(&format!("{count} devices are offered"), look).await;
    }

    /// Waits until the attachments are so: device, node, phase and claim of each that is not detached.
    async fn until_attached(&self, expected: &[&str]) -> Vec<Value> {
        let look = |view: &ApiServerView<'_>| {
            let all = view.list(ATTACHMENTS).into_iter();
            let all: Vec<Value> = all.filter(|it| it["status"]["phase"] != "Detached").collect();
            let text = |it: &Value| {
                let field = |at: &str| it.pointer(at).and_then(Value::as_str).unwrap_or("-").to_owned();
                format!("{} {} {}", field("/spec/nodeName"), field("/status/phase"), field("/spec/claim/name"))
            };
            let mut texts: Vec<String> = all.iter().map(text).collect();
            texts.sort();
            (texts == expected).then_some(all)
        };
        self.cluster.server.until(&format!("{expected:?} are attached"), look).await
    }

    /// Waits until the rack has so many connections.
    async fn until_connected(&self, controller: &RunningController, count: usize) {
        let what = format!("the rack has {count} connections");
        controller.until(&what, async |_| (self.rack.connections().len() == count).then_some(())).await;
    }

    async fn until_ready(&self, name: &str, reason: &str) -> String {
        let look = |view: &ApiServerView<'_>| {
            let ready = condition(&view.get("reservations", name)?, "Ready")?;
            (ready["reason"] == reason).then(|| ready["message"].as_str().unwrap_or_default().to_owned())
        };
        self.cluster.server.until(&format!("{name} is {reason}"), look).await
    }
}

fn condition(object: &Value, kind: &str) -> Option<Value> {
    object["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == kind).cloned()
}

/// Plays the daemons: a device that is attached is found, and one that is to go is let go and erased.
async fn report(server: Arc<ApiServer>) {
    loop {
        if let Ok((name, report)) = tokio::time::timeout(Duration::from_secs(20), server.until("a report", due)).await {
            server.edit(ATTACHMENTS, &name, |object| object["status"]["node"] = report);
        }
    }
}

fn due(view: &ApiServerView<'_>) -> Option<(String, Value)> {
    view.list(ATTACHMENTS).into_iter().find_map(|object| {
        let phase = object["status"]["phase"].as_str()?;
        let (is_released, is_there) = (object["spec"]["release"] == true, ["Attached", "Ready"].contains(&phase));
        let state = match (is_released, is_there, phase) {
            (true, _, "Releasing") => "Released",
            (false, true, _) => "Ready",
            _ => return None,
        };
        let mut report = json!({ "attempt": object["spec"]["attempt"], "state": state });
        if is_released || object["spec"]["erase"] == true {
            report["erased"] = json!("Sanitize");
        }
        let known = &object["status"]["node"];
        let is_news = known["attempt"] != report["attempt"] || known["state"] != report["state"];
        is_news.then(|| (object["metadata"]["name"].as_str().unwrap().to_owned(), report))
    })
}

/// The selector of the slice that publishes a device.
fn selector_of(view: &ApiServerView<'_>, device: &str) -> Option<Value> {
    let slices = view.list("resourceslices").into_iter().filter(|slice| slice["spec"]["pool"]["name"] == POOL);
    let has = |slice: &Value| {
        slice["spec"]["devices"].as_array().is_some_and(|all| all.iter().any(|it| it["name"] == device))
    };
    slices.into_iter().find(has).map(|slice| slice["spec"]["nodeSelector"]["nodeSelectorTerms"][0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_device_is_attached_before_its_owner_comes_and_given_to_it_as_it_is() {
    let all = RackCluster::start(2, 1).await;
    let controller = all.controller().await;
    all.cluster.reserve("r", 1, "owner", &json!({}));
    let kept = all.cluster.until_phase("r", "Available").await;
    let node = kept["status"]["nodeName"].as_str().unwrap().to_owned();
    let [attachment] = &all.until_attached(&[&format!("{node} Ready -")]).await[..] else { panic!() };
    assert_eq!(attachment["spec"]["keptFor"], json!({ "name": "r", "uid": kept["metadata"]["uid"] }));
    assert_eq!((&attachment["status"]["used"], all.rack.connections().len()), (&Value::Null, 1));
    let device = attachment["metadata"]["name"].as_str().unwrap();
    assert_eq!(all.cluster.fences(), [format!("{POOL}/{device}={}", value(&kept))]);
    let selector = all.cluster.server.look(|view| selector_of(view, device)).unwrap();
    assert_eq!(selector["matchFields"][0]["values"], json!([node]), "it can be used elsewhere: {selector}");

    all.cluster.template("any", None);
    all.cluster.pod("stranger", "any");
    all.cluster.until_refused("stranger").await;
    all.cluster.template("kept", Some(value(&kept)));
    all.cluster.pod("owner", "kept");
    assert_eq!(all.cluster.until_bound("owner").await, node);
    all.cluster.until_phase("r", "Succeeded").await;
    let given = all.cluster.server.get(ATTACHMENTS, device).unwrap();
    assert_eq!((&given["spec"]["attempt"], &given["status"]["used"]), (&json!(0), &json!(true)));
    let again = all.rack.seen().iter().filter(|it| it.method == "POST" && it.path.contains("Connections")).count();
    assert_eq!(again, 1, "it was attached again for the claim");
    all.cluster.until_no_fence().await;

    all.cluster.server.delete("pods", "default/owner");
    all.until_connected(&controller, 0).await;
    assert_eq!(all.cluster.until_bound("stranger").await.len(), 2, "it is offered to all again");
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_of_a_reservation_are_let_go_together_when_it_goes() {
    let all = RackCluster::start(2, 3).await;
    let controller = all.controller().await;
    all.cluster.reserve("r", 1, "owner", &json!({ "replicas": 3 }));
    all.cluster.until_phase("r", "Available").await;
    all.until_connected(&controller, 3).await;
    // The next leader goes on with what it reads.
    controller.signal(Signal::SIGKILL);
    drop(controller);
    all.cluster.drop_lease();
    let controller = all.controller().await;
    controller.until_figure("hostler_controller_condition{type=\"Reservations\",status=\"True\"} 1").await;
    assert_eq!(all.rack.connections().len(), 3);
    all.cluster.ask_to_go("r");
    all.until_connected(&controller, 0).await;
    all.until_attached(&[]).await;
    all.cluster.until_no_fence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_fails_takes_all_others_back_where_nothing_else_is_free() {
    let all = RackCluster::start(2, 2).await;
    all.rack.set(|knobs| knobs.writes = [PlayedWrite::StatusBefore(400)].into());
    let controller = all.controller().await;
    all.cluster.reserve("r", 1, "owner", &json!({ "replicas": 2 }));
    let why = all.until_ready("r", "Lost").await;
    assert!(why.contains("could not be attached to node n"), "{why}");
    assert!(why.contains("(FabricAttachment 4c1d96"), "{why}");
    all.until_connected(&controller, 0).await;
    all.until_attached(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_device_takes_the_place_of_one_that_fails() {
    let all = RackCluster::start(2, 3).await;
    all.rack.set(|knobs| knobs.writes = [PlayedWrite::StatusBefore(400)].into());
    let _controller = all.controller().await;
    all.cluster.reserve("r", 1, "owner", &json!({ "replicas": 2 }));
    all.cluster.until_phase("r", "Available").await;
    assert_eq!(all.rack.connections().len(), 2);
    let failed: Vec<Value> = all.cluster.server.list(ATTACHMENTS);
    assert_eq!(failed.len(), 3, "one was tried and failed: {failed:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_told_yes_once_all_its_devices_are_attached_and_lets_them_go_when_it_goes() {
    let all = RackCluster::start(2, 3).await;
    let controller = all.controller().await;
    all.ask("r", 3);
    let told = all.until_provisioned("r", "True", "CapacityIsFound").await;
    assert_eq!(all.rack.connections().len(), 3);
    let name = told["status"]["provisioningClassDetails"]["reservation"].as_str().unwrap();
    let kept = all.cluster.server.get("reservations", name).unwrap();
    assert_eq!((&kept["status"]["phase"], &kept["status"]["held"]), (&json!("Available"), &json!(3)));
    all.cluster.server.delete("provisioningrequests", "default/r");
    all.until_connected(&controller, 0).await;
    all.cluster.until_no_fence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_which_one_device_fails_is_told_no_and_has_none() {
    let all = RackCluster::start(2, 3).await;
    all.rack.set(|knobs| knobs.writes = [PlayedWrite::StatusBefore(400)].into());
    let controller = all.controller().await;
    all.until_offered(3).await;
    all.ask("r", 3);
    let told = all.until_provisioned("r", "False", "CapacityIsNotFound").await;
    let why = condition(&told, "Provisioned").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(why.contains("could not be kept"), "{why}");
    all.until_connected(&controller, 0).await;
    all.cluster.until_no_fence().await;
}

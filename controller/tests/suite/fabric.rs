//! Devices behind switches, as the running controller offers them: a rack behind a manager that comes and goes, nodes that
//! are its hosts, and the slices on the API server.

mod adopt;

use std::{collections::BTreeMap, fs, time::Duration};

use hostler_testing::{
    apiserver::{
        ApiFault, ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView, FaultEffect, LoggedRequest, PolicyRule,
    },
    controller::{ControllerOptions, RunningController},
    redfish::{PlayedRedfish, RedfishKnobs, host_uuid},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::rig::{USER, install, options, root};

const POOL: &str = "fabric/row1/rack";
const SLICES: &str = "resourceslices";

/// A cluster whose three nodes are the hosts of a rack, with the controller's rights.
async fn cluster(gates: BTreeMap<String, bool>) -> ApiServer {
    let options = ApiServerOptions { release: ApiServerRelease::V1_36, gates, ..ApiServerOptions::default() };
    let server = ApiServer::start(options).await;
    install(&server);
    server.create_yaml(&fs::read_to_string(root().join("deploy/crds/fabric/fabricattachments.yaml")).unwrap());
    let rules = ["deploy/controller/base/rbac.yaml", "deploy/fabric/rbac.yaml"];
    let rules = rules.iter().flat_map(|file| PolicyRule::from_yaml(&fs::read_to_string(root().join(file)).unwrap()));
    server.allow(USER, rules.collect());
    for at in 0..3 {
        let name = format!("n{at}");
        let labels = json!({ "kubernetes.io/hostname": format!("{name}.example") });
        server.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } }));
        server.create(json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware", "metadata": { "name": name },
            "spec": { "nodeName": name },
        }));
        server.edit("nodehardware", &name, |node| node["status"]["systemUUID"] = json!(host_uuid(at).to_lowercase()));
    }
    server
}

fn controller_for(server: &ApiServer, rack: &PlayedRedfish) -> ControllerOptions {
    let config = format!(
        "[fabric]\npoll_seconds = 1\n[[fabric.managers]]\nname = 'row1'\n\
         redfish = {{ address = '{}', allow_plain_http = true, read_seconds = 2 }}\n",
        rack.url()
    );
    ControllerOptions { config, ..options(server) }
}

fn condition(status: &str) -> String {
    format!("hostler_controller_condition{{type=\"FabricManagers\",status=\"{status}\"}} 1")
}

/// The slices of the rack.
fn slices(view: &ApiServerView<'_>) -> Vec<Value> {
    let all = view.list(SLICES).into_iter();
    all.filter(|slice| slice["spec"]["pool"]["name"] == POOL).collect()
}

/// The names of the published devices, each with the value of its taint.
fn devices(slices: &[Value]) -> BTreeMap<String, Value> {
    let devices = slices.iter().flat_map(|slice| slice["spec"]["devices"].as_array().unwrap());
    devices.map(|it| (it["name"].as_str().unwrap().to_owned(), it["taints"][0]["value"].clone())).collect()
}

fn device(at: u32) -> String {
    format!("4c1d9600000000{at:02x}-0001")
}

/// Waits until the rack is published with these devices and taints.
async fn until_offered(server: &ApiServer, expected: &[(u32, Option<&str>)]) -> Vec<Value> {
    let expected: BTreeMap<String, Value> = expected.iter().map(|(at, taint)| (device(*at), json!(taint))).collect();
    let look = |view: &ApiServerView<'_>| Some(slices(view)).filter(|slices| devices(slices) == expected);
    server.until(&format!("the devices are {expected:?}"), look).await
}

fn attachment(at: u32, phase: &str) -> Value {
    json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "FabricAttachment", "metadata": { "name": device(at) },
        "spec": {
            "manager": "row1", "domain": "rack", "device": format!("4C-1D-96-00-00-00-00-{at:02X}:0001"),
            "nodeName": "n1", "attempt": 0,
        },
        "status": { "phase": phase },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_is_offered_and_stays_when_its_manager_goes() {
    let rack = PlayedRedfish::rack(3, 5).await;
    let server = cluster(BTreeMap::new()).await;
    let controller = RunningController::start(&controller_for(&server, &rack)).await;
    let all: Vec<(u32, Option<&str>)> = (0..5).map(|at| (at, None)).collect();
    let offered = until_offered(&server, &all).await;
    assert_eq!(offered.len(), 1);
    let spec = &offered[0]["spec"];
    assert_eq!(
        spec["nodeSelector"]["nodeSelectorTerms"],
        json!([{ "matchExpressions": [{
            "key": "kubernetes.io/hostname", "operator": "In", "values": ["n0.example", "n1.example", "n2.example"],
        }] }])
    );
    assert_eq!(spec["devices"][0]["bindingConditions"], json!(["hostler.dev/attached"]));
    assert_eq!(spec["devices"][0]["capacity"]["memory"]["value"], "17179869184");
    assert_eq!(offered[0]["metadata"]["ownerReferences"], Value::Null);
    controller.until_figure(&condition("True")).await;
    controller.until_figure(&format!("hostler_controller_fabric_devices{{pool=\"{POOL}\",state=\"free\"}} 5")).await;

    // The manager goes, and the devices stay.
    rack.set(|knobs| knobs.read_failures = std::iter::repeat_n(503, 100_000).collect());
    controller.until_figure(&condition("False")).await;
    controller.until_figure("hostler_controller_fabric_manager_read{manager=\"row1\"} 0").await;
    until_offered(&server, &all).await;
    rack.set(|knobs| *knobs = RedfishKnobs::default());
    controller.until_figure(&condition("True")).await;

    // An attachment that no claim needs, and of which the manager was never asked, ends at once.
    server.create(attachment(3, "Pending"));
    let ended = |view: &ApiServerView<'_>| {
        let object = view.get("fabricattachments", &device(3))?;
        (object["status"]["phase"] == "Detached" && object["spec"]["release"] == true).then_some(())
    };
    server.until("the attachment has ended", ended).await;
    let again = until_offered(&server, &all).await;
    assert_eq!(again[0]["metadata"]["uid"], offered[0]["metadata"]["uid"], "its taint changes the slice in place");
    assert_eq!(again[0]["spec"]["pool"], spec["pool"]);

    // A slice that another client deleted comes back.
    let name = again[0]["metadata"]["name"].as_str().unwrap();
    server.delete(SLICES, name);
    until_offered(&server, &all).await;
    let is_refused = |it: &LoggedRequest| it.user == USER && it.status == 403 && it.resource != "reservations";
    let refused: Vec<LoggedRequest> = server.log().into_iter().filter(is_refused).collect();
    assert!(refused.is_empty(), "a right is missing: {refused:?}");
    assert_eq!(controller.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_writes_nothing_that_is_there() {
    let rack = PlayedRedfish::rack(3, 2).await;
    let server = cluster(BTreeMap::new()).await;
    let controller = RunningController::start(&controller_for(&server, &rack)).await;
    until_offered(&server, &[(0, None), (1, None)]).await;
    assert_eq!(controller.stop().await, Some(0));
    let writes = server.writes(SLICES);
    let next = RunningController::start(&controller_for(&server, &rack)).await;
    next.until_figure(&condition("True")).await;
    next.until_figure("hostler_controller_fabric_manager_read{manager=\"row1\"} 1").await;
    assert_eq!(server.writes(SLICES), writes);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_offered_where_the_server_drops_what_the_scheduler_waits_for() {
    for gate in ["DRADeviceBindingConditions", "DRADeviceTaints"] {
        let rack = PlayedRedfish::rack(3, 2).await;
        let server = cluster([(gate.to_owned(), false)].into()).await;
        let controller = RunningController::start(&controller_for(&server, &rack)).await;
        controller.until_figure(&condition("False")).await;
        let has_reason = async |it: &RunningController| {
            let (_, text) = it.get("/readyz").await?;
            text.lines().find(|line| line.contains("(FieldsDropped)")).map(str::to_owned)
        };
        let said = controller.until("the reason is said", has_reason).await;
        assert!(said.contains(gate), "{said}");
        assert!(server.list(SLICES).is_empty(), "{gate}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_offered_before_the_kind_of_attachments_is_installed() {
    let rack = PlayedRedfish::rack(3, 1).await;
    let server = cluster(BTreeMap::new()).await;
    server.delete("customresourcedefinitions", "fabricattachments.hostler.dev");
    let controller = RunningController::start(&controller_for(&server, &rack)).await;
    until_reason(&controller, "NotServed").await;
    assert!(server.list(SLICES).is_empty());
    server.create_yaml(&fs::read_to_string(root().join("deploy/crds/fabric/fabricattachments.yaml")).unwrap());
    until_offered(&server, &[(0, None)]).await;
}

async fn until_reason(controller: &RunningController, reason: &str) {
    let has_reason = async |it: &RunningController| {
        let (_, text) = it.get("/readyz").await?;
        text.contains(&format!("FabricManagers=False ({reason})")).then_some(())
    };
    controller.until(&format!("the reason is {reason}"), has_reason).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_that_cannot_be_watched_are_told_also_where_no_pool_is_there_to_be_looked_at() {
    // Without a device, what the manager shows contradicts itself, and there is no pool.
    let rack = PlayedRedfish::rack(3, 0).await;
    let server = cluster(BTreeMap::new()).await;
    let controller = RunningController::start(&controller_for(&server, &rack)).await;
    until_reason(&controller, "Contradictions").await;
    for verb in ["list", "watch"] {
        server.fail(ApiFault::new(verb, SLICES, 1_000_000, FaultEffect::Status(403, None)));
    }
    server.close_watches();
    // At once: without a pool, the next look comes with a change of something else.
    timeout(Duration::from_secs(20), until_reason(&controller, "Failed")).await.expect("it is told at once");
    server.heal();
    until_reason(&controller, "Contradictions").await;
    assert_eq!(controller.stop().await, Some(0));
}

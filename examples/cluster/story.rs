//! What happens in the demonstration, step by step, and what has to be true after each.

use std::collections::BTreeSet;

use hostler_testing::apiserver::ApiServerView;
use serde_json::Value;

use crate::{
    nodes::{CARDS, NODES},
    say::step,
    scene::{DemoCluster, shipped},
};

const MANIFESTS: &str = "examples/cluster/manifests";
/// Cards that the Reservation keeps.
const KEPT: usize = 2;

/// Driver, pool and name of a device.
type DeviceId = [String; 3];

/// Tells all of it.
pub(crate) async fn tell(cluster: &DemoCluster) {
    look(cluster);
    plan(cluster);
    request(cluster).await;
    let (kept, value) = reserve(cluster).await;
    strangers(cluster, &kept).await;
    owner(cluster, &kept, &value).await;
}

fn look(cluster: &DemoCluster) {
    step("What is there");
    let answer = cluster.ask(&["availability"]);
    assert!(answer.contains("cpu.hostler.dev"), "the daemons told what they have");
    cluster.ask(&["availability", "--by", "node"]);
}

fn plan(cluster: &DemoCluster) {
    step("Would a job of eight pods with two CPUs each fit, and if a node were drained? Nothing is made of it");
    let job = format!("{MANIFESTS}/job.yaml");
    let answer = cluster.ask(&["plan", "--cluster", "-f", &job]);
    assert!(answer.contains("8 of 8"), "the job fits");
    let answer = cluster.ask(&["plan", "--cluster", "-f", &job, "--what-if", "drain node worker-2"]);
    assert!(answer.contains("6 of 8"), "without the node it does not");
}

async fn request(cluster: &DemoCluster) {
    step("A batch system asks for two pods with a CPU each, and for a hundred (ProvisioningRequest)");
    cluster.server.create_yaml(&shipped(&format!("{MANIFESTS}/request.yaml")));
    for (name, answer) in [("encode-two", "True"), ("encode-hundred", "False")] {
        let what = format!("{name} is told Provisioned={answer}");
        let message = cluster.server.until(&what, |view| told(view, name, answer)).await;
        println!("{name}: Provisioned={answer}: {message}");
    }
    println!();
    cluster.ask(&["explain", "provreq", "encode-hundred"]);
}

fn told(view: &ApiServerView<'_>, name: &str, answer: &str) -> Option<String> {
    let conditions = view.get("provisioningrequests", name)?["status"]["conditions"].take();
    let told = conditions.as_array()?.iter().find(|one| one["type"] == "Provisioned" && one["status"] == answer)?;
    Some(told["message"].as_str()?.to_owned())
}

/// Returns the devices that are kept, and the value that their taints have.
async fn reserve(cluster: &DemoCluster) -> (BTreeSet<DeviceId>, String) {
    step("Two cards are kept for the job `training` (Reservation): each daemon closes its own to all others");
    cluster.server.create_yaml(&shipped(&format!("{MANIFESTS}/reservation.yaml")));
    let is_kept = |view: &ApiServerView<'_>| {
        view.get("reservations", "training").filter(|object| object["status"]["phase"] == "Available")
    };
    let status = cluster.server.until("the cards are kept", is_kept).await["status"].take();
    let kept: BTreeSet<DeviceId> = status["devices"].as_array().expect("a list").iter().map(id).collect();
    assert_eq!(kept.len(), KEPT, "two cards are kept: {status}");
    cluster.ask(&["holds"]);
    cluster.ask(&["explain", "reservation", "training"]);
    (kept, status["tolerationValue"].as_str().expect("a value").to_owned())
}

async fn strangers(cluster: &DemoCluster, kept: &BTreeSet<DeviceId>) {
    let free = NODES.len() * CARDS - KEPT;
    step(&format!("Strangers come: {} pods ask for a card each, and there are {free} that are not kept", free + 1));
    let manifest = shipped(&format!("{MANIFESTS}/stranger.yaml"));
    let names: Vec<String> = (0..=free).map(|at| format!("stranger-{at}")).collect();
    for name in &names {
        cluster.server.create_yaml(&manifest.replace("NAME", name));
    }
    let places = cluster.server.until("the strangers are told", |view| answers(view, &names)).await;
    names.iter().zip(&places).for_each(|(name, place)| println!("{name}: {place}"));
    let taken = given(cluster);
    assert!(taken.is_disjoint(kept), "a stranger got a card that is kept: {taken:?}");
    let placed = places.iter().filter(|place| place.starts_with("on ")).count();
    assert_eq!(placed, free, "one stranger waits: {places:?}");
    println!("{free} strangers have the other cards, and one waits: the two cards are kept.\n");
}

/// What became of each pod; `None` as long as one has no answer.
fn answers(view: &ApiServerView<'_>, names: &[String]) -> Option<Vec<String>> {
    let answer = |name: &String| {
        let pod = view.get("pods", &format!("default/{name}"))?;
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            return Some(format!("on {node}"));
        }
        let conditions = pod["status"]["conditions"].as_array()?;
        let refused = conditions.iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False")?;
        Some(format!("waits: {}", refused["message"].as_str().unwrap_or_default()))
    };
    names.iter().map(answer).collect()
}

async fn owner(cluster: &DemoCluster, kept: &BTreeSet<DeviceId>, value: &str) {
    step("The first pod of the job comes; its claim tolerates the taint of the cards that are kept for it");
    let before = given(cluster);
    cluster.server.create_yaml(&shipped(&format!("{MANIFESTS}/owner.yaml")).replace("VALUE", value));
    let names = ["training-0".to_owned()];
    let places = cluster.server.until("the pod has an answer", |view| answers(view, &names)).await;
    println!("training-0: {}\n", places[0]);
    let new: Vec<DeviceId> = given(cluster).difference(&before).cloned().collect();
    assert!(new.len() == 1 && kept.contains(&new[0]), "the pod has a card that was kept: {new:?} of {kept:?}");
    let is_handed_over = |view: &ApiServerView<'_>| {
        let status = view.get("reservations", "training")?["status"].take();
        let mut devices = status["devices"].as_array()?.iter();
        devices.any(|device| device["state"] == "HandedOver").then_some(())
    };
    cluster.server.until("the Reservation says so", is_handed_over).await;
    let answer = cluster.ask(&["holds", "-o", "wide"]);
    assert!(answer.contains("HandedOver") && answer.contains("Held"), "the other card is kept still: {answer}");
}

/// Cards that claims have.
fn given(cluster: &DemoCluster) -> BTreeSet<DeviceId> {
    let claims = cluster.server.list("resourceclaims");
    let results = claims.iter().filter_map(|claim| claim["status"]["allocation"]["devices"]["results"].as_array());
    let is_card = |id: &DeviceId| id[2].starts_with("card-");
    results.flatten().map(id).filter(is_card).collect()
}

fn id(device: &Value) -> DeviceId {
    ["driver", "pool", "device"].map(|field| device[field].as_str().unwrap_or_default().to_owned())
}

//! Claims that are given devices: from the allocation until the condition for which the scheduler waits.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerView},
    controller::RunningController,
};
use serde_json::{Value, json};

use super::{ATTACHMENTS, SLICES, cluster, device, host, ms, node, options, report};

const NODES: u32 = 20;
const DEVICES: u32 = 200;
/// Claims that are given devices one after the other.
const ALONE: u32 = 50;
/// Time that the manager takes for each call.
const ANSWER: Duration = Duration::from_millis(100);

pub(super) async fn measure() {
    let server = Arc::new(cluster(NODES).await);
    let hosts: Vec<String> = (0..NODES).map(host).collect();
    let config = format!(
        "[fabric]\nworkers = 20\n[[fabric.managers]]\nname = 'row1'\n\
         fake = {{ hosts = {hosts:?}, devices = {DEVICES}, answer_ms = {} }}\n",
        ANSWER.as_millis()
    );
    let controller = RunningController::start(&options(&server, config)).await;
    let are_published = |view: &ApiServerView<'_>| (published(view) == DEVICES as usize).then_some(());
    server.until("the rack is published", are_published).await;
    let daemons = tokio::spawn(play(server.clone()));
    alone(&server).await;
    until_given_back(&server).await;
    at_once(&server).await;
    until_given_back(&server).await;
    daemons.abort();
    controller.stop().await;
}

fn published(view: &ApiServerView<'_>) -> usize {
    view.list(SLICES).iter().filter_map(|slice| slice["spec"]["devices"].as_array()).map(Vec::len).sum()
}

async fn alone(server: &ApiServer) {
    let mut times = Vec::new();
    for at in 0..ALONE {
        let start = give(server, at);
        server.until("the claim is told", |view| is_told(view, at).then_some(())).await;
        times.push(start.elapsed().saturating_sub(ANSWER));
    }
    let wanted = "p99 ≤ 300 ms";
    report("one claim at a time: allocated to attached, less the manager's", spread(&mut times), wanted);
}

async fn at_once(server: &ApiServer) {
    let start = Instant::now();
    let began: Vec<Instant> = (0..DEVICES).map(|at| give(server, at)).collect();
    let written = start.elapsed();
    let mut told: BTreeMap<u32, Instant> = BTreeMap::new();
    while told.len() < DEVICES as usize {
        let news = |view: &ApiServerView<'_>| {
            let news: Vec<u32> = (0..DEVICES).filter(|at| !told.contains_key(at) && is_told(view, *at)).collect();
            (!news.is_empty()).then_some(news)
        };
        let news = server.until("claims are told", news).await;
        let now = Instant::now();
        told.extend(news.into_iter().map(|at| (at, now)));
    }
    report("200 claims at once: allocated to all attached", ms(start.elapsed()), "≤ 15 s");
    report("  of that writing the allocations", ms(written), "");
    let mut times: Vec<Duration> =
        told.iter().map(|(at, told)| (*told - began[*at as usize]).saturating_sub(ANSWER)).collect();
    report("  each: allocated to attached, less the manager's", spread(&mut times), "");
}

fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let (median, p99) = (times[times.len() / 2], times[(times.len() * 99).div_ceil(100) - 1]);
    format!("{}, p99 {}", ms(median), ms(p99))
}

fn claim(at: u32) -> String {
    format!("c{at}")
}

/// Gives a device to a new claim, as a scheduler does. Returns the time of the allocation.
fn give(server: &ApiServer, at: u32) -> Instant {
    let name = claim(at);
    server.create(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "cxl.hostler.dev" } }] } },
    }));
    let term = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node(at % NODES)] }] });
    let result = json!({
        "request": "r", "driver": "hostler.dev", "pool": "fabric/row1/fabric", "device": device(at),
        "bindingConditions": ["hostler.dev/attached"], "bindingFailureConditions": ["hostler.dev/attach-failed"],
    });
    let allocation = json!({
        "devices": { "results": [result] }, "nodeSelector": { "nodeSelectorTerms": [term] },
    });
    let start = Instant::now();
    let path = format!("default/{name}");
    server.set_status("resourceclaims", &path, json!({ "allocation": allocation }));
    start
}

fn is_told(view: &ApiServerView<'_>, at: u32) -> bool {
    let claim = view.get("resourceclaims", &format!("default/{}", claim(at)));
    let devices = claim.and_then(|claim| claim["status"]["devices"].as_array().cloned()).unwrap_or_default();
    let conditions = devices.iter().filter_map(|device| device["conditions"].as_array()).flatten();
    let mut told = conditions.filter(|condition| condition["type"] == "hostler.dev/attached");
    told.any(|condition| condition["status"] == "True")
}

async fn until_given_back(server: &ApiServer) {
    for claim in server.list("resourceclaims") {
        let name = claim["metadata"]["name"].as_str().unwrap();
        server.delete("resourceclaims", &format!("default/{name}"));
    }
    let start = Instant::now();
    let is_detached = |object: &Value| object["status"]["phase"] == "Detached";
    let are_back =
        |view: &ApiServerView<'_>| view.list(ATTACHMENTS).iter().all(is_detached).then(|| view.list(ATTACHMENTS).len());
    let count = server.until("the devices are given back", are_back).await;
    report(&format!("  {count} claims deleted: all devices detached"), ms(start.elapsed()), "");
}

/// Plays the daemons of all nodes: what is attached is ready at once, and what is to be released is.
async fn play(server: Arc<ApiServer>) {
    loop {
        let due = |view: &ApiServerView<'_>| {
            let due: Vec<(String, Value)> = view.list(ATTACHMENTS).iter().filter_map(report_of).collect();
            (!due.is_empty()).then_some(due)
        };
        for (name, report) in server.until("a daemon has something to report", due).await {
            server.edit(ATTACHMENTS, &name, |object| object["status"]["node"] = report);
        }
    }
}

/// The report that is due of a device.
fn report_of(object: &Value) -> Option<(String, Value)> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let report = match status["phase"].as_str()? {
        "Attached" => json!({ "attempt": spec["attempt"], "state": "Ready" }),
        "Releasing" => json!({ "attempt": spec["attempt"], "state": "Released", "erased": "Sanitize" }),
        _ => return None,
    };
    let known = &status["node"];
    let is_news = known["attempt"] != report["attempt"] || known["state"] != report["state"];
    is_news.then(|| (object["metadata"]["name"].as_str().unwrap().to_owned(), report))
}

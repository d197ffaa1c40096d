//! Claims that are given devices: from the allocation until the condition for which the scheduler waits.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use hostler_cluster::{ApiClient, Collection, FollowEvent, Follower};
use hostler_testing::{
    apiserver::{ApiServer, ApiServerView, LoggedRequest},
    controller::RunningController,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{ATTACHMENTS, SLICES, USER, cluster, device, host, ms, node, options, report};

const NODES: u32 = 20;
const DEVICES: u32 = 200;
/// Claims that are given devices one after the other.
const ALONE: u32 = 50;
/// Attachments that the controller works at together: of as many claims none waits for another one.
const WORKERS: u32 = 20;
/// Far more than the figure: devices that do not come back are not waited for for ever.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time that the manager takes for each call.
const ANSWER: Duration = Duration::from_millis(100);

pub(super) async fn measure() {
    let server = Arc::new(cluster(NODES).await);
    let hosts: Vec<String> = (0..NODES).map(host).collect();
    let config = format!(
        "[fabric]\nworkers = {WORKERS}\n[[fabric.managers]]\nname = 'row1'\n\
         fake = {{ hosts = {hosts:?}, devices = {DEVICES}, answer_ms = {} }}\n",
        ANSWER.as_millis()
    );
    let controller = RunningController::start(&options(&server, &config)).await;
    let are_published = |view: &ApiServerView<'_>| (published(view) == DEVICES as usize).then_some(());
    server.until("the rack is published", are_published).await;
    let daemons = tokio::spawn(play(server.clone()));
    let (told_tx, mut told_rx) = mpsc::unbounded_channel();
    let scheduler = tokio::spawn(watch_claims(server.clone(), told_tx));
    alone(&server, &mut told_rx).await;
    until_given_back(&server).await;
    for count in [WORKERS, DEVICES] {
        let before = Spent::of(&server, &controller);
        at_once(&server, &mut told_rx, count).await;
        before.report(&server, &controller, count);
        until_given_back(&server).await;
    }
    daemons.abort();
    scheduler.abort();
    controller.stop().await;
}

fn published(view: &ApiServerView<'_>) -> usize {
    view.list(SLICES).iter().filter_map(|slice| slice["spec"]["devices"].as_array()).map(Vec::len).sum()
}

/// Claims that were told that their device is attached, by name, with the time.
type Told = mpsc::UnboundedReceiver<(String, Instant)>;

async fn alone(server: &ApiServer, told_rx: &mut Told) {
    let mut times = Vec::new();
    for at in 0..ALONE {
        let start = give(server, &format!("alone-{at}"), at);
        let (_, told) = told_rx.recv().await.unwrap();
        times.push((told - start).saturating_sub(ANSWER));
    }
    let wanted = "p99 ≤ 300 ms";
    report("one claim at a time: allocated to attached, less the manager's", spread(&mut times), wanted);
}

async fn at_once(server: &ApiServer, told_rx: &mut Told, count: u32) {
    let start = Instant::now();
    let name = |at| format!("c-{count}-{at}");
    let began: BTreeMap<String, Instant> = (0..count).map(|at| (name(at), give(server, &name(at), at))).collect();
    let written = start.elapsed();
    let mut times = BTreeMap::new();
    while times.len() < began.len() {
        let (claim, told) = told_rx.recv().await.unwrap();
        times.entry(claim.clone()).or_insert_with(|| (told - began[&claim]).saturating_sub(ANSWER));
    }
    report(&format!("{count} claims at once: allocated to all attached"), ms(start.elapsed()), "≤ 15 s");
    report("  of that writing the allocations", ms(written), "");
    let mut times: Vec<Duration> = times.into_values().collect();
    report("  each: allocated to attached, less the manager's", spread(&mut times), "p99 ≤ 300 ms");
}

/// Costs of the controller up to a moment.
struct Spent {
    processor: Duration,
    reads: usize,
    writes: usize,
}

impl Spent {
    fn of(server: &ApiServer, controller: &RunningController) -> Self {
        let log = server.log();
        let count = |verbs: &[&str]| {
            let is_ours = |it: &&LoggedRequest| it.user == USER && verbs.contains(&it.verb);
            log.iter().filter(is_ours).count()
        };
        Self {
            processor: controller.processor_time(),
            reads: count(&["get"]),
            writes: count(&["create", "update", "patch", "delete"]),
        }
    }

    fn report(&self, server: &ApiServer, controller: &RunningController, claims: u32) {
        let now = Self::of(server, controller);
        let of_each = |count: usize| format!("{:.1}", count as f64 / f64::from(claims));
        report("  objects read of the API server, for each claim", of_each(now.reads - self.reads), "");
        report("  writes, for each claim", of_each(now.writes - self.writes), "");
        report("  processor time of the controller", ms(now.processor - self.processor), "");
    }
}

fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let (median, p99) = (times[times.len() / 2], times[(times.len() * 99).div_ceil(100) - 1]);
    format!("{}, p99 {}", ms(median), ms(p99))
}

/// Gives a device to a new claim, as a scheduler does. Returns the time of the allocation.
fn give(server: &ApiServer, name: &str, at: u32) -> Instant {
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

/// Follows all objects of a kind as a client does: reading all of them after each change would cost more than what is measured.
async fn follow(server: &ApiServer, all: Collection, mut take: impl FnMut(Value)) {
    let client = ApiClient::new(Some(&*server.kubeconfig("bench"))).unwrap();
    let mut follower = Follower::new(client, all);
    loop {
        if let FollowEvent::Listed(object) | FollowEvent::Applied(object) = follower.next().await.unwrap() {
            take(object.read().unwrap());
        }
    }
}

/// Tells each claim whose device is attached, once.
async fn watch_claims(server: Arc<ApiServer>, told_tx: mpsc::UnboundedSender<(String, Instant)>) {
    let claims = Collection::custom("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims");
    let mut known = BTreeMap::new();
    let take = |claim: Value| {
        let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
        if is_told(&claim) && known.insert(name.clone(), ()).is_none() {
            told_tx.send((name, Instant::now())).unwrap();
        }
    };
    follow(&server, claims, take).await;
}

fn is_told(claim: &Value) -> bool {
    let devices = claim["status"]["devices"].as_array().into_iter().flatten();
    let mut conditions = devices.filter_map(|device| device["conditions"].as_array()).flatten();
    conditions.any(|condition| condition["type"] == "hostler.dev/attached" && condition["status"] == "True")
}

async fn until_given_back(server: &ApiServer) {
    for claim in server.list("resourceclaims") {
        let name = claim["metadata"]["name"].as_str().unwrap();
        server.delete("resourceclaims", &format!("default/{name}"));
    }
    let start = Instant::now();
    let is_detached = |object: &Value| object["status"]["phase"] == "Detached";
    while !server.list(ATTACHMENTS).iter().all(is_detached) {
        assert!(start.elapsed() < PATIENCE, "devices are not given back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let count = server.list(ATTACHMENTS).len();
    report(&format!("  all claims deleted: {count} devices detached"), ms(start.elapsed()), "");
}

/// Plays the daemons of all nodes: what is attached is ready at once, and what is to be released is.
async fn play(server: Arc<ApiServer>) {
    let all = Collection::custom("hostler.dev", "v1alpha1", "FabricAttachment", ATTACHMENTS);
    let take = |object: Value| {
        if let Some((name, report)) = report_of(&object) {
            server.edit(ATTACHMENTS, &name, |object| object["status"]["node"] = report);
        }
    };
    follow(&server, all, take).await;
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

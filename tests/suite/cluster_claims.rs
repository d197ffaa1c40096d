//! Claims of a cluster: the real daemon reads them from an API server in this process, for a kubelet that calls it.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use hostler_linux::IdSet;
use hostler_proto::dra_v1::{Claim, Device};
use hostler_testing::{
    apiserver::{self, ApiFault, ApiServer, ApiServerOptions, ApiServerRelease, FaultEffect, PolicyRule},
    container::{Container, containers_work_here},
    host::{Host, wait_for},
    kubelet::{self, Kubelet, KubeletPlugin, claim},
};
use serde_json::{Value, json};

const USER: &str = "system:serviceaccount:hostler-system:hostler";

const SCRIPT: &str = r#"
[[device]]
name = "card"
count = 4
edits = { env = ["CARD={n}"] }

[[device]]
name = "pool"
sharing = "shared"
capacity.units = { value = 200, min = 1, step = 1, default = 1 }
"#;

/// A cluster of one node, whose daemon is registered with its kubelet.
struct Rig {
    server: ApiServer,
    host: Host,
    plugin: KubeletPlugin,
}

impl Rig {
    async fn started() -> Self {
        Self::of(ApiServerRelease::V1_36).await
    }

    async fn of(release: ApiServerRelease) -> Self {
        Self::on(ApiServer::start(ApiServerOptions { release, ..ApiServerOptions::default() }).await, "").await
    }

    async fn on(server: ApiServer, cluster: &str) -> Self {
        Self::on_host(server, Host::bare(SCRIPT), cluster).await
    }

    async fn on_host(server: ApiServer, mut host: Host, cluster: &str) -> Self {
        let kubeconfig = server.kubeconfig(USER);
        server.user(USER, Some("node"));
        let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
        let cluster = format!("[cluster]\nmode = \"kubernetes\"\nkubeconfig = \"{}\"\n{cluster}", kubeconfig.display());
        fs::write(host.path("hostler.toml"), config.replace("[cluster]\n", &cluster)).unwrap();
        host.start();
        let plugin = Self::register(&host).await;
        Self { server, host, plugin }
    }

    async fn register(host: &Host) -> KubeletPlugin {
        Kubelet::new(host.path("kubelet"), kubelet::KubeletRelease::V1_36).register().await.unwrap()
    }

    /// The daemon dies and comes again, and the kubelet finds it.
    async fn restart(&mut self) {
        self.host.kill();
        self.host.start();
        self.plugin = Self::register(&self.host).await;
    }

    /// Allocates devices of the fake backend to a new claim; returns the claim as the kubelet names it.
    fn allocate(&self, name: &str, devices: &[&str]) -> Claim {
        let results: Vec<Value> = devices.iter().map(|device| result("r", device)).collect();
        self.allocate_with(name, &json!({"results": results}))
    }

    /// Does the same as [`Rig::allocate`], with the whole of `status.allocation.devices`.
    fn allocate_with(&self, name: &str, devices: &Value) -> Claim {
        let claim = self.create(name);
        self.give(name, devices);
        claim
    }

    /// Writes the claim's `status.allocation`, as the scheduler does.
    fn give(&self, name: &str, devices: &Value) {
        self.server.set_status(
            "resourceclaims",
            &format!("default/{name}"),
            json!({"allocation": {
                "devices": devices,
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": ["node"]}]}]},
            }}),
        );
    }

    fn create(&self, name: &str) -> Claim {
        self.create_with(name, &json!([{"name": "r", "exactly": {"deviceClassName": "fake"}}]))
    }

    fn create_with(&self, name: &str, requests: &Value) -> Claim {
        let object = self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": requests}},
        }));
        claim("default", name, object["metadata"]["uid"].as_str().unwrap())
    }

    async fn prepare(&mut self, claim: &Claim) -> Result<Vec<Device>, String> {
        self.plugin.prepare(std::slice::from_ref(claim)).await.unwrap().remove(&claim.uid).unwrap()
    }

    async fn unprepare(&mut self, claim: &Claim) -> Result<(), String> {
        self.plugin.unprepare(std::slice::from_ref(claim)).await.unwrap().remove(&claim.uid).unwrap()
    }

    fn record(&self, claim: &Claim) -> Value {
        let path = self.host.path(&format!("state/claims/{}.json", claim.uid));
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    fn explained(&self, claim: &str) -> String {
        self.host.run_ok(&["explain", "claim", claim])
    }

    /// Waits for an Event with this reason.
    async fn event(&self, reason: &str) -> Value {
        let look = |view: &apiserver::ApiServerView<'_>| {
            view.list("events").into_iter().find(|event| event["reason"] == reason)
        };
        self.server.until(&format!("there is an event {reason}"), look).await
    }

    /// Waits until the claim's `status.devices` are as wanted.
    async fn until_devices(&self, claim: &Claim, what: &str, look: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let path = format!("default/{}", claim.name);
        let look = |view: &apiserver::ApiServerView<'_>| {
            let devices = view.get("resourceclaims", &path)?["status"]["devices"].as_array()?.clone();
            look(&devices).then_some(devices)
        };
        self.server.until(what, look).await
    }
}

/// A device of the fake backend, as the scheduler gives it.
fn result(request: &str, device: &str) -> Value {
    json!({"request": request, "driver": "hostler.dev", "pool": "node/fake", "device": device})
}

fn share(device: &str, id: &str, units: &str) -> Value {
    let mut result = result("r", device);
    result["shareID"] = json!(id);
    result["consumedCapacity"] = json!({"units": units});
    result
}

fn config(source: &str, requests: &[&str], driver: &str, from: &str) -> Value {
    json!({"source": source, "requests": requests, "opaque": {"driver": driver, "parameters": {"from": from}}})
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    PolicyRule {
        api_groups: owned(&[group]),
        resources: owned(resources),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_prepared_as_the_api_server_has_it_in_every_version_of_the_api() {
    for release in [ApiServerRelease::V1_32, ApiServerRelease::V1_33, ApiServerRelease::V1_34, ApiServerRelease::V1_37]
    {
        let mut rig = Rig::of(release).await;
        let claim = rig.allocate("train", &["card-1"]);
        let devices = rig.prepare(&claim).await.unwrap_or_else(|error| panic!("{release:?}: {error}"));
        assert_eq!((devices[0].pool_name.as_str(), devices[0].device_name.as_str()), ("node/fake", "card-1"));
        assert_eq!(devices[0].request_names, ["r"]);
        assert_eq!(rig.host.get("/v1/status")["mode"], "kubernetes");
        assert_eq!(rig.prepare(&claim).await.unwrap(), devices);
        rig.unprepare(&claim).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_made_anew_is_another_claim() {
    let mut rig = Rig::started().await;
    let old = rig.allocate("train", &["card-0"]);
    rig.server.delete("resourceclaims", "default/train");
    let error = rig.prepare(&old).await.unwrap_err();
    assert!(error.contains("there is no claim default/train in the API server: it was deleted"), "{error}");
    let new = rig.allocate("train", &["card-0"]);
    let error = rig.prepare(&old).await.unwrap_err();
    assert!(error.contains(&format!("has uid {} in the API server, asked for is {}", new.uid, old.uid)), "{error}");
    rig.prepare(&new).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_one_request_do_not_share_their_fate() {
    let mut rig = Rig::started().await;
    let good = rig.allocate("good", &["card-0"]);
    let unallocated = rig.create("unallocated");
    let other = json!({"request": "r", "driver": "gpu.example.com", "pool": "gpus", "device": "gpu-0"});
    let foreign = rig.allocate_with("foreign", &json!({"results": [other]}));
    let answers = rig.plugin.prepare(&[good.clone(), unallocated.clone(), foreign.clone()]).await.unwrap();
    assert_eq!(answers[&good.uid].as_ref().unwrap()[0].device_name, "card-0");
    for (claim, part) in
        [(&unallocated, "field status.allocation: it is missing"), (&foreign, "this daemon serves no other")]
    {
        let error = answers[&claim.uid].as_ref().unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    rig.event("NotAllocated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_api_server_a_new_claim_waits_for_a_while_and_recorded_ones_go_on() {
    let mut rig = Rig::started().await;
    let (known, new) = (rig.allocate("known", &["card-0"]), rig.allocate("new", &["card-1"]));
    let devices = rig.prepare(&known).await.unwrap();
    rig.server.stop_listening().await;
    let began = Instant::now();
    let error = rig.prepare(&new).await.unwrap_err();
    assert!(error.contains("the API server cannot be asked now; the kubelet tries again by itself"), "{error}");
    let waited = began.elapsed();
    assert!(waited > Duration::from_secs(15), "{waited:?}: a kubelet tries again after more than a minute");
    assert!(waited < Duration::from_secs(30), "{waited:?}: the kubelet waits 45 s for all that a pod needs");
    rig.restart().await;
    assert_eq!(rig.prepare(&known).await.unwrap(), devices);
    let told = rig.explained("default/known");
    assert!(told.contains("prepared and holds 1 device") && told.contains("could not be asked"), "{told}");
    rig.unprepare(&known).await.unwrap();
    let asked = rig.host.prepare_in_vain(&rig.plugin, &new);
    rig.server.listen_again().await;
    asked.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_the_daemon_does_not_wait_as_long_for_the_api_server_as_a_prepare() {
    let mut rig = Rig::started().await;
    let claim = rig.allocate("train", &["card-0"]);
    rig.server.stop_listening().await;
    let asked = rig.host.prepare_in_vain(&rig.plugin, &claim);
    let began = Instant::now();
    rig.host.stop();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    asked.await.unwrap().unwrap_err();
    rig.host.start();
    rig.plugin = Rig::register(&rig.host).await;
    rig.server.listen_again().await;
    rig.prepare(&claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_or_has_not_read_its_roles_is_asked_again_and_one_that_forbids_is_not() {
    let mut rig = Rig::started().await;
    let claim = rig.allocate("train", &["card-0"]);
    rig.server.fail(ApiFault::new("get", "resourceclaims", 2, FaultEffect::Status(429, Some(1))));
    rig.server.fail(ApiFault::new("get", "resourceclaims", 1, FaultEffect::Reset));
    rig.prepare(&claim).await.unwrap();
    let (_, figures) = rig.host.metrics("/metrics");
    assert!(figures.contains("hostler_api_retries_total{kind=\"claim\"} 3"), "{figures}");
    rig.server.allow(USER, vec![rule("", &["nodes"], &["get"])]);
    let other = rig.allocate("other", &["card-1"]);
    let error = rig.prepare(&other).await.unwrap_err();
    assert!(error.contains("grant its user the verb get on resourceclaims of group resource.k8s.io"), "{error}");
    let asked = rig.host.prepare_in_vain(&rig.plugin, &other);
    rig.server.allow(USER, vec![rule("resource.k8s.io", &["resourceclaims"], &["get"])]);
    asked.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_claims_of_one_request_are_read_over_one_connection() {
    let mut rig = Rig::started().await;
    let claims: Vec<Claim> = (0..100)
        .map(|index| {
            let id = format!("00000000-0000-4000-8000-{index:012}");
            rig.allocate_with(&format!("c{index}"), &json!({"results": [share("pool", &id, "2")]}))
        })
        .collect();
    let answers = rig.plugin.prepare(&claims).await.unwrap();
    assert_eq!(answers.values().filter(|answer| answer.is_ok()).count(), 100, "{answers:?}");
    let reads: Vec<_> = rig
        .server
        .log()
        .into_iter()
        .filter(|logged| logged.resource == "resourceclaims" && logged.verb == "get")
        .collect();
    assert!(reads.len() >= 100 && reads.iter().all(|read| read.http2 && read.connection == reads[0].connection));
}

#[tokio::test(flavor = "multi_thread")]
async fn subrequests_shares_administration_and_configuration_reach_the_device() {
    let mut rig = Rig::started().await;
    let mut admin = result("watch", "card-2");
    admin["adminAccess"] = json!(true);
    let id = "00000000-0000-4000-8000-000000000001";
    let exactly = json!({"deviceClassName": "fake"});
    let first = json!([{"name": "big", "deviceClassName": "fake"}, {"name": "small", "deviceClassName": "fake"}]);
    let claim = rig.create_with(
        "train",
        &json!([
            {"name": "size", "firstAvailable": first}, {"name": "r", "exactly": exactly},
            {"name": "watch", "exactly": exactly}, {"name": "gpu", "exactly": exactly},
        ]),
    );
    rig.give(
        "train",
        &json!({
            "results": [
                result("size/big", "card-0"), share("pool", id, "3"), admin,
                {"request": "gpu", "driver": "gpu.example.com", "pool": "gpus", "device": "gpu-0"},
            ],
            "config": [
                config("FromClaim", &["size"], "hostler.dev", "claim"),
                config("FromClass", &["size/big"], "hostler.dev", "class"),
                config("FromClaim", &["size/small"], "hostler.dev", "another subrequest"),
                config("FromClaim", &["size"], "gpu.example.com", "another driver"),
            ],
        }),
    );
    let holder = rig.allocate("holder", &["card-2"]);
    rig.prepare(&holder).await.unwrap();
    let devices = rig.prepare(&claim).await.unwrap();
    assert_eq!(devices[0].request_names, ["size"], "the kubelet knows top-level requests only");
    assert_eq!(devices[1].share_id.as_deref(), Some(id));
    assert_eq!(devices.len(), 3, "those of other drivers are not ours");
    let grants = rig.record(&claim)["record"]["devices"].clone();
    assert_eq!(grants[0]["grant"]["request"], "size/big");
    assert_eq!(grants[0]["grant"]["config"], json!([{"from": "class"}, {"from": "claim"}]), "the last one wins");
    assert_eq!(grants[2]["grant"]["access"], "Admin");
    assert_eq!(grants[1]["grant"]["consumed"]["units"], "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocation_that_cannot_be_followed_is_told_on_the_claim_once_and_counted() {
    let mut rig = Rig::started().await;
    let mut wrong = result("r", "pool");
    wrong["consumedCapacity"] = json!({"cores": "2"});
    let claim = rig.allocate_with("train", &json!({"results": [wrong]}));
    let error = rig.prepare(&claim).await.unwrap_err();
    assert!(error.contains("device pool has no capacity cores: it has units"), "{error}");
    let event = rig.event("InvalidAllocation").await;
    assert!(error.ends_with(event["message"].as_str().unwrap()), "{error} / {event}");
    assert_eq!(event["involvedObject"]["uid"], claim.uid.as_str());
    assert_eq!(event["type"], "Warning");
    rig.prepare(&claim).await.unwrap_err();
    let counted = |view: &apiserver::ApiServerView<'_>| {
        (view.list("events").first()?["count"] == 2).then_some(view.list("events").len())
    };
    assert_eq!(rig.server.until("the event is counted", counted).await, 1);
    // Counted when the answer has come back.
    let line = "hostler_events_total{kind=\"InvalidAllocation\"} 2";
    wait_for(line, || rig.host.metrics("/metrics").1.contains(line).then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_another_claim_holds_is_explained_with_its_holder() {
    let mut rig = Rig::started().await;
    let (first, second) = (rig.allocate("first", &["card-0"]), rig.allocate("second", &["card-0"]));
    rig.prepare(&first).await.unwrap();
    rig.prepare(&second).await.unwrap_err();
    let told = rig.explained("default/second");
    assert!(told.contains("could not be prepared: device card-0 is already prepared for claim"), "{told}");
    assert!(told.contains(&format!("also given to {} (default/first)", first.uid)), "{told}");
    let by_uid = rig.explained(&second.uid);
    assert_eq!(by_uid.lines().nth(1), told.lines().nth(1), "by UID as by name");
    let json: Value = serde_json::from_str(&rig.host.run_ok(&["explain", "claim", "first", "-o", "json"])).unwrap();
    assert_eq!((json["state"].as_str(), json["uid"].as_str()), (Some("prepared"), Some(first.uid.as_str())));
    let unknown = rig.host.run_refused(&["explain", "claim", "firts"]);
    assert!(unknown.contains("there is no such claim, neither on record nor in the API server"), "{unknown}");
    assert!(unknown.contains("did you mean default/first?"), "{unknown}");
    let event = rig.event("DeviceHeld").await;
    assert!(event["message"].as_str().unwrap().contains("default/first"), "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_nobody_has_allocated_is_explained_with_what_this_node_could_give() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let cards = Host::bare(&SCRIPT.replace("count = 4", "count = 4\nattributes = { fake = true }"));
    let mut rig = Rig::on_host(server, cards, "").await;
    let held = rig.allocate("held", &["card-0"]);
    rig.prepare(&held).await.unwrap();
    let asks = |class: &str, count: i64| {
        let cards = json!([{"cel": {"expression": "!device.allowMultipleAllocations"}}]);
        json!([{"name": "r", "exactly": {"deviceClassName": class, "selectors": cards, "count": count}}])
    };
    for (name, class, count, expected) in [
        ("modest", "fake.hostler.dev", 1, "; node node has what it asks for now"),
        (
            "greedy",
            "fake.hostler.dev",
            4,
            "; node node cannot give it: claim default/greedy, request \"r\": it wants 4 of 4 devices that match, and 3 can be had: 1 allocated",
        ),
        (
            "foreign",
            "gold.example.com",
            1,
            "hostler's own, and not gold.example.com; hostler-controller plan reads those",
        ),
    ] {
        rig.create_with(name, &asks(class, count));
        let told = rig.explained(name);
        assert!(told.contains(": pending") && told.contains(expected), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_the_kubelet_has_forgotten_makes_way_through_a_restart_and_an_outage() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let mut rig = Rig::on(server, "release_after = \"1h\"\n").await;
    let (forgotten, needed) = (rig.allocate("forgotten", &["card-0"]), rig.allocate("needed", &["card-1"]));
    for claim in [&forgotten, &needed] {
        rig.prepare(claim).await.unwrap();
    }
    rig.server.delete("resourceclaims", "default/forgotten");
    let (new, thief) = (rig.allocate("new", &["card-0"]), rig.allocate("thief", &["card-1"]));
    let error = rig.prepare(&new).await.unwrap_err();
    let holder = format!("already prepared for claim {} (default/forgotten)", forgotten.uid);
    assert!(error.contains(&holder) && error.contains("is being looked at: try again in some seconds"), "{error}");
    let doubts = rig.host.path("state/doubts.json");
    wait_for("the first look", || fs::read_to_string(&doubts).ok().filter(|text| text.contains(&forgotten.uid)));
    rig.restart().await;
    assert!(fs::read_to_string(&doubts).unwrap().contains(&forgotten.uid), "it is kept");

    rig.prepare(&new).await.unwrap_err();
    rig.server.stop_listening().await;
    // The second question falls into the outage.
    wait_for("a look in vain", || (rig.host.figure("hostler_api_retries_total{kind=\"claim\"}") > 0).then_some(()));
    assert!(fs::read_to_string(&doubts).unwrap().contains(&forgotten.uid), "it is kept");
    let record = rig.host.path(&format!("state/claims/{}.json", forgotten.uid));
    assert!(record.exists(), "an outage proves nothing");
    rig.server.listen_again().await;
    rig.prepare(&new).await.unwrap_err();
    rig.prepare(&thief).await.unwrap_err();
    // The record goes first, the figure last.
    let figure = "hostler_released_claims_total{kind=\"gone\"} 1";
    wait_for(figure, || rig.host.metrics("/metrics").1.contains(figure).then_some(()));
    assert!(!record.exists(), "the claim that nobody needs");
    rig.prepare(&new).await.unwrap();
    rig.prepare(&thief).await.unwrap_err();
    assert!(rig.explained("needed").contains("prepared and holds 1 device"), "who is needed stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_a_cluster_are_the_clusters() {
    let mut rig = Rig::started().await;
    let claim = rig.allocate("train", &["card-0"]);
    rig.prepare(&claim).await.unwrap();
    for args in [
        &["claim", "create", "x", "-d", "fake/card-1"][..],
        &["claim", "prepare", "train"],
        &["claim", "delete", "train"],
    ] {
        let error = rig.host.run_refused(args);
        assert!(error.contains("claims of this host belong to the cluster"), "{args:?}: {error}");
    }
    assert!(rig.host.run_ok(&["claim", "list"]).contains("train"));
    rig.host.run_ok(&["claim", "delete", "train", "--force"]);
    assert!(rig.host.files("state/claims").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_nothing_is_prepared_before_the_kubelet_asks() {
    let mut rig = Rig::started().await;
    let claim = rig.allocate("train", &["card-0"]);
    let devices = rig.prepare(&claim).await.unwrap();
    rig.host.kill();
    rig.host.boot("00000000-0000-4000-8000-000000000002");
    rig.host.start();
    rig.plugin = Rig::register(&rig.host).await;
    assert_eq!(rig.host.get(&format!("/v1/claims/{}", claim.uid))["state"], "preparing");
    rig.server.stop_listening().await;
    assert_eq!(rig.prepare(&claim).await.unwrap(), devices, "from the record");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_starts_without_an_api_server() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    server.stop_listening().await;
    let mut rig = Rig::on(server, "").await;
    rig.server.listen_again().await;
    let claim = rig.allocate("train", &["card-0"]);
    rig.prepare(&claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_a_claim_is_told_in_its_status() {
    let mut rig = Rig::started().await;
    let claim = rig.allocate("train", &["card-0"]);
    rig.prepare(&claim).await.unwrap();
    let devices = rig.until_devices(&claim, "the device is told", |devices| !devices.is_empty()).await;
    assert_eq!((&devices[0]["device"], &devices[0]["conditions"][0]["status"]), (&json!("card-0"), &json!("True")));
    let sick = SCRIPT.replace("count = 4", "count = 4\nhealth = \"unhealthy\"\nreason = \"hot\"");
    rig.host.script(&sick);
    assert_eq!(rig.host.request("POST", "/v1/rescan", "").0, 204);
    let sick = |devices: &[Value]| devices[0]["conditions"][0]["message"] == "hot";
    rig.until_devices(&claim, "the device is told to be sick", sick).await;
    rig.restart().await;
    let read = |view: &apiserver::ApiServerView<'_>| {
        let log = view.log().iter().rev().take_while(|logged| logged.resource != "resourceclaims/status");
        log.clone().any(|logged| logged.resource == "resourceclaims" && logged.verb == "get").then_some(())
    };
    rig.server.until("the new daemon has read it", read).await;
    // An event about a later claim shows that the pass over the first one is over.
    let later =
        rig.allocate_with("later", &json!({"results": [share("pool", "00000000-0000-4000-8000-000000000001", "2")]}));
    rig.prepare(&later).await.unwrap();
    rig.until_devices(&later, "the later one is told", |devices| !devices.is_empty()).await;
    let writes = |view: &apiserver::ApiServerView<'_>| {
        view.log().iter().filter(|logged| logged.resource == "resourceclaims/status").count()
    };
    rig.server.until("all is written", |view| (writes(view) >= 3).then_some(())).await;
    assert_eq!(rig.server.writes("resourceclaims/status"), 3, "the new daemon wrote what was there already");
}

/// A claim with devices of two drivers, each of which writes about its own; other managers own fields of our entry.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_say_in_the_status_of_a_claim_stays() {
    let mut rig = Rig::started().await;
    let mut foreign = result("r", "theirs");
    foreign["driver"] = json!("other.example.com");
    let claim = rig.allocate_with("train", &json!({"results": [result("r", "card-0"), foreign]}));
    let theirs = json!({
        "driver": "other.example.com", "pool": "node/fake", "device": "theirs",
        "conditions": [{"type": "Up", "status": "True", "reason": "Up", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "data": {"serial": 7}, "networkData": {"interfaceName": "net1"},
    });
    let warm = json!({"type": "Warm", "status": "True", "reason": "Warm", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let ours = json!({"driver": "hostler.dev", "pool": "node/fake", "device": "card-0", "conditions": [warm],
        "networkData": {"interfaceName": "net2"}});
    rig.server.edit("resourceclaims", "default/train", |object| object["status"]["devices"] = json!([theirs, ours]));
    rig.prepare(&claim).await.unwrap();
    let is_told = |devices: &[Value]| devices.iter().any(|device| device["conditions"][0]["type"] == "Ready");
    let devices = rig.until_devices(&claim, "the device is told", is_told).await;
    assert_eq!(devices[0], theirs);
    assert_eq!((devices.len(), &devices[1]["networkData"]["interfaceName"]), (2, &json!("net2")));
    let conditions = devices[1]["conditions"].as_array().unwrap();
    assert_eq!((conditions.len(), conditions.contains(&warm)), (2, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_others_write_to_at_the_same_time_is_read_again() {
    let mut rig = Rig::started().await;
    rig.server.fail(ApiFault::new("update", "resourceclaims/status", 2, FaultEffect::Status(409, None)));
    let claim = rig.allocate("train", &["card-0"]);
    rig.prepare(&claim).await.unwrap();
    rig.until_devices(&claim, "the device is told", |devices| !devices.is_empty()).await;
    assert!(!rig.host.log().contains("the claim's status is not written"), "{}", rig.host.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_status_may_not_be_written_that_is_said_once() {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    server
        .allow(USER, vec![rule("resource.k8s.io", &["resourceclaims"], &["get"]), rule("", &["events"], &["create"])]);
    let mut rig = Rig::on(server, "").await;
    let claim = rig.allocate("train", &["card-0"]);
    rig.prepare(&claim).await.unwrap();
    let said = || rig.host.log().matches("the status of claims is not written").count();
    wait_for("the warning", || (said() > 0).then_some(()));
    let other = rig.allocate("other", &["card-1"]);
    let mut plugin = rig.plugin.clone();
    plugin.prepare(&[other]).await.unwrap();
    assert_eq!(said(), 1);
}

/// The permission is needed from 1.36 on; the API server calls the claim invalid then.
#[tokio::test(flavor = "multi_thread")]
async fn where_the_drivers_own_permission_is_missing_that_is_said_once_with_what_to_grant() {
    let role = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/cluster/rbac.yaml")).unwrap();
    let rules = PolicyRule::from_yaml(&role);
    let without = rules.into_iter().filter(|rule| rule.resources != ["resourceclaims/driver"]).collect();
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    server.allow(USER, without);
    let mut rig = Rig::on(server, "").await;
    let claim = rig.allocate("train", &["card-0"]);
    rig.prepare(&claim).await.unwrap();
    let said = || rig.host.log().matches("the status of claims is not written; looking again every hour").count();
    wait_for("the warning", || (said() > 0).then_some(()));
    assert!(rig.host.log().contains("associated-node:update on resourceclaims/driver"), "{}", rig.host.log());
    let other = rig.allocate("other", &["card-1"]);
    let mut plugin = rig.plugin.clone();
    plugin.prepare(&[other]).await.unwrap();
    assert_eq!((said(), rig.host.log().matches("the claim's status is not written").count()), (1, 0));
}

/// The rule of the policy in `deploy/cluster/policy-status.yaml`, in short.
fn only_own_devices_change(write: &apiserver::AdmissionAttributes<'_>) -> Result<(), String> {
    let (Some(object), Some(old), Some("status")) = (write.object, write.old, write.subresource) else { return Ok(()) };
    let others = |claim: &Value| -> Vec<Value> {
        let devices = claim["status"]["devices"].as_array().into_iter().flatten();
        devices.filter(|device| device["driver"] != "hostler.dev").cloned().collect()
    };
    let same = ["allocation", "reservedFor"].iter().all(|field| object["status"][*field] == old["status"][*field]);
    if write.user.name != USER || (same && others(object) == others(old)) {
        return Ok(());
    }
    Err("hostler may not change it".to_owned())
}

/// The shipped role, the policies beside it in short, and everything that a daemon does.
#[tokio::test(flavor = "multi_thread")]
async fn the_role_in_deploy_lets_the_daemon_do_everything_that_it_does() {
    let server = ApiServer::of(ApiServerRelease::V1_36).await;
    server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
    let mut rules = Vec::new();
    for file in ["cluster/rbac.yaml", "components/pods/rbac.yaml"] {
        let role = fs::read_to_string(format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        rules.extend(PolicyRule::from_yaml(&role));
    }
    server.allow(USER, rules.clone());
    server.admit(only_own_devices_change);
    let mut rig = Rig::on(server, "").await;
    rig.server.until("the devices are published", |view| (view.list("resourceslices").len() == 1).then_some(())).await;
    let claim = rig.allocate("train", &["card-0"]);
    rig.prepare(&claim).await.unwrap();
    rig.until_devices(&claim, "its status is written", |devices| devices.len() == 1).await;
    let late = rig.allocate("late", &["card-0"]);
    for _ in 0..2 {
        rig.prepare(&late).await.unwrap_err();
    }
    let counted = |view: &apiserver::ApiServerView<'_>| (view.list("events").first()?["count"] == 2).then_some(());
    rig.server.until("the failure is told, and told to have come again", counted).await;
    rig.host.script(&SCRIPT.replace("count = 4", "count = 5"));
    rig.host.run_ok(&["status", "--rescan"]);
    let grown = |view: &apiserver::ApiServerView<'_>| {
        (view.list("resourceslices")[0]["spec"]["devices"].as_array()?.len() == 6).then_some(())
    };
    rig.server.until("the new device is published", grown).await;
    rig.server.delete("resourceslices", rig.server.list("resourceslices")[0]["metadata"]["name"].as_str().unwrap());
    rig.server.until("it is published again", |view| (view.list("resourceslices").len() == 1).then_some(())).await;
    assert!(rig.explained("train").contains("it is prepared"));
    rig.unprepare(&claim).await.unwrap();
    let refused: Vec<_> = rig.server.log().into_iter().filter(|call| [403, 422].contains(&call.status)).collect();
    assert!(refused.is_empty(), "{refused:?}");
    // A write whose result is unknown, and a pool that shrinks, are not part of this.
    let log = rig.server.log();
    let is_used = |verb: &str| {
        let mut calls = log.iter().filter(|call| call.user == USER && call.resource == "resourceslices");
        ["get", "delete"].contains(&verb) || calls.any(|call| call.verb == verb)
    };
    let granted = rules.iter().filter(|rule| rule.resources == ["resourceslices"]).flat_map(|rule| &rule.verbs);
    let unused: Vec<&String> = granted.filter(|verb| !is_used(verb)).collect();
    assert!(unused.is_empty(), "nothing needs {unused:?}");
}

#[test]
fn without_a_cluster_a_claim_is_explained_from_its_manifest() {
    let mut host = Host::bare(SCRIPT);
    host.start();
    host.manifest("good", "u1", &[("all", "fake", "card-0", Value::Null)]);
    host.manifest("bad", "u2", &[("all", "fake", "card-0", Value::Null)]);
    let told = host.run_ok(&["explain", "claim", "u1"]);
    assert!(told.contains("run: hostler claim prepare -n default good"), "{told}");
    host.run_ok(&["claim", "prepare", "good"]);
    host.run_refused(&["claim", "prepare", "bad"]);
    let told = host.run_ok(&["explain", "claim", "bad"]);
    assert!(told.contains("claim default/bad, uid u2: failed") && told.contains("u1 (default/good)"), "{told}");
    assert!(host.run_ok(&["explain", "claim", "good"]).contains("it is prepared and holds 1 device"));
}

/// Returns the CPUs that a cgroup is bound to.
fn bound_cpus(cgroup: &Path) -> IdSet {
    fs::read_to_string(cgroup.join("cpuset.cpus")).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_did_to_a_container_is_told_in_events_of_its_claim() {
    if !containers_work_here() {
        return;
    }
    let unbound = Container::new().run().cpus;
    if unbound.len() < 2 {
        let _ = writeln!(io::stderr(), "skipped: containers have CPUs {unbound} here, and two are needed");
        return;
    }
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let host = Host::with("", "[backends.cpu]\nfull_cores = false\n");
    let mut rig = Rig::on_host(server, host, "").await;
    let one = json!({
        "request": "r", "driver": "hostler.dev", "pool": "node/cpu", "device": "numa0",
        "shareID": "5c8a8a4e-6f1c-4c0f-8f43-6d3d0c4e2f11", "consumedCapacity": {"cpus": "1"},
    });
    let claim = rig.allocate_with("pinned", &json!({"results": [one]}));
    let ids: Vec<String> =
        rig.prepare(&claim).await.unwrap().into_iter().flat_map(|device| device.cdi_device_ids).collect();
    let container = Container::new().inject(&rig.host.path("cdi"), &ids).start();
    let shown: Value = serde_json::from_str(&rig.host.run_ok(&["claim", "show", &claim.uid, "-o", "json"])).unwrap();
    let cgroup = PathBuf::from(shown["containers"][0]["cgroup"].as_str().unwrap());
    let promised = bound_cpus(&cgroup);

    // The claim goes while no daemon runs.
    rig.host.kill();
    fs::write(cgroup.join("cpuset.cpus"), unbound.to_string()).unwrap();
    rig.host.start();
    let event = rig.event("CpusetMended").await;
    assert_eq!(
        (&event["involvedObject"]["kind"], &event["involvedObject"]["name"]),
        (&json!("ResourceClaim"), &json!("pinned"))
    );
    assert!(event["message"].as_str().unwrap().contains("while nobody looked"), "{event}");
    assert_eq!(bound_cpus(&cgroup), promised);

    for mended in 1..=3 {
        // The daemon reads back what it wrote: only after that the next one writes.
        let is_mended = || rig.host.log().matches("container is bound again").count() >= mended;
        wait_for("the container to be put back", || is_mended().then_some(()));
        assert_eq!(bound_cpus(&cgroup), promised);
        fs::write(cgroup.join("cpuset.cpus"), unbound.to_string()).unwrap();
    }
    let event = rig.event("CpusetDegraded").await;
    assert!(event["message"].as_str().unwrap().contains("left as it is now"), "{event}");
    assert_eq!(bound_cpus(&cgroup), unbound);
    drop(container);
}

/// A server to which devices can be published.
async fn with_node() -> ApiServer {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_cannot_read_claims_is_not_ready_although_its_devices_are_published() {
    let mut rig = Rig::on(with_node().await, "").await;
    let ready = |host: &Host| host.metrics("/metrics").1.lines().any(|line| line == "hostler_ready 1");
    wait_for("the daemon to be ready", || ready(&rig.host).then_some(()));
    // A token that is refused ends no watch.
    rig.server.fail(ApiFault::new("get", "resourceclaims", u32::MAX, FaultEffect::Status(401, None)));
    let train = rig.allocate("train", &["card-0"]);
    rig.prepare(&train).await.unwrap_err();
    let status = rig.host.get("/v1/status");
    assert_eq!(status["publication"]["synced"], true, "{status}");
    let missing = status["not_ready"].to_string();
    assert!(
        missing.contains("new claims cannot be prepared: the API server does not accept the credentials"),
        "{missing}"
    );
    assert!(!ready(&rig.host));
    assert_eq!(rig.host.run(&["ready"]).status.code(), Some(1));
    assert!(rig.host.run(&["ready", "--alive"]).status.success(), "a restart would not mend it");
    rig.server.heal();
    // No kubelet asks for a claim.
    wait_for("the daemon to be ready again", || ready(&rig.host).then_some(()));
    rig.prepare(&train).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_starts_with_a_token_that_is_refused_is_not_ready() {
    let server = with_node().await;
    server.fail(ApiFault::new("get", "resourceclaims", u32::MAX, FaultEffect::Status(401, None)));
    let rig = Rig::on(server, "").await;
    wait_for("the devices to be published", || {
        (rig.host.get("/v1/status")["publication"]["synced"] == true).then_some(())
    });
    assert_eq!(rig.host.run(&["ready"]).status.code(), Some(1));
}

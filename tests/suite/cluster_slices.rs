//! Devices as a cluster sees them: the real daemon publishes to an API server in this process.

use std::{fs, time::Duration};

use hostler_testing::{
    apiserver::{self, ApiFault, ApiServer, ApiServerOptions, ApiServerRelease, FaultEffect},
    host::{Host, wait_for},
};
use serde_json::{Value, json};

const SLICES: &str = "resourceslices";
const THREE: &str = "[[device]]\nname = \"a\"\n[[device]]\nname = \"b\"\n[[device]]\nname = \"c\"\n";

/// A cluster of one node, on which the daemon is not started yet.
struct Rig {
    server: ApiServer,
    host: Host,
}

impl Rig {
    async fn new(options: ApiServerOptions, script: &str) -> Self {
        let rig = Self::without_node(options, script).await;
        rig.create_node();
        rig
    }

    async fn of(release: ApiServerRelease, script: &str) -> Self {
        Self::new(ApiServerOptions { release, ..ApiServerOptions::default() }, script).await
    }

    async fn without_node(options: ApiServerOptions, script: &str) -> Self {
        let server = ApiServer::start(options).await;
        let host = Host::bare(script);
        let kubeconfig = server.kubeconfig("system:node:node");
        let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
        let cluster = format!("[cluster]\nmode = \"kubernetes\"\nkubeconfig = \"{}\"\n", kubeconfig.display());
        fs::write(host.path("hostler.toml"), config.replace("[cluster]\n", &cluster)).unwrap();
        Self { server, host }
    }

    fn create_node(&self) {
        self.server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
    }

    /// Changes the hardware and has the daemon scan it.
    fn plug(&self, script: &str) {
        self.host.script(script);
        assert_eq!(self.host.request("POST", "/v1/rescan", "").0, 204);
    }

    /// Waits until the pool has exactly these devices and is complete.
    async fn until_published(&self, devices: &[&str]) {
        let wanted: Vec<String> = devices.iter().map(|name| (*name).to_owned()).collect();
        let look = |view: &apiserver::ApiServerView<'_>| (complete(&ours(view.list(SLICES)))? == wanted).then_some(());
        self.server.until(&format!("{devices:?} are published"), look).await;
    }

    fn slices(&self) -> Vec<Value> {
        ours(self.server.list(SLICES))
    }

    /// Returns the daemon's status of the publisher, once that is healthy.
    fn wait_until_synced(&self) -> Value {
        wait_for("the daemon to be done", || {
            let publication = self.host.get("/v1/status")["publication"].take();
            (publication["synced"] == true).then_some(publication)
        })
    }

    fn wait_for_error(&self, part: &str) {
        wait_for(part, || {
            let status = self.host.get("/v1/status");
            let error = status["publication"]["error"].as_str()?.to_owned();
            let told = status["not_ready"].to_string().contains("the devices are not published");
            (error.contains(part) && told).then_some(())
        });
    }

    /// Requests of one verb about slices so far.
    fn calls(&self, verb: &str) -> usize {
        self.server.log().iter().filter(|logged| logged.resource == SLICES && logged.verb == verb).count()
    }

    /// Waits until this many requests of one verb about slices were answered, and no more.
    async fn until_called(&self, verb: &str, times: usize) {
        let calls = |view: &apiserver::ApiServerView<'_>| {
            view.log().iter().filter(|logged| logged.resource == SLICES && logged.verb == verb).count()
        };
        self.server.until(&format!("{times} times {verb}"), |view| (calls(view) >= times).then_some(())).await;
        assert_eq!(self.calls(verb), times, "{verb}");
    }

    fn writes(&self) -> usize {
        self.server.writes(SLICES)
    }
}

fn ours(mut slices: Vec<Value>) -> Vec<Value> {
    slices.retain(|slice| slice["spec"]["driver"] == "hostler.dev" && slice["spec"]["nodeName"] == "node");
    slices.sort_by_key(|slice| name(slice).to_owned());
    slices
}

fn name(slice: &Value) -> &str {
    slice["metadata"]["name"].as_str().unwrap()
}

fn devices(slice: &Value) -> &[Value] {
    slice["spec"]["devices"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the devices of the pool in their order, as a scheduler sees them: `None` while slices are missing.
fn complete(slices: &[Value]) -> Option<Vec<String>> {
    let generation = |slice: &Value| slice["spec"]["pool"]["generation"].as_i64().unwrap();
    let latest = slices.iter().map(generation).max()?;
    let current: Vec<&Value> = slices.iter().filter(|slice| generation(slice) == latest).collect();
    let count = |slice: &&Value| slice["spec"]["pool"]["resourceSliceCount"] == current.len();
    let devices = current.iter().flat_map(|slice| devices(slice)).map(|it| it["name"].as_str().unwrap().to_owned());
    current.iter().all(count).then(|| devices.collect())
}

fn generation(slices: &[Value]) -> i64 {
    slices[0]["spec"]["pool"]["generation"].as_i64().unwrap()
}

fn many(count: usize, health: &str) -> String {
    format!("[[device]]\nname = \"d\"\ncount = {count}\n{health}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_is_a_complete_pool_that_the_node_owns_and_a_stop_leaves_it() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, THREE).await;
    rig.host.start();
    rig.until_published(&["a", "b", "c"]).await;
    let slices = rig.slices();
    assert_eq!(slices[0]["spec"]["pool"], json!({"name": "node/fake", "generation": 1, "resourceSliceCount": 1}));
    let node = rig.server.get("nodes", "node").unwrap();
    assert_eq!(
        slices[0]["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Node", "name": "node", "uid": node["metadata"]["uid"], "controller": true}])
    );
    let publication = rig.wait_until_synced();
    assert_eq!((&publication["slices"], &publication["dropped"]), (&json!(1), &json!([])));
    assert!(rig.host.stop().success());
    assert_eq!(rig.slices(), slices);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_and_a_rescan_find_everything_as_it_should_be_and_write_nothing() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, &many(150, "")).await;
    rig.host.start();
    rig.wait_until_synced();
    let (slices, writes) = (rig.slices(), rig.writes());
    assert_eq!(slices.len(), 3);
    for _ in 0..2 {
        rig.host.stop();
        rig.host.start();
        rig.wait_until_synced();
        rig.plug(&many(150, ""));
    }
    assert_eq!((rig.slices(), rig.writes()), (slices, writes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_slice_and_a_wipe_are_restored() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, &many(200, "")).await;
    rig.host.start();
    rig.wait_until_synced();
    let before = rig.slices();
    let content = |slices: &[Value]| slices.iter().map(|slice| slice["spec"].clone()).collect::<Vec<_>>();
    for deleted in [1..2, 0..4] {
        for slice in &before[deleted.clone()] {
            assert!(rig.server.delete(SLICES, name(slice)));
        }
        let restored = |view: &apiserver::ApiServerView<'_>| (ours(view.list(SLICES)).len() == 4).then_some(());
        rig.server.until("the slices are back", restored).await;
        rig.wait_until_synced();
        let after = rig.slices();
        assert_eq!(content(&after), content(&before));
        assert_ne!(after[1]["metadata"]["uid"], before[1]["metadata"]["uid"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_else_changes_is_put_right() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, THREE).await;
    rig.host.start();
    rig.wait_until_synced();
    let slice = rig.slices().remove(0);
    rig.server.edit(SLICES, name(&slice), |slice| {
        slice["spec"]["devices"].as_array_mut().unwrap().pop();
    });
    rig.until_published(&["a", "b", "c"]).await;
    let mut extra = slice.clone();
    extra["metadata"] = json!({"name": "extra"});
    rig.server.create(extra);
    let alone = |view: &apiserver::ApiServerView<'_>| (ours(view.list(SLICES)).len() == 1).then_some(());
    rig.server.until("the redundant slice is gone", alone).await;
    rig.until_published(&["a", "b", "c"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_devices_that_turn_unhealthy_cost_one_write_per_slice() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, &many(1000, "")).await;
    rig.host.start();
    rig.wait_until_synced();
    assert_eq!((rig.slices().len(), generation(&rig.slices())), (16, 1));
    let taints = |view: &apiserver::ApiServerView<'_>| {
        ours(view.list(SLICES)).iter().flat_map(devices).filter(|device| device["taints"][0].is_object()).count()
    };
    for (number, (health, tainted)) in
        [("health = \"unhealthy\"\nreason = \"hot\"\n", 1000), ("", 0)].into_iter().enumerate()
    {
        rig.plug(&many(1000, health));
        rig.server.until("all taints are right", |view| (taints(view) == tainted).then_some(())).await;
        rig.until_called("update", 16 * (number + 1)).await;
        assert_eq!(generation(&rig.slices()), 1, "taints make no new generation");
    }
    assert_eq!(rig.calls("delete"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_comes_or_goes_changes_its_slice_in_place_and_the_last_one_takes_it_away() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, THREE).await;
    rig.host.start();
    rig.until_published(&["a", "b", "c"]).await;
    rig.plug(&format!("{THREE}[[device]]\nname = \"d\"\n"));
    rig.until_published(&["a", "b", "c", "d"]).await;
    rig.plug("[[device]]\nname = \"c\"\n");
    rig.until_published(&["c"]).await;
    rig.until_called("update", 2).await;
    assert_eq!(generation(&rig.slices()), 1);
    rig.plug("");
    rig.server.until("no slices", |view| ours(view.list(SLICES)).is_empty().then_some(())).await;
    wait_for("the daemon to know of no slices", || (rig.wait_until_synced()["slices"] == 0).then_some(()));
    rig.plug(THREE);
    rig.until_published(&["a", "b", "c"]).await;
    rig.until_called("delete", 1).await;
    rig.until_called("update", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_delays_and_stops_nothing() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, THREE).await;
    rig.server.stop_listening().await;
    rig.host.start();
    rig.wait_for_error("failed to");
    rig.server.listen_again().await;
    rig.until_published(&["a", "b", "c"]).await;
    rig.wait_until_synced();
    rig.server.stop_listening().await;
    rig.plug("[[device]]\nname = \"new\"\n");
    rig.wait_for_error("failed to");
    rig.server.listen_again().await;
    rig.until_published(&["new"]).await;
    rig.wait_until_synced();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_and_lost_answers_are_tried_again() {
    for (verb, how) in [
        ("create", FaultEffect::Status(500, None)),
        ("create", FaultEffect::Status(429, Some(1))),
        ("create", FaultEffect::LoseAnswer),
        ("create", FaultEffect::Reset),
        ("update", FaultEffect::Status(409, None)),
        ("update", FaultEffect::Status(503, None)),
        ("update", FaultEffect::LoseAnswer),
        ("list", FaultEffect::Status(500, None)),
        ("watch", FaultEffect::Status(410, None)),
        ("watch", FaultEffect::Reset),
    ] {
        let mut rig = Rig::of(ApiServerRelease::V1_36, &many(70, "")).await;
        rig.server.fail(ApiFault::new(verb, SLICES, 2, how));
        rig.host.start();
        rig.wait_until_synced();
        rig.plug(&many(140, ""));
        let names: Vec<String> = (0..140).map(|number| format!("d-{number}")).collect();
        rig.until_published(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        rig.wait_until_synced();
        assert_eq!(rig.slices().len(), 3, "{verb} {how:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_for_time_is_left_alone_for_it() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, THREE).await;
    // Longer than any client waits; the daemon waits for half a minute at most.
    rig.server.fail(ApiFault::new("create", SLICES, 1, FaultEffect::Status(429, Some(3600))));
    rig.host.start();
    rig.wait_for_error("");
    let line = wait_for("a line of the log", || {
        let log = rig.host.log();
        log.lines().find(|line| line.contains("failed to publish devices")).map(str::to_owned)
    });
    assert!(line.contains("pause_ms=30000"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_were_missed_are_found_with_a_new_list() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, THREE).await;
    rig.host.start();
    rig.wait_until_synced();
    let slice = rig.slices().remove(0);
    rig.server.stop_listening().await;
    assert!(rig.server.delete(SLICES, name(&slice)));
    rig.server.compact();
    rig.server.listen_again().await;
    rig.until_published(&["a", "b", "c"]).await;
    rig.wait_until_synced();
    let (slices, writes) = (rig.slices(), rig.writes());
    let lists = rig.calls("list");
    rig.server.expire_watches();
    let listed = |view: &apiserver::ApiServerView<'_>| {
        let lists_now = view.log().iter().filter(|it| it.resource == SLICES && it.verb == "list").count();
        (lists_now > lists).then_some(())
    };
    rig.server.until("the slices are listed again", listed).await;
    rig.wait_until_synced();
    assert_eq!((rig.slices(), rig.writes()), (slices, writes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_drops_taints_never_sees_what_does_not_work_and_is_told_of_once() {
    let options =
        ApiServerOptions { gates: [("DRADeviceTaints".to_owned(), false)].into(), ..ApiServerOptions::default() };
    let unhealthy = "[[device]]\nname = \"sick\"\nhealth = \"unhealthy\"\nreason = \"hot\"\n";
    let mut rig = Rig::new(options, &format!("{THREE}{unhealthy}")).await;
    rig.host.start();
    let publication = rig.wait_until_synced();
    rig.until_published(&["a", "b", "c"]).await;
    assert_eq!(publication["dropped"], json!(["taints (feature gate DRADeviceTaints)"]));
    assert!(publication["left_out"][0].as_str().unwrap().starts_with("node/fake/sick: "), "{publication}");
    assert_eq!(rig.slices()[0]["metadata"]["generation"], 1, "it was never written with the sick device");
    let slices = rig.slices();
    rig.host.stop();
    rig.host.start();
    rig.wait_until_synced();
    assert_eq!(rig.slices(), slices);
    rig.plug(&format!("[[device]]\nname = \"new\"\n{unhealthy}"));
    rig.until_published(&["new"]).await;
    rig.wait_until_synced();
    // Once for each of the two daemons.
    assert_eq!(rig.host.log().matches("the API server drops fields").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_of_the_api_has_the_same_devices() {
    let script = "[[device]]\nname = \"a\"\nnuma_node = 1\nsharing = \"shared\"\n\
                  [device.capacity]\nmemory = { value = \"16Gi\", min = \"1Gi\", step = \"1Gi\", default = \"1Gi\" }\n";
    for release in ApiServerRelease::ALL {
        let mut rig = Rig::of(release, script).await;
        rig.host.start();
        rig.wait_until_synced();
        let slices = rig.slices();
        let device = &devices(&slices[0])[0];
        assert_eq!(device["attributes"]["resource.kubernetes.io/numaNode"], json!({"int": 1}), "{release:?}");
        assert_eq!(
            device["allowMultipleAllocations"] == true,
            release >= ApiServerRelease::V1_36,
            "{release:?}: {device}"
        );
        rig.host.stop();
        rig.host.start();
        rig.wait_until_synced();
        assert_eq!(rig.slices(), slices, "{release:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_of_others_are_left_alone() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, THREE).await;
    let other = |name: &str, driver: &str, node: &str| {
        rig.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": driver, "nodeName": node, "devices": [{"name": "a"}],
                "pool": {"name": format!("{node}/fake"), "generation": 9, "resourceSliceCount": 1}},
        }))
    };
    let others = [other("driver", "other.example.com", "node"), other("node", "hostler.dev", "other-node")];
    rig.host.start();
    rig.wait_until_synced();
    rig.until_published(&["a", "b", "c"]).await;
    assert_eq!(others.map(|it| rig.server.get(SLICES, name(&it)).unwrap() == it), [true, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_node_object_the_daemon_waits_and_says_so() {
    let mut rig = Rig::without_node(ApiServerOptions::default(), THREE).await;
    rig.host.start();
    rig.wait_for_error("failed to get Node node");
    assert_eq!(rig.slices(), Vec::<Value>::new());
    rig.create_node();
    rig.until_published(&["a", "b", "c"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_made_anew_becomes_the_owner() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, THREE).await;
    rig.host.start();
    rig.wait_until_synced();
    rig.server.delete("nodes", "node");
    rig.create_node();
    // The garbage collector deletes the slices of the node that is gone.
    rig.server.delete(SLICES, name(&rig.slices()[0]));
    rig.until_published(&["a", "b", "c"]).await;
    let node = rig.server.get("nodes", "node").unwrap();
    assert_eq!(rig.slices()[0]["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_take_their_time_are_made_side_by_side() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, &many(500, "")).await;
    rig.server.fail(ApiFault::new("create", SLICES, 20, FaultEffect::Latency(Duration::from_millis(50))));
    rig.host.start();
    rig.wait_until_synced();
    assert_eq!(complete(&rig.slices()).unwrap().len(), 500);
    assert_eq!(rig.calls("create"), 8 + 1, "one for each slice, and a dry run");
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_of_a_backend_that_does_not_answer_stay_as_they_are_until_it_does() {
    let mut rig = Rig::of(ApiServerRelease::V1_36, THREE).await;
    let config = fs::read_to_string(rig.host.path("hostler.toml")).unwrap();
    fs::write(rig.host.path("hostler.toml"), format!("{config}[inventory]\nanswer_within = \"500ms\"\n")).unwrap();
    rig.host.start();
    rig.until_published(&["a", "b", "c"]).await;
    rig.wait_until_synced();
    let (before, writes) = (rig.slices(), rig.writes());

    // Twice: it hangs, and it fails, when nothing has been known yet.
    let answer = rig.host.path("answer");
    let faults = [format!("until = \"{}\"", answer.display()), "error = \"the bus is down\"".to_owned()];
    for fault in &faults {
        rig.host.kill();
        rig.host.script(&format!("{THREE}[[fault]]\nstep = \"enumerate\"\n{fault}\n"));
        rig.host.start();
        rig.wait_until_synced();
        assert_eq!((rig.slices(), rig.writes()), (before.clone(), writes), "{fault}");
        assert!(rig.host.get("/v1/status")["not_ready"].to_string().contains("nothing is known of its devices"));
    }
    rig.host.kill();
    let one_more = format!("{THREE}[[device]]\nname = \"d\"\n[[fault]]\nstep = \"enumerate\"\n{}\n", faults[0]);
    rig.host.script(&one_more);
    rig.host.start();
    fs::write(answer, "").unwrap();
    rig.until_published(&["a", "b", "c", "d"]).await;
    assert_eq!(rig.calls("delete"), 0, "nothing was taken away in between");
    assert!(rig.host.stop().success());
}

//! Held devices: the real daemon reads holds from an API server in this process and taints the devices in its slices.
//! In every failure of the daemon and of the server, no device that the daemon confirmed as held is ever offered to
//! other claims.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use hostler_testing::{
    apiserver::{
        AdmissionAttributes, ApiFault, ApiServer, ApiServerOptions, ApiServerRelease, ApiServerView, FaultEffect,
        PolicyRule,
    },
    host::{Host, wait_for},
};
use serde_json::{Value, json};
use tokio::time::timeout;

const USER: &str = "system:serviceaccount:hostler-system:hostler";
const HARDWARE: &str = "nodehardware";
const SLICES: &str = "resourceslices";
const FOR_ONE: &str = "0123456789abcdef";
const FOR_OTHER: &str = "fedcba9876543210";
const CARDS: &str = "[[device]]\nname = \"card\"\ncount = 4\n";

/// Least number of times that the daemon is killed.
const ROUNDS: usize = 24;

/// Devices, and the holder of each.
type Holds = BTreeMap<String, String>;

fn shipped(file: &str) -> String {
    fs::read_to_string(format!("{}/deploy/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn held(devices: &[(&str, &str)]) -> Holds {
    devices.iter().map(|(device, value)| ((*device).to_owned(), (*value).to_owned())).collect()
}

/// Returns the holds in a slice's taints.
fn tainted(slice: &Value) -> Holds {
    let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
    let value = |device: &Value| {
        let mut taints = device["taints"].as_array()?.iter();
        let taint = taints.find(|it| it["key"] == "hostler.dev/held" && it["effect"] == "NoSchedule")?;
        Some((device["name"].as_str()?.to_owned(), taint["value"].as_str()?.to_owned()))
    };
    devices.filter_map(value).collect()
}

fn held_now(view: &ApiServerView<'_>) -> Holds {
    view.list(SLICES).iter().flat_map(tainted).collect()
}

/// The holds that the daemon was given and has confirmed; checks every write of a slice against them.
#[derive(Debug, Default)]
struct Witness {
    confirmed: Holds,
    broken: Vec<String>,
    checked: usize,
    /// Number of writes of slices, each seen before any reader can see its result.
    slice_writes: usize,
}

impl Witness {
    fn see(&mut self, write: &AdmissionAttributes<'_>) {
        let Some(object) = write.object else { return };
        match (write.resource, write.subresource) {
            (SLICES, _) => self.check(object),
            (HARDWARE, Some("status")) if object["status"]["holdsGeneration"] == object["metadata"]["generation"] => {
                let holds = object["spec"]["holds"].as_array().into_iter().flatten();
                let text = |hold: &Value, field: &str| hold[field].as_str().unwrap().to_owned();
                self.confirmed = holds.map(|hold| (text(hold, "device"), text(hold, "value"))).collect();
            }
            _ => {}
        }
    }

    fn check(&mut self, slice: &Value) {
        // A probe of the server's abilities keeps no hold.
        if slice["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("probe-")) {
            return;
        }
        self.slice_writes += 1;
        let (says, devices) = (tainted(slice), slice["spec"]["devices"].as_array());
        for device in devices.into_iter().flatten().filter_map(|device| device["name"].as_str()) {
            let Some(value) = self.confirmed.get(device) else { continue };
            self.checked += 1;
            if says.get(device) != Some(value) {
                self.broken.push(format!("{device} is held for {value}, and {slice} does not say so"));
            }
        }
    }
}

struct Rig {
    server: ApiServer,
    host: Host,
    witness: Arc<Mutex<Witness>>,
}

impl Rig {
    async fn new(release: ApiServerRelease, role: &str, script: &str) -> Self {
        let server = ApiServer::start(ApiServerOptions { release, ..ApiServerOptions::default() }).await;
        server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
        server.allow(USER, PolicyRule::from_yaml(role));
        server.user(USER, Some("node"));
        server.create_yaml(&shipped("crds/nodehardware.yaml"));
        let witness = Arc::new(Mutex::new(Witness::default()));
        let seen = witness.clone();
        server.admit(move |write| {
            seen.lock().unwrap().see(write);
            Ok(())
        });
        let host = Host::bare_with(script, "");
        let config = fs::read_to_string(host.path("hostler.toml")).unwrap();
        let cluster = format!("[cluster]\nmode = \"kubernetes\"\nkubeconfig = {:?}\n", server.kubeconfig(USER));
        fs::write(host.path("hostler.toml"), config.replace("[cluster]\n", &cluster)).unwrap();
        Self { server, host, witness }
    }

    async fn started(script: &str) -> Self {
        let mut rig = Self::new(ApiServerRelease::V1_36, &shipped("cluster/rbac.yaml"), script).await;
        rig.host.start();
        rig.server
            .until("the first report", |view| view.get(HARDWARE, "node")?["status"]["driver"].as_str().map(drop))
            .await;
        rig
    }

    /// Writes holds as the controller does; a hold that ends here is promised to no owner any more.
    fn hold(&self, holds: &Holds) {
        self.witness.lock().unwrap().confirmed.retain(|device, value| holds.get(device) == Some(value));
        let hold = |(device, value): (&String, &String)| json!({"pool": "node/fake", "device": device, "value": value});
        let mut object = self.server.get(HARDWARE, "node").unwrap();
        object["spec"]["holds"] = holds.iter().map(hold).collect();
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        self.server.update(object);
    }

    /// Waits until exactly these devices are tainted as held, and the daemon has confirmed it.
    async fn until_held(&self, holds: &Holds) -> Value {
        let look = |view: &ApiServerView<'_>| {
            let object = view.get(HARDWARE, "node")?;
            let is_told = object["status"]["holdsGeneration"] == object["metadata"]["generation"];
            (is_told && held_now(view) == *holds).then_some(object)
        };
        self.server.until(&format!("{holds:?} are held"), look).await
    }

    /// Waits until the server has answered so many more requests, or the daemon is at rest: it makes none for a while then.
    async fn until_answered(&self, count: usize) {
        let mut seen = self.server.log().len();
        let enough = seen + count;
        // One that starts takes longer to its first request.
        let mut patience = Duration::from_secs(2);
        while seen < enough {
            let more = |view: &ApiServerView<'_>| Some(view.log().len()).filter(|answered| *answered > seen);
            match timeout(patience, self.server.until("a request", more)).await {
                Ok(answered) => (seen, patience) = (answered, Duration::from_millis(500)),
                Err(_) => return,
            }
        }
    }

    fn slice_writes(&self) -> usize {
        self.witness.lock().unwrap().slice_writes
    }

    fn assert_kept(&self) -> usize {
        let witness = self.witness.lock().unwrap();
        assert_eq!(witness.broken, Vec::<String>::new());
        witness.checked
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    object["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn held_devices_say_for_whom_with_one_write_of_their_slice() {
    let rig = Rig::started(CARDS).await;
    rig.server.until("slices", |view| (!view.list(SLICES).is_empty()).then_some(())).await;
    let (writes, generation) = (rig.slice_writes(), rig.server.list(SLICES)[0]["spec"]["pool"]["generation"].clone());
    assert_eq!(rig.server.get(HARDWARE, "node").unwrap()["status"]["holdsGeneration"], Value::Null);
    let both = held(&[("card-0", FOR_ONE), ("card-3", FOR_OTHER)]);
    rig.hold(&both);
    let object = rig.until_held(&both).await;
    assert_eq!(rig.slice_writes(), writes + 1);
    assert_eq!(rig.server.list(SLICES)[0]["spec"]["pool"]["generation"], generation);
    assert_eq!((&object["status"]["devices"]["held"], &object["status"]["devices"]["free"]), (&json!(2), &json!(2)));
    assert_eq!(condition(&object, "HoldsPublished")["status"], "True");
    let other = held(&[("card-1", FOR_ONE)]);
    rig.hold(&other);
    rig.until_held(&other).await;
    rig.hold(&Holds::new());
    let object = rig.until_held(&Holds::new()).await;
    assert_eq!(rig.slice_writes(), writes + 3, "one for each change");
    assert_eq!((&object["status"]["devices"]["held"], condition(&object, "HoldsPublished")), (&json!(0), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_held_is_named_and_the_rest_is_held() {
    let script = format!(
        "{CARDS}[[counter_set]]\nname = \"die\"\ncounters = {{ slots = 2 }}\n\
         [[device]]\nname = \"part\"\ncount = 2\nconsumes = [{{ set = \"die\", counters = {{ slots = 1 }} }}]\n"
    );
    let rig = Rig::started(&script).await;
    rig.hold(&held(&[("card-0", FOR_ONE), ("card-9", FOR_ONE), ("part-0", FOR_ONE)]));
    let object = rig.until_held(&held(&[("card-0", FOR_ONE)])).await;
    let told = condition(&object, "HoldsPublished");
    assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("DevicesNotHeld")));
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("node/fake/card-9: there is no such device"), "{message}");
    assert!(message.contains("node/fake/part-0: it draws on counter set die"), "{message}");
    let all = held(&[("part-0", FOR_ONE), ("part-1", FOR_ONE)]);
    rig.hold(&all);
    let object = rig.until_held(&all).await;
    assert_eq!(condition(&object, "HoldsPublished")["status"], "True");
    // With schedulers that support it, each device is held for its own owner.
    let part = held(&[("part-0", FOR_ONE)]);
    rig.server.edit(HARDWARE, "node", |object| object["spec"]["holdsPartitions"] = json!(true));
    rig.hold(&part);
    let object = rig.until_held(&part).await;
    assert_eq!(condition(&object, "HoldsPublished")["status"], "True");
    // A device that comes back is held again, though no new hold is written.
    let with_more = held(&[("card-0", FOR_ONE), ("card-9", FOR_ONE)]);
    rig.hold(&with_more);
    rig.until_held(&held(&[("card-0", FOR_ONE)])).await;
    rig.host.script(&script.replace("count = 4", "count = 10"));
    rig.host.run_ok(&["status", "--rescan"]);
    rig.until_held(&with_more).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_taints_is_told_by_an_attribute() {
    let mut rig = Rig::new(ApiServerRelease::V1_34, &shipped("cluster/rbac.yaml"), CARDS).await;
    rig.host.start();
    rig.server
        .until("the first report", |view| view.get(HARDWARE, "node")?["status"]["driver"].as_str().map(drop))
        .await;
    rig.hold(&held(&[("card-2", FOR_ONE)]));
    let by_attribute = |view: &ApiServerView<'_>| {
        let object = view.get(HARDWARE, "node")?;
        let is_told = object["status"]["holdsGeneration"] == object["metadata"]["generation"];
        let devices =
            view.list(SLICES).into_iter().flat_map(|slice| slice["spec"]["devices"].as_array().unwrap().clone());
        let held: Vec<Value> =
            devices.filter(|it| it["attributes"]["hostler.dev/held"]["bool"] == true).collect::<Vec<_>>();
        (is_told && !held.is_empty()).then_some(held)
    };
    let devices = rig.server.until("an attribute", by_attribute).await;
    assert_eq!(devices.iter().map(|device| device["name"].as_str().unwrap()).collect::<Vec<_>>(), ["card-2"]);
    rig.hold(&Holds::new());
    let none =
        |view: &ApiServerView<'_>| (!json!(view.list(SLICES)).to_string().contains("hostler.dev/held")).then_some(());
    rig.server.until("no attribute", none).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_as_long_as_nobody_knows_what_is_held() {
    let mut rig = Rig::started(CARDS).await;
    let holds = held(&[("card-1", FOR_ONE)]);
    rig.hold(&holds);
    rig.until_held(&holds).await;
    rig.host.kill();
    // The kubelet does this with the slices of a driver that is away for long.
    rig.server.list(SLICES).iter().for_each(|slice| {
        rig.server.delete(SLICES, slice["metadata"]["name"].as_str().unwrap());
    });
    for verb in ["list", "watch", "get"] {
        rig.server.fail(ApiFault::new(verb, HARDWARE, 1000, FaultEffect::Status(500, None)));
    }
    let writes = rig.slice_writes();
    rig.host.start();
    wait_for("the reason", || {
        let told = rig.host.get("/v1/status")["publication"]["error"].take();
        told.as_str()?.contains("nobody knows which devices are held").then_some(())
    });
    assert_eq!(rig.slice_writes(), writes, "the server would have taken slices");
    rig.server.heal();
    rig.until_held(&holds).await;
    assert!(rig.assert_kept() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_of_before_there_were_holds_is_enough_to_look() {
    let role = shipped("cluster/rbac.yaml");
    let old = role.replace("verbs: [get, list, watch, create, patch]", "verbs: [get, create, patch]");
    assert_ne!(role, old);
    let mut rig = Rig::new(ApiServerRelease::V1_36, &old, CARDS).await;
    rig.host.start();
    rig.server.until("slices", |view| (!view.list(SLICES).is_empty()).then_some(())).await;
    rig.server
        .until("the first report", |view| view.get(HARDWARE, "node")?["status"]["driver"].as_str().map(drop))
        .await;
    let holds = held(&[("card-0", FOR_OTHER)]);
    rig.hold(&holds);
    rig.host.kill();
    rig.host.start();
    rig.until_held(&holds).await;
}

/// Each round changes holds, or does not, kills the daemon when the server has answered so many requests, loses slices
/// and answers, and starts a daemon again.
#[tokio::test(flavor = "multi_thread")]
async fn no_kill_and_no_outage_ever_offers_a_held_device() {
    let mut rig = Rig::started(CARDS).await;
    let mut chance = fastrand::Rng::with_seed(15);
    let mut holds = held(&[("card-2", FOR_ONE)]);
    rig.hold(&holds);
    for round in 0.. {
        // Slices are written only if devices had to be published again: the loop ends when that was often enough.
        if round >= ROUNDS && rig.assert_kept() > 20 {
            break;
        }
        assert!(round < 10 * ROUNDS, "hardly a slice is written");
        if chance.bool() {
            let value = if chance.bool() { FOR_ONE } else { FOR_OTHER };
            holds = (0..4).filter(|_| chance.bool()).map(|card| (format!("card-{card}"), value.to_owned())).collect();
            rig.hold(&holds);
        }
        if chance.u32(..4) > 0 {
            rig.server.heal();
            rig.until_held(&holds).await;
        }
        if chance.bool() {
            let verb = ["create", "update", "patch", "list", "get"][chance.usize(..5)];
            let how = [FaultEffect::LoseAnswer, FaultEffect::Reset, FaultEffect::Status(503, None)][chance.usize(..3)];
            rig.server.fail(ApiFault::new(verb, "*", chance.u32(1..3), how));
        }
        rig.until_answered(chance.usize(..16)).await;
        rig.host.kill();
        if chance.bool() {
            rig.server.list(SLICES).iter().for_each(|slice| {
                rig.server.delete(SLICES, slice["metadata"]["name"].as_str().unwrap());
            });
        }
        if chance.u32(..4) == 0 {
            rig.server.stop_listening().await;
            rig.host.spawn();
            rig.host.kill();
            rig.server.listen_again().await;
        }
        rig.host.spawn();
    }
    rig.server.heal();
    rig.host.wait_until_served();
    rig.until_held(&holds).await;
    rig.assert_kept();
}

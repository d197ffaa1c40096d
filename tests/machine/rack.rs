//! A rack: emulated machines that share an enclosure of CXL cards, a fabric manager whose connections are cables that the
//! test plugs and pulls, and the cluster that the machines are nodes of, with the real controller and the scheduler of
//! the tests.
//!
//! ```text
//!   controller ──Redfish──► manager ──connections──► cables ──device_add, device_del──► machines ◄── files of the cards
//!       │                                                                                  │ daemon
//!       └──────────────────────────── API server, scheduler ◄──────────────────────────────┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease, PolicyRule},
    binary::controller_binary,
    control_plane::ControlPlane,
    controller::{ControllerOptions, RunningController},
    kubelet::{Kubelet, KubeletRelease, claim},
    redfish::{FABRIC, PlayedRedfish, host_uuid},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    emulator::{RackHost, Turn, turn},
    guest::{Guest, cache},
};

const CONTROLLER: &str = "system:serviceaccount:hostler-controller:hostler-controller";
const MIB: u64 = 1 << 20;
/// The memory of a card. Linux makes regions of multiples of it.
const CARD_MIB: u64 = 256;
/// Longer than a card takes to come to a machine in software, or to go from it: a slot waits five seconds for a change of
/// mind, and erasing takes four.
const PATIENCE: Duration = Duration::from_secs(180);

/// Prints the last words of the kernel, and where its threads stand that wait for something without an end.
const WHAT_THE_KERNEL_DOES: &str = "\
dmesg | tail -n 40; for thread in /proc/[0-9]*/task/[0-9]*; do \
grep -q '^State:.D' $thread/status && cat $thread/comm $thread/stack; done; true";

/// The machines, their enclosure and their cluster.
pub struct Rack {
    pub server: Arc<ApiServer>,
    pub manager: PlayedRedfish,
    enclosure: tempfile::TempDir,
    cards: u32,
    /// True if cards have persistent memory as well.
    pub have_lasting_memory: bool,
    /// What the claims of the next pods ask for beside the class.
    pub ask: Value,
    machines: BTreeMap<u32, Guest>,
    /// The machine that a card is in.
    plugged: BTreeMap<u32, u32>,
    /// Cards whose button was pressed.
    leaving: BTreeSet<u32>,
    controller: Option<RunningController>,
    options: ControllerOptions,
    turn: Turn,
    runtime: Runtime,
}

/// Name of a machine as a node.
pub fn node(at: u32) -> String {
    format!("n{at}")
}

/// Name of a card in its pool.
pub fn card(at: u32) -> String {
    format!("4c1d9600000000{at:02x}-0001")
}

fn shipped(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)).unwrap()
}

fn daemon_of(at: u32) -> String {
    format!("system:serviceaccount:hostler-system:hostler-{at}")
}

impl Rack {
    /// Boots the machines, and starts daemons and controller.
    pub fn boot(machines: u32, cards: u32) -> Self {
        Self::around(machines, cards, PlayedRedfish::rack(machines, cards), |file| {
            File::create(file).unwrap().set_len(CARD_MIB * MIB).unwrap();
        })
    }

    /// The same with cards that have no memory of their own, and share as much as one card has.
    pub fn boot_shared(machines: u32, cards: u32) -> Self {
        let manager = PlayedRedfish::shared(machines, cards, CARD_MIB);
        // The machines map the same bytes, whichever card it is.
        Self::around(machines, cards, manager, |file| match file.with_file_name("0") {
            first if first.exists() => fs::hard_link(first, file).unwrap(),
            first => File::create(first).unwrap().set_len(CARD_MIB * MIB).unwrap(),
        })
    }

    fn around(machines: u32, cards: u32, manager: impl Future<Output = PlayedRedfish>, make: impl Fn(&Path)) -> Self {
        let runtime = Runtime::new().unwrap();
        let (server, manager) =
            runtime.block_on(async { (Arc::new(ApiServer::of(ApiServerRelease::V1_36).await), manager.await) });
        manager.change(|documents| {
            let chunk = |path: &str| path.contains("/MemoryChunks/") || path.contains("/CXLLogicalDevices/");
            for (_, document) in documents.iter_mut().filter(|(path, _)| chunk(path)) {
                for size in ["MemorySizeMiB", "MemoryChunkSizeMiB"] {
                    if let Some(size) = document.get_mut(size) {
                        *size = json!(CARD_MIB);
                    }
                }
            }
        });
        install(&server, machines);
        let options = ControllerOptions {
            binary: controller_binary(),
            kubeconfig: server.kubeconfig(CONTROLLER),
            config: format!(
                "[fabric]\npoll_seconds = 1\n[[fabric.managers]]\nname = 'row1'\n\
                 redfish = {{ address = '{}', allow_plain_http = true, read_seconds = 5 }}\n",
                manager.url()
            ),
            ..ControllerOptions::default()
        };
        runtime.block_on(async { drop(ControlPlane::new().run(&server)) });
        // In memory where that can be: a card is read and written as a whole.
        let enclosure = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        (0..cards).for_each(|at| make(&enclosure.path().join(at.to_string())));
        let turn = turn(&cache());
        let mut rack = Self {
            server,
            manager,
            enclosure,
            cards,
            have_lasting_memory: false,
            ask: json!({}),
            machines: BTreeMap::new(),
            plugged: BTreeMap::new(),
            leaving: BTreeSet::new(),
            controller: None,
            options,
            turn,
            runtime,
        };
        (0..machines).for_each(|at| rack.power_on(at));
        rack.start_controller();
        rack
    }

    /// The file that has what is in a card's memory.
    fn file(&self, at: u32) -> PathBuf {
        self.enclosure.path().join(at.to_string())
    }

    /// Boots a machine, and starts its daemon.
    pub fn power_on(&mut self, at: u32) {
        let cards = (0..self.cards).map(|card| (self.file(card), CARD_MIB * MIB)).collect();
        let mut machine = Guest::boot_rack_host(&self.turn, RackHost { uuid: host_uuid(at), cards });
        machine.ok("ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up");
        let token = self.server.user(&daemon_of(at), Some(&node(at)));
        let authority = fs::read_to_string(self.server.authority()).unwrap();
        machine.ok("mkdir -p /etc/hostler /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry");
        machine.write("/etc/hostler/authority.pem", &authority);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "rack",
            "clusters": [{"name": "rack", "cluster": {
                "server": self.server.url().replace("127.0.0.1", "10.0.2.2").replace("localhost", "10.0.2.2"),
                "certificate-authority": "/etc/hostler/authority.pem",
            }}],
            "users": [{"name": "daemon", "user": {"token": token}}],
            "contexts": [{"name": "rack", "context": {"cluster": "rack", "user": "daemon"}}],
        });
        machine.write("/etc/hostler/kubeconfig", &kubeconfig.to_string());
        machine.write(
            "/etc/hostler/hostler.toml",
            &format!(
                "node_name = \"{}\"\n[log]\nlevel = \"debug\"\n[inventory]\nrescan = \"1h\"\n\
                 [cluster]\nmode = \"kubernetes\"\nkubeconfig = \"/etc/hostler/kubeconfig\"\n",
                node(at)
            ),
        );
        machine.start_daemon();
        self.machines.insert(at, machine);
    }

    /// Turns a machine off as a cable does that is pulled. Its cards stay connected, as far as the manager knows.
    pub fn power_off(&mut self, at: u32) {
        self.machines.remove(&at).expect("it has power").power_off();
        self.plugged.retain(|_, machine| *machine != at);
    }

    /// A machine that has power.
    pub fn machine(&mut self, at: u32) -> &mut Guest {
        self.machines.get_mut(&at).expect("it has power")
    }

    /// Starts the controller.
    pub fn start_controller(&mut self) {
        self.controller = Some(self.runtime.block_on(RunningController::start(&self.options)));
    }

    /// Kills the controller as the kernel does when memory runs out.
    pub fn kill_controller(&mut self) {
        let controller = self.controller.take().expect("it runs");
        controller.signal(Signal::SIGKILL);
    }

    /// What an object of an attachment says; null if there is none.
    pub fn attachment(&self, at: u32) -> Value {
        self.server.get("fabricattachments", &card(at)).unwrap_or_default()
    }

    /// Waits until `look` gives something. Cables are plugged and pulled meanwhile, as the manager connects.
    pub fn until<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            self.tend_cables();
            if let Some(found) = look(self) {
                return found;
            }
            if start.elapsed() > PATIENCE {
                self.lost(what);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until an attachment has this phase.
    pub fn until_phase(&mut self, at: u32, phase: &str) -> Value {
        self.until(&format!("card {at} is {phase}"), |rack| {
            Some(rack.attachment(at)).filter(|object| object["status"]["phase"] == phase)
        })
    }

    /// Waits until a pod has a node.
    pub fn until_bound(&mut self, pod: &str) -> u32 {
        self.until(&format!("pod {pod} has a node"), |rack| {
            let pod = rack.server.get("pods", &format!("default/{pod}"))?;
            pod["spec"]["nodeName"].as_str()?.strip_prefix('n')?.parse().ok()
        })
    }

    fn lost(&mut self, what: &str) -> ! {
        let machines = self.machines.iter_mut();
        let mut known: Vec<String> = machines
            .map(|(at, machine)| format!("machine {at}:\n{}{}", machine.log(), machine.ok(WHAT_THE_KERNEL_DOES)))
            .collect();
        known.extend(self.controller.iter().map(|it| format!("controller:\n{}", it.log().join("\n"))));
        let kinds = ["fabricattachments", "resourceclaims", "pods"];
        known.extend(kinds.map(|kind| format!("{kind}: {:#}", Value::from(self.server.list(kind)))));
        panic!("waited in vain until {what}\n{}", known.join("\n"));
    }

    /// The machine that each card is connected to, by the manager's word.
    fn connected(&self) -> BTreeMap<u32, u32> {
        let end = |document: &Value, end: &str, letter: char| {
            let path = document["Links"][end][0]["@odata.id"].as_str()?;
            path.rsplit('/').next()?.strip_prefix(letter)?.parse().ok()
        };
        let documents = self.manager.connections().into_iter();
        let documents = documents.filter_map(|id| self.manager.document(&format!("{FABRIC}/Connections/{id}")));
        let ends = |it: &Value| Some((end(it, "TargetEndpoints", 'T')?, end(it, "InitiatorEndpoints", 'I')?));
        documents.filter_map(|document| ends(&document)).collect()
    }

    fn tend_cables(&mut self) {
        let connected = self.connected();
        for (card, at) in self.plugged.clone() {
            let id = format!("card-{card}");
            let machine = self.machines.get_mut(&at).expect("cards of machines without power are forgotten");
            if connected.get(&card) == Some(&at) {
                continue;
            }
            if !machine.is_plugged(&id) {
                self.plugged.remove(&card);
                self.leaving.remove(&card);
            } else if self.leaving.insert(card) {
                machine.unplug(&id);
            }
        }
        for (card, at) in connected {
            let Some(machine) = self.machines.get_mut(&at).filter(|_| !self.plugged.contains_key(&card)) else {
                continue;
            };
            let serial = 0x4c1d_9600_0000_0000_u64 | u64::from(card);
            let mut device = json!({
                "driver": "cxl-type3", "bus": format!("slot{card}"), "volatile-memdev": format!("card{card}"),
                "id": format!("card-{card}"), "sn": serial,
            });
            if self.have_lasting_memory {
                device["persistent-memdev"] = json!(format!("lasting{card}"));
                device["lsa"] = json!(format!("labels{card}"));
            }
            machine.plug(&device);
            self.plugged.insert(card, at);
        }
    }

    /// True if these words are anywhere in a card's memory.
    pub fn is_in_card(&self, at: u32, words: &str) -> bool {
        let found = Command::new("grep").args(["-qaF", words]).arg(self.file(at)).status().unwrap();
        found.success()
    }

    /// Creates a pod with a claim for a card as memory of the system; on this machine, or where the scheduler wants it.
    pub fn create_pod(&self, name: &str, on: Option<u32>) {
        let parameters = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CxlConfig", "useAs": "systemRam"});
        let mut request = self.ask.clone();
        request["deviceClassName"] = json!("cxl.hostler.dev");
        self.server.create(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {
                "requests": [{"name": "card", "exactly": request}],
                "config": [{"opaque": {"driver": "hostler.dev", "parameters": parameters}}],
            }},
        }));
        let selector = on.map(|at| json!({"kubernetes.io/hostname": node(at)}));
        self.server.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeSelector": selector, "containers": [{"name": "main", "image": "busybox"}],
                "resourceClaims": [{"name": "card", "resourceClaimName": name}],
            },
        }));
    }

    /// UID of a claim.
    pub fn claim_uid(&self, name: &str) -> String {
        let claim = self.server.get("resourceclaims", &format!("default/{name}")).expect("it was created");
        claim["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// The kubelet of a machine asks its daemon about a claim: `prepare` or `unprepare`. As the real one does, it asks again
    /// when its time for an answer is over.
    pub fn kubelet(&mut self, at: u32, call: &str, name: &str) {
        let uid = self.claim_uid(name);
        let command = format!(
            "HOSTLER_CALL={call} HOSTLER_CLAIM={name} HOSTLER_UID={uid} \
             machine --ignored --exact rack::a_kubelet_calls --nocapture"
        );
        self.until(&format!("claim {name} is {call}d"), |rack| {
            let said = rack.machine(at).run(&command);
            let is_late = ["Timeout expired", "took longer"].iter().any(|late| said.errors.contains(late));
            assert!(said.code == 0 || is_late, "{}{}\n{}", said.output, said.errors, rack.machine(at).log());
            (said.code == 0).then_some(())
        });
    }

    /// The shipped roles allow everything that controller and daemons did for cards. What other roles allow is refused.
    pub fn assert_no_right_is_missing(&self) {
        let of_cards = ["events", "fabricattachments", "resourceclaims", "resourceslices", "nodehardware"];
        let log = self.server.log();
        let refused: Vec<_> = log.iter().filter(|it| it.status == 403 && of_cards.contains(&&*it.resource)).collect();
        assert!(refused.is_empty(), "{refused:#?}");
        assert!(log.iter().any(|it| it.user == CONTROLLER && it.resource == "events"), "no claim was told of its card");
    }

    /// A pod that has ended goes, with its claim.
    pub fn delete_pod(&self, name: &str) {
        self.server.delete("pods", &format!("default/{name}"));
        self.server.delete("resourceclaims", &format!("default/{name}"));
    }
}

/// The kinds, the classes, the nodes, and the rights of controller and daemons, as they are shipped.
fn install(server: &ApiServer, machines: u32) {
    server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hostler-controller"}}));
    for file in ["nodehardware.yaml", "clusterhardware.yaml", "fabric/fabricattachments.yaml"] {
        server.create_yaml(&shipped(&format!("crds/{file}")));
    }
    server.create_yaml(&shipped("cluster/deviceclasses.yaml"));
    let rules = |files: [&str; 2]| files.iter().flat_map(|file| PolicyRule::from_yaml(&shipped(file))).collect();
    server.allow(CONTROLLER, rules(["controller/base/rbac.yaml", "fabric/rbac.yaml"]));
    for at in 0..machines {
        server.allow(&daemon_of(at), rules(["cluster/rbac.yaml", "fabric/node/rbac.yaml"]));
        let labels = json!({"kubernetes.io/hostname": node(at)});
        server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node(at), "labels": labels}}));
    }
}

#[test]
#[ignore = "runs inside the emulated machine, for fabric::"]
fn a_kubelet_calls() {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is set by fabric::"));
    let claims = [claim("default", &variable("HOSTLER_CLAIM"), &variable("HOSTLER_UID"))];
    let kubelet = Kubelet::new("/var/lib/kubelet", KubeletRelease::V1_36);
    Runtime::new().unwrap().block_on(async {
        let mut plugin = kubelet.register().await.unwrap();
        match &*variable("HOSTLER_CALL") {
            "prepare" => assert!(plugin.prepare(&claims).await.unwrap().into_values().all(|it| it.map(drop) == Ok(()))),
            "unprepare" => assert!(plugin.unprepare(&claims).await.unwrap().into_values().all(|it| it == Ok(()))),
            other => panic!("no call {other}"),
        }
    });
}

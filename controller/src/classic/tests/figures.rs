//! What the core takes: `make bench` runs this. Prints one line per figure, with what it should be.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures, and says what it found")]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use hostler_api::{ObjectKey, classic::ClassicVersion};
use hostler_reconcile::WriteOutcome;
use serde_json::{Value, json};

use super::{
    super::{
        core::ClassicCore,
        dialect::ClassicDialect,
        event::{ClassicCommand, ClassicEvent, ClassicWrite, WriteTarget},
        model::{NodeState, PodClaim, PodFacts, SchedulingContext},
        settings::ClassicSettings,
    },
    objects::{cpus, selector, slice},
    world::DRIVER,
};
use crate::testkit::Dice;

/// A core, and a cluster that answers at once.
struct Bench {
    core: ClassicCore,
    dialect: ClassicDialect,
    now: Duration,
    contexts: BTreeMap<ObjectKey, SchedulingContext>,
    writes: BTreeMap<ObjectKey, usize>,
    version: u64,
}

fn node_name(at: usize) -> String {
    format!("node-{at:04}")
}

fn pod_key(at: usize) -> ObjectKey {
    ObjectKey::new("default", &format!("pod-{at:04}"))
}

/// Two NUMA nodes with CPUs, and so many cards on each.
fn hardware(node: &str, cards: usize) -> Value {
    let card = |at: usize| {
        let attributes = json!({"kind": {"string": "card"}, "numa": {"int": at % 2}, "model": {"string": "U55C"},
            "slot": {"string": format!("0000:{at:02x}:00.0")}, "firmware": {"version": "1.2.3"}});
        json!({"name": format!("card-{at}"), "attributes": attributes, "capacity": {"memory": {"value": "16Gi"}}})
    };
    let slices = [
        slice(node, "cpu", vec![cpus("numa-0", 0), cpus("numa-1", 1)]),
        slice(node, "card", (0..cards * 2).map(card).collect()),
    ];
    let ready = json!({"type": "Ready", "status": "True", "reason": "r", "lastTransitionTime": "t"});
    json!({"conditions": [ready], "slices": slices})
}

impl Bench {
    fn new(nodes: usize, cards: impl Fn(usize) -> usize) -> Self {
        let version = ClassicVersion::V1Alpha3;
        let driver = DRIVER.to_owned();
        let settings = ClassicSettings {
            version,
            driver: driver.clone(),
            device_classes: Vec::new(),
            reserves_for_pods: true,
            needs_devices: false,
        };
        let mut bench = Self {
            core: ClassicCore::new(settings),
            dialect: ClassicDialect { version, driver },
            now: Duration::ZERO,
            contexts: BTreeMap::new(),
            writes: BTreeMap::new(),
            version: 0,
        };
        for kind in ["card", "cpu"] {
            let class = json!({"metadata": {"name": kind}, "spec": {"selectors": [selector(kind)]}});
            bench.feed(ClassicEvent::Class(Box::new(bench.dialect.class(&class).unwrap())));
        }
        for at in 0..nodes {
            let name = node_name(at);
            let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.clone())]);
            bench.feed(ClassicEvent::Node(name, Box::new(NodeState { labels, ..NodeState::default() })));
            bench.equip(at, cards(at));
        }
        bench.feed(ClassicEvent::Synced);
        bench
    }

    fn equip(&mut self, node: usize, cards: usize) {
        let name = node_name(node);
        self.version += 1;
        let meta = json!({"name": name, "resourceVersion": self.version.to_string()});
        let object = json!({"metadata": meta, "spec": {"nodeName": name}, "status": hardware(&name, cards)});
        self.feed(ClassicEvent::Source(Box::new(self.dialect.source(&object).unwrap())));
    }

    /// A claim for four CPUs and a card on one NUMA node.
    fn claim(&mut self, at: usize) {
        let capacity =
            json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "RequestConfig", "capacity": {"cpus": "4"}});
        let devices = json!({
            "requests": [{"name": "cpus", "deviceClassName": "cpu"}, {"name": "card", "deviceClassName": "card"}],
            "constraints": [{"matchAttribute": "hostler.dev/numa"}],
            "config": [{"requests": ["cpus"], "opaque": {"driver": DRIVER, "parameters": capacity}}],
        });
        self.version += 1;
        let ObjectKey { namespace, name } = pod_key(at);
        let meta = json!({"namespace": namespace, "name": name, "uid": format!("claim-{at}"),
            "resourceVersion": self.version.to_string()});
        let claim = json!({"metadata": meta, "spec": {"controller": DRIVER, "devices": devices}});
        self.feed(ClassicEvent::Claim(Box::new(self.dialect.claim(&claim).unwrap())));
    }

    /// The scheduler asks. Says how long the answer took.
    fn ask(&mut self, at: usize, potential: BTreeSet<String>) -> Duration {
        self.version += 1;
        let (uid, owner) = (format!("context-{at}"), Some(pod_key(at).name));
        let version = self.version.to_string();
        let context = SchedulingContext { uid, version, owner, potential, ..SchedulingContext::default() };
        self.contexts.insert(pod_key(at), context.clone());
        self.feed(ClassicEvent::Context(pod_key(at), Box::new(context)))
    }

    /// Something happens, and all that follows from it at once. Says how long the core took.
    fn feed(&mut self, event: ClassicEvent) -> Duration {
        let mut took = Duration::ZERO;
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let start = Instant::now();
            let commands = self.core.step(self.now, event);
            took += start.elapsed();
            for command in commands {
                match command {
                    ClassicCommand::FetchPod(key) => {
                        let (name, claim) = ("devices".to_owned(), Some(key.name.clone()));
                        let claims = vec![PodClaim { name, claim, is_made: false }];
                        let pod = PodFacts { uid: key.name.clone(), is_deleting: false, claims };
                        events.push_back(ClassicEvent::Pod(key, Ok(Some(pod))));
                    }
                    ClassicCommand::Write(ClassicWrite::Unsuitable { key, entries, .. }) => {
                        *self.writes.entry(key.clone()).or_default() += 1;
                        self.version += 1;
                        let context = self.contexts.get_mut(&key).unwrap();
                        (context.entries, context.version) = (entries, self.version.to_string());
                        let target = WriteTarget::Context(key.clone());
                        events.push_back(ClassicEvent::Context(key, Box::new(context.clone())));
                        events.push_back(ClassicEvent::Written(target, WriteOutcome::Done));
                    }
                    ClassicCommand::WakeAt(at) if at <= self.now => events.push_back(ClassicEvent::Tick),
                    ClassicCommand::WakeAt(_) | ClassicCommand::Tell(_) => {}
                    command => panic!("nobody asked for {command:?}"),
                }
            }
        }
        took
    }

    /// Time passes until nothing more is to be expected.
    fn rest(&mut self) -> Duration {
        self.now += Duration::from_secs(120);
        self.feed(ClassicEvent::Tick)
    }
}

/// 1,000 pods on 500 nodes, of which `cards` says how many cards they have.
fn answers(what: &str, cards: impl Fn(usize) -> usize) {
    let (mut bench, mut dice) = (Bench::new(500, cards), Dice::new(7));
    (0..1000).for_each(|at| bench.claim(at));
    let some_nodes = |dice: &mut Dice| (0..1000).map(|_| node_name(dice.roll(500))).take(160).collect::<BTreeSet<_>>();
    let mut times: Vec<Duration> =
        (0..1000).map(|at| bench.ask(at, some_nodes(&mut dice).into_iter().take(128).collect())).collect();
    times.sort();
    let found = format!("{}, 99 % {}, {} at most", ms(times[500]), ms(times[990]), ms(times[999]));
    report(&format!("{what}: one context answered"), found, "≤ 10 ms");
    let most = |bench: &Bench| bench.writes.values().copied().max().unwrap_or_default();
    report("  status writes per context", most(&bench), "≤ 1");
    bench.rest();
    bench.writes.clear();
    bench.equip(3, 5);
    let took = bench.rest();
    report("  hardware changed: all contexts asked anew", ms(took), "");
    report("  status writes per context and change", most(&bench), "≤ 1");
    bench.writes.clear();
    for _ in 0..100 {
        bench.rest();
    }
    report("  status writes at rest", bench.writes.len(), "0");
}

#[test]
#[ignore = "measures: make bench"]
fn figures_of_the_core() {
    let before = kib("VmRSS");
    let bench = Bench::new(5000, |_| 4);
    report(
        "5,000 nodes with 10 devices each: resident for them",
        format!("{:.0} MB", (kib("VmRSS") - before) * 1.024e-3),
        "≤ 64 MB",
    );
    drop(bench);
    answers("there is enough", |_| 4);
    answers("nearly every node is empty", |at| usize::from(at % 100 == 0));
    answers("no node will do", |_| 0);
}

fn report(what: &str, found: impl std::fmt::Display, wanted: &str) {
    println!("{what:<64} {found:>40}   {wanted}");
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

/// A line of what the kernel says of this process.
fn kib(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    found.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

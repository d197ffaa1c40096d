//! A node on which pods come and go without a pause, inside the emulated machine: what was promised at each moment is
//! written to the end of the disk itself, so that it stands in the log of its writes at its place.

use std::{
    collections::BTreeMap,
    env, fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt, OpenOptionsExt},
    time::{Duration, SystemTime},
};

use hostler_testing::{
    host::{Host, script_with, wait_for},
    kubelet::{ClaimAnswers, Kubelet, KubeletPlugin, KubeletRelease},
    node::{TestNode, named, uid},
};

/// A disk takes it whole or not at all.
pub const MARK_BYTES: usize = 512;

/// Where the devices of a claim begin, for so many claims at once.
const SLOTS: usize = 6;
const CARDS: usize = 4;

/// A kubelet's patience with a call.
const PATIENCE: Duration = Duration::from_secs(45);

/// `O_DIRECT` of amd64: the mark is on its way to the disk, and nothing is flushed for it.
const DIRECT: i32 = 0o40000;

/// How far a claim is promised.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Promise {
    /// The kubelet was told that it is ready.
    Whole,
    /// A call for it had no answer yet.
    Open,
}

/// What was promised at a moment: every claim that is not here is gone, or never was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Promises(pub BTreeMap<String, (Promise, usize)>);

impl fmt::Display for Promises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "promises")?;
        for (name, (promise, slot)) in &self.0 {
            write!(f, " {name}:{}:{slot}", if *promise == Promise::Whole { "whole" } else { "open" })?;
        }
        writeln!(f)
    }
}

impl Promises {
    /// What a mark says.
    pub fn parse(mark: &[u8]) -> Self {
        let text = String::from_utf8_lossy(mark);
        let line = text.lines().next().unwrap().strip_prefix("promises").expect("a mark");
        let claim = |word: &str| {
            let fields: Vec<&str> = word.split(':').collect();
            let promise = if fields[1] == "whole" { Promise::Whole } else { Promise::Open };
            (fields[0].to_owned(), (promise, fields[2].parse().unwrap()))
        };
        Self(line.split_whitespace().map(claim).collect())
    }

    /// The UID of each claim.
    pub fn by_uid(&self) -> BTreeMap<String, (Promise, usize)> {
        self.0.iter().map(|(name, promise)| (uid(name), *promise)).collect()
    }
}

/// The devices of the claims in a slot.
pub fn cards(slot: usize) -> Vec<String> {
    (slot * CARDS..(slot + 1) * CARDS).map(|card| format!("card-{card}")).collect()
}

/// Aligned as direct writes have to be.
#[repr(align(4096))]
struct Mark([u8; MARK_BYTES]);

struct Storm {
    node: TestNode,
    plugin: KubeletPlugin,
    disk: File,
    at: u64,
    promises: Promises,
    made: usize,
    /// How often the daemon was killed, and how often of these it had answered a call already.
    killed: usize,
    answered: usize,
    random: u64,
}

impl Storm {
    fn mark(&self) {
        let mut mark = Mark([0; MARK_BYTES]);
        let text = self.promises.to_string();
        mark.0[..text.len()].copy_from_slice(text.as_bytes());
        self.disk.write_all_at(&mark.0, self.at).unwrap();
    }

    fn below(&mut self, most: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % most
    }

    /// Calls the daemon until it answers, as a kubelet does. One that is killed has begun to write, and may have answered.
    fn call(&mut self, call: Call, names: &[String], killed: bool) {
        let claims: Vec<_> = names.iter().map(|name| named(name)).collect();
        if killed {
            let written = self.written();
            let (plugin, claims) = (self.plugin.clone(), claims.clone());
            let under_way = self.node.spawn(async move {
                match call {
                    Call::Prepare => plugin.call_prepare(claims, PATIENCE).await.map(drop),
                    Call::Unprepare => plugin.call_unprepare(claims, PATIENCE).await.map(drop),
                }
            });
            wait_for("the daemon to write", || (self.written() != written || under_way.is_finished()).then_some(()));
            self.node.kill();
            self.answered += usize::from(self.node.block_on(under_way).unwrap().is_ok());
            self.killed += 1;
            self.plugin = begin(&mut self.node);
        }
        // A claim that the last daemon left half done may be on its way still, and a processor in software is slow.
        let (node, plugin) = (&self.node, &mut self.plugin);
        wait_for("an answer to the call", || {
            match call {
                Call::Prepare => node.block_on(plugin.prepare(&claims)).is_ok_and(|answers| are_well(&answers)),
                Call::Unprepare => node.block_on(plugin.unprepare(&claims)).is_ok_and(|answers| are_well(&answers)),
            }
            .then_some(())
        });
    }

    /// When the journal was written last.
    fn written(&self) -> Option<SystemTime> {
        fs::metadata(self.node.path("state/claims.journal")).and_then(|file| file.modified()).ok()
    }

    fn prepare(&mut self, killed: bool) {
        let used: Vec<usize> = self.promises.0.values().map(|(_, slot)| *slot).collect();
        let free: Vec<usize> = (0..SLOTS).filter(|slot| !used.contains(slot)).collect();
        let count = 1 + self.below(free.len());
        let mut names = Vec::new();
        for slot in free.into_iter().take(count) {
            self.made += 1;
            let name = format!("c{}", self.made);
            let devices = cards(slot);
            self.node.allocate(&name, &devices.iter().map(String::as_str).collect::<Vec<_>>());
            self.promises.0.insert(name.clone(), (Promise::Open, slot));
            names.push(name);
        }
        self.mark();
        self.call(Call::Prepare, &names, killed);
        for name in &names {
            self.promises.0.get_mut(name).unwrap().0 = Promise::Whole;
        }
        self.mark();
    }

    fn unprepare(&mut self, killed: bool) {
        let count = 1 + self.below(self.promises.0.len());
        let skipped = self.below(self.promises.0.len() - count + 1);
        let names: Vec<String> = self.promises.0.keys().skip(skipped).take(count).cloned().collect();
        for name in &names {
            self.promises.0.get_mut(name).unwrap().0 = Promise::Open;
        }
        self.mark();
        self.call(Call::Unprepare, &names, killed);
        self.promises.0.retain(|name, _| !names.contains(name));
        self.mark();
    }

    fn step(&mut self, step: usize) {
        let killed = step % 10 == 4;
        match self.promises.0.len() {
            0 => self.prepare(killed),
            SLOTS => self.unprepare(killed),
            _ if self.below(2) == 0 => self.prepare(killed),
            _ => self.unprepare(killed),
        }
        // The next daemon finds what the one before left, flushed or not.
        match step % 40 {
            19 => {
                self.node.kill();
                self.killed += 1;
                self.plugin = begin(&mut self.node);
            }
            39 => {
                assert!(self.node.stop().success());
                self.plugin = begin(&mut self.node);
            }
            _ => {}
        }
    }
}

/// What a kubelet asks for.
#[derive(Clone, Copy)]
enum Call {
    Prepare,
    Unprepare,
}

fn are_well<T>(answers: &ClaimAnswers<T>) -> bool {
    answers.values().all(Result::is_ok)
}

/// Starts the daemon. A processor in software is slower than a kubelet's patience at first.
fn begin(node: &mut TestNode) -> KubeletPlugin {
    node.start();
    let kubelet = Kubelet::new(node.path("kubelet"), KubeletRelease::V1_36);
    wait_for("the kubelet to find the daemon", || node.block_on(kubelet.register()).ok())
}

#[test]
#[ignore = "runs inside the emulated machine, for power::"]
fn pods_come_and_go() {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is set by power::"));
    // Records that fill the journal soon, so that there are checkpoints.
    let padding = "x".repeat(3000);
    let script = script_with("").replace("count = 8", &format!("count = {}", SLOTS * CARDS));
    let script = script.replace("\"CARD={n}\"", &format!("\"CARD={{n}}\", \"PADDING={padding}\""));
    let mut node = TestNode::new(Host::bare(&script));
    node.env("LD_PRELOAD", variable("STORM_PRELOAD"));
    let plugin = begin(&mut node);
    let disk = OpenOptions::new().write(true).custom_flags(DIRECT).open(variable("STORM_DISK")).unwrap();
    let (at, steps) = (variable("STORM_MARKS_AT").parse().unwrap(), variable("STORM_STEPS").parse().unwrap());
    let promises = Promises::default();
    let mut storm = Storm { node, plugin, disk, at, promises, made: 0, killed: 0, answered: 0, random: 20_260_101 };
    storm.mark();
    (0..steps).for_each(|step| storm.step(step));
    storm.node.kill();
    let Storm { node, made, killed, answered, .. } = storm;
    // Its folder stays: the power fails next, and what is removed before that is in the log.
    std::mem::forget(node);
    let said = format!("storm: {steps} calls, {made} claims, {killed} kills, {answered} of them behind an answer\n");
    io::stdout().write_all(said.as_bytes()).unwrap();
}

//! Scans: what asks for one, what a failing one leaves, who waits for it.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use hostler_api::{DeviceName, QualifiedName};
use hostler_backend::{AttributeValue, Device};
use tokio::sync::Notify;

use super::*;

/// A backend whose answers the test decides.
struct ScriptedBackend {
    name: &'static str,
    poll: Option<Duration>,
    answer: Mutex<Result<Vec<&'static str>, &'static str>>,
    scans: Mutex<u32>,
    /// What looks after removals were told, and whether they fail.
    removals: Mutex<Vec<BTreeSet<String>>>,
    removals_fail: AtomicBool,
    scanned: Notify,
    /// The next scan waits for this.
    gate: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
}

impl ScriptedBackend {
    fn new(name: &'static str, devices: &[&'static str]) -> Arc<Self> {
        Self::polled(name, None, devices)
    }

    fn polled(name: &'static str, poll: Option<Duration>, devices: &[&'static str]) -> Arc<Self> {
        let answer = Mutex::new(Ok(devices.to_vec()));
        Arc::new(Self {
            name,
            poll,
            answer,
            scans: Mutex::new(0),
            removals: Mutex::default(),
            removals_fail: Default::default(),
            scanned: Notify::new(),
            gate: Mutex::default(),
        })
    }

    fn set(&self, answer: Result<Vec<&'static str>, &'static str>) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Has the next scan hang until what this gives is dropped.
    fn hang(&self) -> std::sync::mpsc::Sender<()> {
        let (open_tx, open_rx) = std::sync::mpsc::channel();
        *self.gate.lock().unwrap() = Some(open_rx);
        open_tx
    }

    fn scans(&self) -> u32 {
        *self.scans.lock().unwrap()
    }

    /// Waits until there were so many scans. Under a paused clock this is when the last of them was due.
    async fn until_scanned(&self, scans: u32) {
        while self.scans() < scans {
            self.scanned.notified().await;
        }
        assert_eq!(self.scans(), scans);
    }
}

impl Backend for ScriptedBackend {
    fn name(&self) -> BackendName {
        BackendName::new(self.name).unwrap()
    }

    fn subsystems(&self) -> &[&'static str] {
        &["cpu"]
    }

    fn poll(&self) -> Option<Duration> {
        self.poll
    }

    fn enumerate_after_removal(&self, removed: &BTreeSet<String>) -> Result<Enumeration, BackendError> {
        self.removals.lock().unwrap().push(removed.clone());
        match self.removals_fail.load(Ordering::SeqCst) {
            true => Err(BackendError::refused("something else went as well")),
            false => self.enumerate(),
        }
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        *self.scans.lock().unwrap() += 1;
        self.scanned.notify_one();
        let gate = self.gate.lock().unwrap().take();
        if let Some(gate) = gate {
            let _ = gate.recv();
        }
        let device = |name: &&str| {
            let mut device = Device::new(DeviceName::new(*name).unwrap());
            if *name == "unacceptable" {
                let text = AttributeValue::String("x".repeat(65).into());
                device.attributes.insert(QualifiedName::new("long").unwrap(), text);
            }
            device
        };
        match &*self.answer.lock().unwrap() {
            Ok(names) => Ok(Enumeration {
                devices: names.iter().map(device).collect(),
                counter_sets: Vec::new(),
                warnings: Vec::new(),
            }),
            Err(reason) => Err(BackendError::Enumerate { reason: (*reason).to_owned(), source: None }),
        }
    }
}

fn started(backends: &[Arc<ScriptedBackend>]) -> (InventoryHandle, Tasks) {
    // Nothing is read or written there unless a test asks for it.
    started_in("/nonexistent".into(), backends)
}

fn started_in(state: PathBuf, backends: &[Arc<ScriptedBackend>]) -> (InventoryHandle, Tasks) {
    started_within(HOUR, state, backends)
}

/// Whose backends are soon late. On a busy machine those that do not hang may be late too, for a moment.
fn impatient(backends: &[Arc<ScriptedBackend>]) -> (InventoryHandle, Tasks) {
    started_within(Duration::from_millis(50), "/nonexistent".into(), backends)
}

fn started_within(
    answer_within: Duration,
    state: PathBuf,
    backends: &[Arc<ScriptedBackend>],
) -> (InventoryHandle, Tasks) {
    let (tasks, _) = Tasks::new();
    let backends = BackendRegistry::new(backends.iter().map(|backend| backend.clone() as Arc<dyn Backend>));
    let parts = InventoryParts { backends, node: "node".to_owned(), rescan: HOUR, answer_within, state };
    (start(parts, &tasks), tasks)
}

async fn until(handle: &InventoryHandle, is_so: impl Fn(&Inventory) -> bool) -> Arc<Inventory> {
    let mut inventory_rx = handle.reader().subscribe();
    inventory_rx.wait_for(|inventory| is_so(inventory)).await.unwrap().clone()
}

fn names(handle: &InventoryHandle) -> Vec<String> {
    handle.reader().latest().devices().map(|(pool, device)| format!("{pool}/{}", device.name)).collect()
}

#[tokio::test]
async fn a_rescan_sees_what_has_come_and_gone() {
    let backend = ScriptedBackend::new("one", &["a", "b"]);
    let (handle, _tasks) = started(std::slice::from_ref(&backend));
    handle.rescan().await;
    assert_eq!(names(&handle), ["node/one/a", "node/one/b"]);
    backend.set(Ok(vec!["b", "c"]));
    handle.rescan().await;
    assert_eq!(names(&handle), ["node/one/b", "node/one/c"]);
}

#[tokio::test]
async fn a_failing_backend_keeps_its_devices_and_hides_nobody() {
    let (good, bad) = (ScriptedBackend::new("good", &["a"]), ScriptedBackend::new("ill", &["x"]));
    let (handle, _tasks) = started(&[good.clone(), bad.clone()]);
    handle.rescan().await;
    bad.set(Err("bus fell off"));
    good.set(Ok(vec!["a", "b"]));
    handle.rescan().await;
    assert_eq!(names(&handle), ["node/good/a", "node/good/b", "node/ill/x"]);
    let inventory = handle.reader().latest();
    assert_eq!(inventory.pools["ill"].stale.as_deref(), Some("failed to enumerate: bus fell off"));
    assert_eq!(inventory.pools["good"].stale, None);
}

#[tokio::test]
async fn readers_are_woken_only_by_a_change() {
    let backend = ScriptedBackend::new("one", &["a"]);
    let (handle, _tasks) = started(std::slice::from_ref(&backend));
    handle.rescan().await;
    let mut inventory_rx = handle.reader().subscribe();
    inventory_rx.mark_unchanged();
    handle.rescan().await;
    assert!(!inventory_rx.has_changed().unwrap());
    backend.set(Ok(vec!["z"]));
    handle.rescan().await;
    assert!(inventory_rx.has_changed().unwrap());
}

#[tokio::test]
async fn a_hint_scans_only_backends_of_its_subsystem() {
    let backend = ScriptedBackend::new("one", &["a"]);
    let (handle, _tasks) = started(std::slice::from_ref(&backend));
    handle.rescan().await;
    let before = backend.scans();
    handle.requests().send(RescanScope::Subsystems(["net".to_owned()].into()).into()).await.unwrap();
    handle.rescan().await;
    assert_eq!(backend.scans(), before + 1, "the hint on another subsystem scans nothing");
    let mut inventory_rx = handle.reader().subscribe();
    inventory_rx.mark_unchanged();
    backend.set(Ok(vec!["hotplugged"]));
    handle.requests().send(RescanScope::Subsystems(["cpu".to_owned()].into()).into()).await.unwrap();
    inventory_rx.changed().await.unwrap();
    assert_eq!(names(&handle), ["node/one/hotplugged"]);
}

/// The devices that went, of a subsystem that backends name.
fn removals(devpaths: &[&str]) -> ScanRequest {
    let devpaths = devpaths.iter().map(|path| (*path).to_owned()).collect();
    RescanScope::Removals { subsystems: ["cpu".to_owned()].into(), devpaths }.into()
}

#[tokio::test]
async fn a_removal_is_looked_at_alone_and_as_a_whole_where_that_fails() {
    let backend = ScriptedBackend::new("one", &["a", "b"]);
    let (handle, _tasks) = started(std::slice::from_ref(&backend));
    handle.rescan().await;
    backend.set(Ok(vec!["b"]));
    handle.requests().send(removals(&["/devices/a"])).await.unwrap();
    until(&handle, |inventory| inventory.devices().count() == 1).await;
    assert_eq!((backend.scans(), backend.removals.lock().unwrap().len()), (2, 1));
    backend.removals_fail.store(true, Ordering::SeqCst);
    backend.set(Ok(vec![]));
    handle.requests().send(removals(&["/devices/b"])).await.unwrap();
    let inventory = until(&handle, |inventory| inventory.devices().count() == 0).await;
    assert_eq!(inventory.pools["one"].stale, None, "the whole was looked at");
    assert_eq!(backend.scans(), 3);
}

#[tokio::test]
async fn removals_during_a_scan_are_one_look_after_it_unless_all_is_asked_for() {
    let backend = ScriptedBackend::new("one", &["a", "b", "c"]);
    let (handle, _tasks) = started(std::slice::from_ref(&backend));
    for (asked_for_all, expected) in [(false, vec![vec!["/devices/a", "/devices/b"]]), (true, vec![])] {
        // No scan is under way after this, which could hang in the place of the next.
        handle.rescan().await;
        let before = backend.scans();
        backend.removals.lock().unwrap().clear();
        let hang = backend.hang();
        handle.requests().send(RescanScope::All.into()).await.unwrap();
        backend.until_scanned(before + 1).await;
        for devpath in ["/devices/a", "/devices/b"] {
            handle.requests().send(removals(&[devpath])).await.unwrap();
        }
        if asked_for_all {
            handle.requests().send(RescanScope::All.into()).await.unwrap();
        }
        while handle.requests().capacity() < QUEUE {
            tokio::task::yield_now().await;
        }
        drop(hang);
        backend.until_scanned(before + 2).await;
        let told = backend.removals.lock().unwrap();
        let told: Vec<Vec<&str>> = told.iter().map(|paths| paths.iter().map(String::as_str).collect()).collect();
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn a_device_that_a_backend_names_twice_is_there_once_with_a_warning() {
    let backend = ScriptedBackend::new("one", &["a", "a"]);
    let (handle, _tasks) = started(&[backend]);
    handle.rescan().await;
    assert_eq!(names(&handle), ["node/one/a"]);
    assert_eq!(handle.reader().latest().pools["one"].warnings.len(), 1);
}

#[tokio::test]
async fn a_device_that_no_api_server_accepts_is_left_out_with_a_warning() {
    let backend = ScriptedBackend::new("one", &["unacceptable", "b"]);
    let (handle, _tasks) = started(&[backend]);
    handle.rescan().await;
    assert_eq!(names(&handle), ["node/one/b"]);
    let warning = &handle.reader().latest().pools["one"].warnings[0];
    assert_eq!(warning.path, "node/one/unacceptable");
    assert!(warning.reason.contains("long"), "{warning:?}");
}

#[tokio::test]
async fn who_drains_a_device_finds_it_drained_and_scans_leave_it_so() {
    let state = tempfile::tempdir().unwrap();
    let backend = ScriptedBackend::new("one", &["a", "b"]);
    let (handle, _tasks) = started_in(state.path().to_owned(), std::slice::from_ref(&backend));
    handle.load_drains().await.unwrap();
    handle.rescan().await;
    let (one, a) = (BackendName::new("one").unwrap(), DeviceName::new("a").unwrap());
    let drain = handle.drain(one.clone(), a.clone(), Drain::now(None, true)).await.unwrap();
    assert_eq!(handle.reader().latest().drain(&one, &a), Some(&drain));
    backend.set(Ok(vec!["b"]));
    handle.rescan().await;
    assert_eq!(handle.reader().latest().drain(&one, &a), Some(&drain), "it is not there, and still drained");
    assert_eq!(handle.undrain(one.clone(), a.clone()).await.unwrap(), Some(drain));
    assert_eq!(handle.reader().latest().drains.len(), 0);
}

#[tokio::test]
async fn devices_that_appear_while_the_list_is_lost_are_drained_too() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join("drains.json"), "").unwrap();
    let backend = ScriptedBackend::new("one", &["a"]);
    let (handle, _tasks) = started_in(state.path().to_owned(), std::slice::from_ref(&backend));
    handle.load_drains().await.unwrap();
    handle.rescan().await;
    backend.set(Ok(vec!["a", "b"]));
    handle.rescan().await;
    let inventory = handle.reader().latest();
    assert!(inventory.lost_drains.is_some());
    assert_eq!(inventory.drains.len(), 2);
    handle.forget_lost_drains().await.unwrap();
    assert_eq!(handle.reader().latest().drains.len(), 0);
}

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_backend_that_polls_is_scanned_by_its_own_time_and_others_by_the_common_one() {
    let (often, seldom) =
        (ScriptedBackend::polled("often", Some(600 * SECOND), &["a"]), ScriptedBackend::new("seldom", &["b"]));
    let slow = ScriptedBackend::polled("slow", Some(2 * HOUR), &["c"]);
    let (handle, _tasks) = started(&[often.clone(), seldom.clone(), slow.clone()]);
    handle.rescan().await;
    let start = Instant::now();
    let mut inventory_rx = handle.reader().subscribe();
    inventory_rx.mark_unchanged();
    often.until_scanned(2).await;
    assert_eq!(start.elapsed().as_secs(), 600);
    assert_eq!((seldom.scans(), slow.scans()), (1, 1));
    seldom.until_scanned(2).await;
    slow.until_scanned(2).await;
    assert_eq!(start.elapsed().as_secs(), 3600, "a poll that is longer than the common time is of no use");
    assert!(!inventory_rx.has_changed().unwrap(), "scans that find nothing new tell nobody");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_polls_and_has_no_devices_costs_no_more_than_others() {
    let backend = ScriptedBackend::polled("one", Some(5 * SECOND), &[]);
    let (handle, _tasks) = started(std::slice::from_ref(&backend));
    handle.rescan().await;
    let start = Instant::now();
    backend.set(Ok(vec!["a"]));
    backend.until_scanned(2).await;
    assert_eq!(start.elapsed().as_secs(), 3600);
    backend.until_scanned(3).await;
    assert_eq!(start.elapsed().as_secs(), 3605);
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_was_asked_for_puts_off_the_next_poll() {
    let backend = ScriptedBackend::polled("one", Some(60 * SECOND), &["a"]);
    let (handle, _tasks) = started(std::slice::from_ref(&backend));
    handle.rescan().await;
    tokio::time::sleep(59 * SECOND).await;
    handle.requests().send(RescanScope::Subsystems(["cpu".to_owned()].into()).into()).await.unwrap();
    backend.until_scanned(2).await;
    let asked = Instant::now();
    backend.until_scanned(3).await;
    assert_eq!(asked.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_backend_cannot_poll_without_pause() {
    let backend = ScriptedBackend::polled("one", Some(Duration::ZERO), &["a"]);
    let (handle, _tasks) = started(std::slice::from_ref(&backend));
    handle.rescan().await;
    let start = Instant::now();
    backend.until_scanned(4).await;
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test]
async fn a_backend_that_hangs_at_its_first_scan_is_unknown_until_it_answers_and_keeps_nobody_waiting() {
    let (good, ill) = (ScriptedBackend::new("good", &["a"]), ScriptedBackend::new("ill", &["x"]));
    let hang = ill.hang();
    let (handle, _tasks) = impatient(&[good.clone(), ill.clone()]);
    handle.rescan().await;
    let inventory = until(&handle, |inventory| inventory.pools.contains_key("good")).await;
    assert!(!inventory.pools.contains_key("ill"), "that it has no devices is not known");
    assert_eq!(inventory.unknown["ill"].name, "node/ill");
    assert!(inventory.unanswered.contains_key("ill"));
    let doubts = inventory.doubts();
    assert!(doubts[0].starts_with("backend ill has not answered since 2"), "{doubts:?}");
    assert!(doubts[0].ends_with("; nothing is known of its devices"), "{doubts:?}");

    good.set(Ok(vec!["a", "b"]));
    handle.rescan().await;
    handle.rescan().await;
    until(&handle, |inventory| inventory.pools["good"].devices.len() == 2).await;
    assert_eq!(ill.scans(), 1, "it is not asked again before it has answered");

    drop(hang);
    let known = |inventory: &Inventory| inventory.pools.contains_key("ill") && inventory.doubts().is_empty();
    assert!(until(&handle, known).await.unknown.is_empty());
    // Whoever asked while it was late asked for another look.
    ill.until_scanned(2).await;
}

#[tokio::test]
async fn a_backend_that_hangs_later_keeps_its_devices_as_stale_and_holds_up_no_scan() {
    let (good, ill) = (ScriptedBackend::new("good", &["a"]), ScriptedBackend::new("ill", &["x"]));
    let (handle, _tasks) = impatient(&[good.clone(), ill.clone()]);
    handle.rescan().await;
    until(&handle, |inventory| inventory.pools.len() == 2 && inventory.doubts().is_empty()).await;
    let hang = ill.hang();
    good.set(Ok(vec!["b"]));
    handle.rescan().await;
    let is_late = |inventory: &Inventory| inventory.unanswered.contains_key("ill");
    let inventory = until(&handle, is_late).await;
    assert_eq!(inventory.pools["ill"].devices[0].name.as_str(), "x");
    assert!(inventory.pools["ill"].stale.as_ref().unwrap().starts_with("it has not answered since "));
    assert!(inventory.doubts()[0].contains("its devices are those of the last scan that worked"));
    until(&handle, |inventory| inventory.pools["good"].devices[0].name.as_str() == "b").await;
    drop(hang);
    until(&handle, |inventory| inventory.doubts().is_empty() && inventory.unanswered.is_empty()).await;
}

#[tokio::test]
async fn a_backend_whose_first_scan_fails_has_not_said_that_there_is_nothing() {
    let backend = ScriptedBackend::new("one", &["a"]);
    backend.set(Err("bus fell off"));
    let (handle, _tasks) = started(std::slice::from_ref(&backend));
    handle.rescan().await;
    let inventory = handle.reader().latest();
    assert!(inventory.pools.is_empty());
    assert_eq!(inventory.unknown_reason("node/one"), Some("failed to enumerate: bus fell off"));
    backend.set(Ok(Vec::new()));
    handle.rescan().await;
    let inventory = handle.reader().latest();
    assert!(inventory.pools.contains_key("one") && inventory.unknown.is_empty());
}

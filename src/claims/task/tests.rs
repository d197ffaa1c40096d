//! The life of claims through the handle, with failures at every step.

mod at_once;
mod orders;

use std::{fs, sync::Mutex};

use hostler_api::{Allocation, Grant};
use hostler_backend::Pinning;
use hostler_linux::SysRoot;

use super::{
    super::{
        ClaimOperation, ClaimView, ReadContinuation,
        store::{self, RecordState},
        testing::*,
    },
    *,
};

/// KnownAllocations that the test puts there.
#[derive(Default)]
struct KnownAllocations(Mutex<BTreeMap<ClaimUid, Allocation>>);

impl ReadClaims for KnownAllocations {
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
        let known = self.0.lock().unwrap();
        let read = |claim: &ClaimRef| known.get(&claim.uid).cloned().ok_or_else(|| "no such claim".into());
        let read = claims.iter().map(read).collect();
        tokio::task::spawn_blocking(move || then(read));
    }
}

/// A claims task on a folder, with a backend that the test controls.
struct ClaimsWorld {
    temp: tempfile::TempDir,
    bench: Arc<BenchBackend>,
    allocations: Arc<KnownAllocations>,
    boot_id: String,
    describe: bool,
    /// How long a start waits for recovery.
    patience: Duration,
    inventory: Mutex<Option<InventoryHandle>>,
}

impl ClaimsWorld {
    fn new() -> Self {
        Self {
            temp: tempfile::tempdir().unwrap(),
            bench: BenchBackend::new(),
            allocations: Arc::default(),
            boot_id: "boot-1".to_owned(),
            describe: false,
            patience: Duration::from_secs(3600),
            inventory: Mutex::default(),
        }
    }

    fn containers(&self) -> ContainerDir {
        ContainerDir::new(self.temp.path().join("containers"), SysRoot::new("/nonexistent"), &*self.boot_id)
    }

    fn allocate(&self, text: &str, grants: &[Grant]) -> ClaimRef {
        self.allocations.0.lock().unwrap().insert(uid(text), allocation(grants));
        claim(text)
    }

    async fn start(&self) -> ClaimsHandle {
        let (tasks, _ended_rx) = Tasks::new();
        let inventory = scanned(self.bench.clone(), self.temp.path(), &tasks).await;
        *self.inventory.lock().unwrap() = Some(inventory.clone());
        let parts = ClaimsParts {
            inventory,
            reader: self.allocations.clone(),
            records: self.temp.path().join("claims"),
            cdi: self.temp.path().join("cdi"),
            naming: CdiNaming { metadata: self.temp.path().join("metadata"), ..naming() },
            containers: self.containers(),
            describe: self.describe,
            boot_id: self.boot_id.clone(),
            metrics: Metrics::default(),
            lock: lock(self.temp.path()),
        };
        let handle = tokio::task::spawn_blocking(move || start(parts, &tasks)).await.unwrap().unwrap();
        handle.recovered(self.patience).await;
        handle
    }

    /// What the claims that were started last are decided on.
    fn inventory(&self) -> InventoryHandle {
        self.inventory.lock().unwrap().clone().unwrap()
    }

    /// Names of the files below a folder.
    fn files(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.temp.path().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != ".journal_kept.tmp")
            .collect();
        names.sort();
        names
    }

    fn cdi(&self, text: &str) -> String {
        fs::read_to_string(self.temp.path().join(format!("cdi/hostler.dev-claim_{text}.json"))).unwrap()
    }

    /// Blocks the next `step` until the answer is used.
    fn gate(&self, step: &'static str) -> std::sync::mpsc::Sender<()> {
        let (open_tx, open_rx) = std::sync::mpsc::channel();
        *self.bench.gate.lock().unwrap() = Some((step, open_rx));
        open_tx
    }
}

async fn prepare(handle: &ClaimsHandle, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, String> {
    let mut answers = handle.prepare(vec![claim.clone()]).await;
    answers.remove(&claim.uid).unwrap().map_err(|error| hostler_api::Chain(&*error).to_string())
}

async fn unprepare(handle: &ClaimsHandle, claim: &ClaimRef) -> Result<(), String> {
    let mut answers = handle.unprepare(vec![claim.clone()]).await;
    answers.remove(&claim.uid).unwrap().map_err(|error| hostler_api::Chain(&*error).to_string())
}

fn problem(handle: &ClaimsHandle, text: &str) -> Option<String> {
    match handle.table().borrow().claims.get(&uid(text)) {
        Some(ClaimView::Recorded { problem, .. }) => problem.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_claim_is_prepared_and_taken_back_clean() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    let devices = prepare(&handle, &claim).await.unwrap();
    assert_eq!(devices[0].cdi_ids, ["hostler.dev/claim=a-0-one"]);
    assert_eq!(world.files("claims"), ["a.json"]);
    assert!(world.cdi("a").contains("BENCH=one"));
    assert_eq!(world.bench.steps(), ["plan a", "prepare a", "verify a"]);
    unprepare(&handle, &claim).await.unwrap();
    assert!(world.files("claims").is_empty() && world.files("cdi").is_empty() && world.bench.ready().is_empty());
    unprepare(&handle, &claim).await.unwrap();
}

#[tokio::test]
async fn preparing_again_gives_the_same_answer_and_file_to_the_byte() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one"), part("many", 2)]);
    let first = (prepare(&handle, &claim).await.unwrap(), world.cdi("a"));
    world.allocations.0.lock().unwrap().clear();
    assert_eq!((prepare(&handle, &claim).await.unwrap(), world.cdi("a")), first, "a record needs nobody else");
    assert_eq!(handle.prepare(vec![claim.clone(), claim.clone()]).await.len(), 1);
}

#[tokio::test]
async fn a_device_that_is_not_usable_is_never_reported_ready() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    world.bench.fail("verify", true);
    let error = prepare(&handle, &claim).await.unwrap_err();
    assert_eq!(error, "failed to verify device one: verify is told to fail");
    assert!(world.files("claims").is_empty() && world.files("cdi").is_empty() && world.bench.ready().is_empty());
    world.bench.fail("verify", false);
    prepare(&handle, &claim).await.unwrap();
}

#[tokio::test]
async fn a_prepare_that_cannot_be_undone_keeps_its_devices_until_it_can() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    world.bench.fail("prepare", true);
    world.bench.fail("unprepare", true);
    let error = prepare(&handle, &claim).await.unwrap_err();
    assert!(error.starts_with("failed to undo a half-prepared claim after this error: failed to prepare"), "{error}");
    assert!(problem(&handle, "a").is_some());
    let other = world.allocate("b", &[grant("one")]);
    assert!(prepare(&handle, &other).await.unwrap_err().contains("already prepared for claim a"));
    world.bench.fail("unprepare", false);
    unprepare(&handle, &claim).await.unwrap();
    world.bench.fail("prepare", false);
    prepare(&handle, &other).await.unwrap();
}

#[tokio::test]
async fn one_bad_claim_does_not_cost_the_others_of_its_request() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let (good, bad, unknown) =
        (world.allocate("a", &[grant("one")]), world.allocate("b", &[grant("nowhere")]), claim("c"));
    let answers = handle.prepare(vec![good, bad, unknown]).await;
    let ok: Vec<bool> = answers.values().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, false]);
    let error = answers[&uid("c")].as_ref().unwrap_err();
    let chain = hostler_api::Chain(&**error).to_string();
    assert_eq!(chain, "failed to read the allocation of claim c (default/name-c): no such claim");
}

#[tokio::test]
async fn two_requests_for_one_claim_at_once_are_one_piece_of_work() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    let gate = world.gate("prepare");
    let (one, two) = tokio::join!(prepare(&handle, &claim), async {
        let mut table = handle.table();
        table.wait_for(|table| table.claims.contains_key(&uid("a"))).await.unwrap();
        let mut second = CallAnswers::new();
        let call = second.prepare(&claim);
        handle.send(ClaimsRequest::Calls(vec![call]));
        handle.ping().await;
        drop(gate);
        second.collect().await.remove(&uid("a")).unwrap()
    });
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(world.bench.steps(), ["plan a", "prepare a", "verify a"], "the second has nothing checked again");
}

#[tokio::test]
async fn an_unprepare_during_a_prepare_runs_after_it() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    let gate = world.gate("verify");
    let (prepared, taken_back) = tokio::join!(prepare(&handle, &claim), async {
        let mut table = handle.table();
        table.wait_for(|table| table.claims.contains_key(&uid("a"))).await.unwrap();
        let mut taking_back = CallAnswers::new();
        let call = taking_back.call(uid("a"), CallKind::Unprepare);
        handle.send(ClaimsRequest::Calls(vec![call]));
        handle.ping().await;
        drop(gate);
        taking_back.collect().await.remove(&uid("a")).unwrap()
    });
    prepared.unwrap();
    taken_back.unwrap();
    assert_eq!(world.bench.steps(), ["plan a", "prepare a", "verify a", "unprepare a"]);
    assert!(world.files("claims").is_empty() && world.bench.ready().is_empty());
}

#[tokio::test]
async fn a_claim_whose_record_could_not_be_written_is_promised_only_when_it_is() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    let record = world.temp.path().join("claims/a.json");
    let gate = world.gate("prepare");
    let (refused, ()) = tokio::join!(prepare(&handle, &claim), async {
        let mut table = handle.table();
        table.wait_for(|table| table.claims.contains_key(&uid("a"))).await.unwrap();
        // Wherever the first record is by now, the second one finds something in its way, and so does taking it away.
        while std::fs::remove_file(&record).is_err() {
            tokio::task::yield_now().await;
        }
        std::fs::create_dir(&record).unwrap();
        drop(gate);
    });
    refused.unwrap_err();
    std::fs::remove_dir(&record).unwrap();
    prepare(&handle, &claim).await.unwrap();
    let kept = store::decode(&std::fs::read(&record).unwrap()).unwrap();
    assert_eq!((kept.claim, kept.state), (claim, RecordState::Prepared));
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_any_more_is_finished_and_its_repetition_gets_the_answer() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    let gate = world.gate("prepare");
    {
        let mut table = handle.table();
        let abandoned = prepare(&handle, &claim);
        tokio::select! {
            _ = abandoned => panic!("the gate is closed"),
            _ = table.wait_for(|table| table.claims.contains_key(&uid("a"))) => {}
        }
    }
    drop(gate);
    prepare(&handle, &claim).await.unwrap();
    assert_eq!(world.bench.ready().len(), 1);
}

#[tokio::test]
async fn a_ping_wakes_nobody_who_reads_the_table() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    prepare(&handle, &world.allocate("a", &[grant("one")])).await.unwrap();
    let mut table = handle.table();
    table.borrow_and_update();
    // When the second is answered, the owner has done with the first.
    handle.ping().await;
    handle.ping().await;
    assert!(!table.has_changed().unwrap());
    unprepare(&handle, &claim("a")).await.unwrap();
    assert!(table.has_changed().unwrap());
}

/// A start of thousands of claims, each of which is news, would make thousands of tables of thousands of claims.
#[tokio::test]
async fn news_of_a_claim_go_into_the_table_that_is_there_unless_somebody_has_kept_it() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let place = || Arc::as_ptr(&handle.table().borrow().clone());
    let first = place();
    prepare(&handle, &world.allocate("a", &[grant("one")])).await.unwrap();
    assert_eq!(place(), first);
    let kept = handle.table().borrow().clone();
    unprepare(&handle, &claim("a")).await.unwrap();
    assert!(kept.claims.contains_key(&uid("a")), "what somebody has kept does not change under his eyes");
    assert_ne!(place(), first);
    assert!(handle.table().borrow().claims.is_empty());
}

#[tokio::test]
async fn a_claim_that_is_worked_on_says_with_what_and_since_when() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    let mut table = handle.table();
    let began = SystemTime::now();
    for (step, operation) in [("prepare", ClaimOperation::Prepare), ("unprepare", ClaimOperation::Unprepare)] {
        let gate = world.gate(step);
        let work = async {
            if operation == ClaimOperation::Prepare {
                prepare(&handle, &claim).await.map(drop)
            } else {
                unprepare(&handle, &claim).await
            }
        };
        let (done, ()) = tokio::join!(work, async {
            let is_busy = |table: &Arc<ClaimTable>| table.claims.get(&uid("a")).and_then(ClaimView::busy);
            let seen = table.wait_for(|table| is_busy(table).is_some()).await.unwrap().clone();
            let busy = is_busy(&seen).unwrap();
            assert_eq!(busy.operation, operation);
            assert!(busy.since >= began && busy.since <= SystemTime::now());
            drop(gate);
        });
        done.unwrap();
        let seen = handle.table().borrow().clone();
        assert!(seen.claims.values().all(|view| view.busy().is_none()));
    }
}

#[tokio::test]
async fn a_claim_made_anew_under_the_same_name_is_another_claim() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let old = world.allocate("a", &[grant("one")]);
    prepare(&handle, &old).await.unwrap();
    let mut new = world.allocate("b", &[grant("one")]);
    new.name.clone_from(&old.name);
    assert!(prepare(&handle, &new).await.unwrap_err().contains("already prepared for claim a"));
    unprepare(&handle, &old).await.unwrap();
    assert_eq!(prepare(&handle, &new).await.unwrap()[0].cdi_ids, ["hostler.dev/claim=b-0-one"]);
}

#[tokio::test]
async fn a_restart_keeps_claims_and_rebuilds_cdi_files() {
    let world = ClaimsWorld::new();
    let claim = world.allocate("a", &[grant("one")]);
    let before = {
        let handle = world.start().await;
        (prepare(&handle, &claim).await.unwrap(), world.cdi("a"))
    };
    fs::remove_dir_all(world.temp.path().join("cdi")).unwrap();
    world.allocations.0.lock().unwrap().clear();
    let handle = world.start().await;
    assert_eq!(world.cdi("a"), before.1, "the file is back before anybody asks");
    assert_eq!(prepare(&handle, &claim).await.unwrap(), before.0);
}

#[tokio::test]
async fn a_reboot_undoes_hardware_but_not_the_choice() {
    let mut world = ClaimsWorld::new();
    let claim = world.allocate("a", &[grant("one")]);
    let before = prepare(&world.start().await, &claim).await.unwrap();
    world.bench.hardware.lock().unwrap().clear();
    world.bench.steps();
    world.boot_id = "boot-2".to_owned();
    let handle = world.start().await;
    assert!(world.files("cdi").is_empty(), "nobody may use what is not ready");
    assert!(problem(&handle, "a").unwrap().contains("rebooted"));
    let other = world.allocate("b", &[grant("one")]);
    assert!(prepare(&handle, &other).await.is_err(), "its devices stay its own");
    assert_eq!(prepare(&handle, &claim).await.unwrap(), before);
    assert!(world.bench.steps().contains(&"prepare a".to_owned()));
    assert_eq!(problem(&handle, "a"), None);
}

#[tokio::test]
async fn a_half_done_claim_is_rolled_back_at_start() {
    let world = ClaimsWorld::new();
    let half = record("a", RecordState::Preparing, "boot-1");
    RecordDir::open(world.temp.path().join("claims"), "boot-1").unwrap().write(&[&half]).unwrap();
    world.bench.hardware.lock().unwrap().insert(("a".to_owned(), "one".to_owned()));
    let handle = world.start().await;
    assert!(world.bench.ready().is_empty() && world.files("claims").is_empty());
    assert!(handle.table().borrow().claims.is_empty());
}

#[tokio::test]
async fn a_corrupt_record_costs_its_claim_alone_until_it_is_forgotten() {
    let world = ClaimsWorld::new();
    let (bad, good) = (world.allocate("bad", &[grant("one")]), world.allocate("good", &[grant("two")]));
    {
        let handle = world.start().await;
        prepare(&handle, &bad).await.unwrap();
        prepare(&handle, &good).await.unwrap();
    }
    let path = world.temp.path().join("claims/bad.json");
    fs::write(&path, b"\0garbage").unwrap();
    let handle = world.start().await;
    prepare(&handle, &good).await.unwrap();
    for error in [prepare(&handle, &bad).await.unwrap_err(), unprepare(&handle, &bad).await.unwrap_err()] {
        assert!(error.contains("claim bad is quarantined") && error.contains("hostler claim forget bad"), "{error}");
    }
    let other = world.allocate("other", &[grant("one")]);
    assert!(prepare(&handle, &other).await.unwrap_err().contains("already prepared for claim bad"));
    assert_eq!(fs::read(&path).unwrap(), b"\0garbage", "nothing is deleted");
    handle.forget(uid("bad")).await.unwrap();
    assert_eq!(world.files("forgotten"), ["bad.json"]);
    prepare(&handle, &other).await.unwrap();
    assert!(matches!(*handle.forget(uid("good")).await.unwrap_err(), ClaimError::NotQuarantined(_)));
}

#[tokio::test]
async fn an_interrupted_unprepare_is_ready_again_after_a_restart() {
    let world = ClaimsWorld::new();
    let claim = world.allocate("a", &[grant("one")]);
    prepare(&world.start().await, &claim).await.unwrap();
    // The crash came after the CDI file and the hardware were gone, before the record was.
    fs::remove_file(world.temp.path().join("cdi/hostler.dev-claim_a.json")).unwrap();
    world.bench.hardware.lock().unwrap().clear();
    let handle = world.start().await;
    assert_eq!((world.bench.ready().len(), world.files("cdi").len()), (1, 1));
    unprepare(&handle, &claim).await.unwrap();
    assert!(world.bench.ready().is_empty());
}

#[tokio::test]
async fn a_ready_claim_whose_device_fails_later_keeps_everything_and_says_so() {
    let world = ClaimsWorld::new();
    let handle = world.start().await;
    let claim = world.allocate("a", &[grant("one")]);
    prepare(&handle, &claim).await.unwrap();
    world.bench.fail("verify", true);
    assert!(prepare(&handle, &claim).await.is_err());
    assert_eq!((world.files("claims").len(), world.files("cdi").len(), world.bench.ready().len()), (1, 1, 1));
}

#[tokio::test]
async fn containers_read_the_attributes_that_their_devices_have_now() {
    let mut world = ClaimsWorld::new();
    world.describe = true;
    let claim = world.allocate("a", &[grant("one")]);
    let file = world.temp.path().join("metadata/a_req.json");
    let handle = world.start().await;
    let before = (prepare(&handle, &claim).await.unwrap(), world.cdi("a"));
    assert!(fs::read_to_string(&file).unwrap().contains(r#""generation":1"#));
    let name = hostler_api::QualifiedName::new("model").unwrap();
    world.bench.attributes.lock().unwrap().insert(name, "x1".into());
    world.inventory().rescan().await;
    let generation = |table: &Arc<ClaimTable>| match table.claims.get(&uid("a")).unwrap() {
        ClaimView::Recorded { record, .. } => record.metadata.as_ref().map(|metadata| metadata.generation),
        ClaimView::Quarantined(_) => None,
    };
    handle.table().wait_for(|table| generation(table) == Some(2)).await.unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(r#""generation":2"#) && text.contains(r#"{"model":{"string":"x1"}}"#), "{text}");
    fs::remove_dir_all(world.temp.path().join("metadata")).unwrap();
    assert_eq!((prepare(&handle, &claim).await.unwrap(), world.cdi("a")), before);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let later = world.start().await;
    assert_eq!(generation(&later.table().borrow().clone()), Some(2), "a restart begins with the last generation");
    unprepare(&later, &claim).await.unwrap();
    assert!(world.files("metadata").is_empty());
    // A kill between the end of the record and that of the file.
    fs::write(&file, text).unwrap();
    world.start().await;
    assert!(world.files("metadata").is_empty());
}

/// Memory that becomes a node is another node after a reboot.
#[tokio::test]
async fn what_only_preparing_finds_out_about_binding_is_recorded_in_place_of_the_plan() {
    let mut world = ClaimsWorld::new();
    let claim = world.allocate("one", &[grant("one")]);
    for (boot, node) in [("boot-1", 5), ("boot-2", 6)] {
        world.boot_id = boot.to_owned();
        *world.bench.found.lock().unwrap() = Some(Pinning { mems: [node].into(), ..Pinning::default() });
        let handle = world.start().await;
        prepare(&handle, &claim).await.unwrap();
        let cdi = world.cdi("one");
        assert!(cdi.contains(&format!("HOSTLER_MEMS={node}\"")), "{cdi}");
        let table = handle.table().borrow().clone();
        let recorded = &table.claims.get(&uid("one")).unwrap().devices()[0].plan.pinning;
        assert_eq!(recorded.mems, [node].into());
        handle.send(ClaimsRequest::Stop);
    }
}

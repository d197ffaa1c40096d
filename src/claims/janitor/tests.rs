//! The table of what follows from a look, and the janitor with a real claims task and real notes of containers.

use std::{fs, sync::Mutex};

use hostler_api::Allocation;
use hostler_linux::SysRoot;
use prometheus_client::{encoding::text::encode, registry::Registry};

use super::{
    super::{ClaimsParts, ReadClaims, ReadResult, task, testing::*},
    *,
};
use crate::containers::{self, ContainerDir};

const GRACE: Duration = Duration::from_secs(300);

fn after(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_claim_is_released_only_after_agreeing_looks_far_enough_apart_and_without_containers() {
    use ClaimObservation::{Allocated, Deallocated, Gone, OtherUid};
    let start = Instant::now();
    let doubt = |why| ReleaseDoubt { why, since: start };
    let first = |why, at| ReleaseVerdict::Doubt(ReleaseDoubt { why, since: start + after(at) });
    for (name, before, seen, runs, at, expected) in [
        ("all is well", None, Some(Allocated), false, 0, ReleaseVerdict::Trust),
        ("nothing was seen", None, None, false, 0, ReleaseVerdict::Trust),
        ("gone for the first time", None, Some(Gone), false, 0, first(ReleaseReason::Gone, 0)),
        ("other for the first time", None, Some(OtherUid), false, 0, first(ReleaseReason::OtherUid, 0)),
        ("deallocated for the first time", None, Some(Deallocated), false, 0, first(ReleaseReason::Deallocated, 0)),
        (
            "gone again, too early",
            Some(doubt(ReleaseReason::Gone)),
            Some(Gone),
            false,
            299,
            first(ReleaseReason::Gone, 0),
        ),
        (
            "gone for long enough",
            Some(doubt(ReleaseReason::Gone)),
            Some(Gone),
            false,
            300,
            ReleaseVerdict::Release(ReleaseReason::Gone),
        ),
        (
            "other for long",
            Some(doubt(ReleaseReason::OtherUid)),
            Some(OtherUid),
            false,
            999,
            ReleaseVerdict::Release(ReleaseReason::OtherUid),
        ),
        ("back to life", Some(doubt(ReleaseReason::Gone)), Some(Allocated), false, 300, ReleaseVerdict::Trust),
        ("an error in between", Some(doubt(ReleaseReason::Gone)), None, false, 300, ReleaseVerdict::Trust),
        (
            "a disagreement",
            Some(doubt(ReleaseReason::Gone)),
            Some(OtherUid),
            false,
            300,
            first(ReleaseReason::OtherUid, 300),
        ),
        ("gone, and used", Some(doubt(ReleaseReason::Gone)), Some(Gone), true, 300, first(ReleaseReason::Gone, 0)),
        (
            "gone, used no more",
            Some(doubt(ReleaseReason::Gone)),
            Some(Gone),
            false,
            900,
            ReleaseVerdict::Release(ReleaseReason::Gone),
        ),
    ] {
        assert_eq!(judge(before, seen, runs, start + after(at), GRACE), expected, "{name}");
    }
}

/// Allocates everything, and shows what the test says.
struct Api(Mutex<BTreeMap<ClaimUid, ClaimObservation>>);

impl ReadClaims for Api {
    fn read(&self, claims: &[ClaimRef]) -> Vec<ReadResult> {
        let device = |claim: &ClaimRef| if claim.uid.as_str() == "a" { "one" } else { "two" };
        claims.iter().map(|claim| Ok::<Allocation, _>(allocation(&[grant(device(claim))]))).collect()
    }
}

impl ObserveClaims for Api {
    fn observe(&self, claims: &[ClaimRef]) -> Vec<Result<ClaimObservation, ObserveError>> {
        let shown = self.0.lock().unwrap();
        claims.iter().map(|claim| shown.get(&claim.uid).copied().ok_or_else(|| "no connection".into())).collect()
    }
}

struct JanitorWorld {
    temp: tempfile::TempDir,
    api: Arc<Api>,
    janitor: Janitor,
    start: Instant,
    metrics: Metrics,
}

impl Drop for JanitorWorld {
    /// Ends the owner, or the runtime would wait for its thread.
    fn drop(&mut self) {
        self.janitor.parts.claims.stop_now();
    }
}

impl JanitorWorld {
    /// With claims `a` and `b`, both prepared and seen once.
    async fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let api = Arc::new(Api(Mutex::default()));
        let (tasks, _ended_rx) = Tasks::new();
        let metrics = Metrics::default();
        let boot_id = hostler_linux::boot::boot_id(&SysRoot::host()).unwrap();
        let containers = ContainerDir::new(temp.path().join("containers"), SysRoot::host(), boot_id);
        let parts = ClaimsParts {
            inventory: scanned(BenchBackend::new(), temp.path(), &tasks).await,
            reader: api.clone(),
            records: temp.path().join("claims"),
            cdi: temp.path().join("cdi"),
            naming: naming(),
            containers,
            describe: false,
            boot_id: "boot-1".to_owned(),
            metrics: metrics.clone(),
            lock: lock(temp.path()),
        };
        let starting = tasks.clone();
        let claims = tokio::task::spawn_blocking(move || task::start(parts, &starting)).await.unwrap().unwrap();
        assert!(claims.prepare(vec![claim("a"), claim("b")]).await.values().all(Result::is_ok));
        let observer: Option<Arc<dyn ObserveClaims>> = Some(api.clone());
        let parts = JanitorParts { claims, observer, release_after: GRACE, metrics: metrics.clone() };
        let mut janitor = Janitor { parts: Arc::new(parts), known: BTreeMap::new(), tasks };
        let start = Instant::now();
        janitor.round(start).await;
        Self { temp, api, janitor, start, metrics }
    }

    fn show(&self, text: &str, observation: Option<ClaimObservation>) {
        let mut shown = self.api.0.lock().unwrap();
        match observation {
            Some(observation) => shown.insert(uid(text), observation),
            None => shown.remove(&uid(text)),
        };
    }

    /// Looks, so many seconds after the first look; gives the claims that are left on record.
    async fn round(&mut self, seconds: u64) -> Vec<String> {
        self.janitor.round(self.start + after(seconds)).await;
        let table = self.janitor.parts.claims.table();
        table.borrow().claims.keys().map(ToString::to_string).collect()
    }

    fn figures(&self) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        self.metrics.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        text
    }
}

#[tokio::test]
async fn a_claim_that_is_gone_for_long_enough_is_taken_back_and_counted() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    world.show("b", Some(ClaimObservation::Allocated));
    assert_eq!(world.round(299).await, ["a", "b"], "too young to be looked at");
    assert_eq!(world.round(300).await, ["a", "b"], "seen gone for the first time");
    assert_eq!(world.round(599).await, ["a", "b"]);
    assert_eq!(world.round(600).await, ["b"]);
    assert!(world.figures().contains("{kind=\"gone\"} 1"), "{}", world.figures());
    assert_eq!(world.round(9999).await, ["b"]);
}

#[tokio::test]
async fn an_outage_in_between_begins_the_wait_anew() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    assert_eq!(world.round(300).await, ["a", "b"]);
    world.show("a", None);
    assert_eq!(world.round(450).await, ["a", "b"]);
    world.show("a", Some(ClaimObservation::Gone));
    assert_eq!(world.round(600).await, ["a", "b"]);
    assert_eq!(world.round(899).await, ["a", "b"]);
    assert_eq!(world.round(900).await, ["b"], "what nothing is known of stays");
}

#[tokio::test]
async fn a_claim_is_not_taken_back_while_a_container_runs_with_it() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Deallocated));
    #[expect(clippy::disallowed_methods, reason = "a test needs a process")]
    let mut container = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let (folder, id) = (world.temp.path().join("containers"), containers::ContainerId::new("c1").unwrap());
    containers::record(&SysRoot::host(), &folder, &uid("a"), &id, container.id()).unwrap();
    assert_eq!(world.round(300).await, ["a", "b"]);
    assert_eq!(world.round(9999).await, ["a", "b"], "the container runs");
    container.kill().unwrap();
    container.wait().unwrap();
    assert_eq!(world.round(10_000).await, ["b"]);
    assert!(!folder.join("a").exists());
}

#[tokio::test]
async fn notes_of_containers_that_ended_or_have_no_claim_are_removed() {
    let mut world = JanitorWorld::new().await;
    #[expect(clippy::disallowed_methods, reason = "a test needs a process")]
    let mut container = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let (folder, id) = (world.temp.path().join("containers"), containers::ContainerId::new("c1").unwrap());
    for claim in ["a", "nobody"] {
        containers::record(&SysRoot::host(), &folder, &uid(claim), &id, container.id()).unwrap();
    }
    world.round(1).await;
    assert!(world.janitor.parts.claims.containers().any_runs(&uid("a")) && folder.join("nobody").exists());
    container.kill().unwrap();
    container.wait().unwrap();
    world.round(2).await;
    assert_eq!(fs::read_dir(folder.join("a")).unwrap().count(), 0);
    assert!(!folder.join("nobody").exists());
}

#[tokio::test(start_paused = true)]
async fn looks_come_several_times_within_the_grace_period_and_not_at_once() {
    let world = JanitorWorld::new().await;
    let pauses: Vec<Duration> = (0..50).map(|_| world.janitor.pause()).collect();
    let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
    assert!(*least >= after(48) && *most <= after(72) && least != most, "{least:?} {most:?}");
}

//! The janitor with a real claims task, real notes of containers, and restarts in between.

use std::{
    fs,
    sync::{Mutex, mpsc},
};

use hostler_api::{Allocation, ClaimRef};
use hostler_linux::SysRoot;
use prometheus_client::{encoding::text::encode, registry::Registry};

use super::{
    super::{ClaimTable, ClaimsParts, ReadClaims, ReadContinuation, task, testing::*},
    *,
};
use crate::containers::{self, ContainerDir, ContainerOwner, ContainerUse};

const GRACE: Duration = Duration::from_secs(300);

fn after(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Allocates everything, and shows what the test says.
struct Api(Mutex<BTreeMap<ClaimUid, ClaimObservation>>);

impl ReadClaims for Api {
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
        let device = |claim: &ClaimRef| if claim.uid.as_str() == "b" { "two" } else { "one" };
        let read = claims.iter().map(|claim| Ok::<Allocation, _>(allocation(&[grant(device(claim))]))).collect();
        tokio::task::spawn_blocking(move || then(read));
    }
}

impl ObserveClaims for Api {
    fn observe(&self, claims: &[Arc<ClaimRecord>]) -> Vec<Result<ClaimObservation, ObserveError>> {
        let shown = self.0.lock().unwrap();
        claims
            .iter()
            .map(|record| shown.get(&record.claim.uid).copied().ok_or_else(|| "no connection".into()))
            .collect()
    }
}

struct JanitorWorld {
    temp: tempfile::TempDir,
    api: Arc<Api>,
    bench: Arc<BenchBackend>,
    janitor: Janitor,
    start: Instant,
    metrics: Metrics,
}

impl JanitorWorld {
    /// With claims `a` and `b`, both prepared and seen once.
    async fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (api, bench) = (Arc::new(Api(Mutex::default())), BenchBackend::new());
        let (tasks, _ended_rx) = Tasks::new();
        let metrics = Metrics::default();
        let boot_id = hostler_linux::boot::boot_id(&SysRoot::host()).unwrap();
        let containers = ContainerDir::new(temp.path().join("containers"), SysRoot::host(), boot_id);
        let parts = ClaimsParts {
            inventory: scanned(bench.clone(), temp.path(), &tasks).await,
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
        let state = temp.path().to_owned();
        let parts = JanitorParts { claims, observer, release_after: GRACE, state, metrics: metrics.clone() };
        let janitor = Janitor::new(parts, &tasks);
        let mut world = Self { temp, api, bench, janitor, start: Instant::now(), metrics };
        world.round(0).await;
        world
    }

    /// Another daemon comes, and knows what is on disk.
    async fn restart(&mut self) {
        let JanitorParts { claims, observer, release_after, state, metrics } = &*self.janitor.parts;
        let parts = JanitorParts {
            claims: claims.clone(),
            observer: observer.clone(),
            release_after: *release_after,
            state: state.clone(),
            metrics: metrics.clone(),
        };
        self.janitor = Janitor::new(parts, &self.janitor.tasks.clone());
        self.janitor.load().await;
    }

    /// Asks for the device of claim `a` with another claim; the janitor hears of who is in the way.
    async fn thief(&mut self, seconds: u64) -> Result<(), String> {
        let mut contested_rx = self.janitor.parts.claims.contested();
        let mut answers = self.janitor.parts.claims.prepare(vec![claim("thief")]).await;
        if let Ok(contested) = contested_rx.try_recv() {
            self.janitor.contest(contested, self.start + after(seconds));
        }
        answers.remove(&uid("thief")).unwrap().map(drop).map_err(|error| Chain(&*error).to_string())
    }

    /// Looks at what is in somebody's way and due; gives the claims that are left on record.
    async fn contested_round(&mut self, seconds: u64) -> Vec<String> {
        self.look(LookScope::Contested, seconds).await
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
        self.look(LookScope::All, seconds).await
    }

    async fn look(&mut self, scope: LookScope, seconds: u64) -> Vec<String> {
        if let Some(releasing) = self.janitor.round(scope, self.start + after(seconds)).await {
            releasing.await.unwrap();
        }
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
    for seconds in [1, 100, 200, 300] {
        assert_eq!(world.round(seconds).await, ["a", "b"], "first seen gone after a second");
    }
    assert_eq!(world.round(301).await, ["b"]);
    assert!(world.figures().contains("{kind=\"gone\"} 1"), "{}", world.figures());
    assert_eq!(world.round(9999).await, ["b"]);
    assert!(!world.temp.path().join("doubts.json").exists(), "nobody is doubted any more");
}

#[tokio::test]
async fn an_outage_neither_counts_nor_makes_forget_what_was_seen() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    for seconds in [0, 100, 200] {
        world.round(seconds).await;
    }
    world.show("a", None);
    world.round(300).await;
    world.show("a", Some(ClaimObservation::Gone));
    assert_eq!(world.round(9000).await, ["a", "b"], "200 seconds, and an outage");
    assert_eq!(world.round(9099).await, ["a", "b"]);
    assert_eq!(world.round(9100).await, ["b"], "what nothing is known of stays");
}

#[tokio::test]
async fn a_claim_that_is_there_again_begins_anew() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    for seconds in [0, 100, 200] {
        world.round(seconds).await;
    }
    world.show("a", Some(ClaimObservation::Allocated));
    world.round(250).await;
    world.restart().await;
    world.show("a", Some(ClaimObservation::Gone));
    for seconds in [300, 400, 500, 599] {
        assert_eq!(world.round(seconds).await, ["a", "b"]);
    }
    assert_eq!(world.round(600).await, ["b"]);
}

#[tokio::test]
async fn what_was_seen_is_kept_over_restarts_and_the_time_between_does_not_count() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    let mut seconds = 0;
    world.round(seconds).await;
    for restart in 0..3 {
        // 90 seconds each, then a daemon that comes much later.
        for _ in 0..2 {
            seconds += 45;
            assert_eq!(world.round(seconds).await, ["a", "b"], "after {restart} restarts");
        }
        world.restart().await;
        seconds += 100_000;
        assert_eq!(world.round(seconds).await, ["a", "b"], "one look alone says nothing");
    }
    assert_eq!(world.round(seconds + 29).await, ["a", "b"]);
    assert_eq!(world.round(seconds + 30).await, ["b"]);
}

#[tokio::test]
async fn a_damaged_file_begins_the_wait_anew_and_loses_nothing_else() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    for seconds in [0, 100, 200] {
        world.round(seconds).await;
    }
    for damage in ["", "{}"] {
        fs::write(world.temp.path().join("doubts.json"), damage).unwrap();
        world.restart().await;
        assert_eq!(world.round(10_000).await, ["a", "b"]);
        assert_eq!(world.round(10_100).await, ["a", "b"]);
    }
    for seconds in [10_200, 10_299] {
        assert_eq!(world.round(seconds).await, ["a", "b"]);
    }
    assert_eq!(world.round(10_300).await, ["b"]);
}

#[tokio::test]
async fn a_holder_that_stands_in_the_way_is_looked_at_at_once_and_taken_back_after_a_second_look() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    let refusal = world.thief(1).await.unwrap_err();
    assert!(refusal.contains("device one is already prepared for claim a (default/name-a)"), "{refusal}");
    assert!(refusal.ends_with("is being looked at: try again in some seconds"), "{refusal}");
    assert_eq!(world.contested_round(1).await, ["a", "b"]);
    assert_eq!(world.contested_round(5).await, ["a", "b"], "not yet due");
    assert_eq!(world.contested_round(6).await, ["b"]);
    world.thief(7).await.unwrap();
}

#[tokio::test]
async fn a_holder_that_is_needed_keeps_its_device_and_is_looked_at_once_for_each_refusal() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Allocated));
    for seconds in [1, 20, 40] {
        world.thief(seconds).await.unwrap_err();
        assert_eq!(world.contested_round(seconds).await, ["a", "b"]);
        assert!(world.janitor.contested.is_empty());
    }
    world.show("a", None);
    world.thief(60).await.unwrap_err();
    assert_eq!(world.contested_round(60).await, ["a", "b"], "nothing is known of it");
    assert!(world.janitor.contested.is_empty());
}

#[tokio::test]
async fn a_holder_that_is_being_taken_back_is_not_looked_at_again_and_again() {
    let mut world = JanitorWorld::new().await;
    let claims = world.janitor.parts.claims.clone();
    let (gate, closed) = mpsc::channel();
    *world.bench.gate.lock().unwrap() = Some(("unprepare", closed));
    let taking_back = world.janitor.tasks.job({
        let claims = claims.clone();
        async move { claims.unprepare(vec![claim("a")]).await }
    });
    let is_busy = |table: &Arc<ClaimTable>| table.claims.get(&uid("a")).is_some_and(|view| view.busy().is_some());
    claims.table().wait_for(is_busy).await.unwrap();
    world.thief(1).await.unwrap_err();
    assert_eq!(world.contested_round(1).await, ["a", "b"]);
    assert!(world.janitor.contested.is_empty(), "the next look would be due at once");
    drop::<mpsc::Sender<()>>(gate);
    taking_back.await.unwrap().remove(&uid("a")).unwrap().unwrap();
}

#[tokio::test]
async fn a_holder_that_was_looked_at_just_now_is_looked_at_some_seconds_later() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    world.round(10).await;
    world.thief(11).await.unwrap_err();
    assert_eq!(world.contested_round(11).await, ["a", "b"]);
    assert_eq!(world.contested_round(14).await, ["a", "b"]);
    assert_eq!(world.contested_round(15).await, ["b"]);
}

#[tokio::test]
async fn a_holder_in_the_way_is_taken_back_although_the_daemon_restarts_between_the_looks() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    world.thief(1).await.unwrap_err();
    world.contested_round(1).await;
    world.restart().await;
    world.thief(3).await.unwrap_err();
    assert_eq!(world.contested_round(3).await, ["a", "b"], "the first look of this process");
    assert_eq!(world.contested_round(8).await, ["b"]);
}

#[tokio::test]
async fn a_claim_that_was_asked_for_after_the_look_is_kept() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Gone));
    world.round(0).await;
    let claims = world.janitor.parts.claims.clone();
    let seen = std::time::Instant::now();
    assert!(claims.prepare(vec![claim("a")]).await[&uid("a")].is_ok());
    let mut answers = claims.release(vec![claim("a"), claim("b")], seen).await;
    let kept = answers.remove(&uid("a")).unwrap().unwrap_err();
    assert!(matches!(*kept, ClaimError::NeededAgain(_)), "{kept}");
    answers.remove(&uid("b")).unwrap().unwrap();
    assert_eq!(world.round(1).await, ["a"]);
}

#[tokio::test]
async fn nobody_is_told_of_a_look_where_nobody_looks() {
    let world = JanitorWorld::new().await;
    let mut answers = world.janitor.parts.claims.prepare(vec![claim("thief")]).await;
    let refusal = answers.remove(&uid("thief")).unwrap().unwrap_err();
    assert!(matches!(*refusal, ClaimError::Held { .. }), "{refusal}");
}

#[tokio::test]
async fn a_claim_is_not_taken_back_while_a_container_runs_with_it() {
    let mut world = JanitorWorld::new().await;
    world.show("a", Some(ClaimObservation::Deallocated));
    #[expect(clippy::disallowed_methods, reason = "a test needs a process")]
    let mut container = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let (folder, id) = (world.temp.path().join("containers"), containers::ContainerId::new("c1").unwrap());
    let used = ContainerUse {
        claim: &uid("a"),
        container: &id,
        pid: container.id(),
        sets: None,
        owner: ContainerOwner::default(),
    };
    containers::record(&SysRoot::host(), &folder, used).unwrap();
    for seconds in [0, 100, 200, 300, 400] {
        assert_eq!(world.round(seconds).await, ["a", "b"], "the container runs");
    }
    world.thief(500).await.unwrap_err();
    assert_eq!(world.contested_round(500).await, ["a", "b"], "also where it stands in the way");
    container.kill().unwrap();
    container.wait().unwrap();
    assert_eq!(world.round(600).await, ["b"]);
    assert!(!folder.join("a").exists());
}

#[tokio::test]
async fn notes_of_containers_that_ended_or_have_no_claim_are_removed() {
    let mut world = JanitorWorld::new().await;
    #[expect(clippy::disallowed_methods, reason = "a test needs a process")]
    let mut container = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let (folder, id) = (world.temp.path().join("containers"), containers::ContainerId::new("c1").unwrap());
    for claim in ["a", "nobody"] {
        let used = ContainerUse {
            claim: &uid(claim),
            container: &id,
            pid: container.id(),
            sets: None,
            owner: ContainerOwner::default(),
        };
        containers::record(&SysRoot::host(), &folder, used).unwrap();
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

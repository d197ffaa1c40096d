//! What the watch makes of what it hears.

use hostler_cluster::{CallError, StatusError};
use serde_json::json;
use tokio::time::advance;

use super::*;

fn pod_at(name: &str, uid: &str, version: u64) -> RawObject {
    let pod = json!({
        "metadata": {"name": name, "namespace": "ml", "uid": uid, "resourceVersion": version.to_string()},
        "spec": {"containers": []},
    });
    RawObject::from_text(&pod.to_string()).unwrap()
}

fn pod(name: &str, uid: &str) -> RawObject {
    pod_at(name, uid, uid.parse().unwrap())
}

/// A pod that no version of the API has.
fn odd_pod(name: &str, version: u64) -> RawObject {
    let metadata = json!({"name": name, "namespace": "ml", "uid": "7", "resourceVersion": version.to_string()});
    RawObject::from_text(&json!({"metadata": metadata, "spec": 7}).to_string()).unwrap()
}

fn failure(code: u16) -> ApiFailure {
    let source = CallError::Status(StatusError { code, message: "no".to_owned(), ..StatusError::default() });
    ApiFailure::Call { step: "watch the pods of this node".to_owned(), source }
}

fn outage() -> ApiFailure {
    ApiFailure::TimedOut { step: "watch".to_owned(), after: Duration::from_secs(1) }
}

fn pauses() -> RetryPauses {
    RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE)
}

struct Scene {
    word: LatestWord,
    pods_rx: PodsReader,
}

impl Scene {
    fn new() -> Self {
        let (pods_tx, pods_rx) = watch::channel(PodsOfNode::Unknown("not yet".to_owned()));
        Self { word: LatestWord::new(pods_tx), pods_rx }
    }

    fn listed(pods: &[RawObject]) -> Self {
        let mut scene = Self::new();
        scene.list(pods);
        scene
    }

    fn list(&mut self, pods: &[RawObject]) {
        self.word.observe(&FollowEvent::ListStarted);
        for pod in pods {
            self.word.observe(&FollowEvent::Listed(pod.clone()));
        }
        self.word.observe(&FollowEvent::ListEnded);
    }

    /// Names and UIDs, if they are known.
    fn known(&self) -> Option<Vec<(String, String)>> {
        match &*self.pods_rx.borrow() {
            PodsOfNode::Known(pods) => {
                Some(pods.values().map(|pod| (pod.name.name.clone(), pod.uid.clone())).collect())
            }
            _ => None,
        }
    }
}

fn names(known: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
    Some(known.iter().map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned())).collect())
}

#[test]
fn nothing_is_known_before_a_list_is_complete() {
    let mut scene = Scene::new();
    scene.word.observe(&FollowEvent::ListStarted);
    scene.word.observe(&FollowEvent::Listed(pod("a", "1")));
    assert_eq!(scene.known(), None);
    scene.word.observe(&FollowEvent::ListEnded);
    assert_eq!(scene.known(), names(&[("a", "1")]));
}

#[test]
fn the_end_of_a_pod_is_not_the_end_of_its_successor() {
    let mut scene = Scene::listed(&[pod("a", "1")]);
    scene.word.observe(&FollowEvent::Applied(pod("a", "2")));
    scene.word.observe(&FollowEvent::Deleted(pod("a", "1")));
    assert_eq!(scene.known(), names(&[("a", "2")]));
    scene.word.observe(&FollowEvent::Deleted(pod("a", "2")));
    assert_eq!(scene.known(), names(&[]));
}

#[test]
fn a_heartbeat_of_a_pod_is_no_news() {
    let mut scene = Scene::listed(&[pod("a", "1")]);
    scene.pods_rx.mark_unchanged();
    scene.word.observe(&FollowEvent::Applied(pod_at("a", "1", 5)));
    assert!(!scene.pods_rx.has_changed().unwrap());
    scene.word.observe(&FollowEvent::Applied(pod("b", "2")));
    assert!(scene.pods_rx.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_was_heard_counts_for_a_minute_after_the_server_has_gone() {
    let mut scene = Scene::listed(&[pod("a", "1")]);
    let gone = Instant::now();
    scene.word.lost(&outage(), &pauses(), gone);
    scene.word.lost(&outage(), &pauses(), gone + WORD_COUNTS / 2);
    assert_eq!(scene.word.counts_until(), Some(gone + WORD_COUNTS), "a second failure is no news");
    assert_eq!(scene.known(), names(&[("a", "1")]));
    scene.word.expire();
    assert!(matches!(&*scene.pods_rx.borrow(), PodsOfNode::Stale(pods, why) if pods.len() == 1 && !why.is_empty()));
    scene.list(&[pod("b", "2")]);
    assert_eq!(scene.known(), names(&[("b", "2")]));
    assert_eq!(scene.word.counts_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_back_in_time_costs_nothing() {
    let mut scene = Scene::listed(&[pod("a", "1")]);
    scene.word.lost(&outage(), &pauses(), Instant::now());
    scene.list(&[pod("a", "1")]);
    assert_eq!((scene.known(), scene.word.counts_until()), (names(&[("a", "1")]), None));
    scene.word.expire();
    assert_eq!(scene.known(), names(&[("a", "1")]));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_changes_nothing() {
    let mut scene = Scene::listed(&[pod("a", "1")]);
    scene.word.observe(&FollowEvent::ListStarted);
    scene.word.observe(&FollowEvent::Listed(pod("b", "2")));
    scene.word.lost(&outage(), &pauses(), Instant::now());
    assert_eq!(scene.known(), names(&[("a", "1")]));
    scene.list(&[pod("c", "3")]);
    assert_eq!(scene.known(), names(&[("c", "3")]));
}

#[tokio::test(start_paused = true)]
async fn a_role_that_is_taken_away_ends_what_is_known_at_once() {
    for code in [401, 403] {
        let mut scene = Scene::listed(&[pod("a", "1")]);
        scene.word.lost(&failure(code), &pauses(), Instant::now());
        assert!(matches!(&*scene.pods_rx.borrow(), PodsOfNode::Unknown(_)));
        scene.pods_rx.mark_unchanged();
        scene.word.lost(&failure(code), &pauses(), Instant::now());
        assert!(!scene.pods_rx.has_changed().unwrap(), "it is told once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_is_named_as_missing_only_when_the_refusal_lasts() {
    let (mut scene, mut pauses, refusal) = (Scene::new(), pauses(), failure(403));
    for (waited, names_role) in [(0, false), (5, false), (10, true)] {
        advance(Duration::from_secs(waited)).await;
        pauses.after_refusal(&refusal);
        scene.word.lost(&refusal, &pauses, Instant::now());
        let told = scene.pods_rx.borrow().clone();
        let PodsOfNode::Unknown(why) = told else { panic!("{told:?}") };
        assert_eq!(why.contains("grant the daemon list and watch on pods"), names_role, "{why}");
    }
}

#[test]
fn a_pod_that_makes_no_sense_hides_no_other_and_stays_as_it_was_known() {
    let mut scene = Scene::listed(&[odd_pod("odd", 1), pod("a", "2")]);
    assert_eq!(scene.known(), names(&[("a", "2")]));
    scene.word.observe(&FollowEvent::Applied(pod_at("odd", "7", 3)));
    scene.word.observe(&FollowEvent::Applied(odd_pod("odd", 4)));
    assert_eq!(scene.known(), names(&[("a", "2"), ("odd", "7")]));
    scene.word.observe(&FollowEvent::Deleted(odd_pod("odd", 5)));
    assert_eq!(scene.known(), names(&[("a", "2")]));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_restored_is_believed() {
    let mut scene = Scene::listed(&[pod_at("a", "1", 90), pod_at("b", "2", 91)]);
    scene.word.lost(&outage(), &pauses(), Instant::now());
    scene.list(&[pod_at("a", "1", 40), pod_at("c", "3", 41)]);
    assert_eq!(scene.known(), names(&[("a", "1"), ("c", "3")]));
    scene.word.observe(&FollowEvent::Deleted(pod_at("a", "1", 42)));
    assert_eq!(scene.known(), names(&[("c", "3")]));
}

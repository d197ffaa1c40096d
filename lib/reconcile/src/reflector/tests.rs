//! Reflectors against an API server of the tests: lists for subscribers that join late, kinds that come and go, outages.

use std::time::Duration;

use hostler_testing::apiserver::{ApiServer, ApiServerRelease};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::timeout};

use super::*;

/// Everything here happens within a pause of the reflector.
const PATIENCE: Duration = Duration::from_secs(20);

struct Rig {
    /// Ends with the test.
    _server: ApiServer,
    client: ApiClient,
    reflector: Reflector,
    task: JoinHandle<()>,
}

fn nodes() -> Collection {
    Collection::core("Node", "nodes")
}

async fn rig(collections: impl Fn(Option<ApiVersion>) -> Vec<Collection> + Send + 'static) -> Rig {
    let server = ApiServer::of(ApiServerRelease::default()).await;
    let client = ApiClient::new(Some(&*server.kubeconfig("controller"))).unwrap();
    let kind = ReflectorKind { plural: "nodes", collections: Box::new(collections), is_optional: false };
    let (reflector, task) = Reflector::new(client.clone(), kind);
    let (tasks, _ended_rx) = hostler_process::Tasks::new();
    Rig { _server: server, client, reflector, task: tasks.job(task) }
}

async fn add(rig: &Rig, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    rig.client.create::<Value>(&nodes(), name, &node).await.unwrap();
}

/// A subscriber, and the names that it has heard of.
struct Listener {
    events_rx: mpsc::Receiver<(&'static str, ReflectorEvent)>,
}

impl Listener {
    async fn join(reflector: &Reflector) -> Self {
        let (events_tx, events_rx) = mpsc::channel(1);
        reflector.subscribe("nodes", &events_tx).await;
        Self { events_rx }
    }

    async fn next(&mut self) -> ReflectorEvent {
        let (name, event) = timeout(PATIENCE, self.events_rx.recv()).await.unwrap().unwrap();
        assert_eq!(name, "nodes");
        event
    }

    /// Names up to the end of the next list.
    async fn list(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            match self.next().await {
                ReflectorEvent::Followed(FollowEvent::ListStarted) => names.clear(),
                ReflectorEvent::Followed(FollowEvent::Listed(object)) => names.push(object.name().to_owned()),
                ReflectorEvent::Followed(FollowEvent::ListEnded) => return names,
                _ => {}
            }
        }
    }

    /// The next object that is there or changed.
    async fn applied(&mut self) -> String {
        loop {
            if let ReflectorEvent::Followed(FollowEvent::Applied(object)) = self.next().await {
                return object.name().to_owned();
            }
        }
    }
}

#[tokio::test]
async fn one_watch_serves_every_subscriber_and_each_begins_with_a_list() {
    let rig = rig(|_| vec![nodes()]).await;
    add(&rig, "a").await;
    let mut first = Listener::join(&rig.reflector).await;
    assert_eq!(first.list().await, ["a"]);
    add(&rig, "b").await;
    assert_eq!(first.applied().await, "b");

    let mut second = Listener::join(&rig.reflector).await;
    assert_eq!(
        (second.list().await, first.list().await),
        (vec!["a".to_owned(), "b".to_owned()], vec!["a".to_owned(), "b".to_owned()])
    );
    add(&rig, "c").await;
    assert_eq!((first.applied().await, second.applied().await), ("c".to_owned(), "c".to_owned()));

    // One that goes, even with events that wait for it, holds up no other.
    add(&rig, "d").await;
    drop(first);
    assert_eq!(second.applied().await, "d");
    drop(rig.reflector);
    timeout(PATIENCE, rig.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_slow_subscriber_gets_the_latest_of_each_object_and_keeps_no_more() {
    let rig = rig(|_| vec![nodes()]).await;
    let mut slow = Listener::join(&rig.reflector).await;
    assert!(slow.list().await.is_empty());
    add(&rig, "a").await;
    for change in 0..200 {
        let patch = json!({"metadata": {"labels": {"change": change.to_string()}}});
        rig.client.merge("label", &nodes(), "a", &patch).await.unwrap();
    }
    let (mut events, mut last) = (0, String::new());
    while last != "199" {
        if let ReflectorEvent::Followed(FollowEvent::Applied(object)) = slow.next().await {
            let read: Value = object.read().unwrap();
            last = read["metadata"]["labels"]["change"].as_str().unwrap_or_default().to_owned();
            events += 1;
        }
    }
    assert!(events <= 200, "{events}");
}

#[tokio::test]
async fn a_kind_is_looked_for_in_each_collection_and_at_once_for_a_new_subscriber() {
    let missing = || Collection::custom("missing.example", "v1", "Thing", "things");
    let rig = rig(move |_| vec![missing()]).await;
    let mut first = Listener::join(&rig.reflector).await;
    assert_eq!(first.next().await, ReflectorEvent::NotServed);
    // Ten seconds would pass until the next try.
    let mut second = Listener::join(&rig.reflector).await;
    let soon = timeout(NOT_SERVED_PAUSE / 2, second.next()).await;
    assert_eq!(soon, Ok(ReflectorEvent::NotServed));
    drop((first, second, rig));

    let rig = self::rig(move |_| vec![missing(), nodes()]).await;
    add(&rig, "a").await;
    assert_eq!(Listener::join(&rig.reflector).await.list().await, ["a"]);
}

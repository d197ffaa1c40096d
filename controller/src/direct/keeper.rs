//! The edge of direct mode to the API server: while this process leads, each gated pod is looked at until it is bound or gone. A
//! look reads everything anew, and ends with at most one write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use hostler_allocator::plan::ObjectKey;
use hostler_api::{
    Chain,
    reservation::PLACED_POD_LABEL,
    resource::{ApiVersion, DeviceClass},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection, rfc3339};
use hostler_process::Tasks;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, warn};

use super::{
    decide::decide,
    sight::{DirectClaim, DirectPod, DirectSight, DirectStep, DirectWrite},
};
use crate::{
    hold::{ReservationObject, adapter::reservations},
    lead::Leadership,
    leading,
    rounds::{LookEnd, Rounds},
    view::ClusterView,
};

const FIELD_MANAGER: &str = "hostler-controller";
/// Looks that are under way at once.
const MOST_LOOKS: usize = 8;
/// While others do something: a pod that is placed is waited for by somebody.
const SOON: Duration = Duration::from_secs(1);
/// Everything is looked at this often at least.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Before the server is asked again what it serves.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What placing pods takes.
#[derive(Debug)]
pub(crate) struct DirectParts {
    /// A connection that no watch can hold up.
    pub(crate) client: ApiClient,
    /// What is there.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// Whether this process may write.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// Where looks run.
    pub(crate) tasks: Tasks,
}

/// Places pods as long as this process leads.
pub(crate) fn start(mut parts: DirectParts) {
    let tasks = parts.tasks.clone();
    let stop = tasks.stop_token();
    tasks.service("direct placement", async move {
        tokio::select! {
            // Dropped at the end only. What was sent is done or not; whoever leads next finds out.
            () = parts.run() => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

/// Looks at pods.
#[derive(Clone)]
struct Placer {
    client: ApiClient,
    version: ApiVersion,
    leadership_rx: watch::Receiver<Leadership>,
}

struct DirectTerm<'a> {
    parts: &'a mut DirectParts,
    placer: Placer,
    rounds: Rounds,
    /// Pods by `namespace/name`, and what makes another look worth it.
    known: BTreeMap<String, (ObjectKey, String)>,
    began: Instant,
    answers_tx: mpsc::Sender<(String, LookEnd)>,
    answers_rx: mpsc::Receiver<(String, LookEnd)>,
}

impl DirectParts {
    async fn run(&mut self) {
        loop {
            leading::wait(&mut self.leadership_rx, &mut self.view_rx, || {}).await;
            match self.client.version().await {
                Ok(version) => {
                    let (client, leadership_rx) = (self.client.clone(), self.leadership_rx.clone());
                    DirectTerm::new(self, Placer { client, version, leadership_rx }).run().await;
                }
                Err(failure) => {
                    debug!(error = %Chain(&failure), "no pods are placed");
                    sleep(ASK_AGAIN).await;
                }
            }
        }
    }
}

impl<'a> DirectTerm<'a> {
    fn new(parts: &'a mut DirectParts, placer: Placer) -> Self {
        // Each look under way gives one answer.
        let (answers_tx, answers_rx) = mpsc::channel(MOST_LOOKS);
        let (rounds, known, began) = (Rounds::default(), BTreeMap::new(), Instant::now());
        Self { parts, placer, rounds, known, began, answers_tx, answers_rx }
    }

    async fn run(mut self) {
        self.view_changed();
        while let Some(until) = leading::until(&mut self.parts.leadership_rx) {
            self.begin_looks();
            let next = self.rounds.next(MOST_LOOKS).map_or(until, |at| (self.began + at).min(until));
            tokio::select! {
                // What the server answered is known before more is asked of it.
                biased;
                // Cancel safe: an answer that was not taken stays in the channel.
                Some((name, end)) = self.answers_rx.recv() => {
                    self.rounds.ended(&name, self.began.elapsed(), end);
                    if !self.known.contains_key(&name) {
                        self.rounds.forget(&name);
                    }
                }
                // Cancel safe: it only waits.
                () = sleep_until(next) => {}
                // Cancel safe: what has changed is looked at in the next round.
                _ = self.parts.leadership_rx.changed() => {}
                // Cancel safe: what has changed is looked at at once.
                Ok(()) = self.parts.view_rx.changed() => self.view_changed(),
            }
        }
    }

    /// Those of which something is another than before are looked at.
    fn view_changed(&mut self) {
        let view = self.parts.view_rx.borrow_and_update().clone();
        let (now, seen) = (self.began.elapsed(), pods_of(&view));
        for (name, found) in &seen {
            if self.known.get(name) != Some(found) {
                self.rounds.changed(name, now);
            }
        }
        let gone: Vec<String> = self.known.keys().filter(|name| !seen.contains_key(*name)).cloned().collect();
        gone.iter().for_each(|name| self.rounds.forget(name));
        self.known = seen;
    }

    fn begin_looks(&mut self) {
        while let Some(name) = self.rounds.begin(self.began.elapsed(), MOST_LOOKS) {
            let Some((key, _)) = self.known.get(&name).cloned() else {
                self.rounds.ended(&name, self.began.elapsed(), LookEnd::Again);
                self.rounds.forget(&name);
                continue;
            };
            let made = reservations_for(&self.parts.view_rx.borrow(), &key);
            let (placer, answers_tx) = (self.placer.clone(), self.answers_tx.clone());
            self.parts.tasks.job(async move {
                let end = placer.look(&key, &made).await.unwrap_or_else(|failure| {
                    warn!(pod = %key, error = %Chain(&failure), "a pod cannot be placed for now");
                    LookEnd::Failed
                });
                // Nobody wants to know when the term is over.
                let _ = answers_tx.send((name, end)).await;
            });
        }
    }
}

impl Placer {
    async fn look(&self, key: &ObjectKey, made: &[String]) -> Result<LookEnd, ApiFailure> {
        let sight = self.sight(key, made).await?;
        match decide(&sight) {
            DirectStep::Rest => Ok(LookEnd::Rest(LOOK_AGAIN)),
            DirectStep::Wait => Ok(LookEnd::Rest(SOON)),
            // What was read is of the time of who leads; what is written is as well.
            DirectStep::Write(_) if !self.leadership_rx.borrow().is_ours(Instant::now().into_std()) => {
                Ok(LookEnd::Failed)
            }
            DirectStep::Write(write) => {
                debug!(pod = %key, what = write.what(), "a write for a gated pod");
                match self.send(&write).await {
                    Ok(()) => Ok(LookEnd::Again),
                    // What it is now is read anew.
                    Err(failure) if matches!(failure.code(), Some(404 | 409)) => Ok(LookEnd::Failed),
                    Err(failure) => Err(failure),
                }
            }
        }
    }

    async fn send(&self, write: &DirectWrite) -> Result<(), ApiFailure> {
        let all = reservations();
        match write {
            DirectWrite::Reserve(name, object) => self.client.create::<Value>(&all, name, &**object).await.map(drop),
            DirectWrite::Release(name, version) => self.client.delete(&all, name, version).await,
            DirectWrite::Claim(write) => write.send(&self.client, self.version).await.map(drop),
            DirectWrite::Gates(key, version, gates) => {
                let pods = Collection::core("Pod", "pods").of(&key.namespace);
                let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
                let patch = json!({
                    "metadata": {"uid": version.uid, "resourceVersion": version.resource_version},
                    "spec": {"schedulingGates": gates},
                });
                self.client.change::<Value>(&pods, &key.name, FIELD_MANAGER, &patch).await.map(drop)
            }
        }
    }

    async fn get<T: DeserializeOwned>(&self, all: &Collection, name: &str) -> Result<Option<T>, ApiFailure> {
        match self.client.get(all, name).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.code() == Some(404) && !failure.is_unknown_resource() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Everything as the server has it.
    async fn sight(&self, key: &ObjectKey, made: &[String]) -> Result<DirectSight, ApiFailure> {
        let pods = Collection::core("Pod", "pods").of(&key.namespace);
        let pod: Option<DirectPod> = self.get(&pods, &key.name).await?;
        let own = pod.as_ref().map(|pod| format!("pod-{}", pod.metadata.uid));
        let names: BTreeSet<String> = made.iter().cloned().chain(own).collect();
        let (all, mut kept) = (reservations(), Vec::new());
        for name in names {
            let found: Option<ReservationObject> = self.get(&all, &name).await?;
            kept.extend(found.filter(|it| pod_of(it).as_ref() == Some(key)));
        }
        let all = Collection::resource(self.version, "ResourceClaim", "resourceclaims").of(&key.namespace);
        let mut claims: BTreeMap<String, DirectClaim> = BTreeMap::new();
        for (name, claim) in pod.iter().filter_map(DirectPod::claim_names).flatten() {
            if let Some(claim) = self.get(&all, &claim).await? {
                claims.insert(name, claim);
            }
        }
        let mut classes = BTreeMap::new();
        for class in kept.iter().flat_map(|it| &it.status.devices).map(|it| it.device_class_name.clone()) {
            let all = Collection::resource(self.version, "DeviceClass", "deviceclasses");
            if !class.is_empty() && !classes.contains_key(&class) {
                let found: Option<DeviceClass> = self.get(&all, &class).await?;
                classes.insert(class, found.map(|found| found.spec.config).unwrap_or_default());
            }
        }
        Ok(DirectSight { pod, claims, reservations: kept, classes, now: rfc3339(SystemTime::now()) })
    }
}

/// Pods that are gated, and those for which a Reservation was made.
fn pods_of(view: &ClusterView) -> BTreeMap<String, (ObjectKey, String)> {
    let mut seen: BTreeMap<String, (ObjectKey, String)> = BTreeMap::new();
    for (key, stamp) in &view.marks.gated {
        seen.insert(key.to_string(), (key.clone(), format!("{stamp:?}")));
    }
    for reservation in view.reservations.values() {
        let Some(key) = pod_of(reservation) else { continue };
        let (_, found) = seen.entry(key.to_string()).or_insert_with(|| (key, String::new()));
        found.push_str(&reservation.version);
    }
    seen
}

fn reservations_for(view: &ClusterView, key: &ObjectKey) -> Vec<String> {
    let made = view.reservations.values().filter(|it| pod_of(it).as_ref() == Some(key));
    made.map(|it| it.name.clone()).collect()
}

/// The pod that a Reservation was made for.
fn pod_of(reservation: &ReservationObject) -> Option<ObjectKey> {
    let uid = reservation.labels.get(PLACED_POD_LABEL)?;
    let owner = reservation.spec.owners.first()?.object.as_ref()?;
    let is_name = |name: &String| !name.is_empty() && !name.contains(['/', '?', '#', '%']);
    let is_key = is_name(&owner.namespace) && is_name(&owner.name) && reservation.name == format!("pod-{uid}");
    is_key.then(|| ObjectKey::new(&owner.namespace, &owner.name))
}

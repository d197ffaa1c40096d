//! Finds pods that the webhook missed, while this process leads and any devices are kept, and carries out the decisions
//! about them. Leftover claims are deleted also when no devices are kept any more.
//!
//! | State read | Write |
//! |---|---|
//! | a pod refused by the scheduler, whose only claim has nothing and would be led now | X1 a led claim of the pod |
//! | X1 is there | X2 the old claim is deleted, in the version read; the controller of claims writes X1 into the pod |
//! | X1 is there, and its pod has a node and names another claim | X3 X1 is deleted |
//! | such a pod with several claims, whose owner remakes it, if wanted | X4 the pod is deleted, in the version read |
//!
//! After X1 alone the claim still waits, and X1 is found by its name; after X2 there is nothing to do. After X4 the
//! owner of the pod makes another one, and the webhook is asked about that one's claim.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hostler_api::{Chain, ObjectKey, reservation::CLAIM_INSTEAD_OF, resource::ApiVersion};
use hostler_cluster::{
    ApiClient, ApiFailure, Collection, ObjectVersion,
    events::{EventNote, EventRecorder, EventSubject},
};
use hostler_reconcile::Leadership;
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::{debug, info, warn};

use super::{Repair, RepairPace, WaitingPod, candidates, is_left_over, repair};
use crate::{
    config::{MeantVerb, SwitchMode},
    view::ClusterView,
    webhook::{
        decide::WebhookFacts,
        pod::{PodState, WebhookPod, pod_and_state},
        review::{GeneratedClaim, ReviewedClaim},
    },
    webhook_status::WebhookStatus,
};

/// Pause between two rounds. A scheduler needs a moment for its first refusal of a pod as well.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// The most claims of one round; the others have their turn in the next.
const MOST_CLAIMS: usize = 32;
/// Names under which refusals of the server are remembered, by kind of write.
const LEADING: &str = "claim in the place of another one";
const REPLACING: &str = "deletion of a pod that was passed by";
/// The source of the Events.
const COMPONENT: &str = "hostler-controller";
/// The reason of the Events, in one word.
const REASON: &str = "ReservationPassedBy";

/// The task that repairs pods.
#[derive(Debug)]
pub(in crate::webhook) struct Repairer {
    pub(in crate::webhook) client: ApiClient,
    pub(in crate::webhook) driver: Arc<str>,
    pub(in crate::webhook) view_rx: watch::Receiver<Arc<ClusterView>>,
    pub(in crate::webhook) leadership_rx: watch::Receiver<Leadership>,
    /// The switch for deleting pods.
    pub(in crate::webhook) replaces: SwitchMode,
    /// Status of the webhook.
    pub(in crate::webhook) status_rx: watch::Receiver<WebhookStatus>,
    pub(in crate::webhook) recorder: EventRecorder,
}

/// Memory between rounds. All of it only keeps the controller from doing the same too often.
#[derive(Debug, Default)]
struct RepairMemory {
    pace: RepairPace,
    /// Claims whose pods have an Event already.
    told: BTreeSet<ObjectKey>,
    /// Claims that cannot be replaced, and have an Event already.
    refused: BTreeSet<ObjectKey>,
    /// The last claim of the last round.
    last: Option<ObjectKey>,
}

/// A claim without devices.
struct WaitingClaim {
    claim: GeneratedClaim,
    /// The claim as the API server returned it.
    object: Value,
}

impl Repairer {
    /// Returns the recorder of Events.
    pub(in crate::webhook) fn recorder(client: &ApiClient) -> EventRecorder {
        EventRecorder::new(client.clone(), COMPONENT, &std::env::var("HOSTNAME").unwrap_or_default())
    }

    /// Runs until the process stops.
    pub(in crate::webhook) async fn run(mut self) {
        let (mut memory, began) = (RepairMemory::default(), Instant::now());
        loop {
            sleep(LOOK_AGAIN).await;
            let view = self.view_rx.borrow().clone();
            if !self.leads() || !self.status_rx.borrow().is_installed() {
                memory.told.clear();
                continue;
            }
            for key in memory.turn(&candidates(&view)) {
                if let Err(failure) = self.look(&key, &view, &mut memory, began.elapsed()).await {
                    debug!(claim = %key, error = %Chain(&failure), "a claim that waits cannot be looked at");
                }
            }
        }
    }

    fn leads(&self) -> bool {
        self.leadership_rx.borrow().is_ours(Instant::now().into_std())
    }

    async fn look(
        &mut self,
        key: &ObjectKey,
        view: &ClusterView,
        memory: &mut RepairMemory,
        now: Duration,
    ) -> Result<(), ApiFailure> {
        let Some(WaitingClaim { claim, object }) = self.waiting(key).await? else { return Ok(()) };
        let facts = WebhookFacts { view, own_driver: &self.driver };
        let is_ours = object["metadata"]["annotations"][CLAIM_INSTEAD_OF].is_string();
        if !is_ours && !facts.concern(&claim) {
            return Ok(());
        }
        let Some((pod, state)) = pod_and_state(&self.client, &claim).await? else { return Ok(()) };
        if is_left_over(&object, &pod, &state) {
            return self.delete_claim(key, &object).await.map(drop);
        }
        let has_devices = self.has_devices(&claim.namespace, &pod).await?;
        let waiting = WaitingPod { claim: &claim, object: &object, pod: &pod, state: &state, has_devices };
        match repair(&facts, &waiting) {
            Repair::Leave => {}
            Repair::Tell(message) => self.tell(key, &claim, message, memory).await,
            Repair::Lead { claim: led, why, advice } => {
                if let Err(failure) = self.lead(key, &waiting, &led, &why).await
                    && self.counts(LEADING, &failure)
                    && memory.refused.insert(key.clone())
                {
                    let message =
                        format!("{why}; another one cannot be made in its place: {}; {advice}", Chain(&failure));
                    self.write(&claim, message).await;
                }
            }
            Repair::Replace { owner, why } => {
                match self.replaces.is_on(MeantVerb::Repair, &self.client).await? {
                    Some(true) if memory.pace.may(&owner, now) && self.leads() => {
                        self.replace(&claim, &state, format!("{why}; the pod is made anew")).await?;
                    }
                    // The next round tries again.
                    Some(true) | None => {}
                    Some(false) => {
                        let message = format!("{why}; make it anew, or apply deploy/holds/repair (webhook.repair)");
                        self.tell(key, &claim, message, memory).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// True unless a server that has just started may refuse what it will allow: then the next round tries again.
    fn counts(&self, what: &str, failure: &ApiFailure) -> bool {
        failure.code() != Some(403) || self.client.refusals().refused(what)
    }

    fn claims(namespace: &str) -> Collection {
        Collection::resource(ApiVersion::V1, "ResourceClaim", "resourceclaims").of(namespace)
    }

    /// Returns the claim, if it has no devices and no consumers.
    async fn waiting(&self, key: &ObjectKey) -> Result<Option<WaitingClaim>, ApiFailure> {
        let found = self.client.find::<Value>(&Self::claims(&key.namespace), &key.name).await?;
        Ok(found.and_then(|object| {
            let status = &object["status"];
            let is_waiting = status["allocation"].is_null()
                && status["reservedFor"].as_array().is_none_or(Vec::is_empty)
                && object["metadata"]["deletionTimestamp"].is_null();
            let claim = ReviewedClaim::deserialize(&object).ok().filter(|_| is_waiting)?;
            Some(WaitingClaim { claim: claim.generated(key.namespace.clone())?, object })
        }))
    }

    /// Replaces a claim without devices by one that uses the Reservation.
    async fn lead(
        &mut self,
        key: &ObjectKey,
        waiting: &WaitingPod<'_>,
        led: &Value,
        why: &str,
    ) -> Result<(), ApiFailure> {
        if !self.leads() {
            return Ok(());
        }
        let name = led["metadata"]["name"].as_str().unwrap_or_default();
        match self.client.create::<Value>(&Self::claims(&key.namespace), name, led).await {
            // A claim of that name is the wanted one: an earlier round made it.
            Err(failure) if failure.code() != Some(409) => return Err(failure),
            _ => {}
        }
        if self.leads() && self.delete_claim(key, waiting.object).await? {
            self.client.refusals().allowed(LEADING);
            info!(claim = %key, by = name, "a claim that was passed by makes room for one that is led");
            self.write(waiting.claim, format!("{why}; claim {name} is in its place now")).await;
        }
        Ok(())
    }

    /// Deletes a claim without devices, in the version that was read; returns false if the claim has changed since.
    async fn delete_claim(&self, key: &ObjectKey, object: &Value) -> Result<bool, ApiFailure> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let version = ObjectVersion { uid: text("uid"), resource_version: text("resourceVersion") };
        match self.client.delete(&Self::claims(&key.namespace), &key.name, &version).await {
            Ok(()) => Ok(true),
            Err(failure) if matches!(failure.code(), Some(404 | 409)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// True if any claim of the pod has devices: the pod would lose them.
    async fn has_devices(&self, namespace: &str, pod: &WebhookPod) -> Result<bool, ApiFailure> {
        for name in &pod.made_claims {
            let claim = self.client.find::<Value>(&Self::claims(namespace), name).await?;
            if claim.is_some_and(|claim| !claim["status"]["allocation"].is_null()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn replace(&mut self, claim: &GeneratedClaim, state: &PodState, message: String) -> Result<(), ApiFailure> {
        let (namespace, pod) = (&claim.namespace, &claim.pod);
        let pods = Collection::core("Pod", "pods").of(namespace);
        let version = ObjectVersion { uid: pod.uid.clone(), resource_version: state.version.clone() };
        match self.client.delete(&pods, &pod.name, &version).await {
            Ok(()) => {
                self.client.refusals().allowed(REPLACING);
                info!(%namespace, pod = %pod.name, "a pod that was passed by is made anew");
            }
            // The pod has changed since: the next round reads it again.
            Err(failure) if matches!(failure.code(), Some(404 | 409)) => return Ok(()),
            Err(failure) if !self.counts(REPLACING, &failure) => return Ok(()),
            Err(failure) => {
                let error = format!("{}; apply deploy/holds/repair, whose role allows it", Chain(&failure));
                warn!(%namespace, pod = %pod.name, error, "a pod that was passed by cannot be made anew");
                return Ok(());
            }
        }
        self.write(claim, message).await;
        Ok(())
    }

    async fn tell(&mut self, key: &ObjectKey, claim: &GeneratedClaim, message: String, memory: &mut RepairMemory) {
        if memory.told.insert(key.clone()) {
            self.write(claim, message).await;
        }
    }

    async fn write(&mut self, claim: &GeneratedClaim, message: String) {
        let subject = EventSubject {
            api_version: "v1".to_owned(),
            kind: "Pod",
            namespace: claim.namespace.clone(),
            name: claim.pod.name.clone(),
            uid: claim.pod.uid.clone(),
        };
        let note = EventNote::new(REASON, message);
        if let Err(failure) = self.recorder.tell(&subject, &note, std::time::SystemTime::now()).await {
            debug!(error = %Chain(&failure), "an event is lost");
        }
    }
}

impl RepairMemory {
    /// The claims of this round: those behind the last one of the last round, and then from the first on.
    fn turn(&mut self, waiting: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
        self.told.retain(|key| waiting.contains(key));
        self.refused.retain(|key| waiting.contains(key));
        let is_later = |key: &&ObjectKey| self.last.as_ref().is_none_or(|last| *key > last);
        let later = waiting.iter().filter(is_later);
        let earlier = waiting.iter().filter(|key| !is_later(key));
        let open = later.chain(earlier).filter(|key| !self.told.contains(key));
        let turn: Vec<ObjectKey> = open.take(MOST_CLAIMS).cloned().collect();
        self.last = turn.last().cloned();
        turn
    }
}

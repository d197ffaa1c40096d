//! The edge of gated pods to the API server: each is reconciled when it, what it waits for or its place changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{
    Chain, ObjectKey,
    reservation::{PLACES_NAMESPACE, RESERVATION_GATE, ReservationAllocatePolicy},
    well_known::CONTROLLER_FIELD_MANAGER,
};
use hostler_cluster::{
    ApiClient, ApiFailure, Collection,
    events::{EventNote, EventSubject},
    since_1970,
};
use hostler_reconcile::{
    Controller, ControllerParts, EventSink, Fingerprint, ObjectStamp, ReconcileMoment, Reconciler, Requeue,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{debug, warn};

use super::{
    context::{GateContext, GateStep, GateWrite, GrantedPlace},
    decide::decide,
    switch::GatesPhase,
    waits::{PodWait, WaitRules, wait_of},
};
use crate::{
    COMPONENT,
    observed::ObservedKind,
    places::{ExpectedPlaces, OwnerOnTheWay, PlacePod, expected_places, former_holder, owners_on_the_way},
    view::ClusterView,
};

/// The longest time between two reconciliations of a pod.
const RECONCILE_AGAIN: Duration = Duration::from_secs(30);
/// The pause after a write that another one came before.
const SOON: Duration = Duration::from_millis(50);
/// The time after which an Event tells a reason again: API servers keep Events for an hour.
const TOLD_AGAIN: Duration = Duration::from_secs(1800);
/// Age from which on people are told what a pod waits for: most are let go before.
const TOLD_AFTER: Duration = Duration::from_secs(10);
/// Reason of Events about what a pod waits for.
pub(crate) const GATE_WAITS: &str = "WaitsByGate";
/// Reason of Events about gates that cannot be removed.
pub(crate) const GATE_NOT_REMOVED: &str = "GateNotRemoved";

/// Parts of the reconciler.
#[derive(Debug)]
pub(crate) struct GateParts {
    pub(crate) rules: WaitRules,
    /// State of the switch that has pods gated.
    pub(crate) gates_rx: watch::Receiver<GatesPhase>,
    /// True if this process keeps places; `None` until it is found out.
    pub(crate) places_rx: watch::Receiver<Option<bool>>,
    /// Number of pods whose gate the API server refuses to remove; figures read it.
    pub(crate) stuck_pods: Arc<AtomicUsize>,
}

/// Removes gates as long as this process leads, also where no pod is gated any more: some may have been before.
pub(crate) fn start(parts: GateParts, controller: ControllerParts<ClusterView>) {
    GatesController(parts).start("pod gates", controller);
}

struct GatesController(GateParts);

struct GateReconciler {
    client: ApiClient,
    rules: WaitRules,
    gates_rx: watch::Receiver<GatesPhase>,
    places_rx: watch::Receiver<Option<bool>>,
    /// Gated pods of the latest view.
    gated: BTreeMap<String, GatedPod>,
    events: EventSink,
    /// Gated pods whose gate the API server refuses to remove.
    stuck: BTreeSet<String>,
    stuck_pods: Arc<AtomicUsize>,
    /// Events that were written, by UID of the pod, with the time of the term.
    told: BTreeMap<(String, GateNote), Duration>,
}

/// A gated pod of a view.
#[derive(Clone, Debug)]
struct GatedPod {
    key: ObjectKey,
    uid: String,
    created: String,
    wait: PodWait,
    /// The place that the pod is being given.
    granted: Option<SeenGrant>,
}

/// A place that a pod is being given, as a view shows it. That is enough of the Reservation, which is large where it has a
/// thousand places: the nomination of the pod and the end of the former place holder are read anew.
#[derive(Clone, Debug, Hash)]
struct SeenGrant {
    reservation: String,
    owner: String,
    node: String,
    /// True if the Reservation's owners go to no other node.
    is_only: bool,
    /// Name of the former place holder.
    holder: Option<String>,
    /// The former place holder, as long as it stands there.
    standing: Option<ObjectStamp>,
}

/// Something to tell people.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct GateNote {
    reason: &'static str,
    message: String,
}

/// The result of a reconciliation.
struct GateAnswer {
    end: Requeue,
    note: Option<(String, GateNote)>,
    /// Time since the term began.
    elapsed: Duration,
}

impl Controller for GatesController {
    type Reconciler = GateReconciler;

    async fn begin(&self, parts: &ControllerParts<ClusterView>) -> Result<GateReconciler, String> {
        let client = parts.client.clone();
        let GateParts { rules, gates_rx, places_rx, stuck_pods } = &self.0;
        Ok(GateReconciler {
            events: EventSink::start(COMPONENT, client.clone(), &parts.tasks),
            client,
            rules: rules.clone(),
            gates_rx: gates_rx.clone(),
            places_rx: places_rx.clone(),
            gated: BTreeMap::new(),
            stuck: BTreeSet::new(),
            stuck_pods: stuck_pods.clone(),
            told: BTreeMap::new(),
        })
    }
}

impl GateReconciler {
    /// Returns what pods can wait for now; `None` until it is known whether pods are gated.
    fn rules_now(&self) -> Option<WaitRules> {
        let keeps_places = *self.places_rx.borrow() != Some(false);
        match *self.gates_rx.borrow() {
            GatesPhase::Unknown => None,
            GatesPhase::On => Some(WaitRules { places: self.rules.places && keeps_places, ..self.rules.clone() }),
            GatesPhase::Off | GatesPhase::NotInstalled | GatesPhase::Forbidden => Some(WaitRules::default()),
        }
    }

    /// True if places that were promised are still handed over.
    fn hands_over(&self) -> bool {
        self.rules.places && *self.places_rx.borrow() != Some(false)
    }

    /// Counts a pod whose gate the API server refuses to remove, until it is removed or the pod waits for something.
    fn count(&mut self, name: &str, answer: &GateAnswer) {
        match &answer.note {
            Some((_, note)) if note.reason == GATE_NOT_REMOVED => drop(self.stuck.insert(name.to_owned())),
            // A call without an answer says nothing about a refusal.
            None if answer.end == Requeue::Failed => {}
            _ => drop(self.stuck.remove(name)),
        }
        self.tell_stuck();
    }

    fn tell_stuck(&self) {
        self.stuck_pods.store(self.stuck.len(), Ordering::Relaxed);
    }
}

impl Drop for GateReconciler {
    /// The next leader counts anew.
    fn drop(&mut self) {
        self.stuck_pods.store(0, Ordering::Relaxed);
    }
}

impl Reconciler for GateReconciler {
    type View = ClusterView;
    type Answer = GateAnswer;

    /// Returns each gated pod.
    fn keys(&mut self, view: &ClusterView) -> BTreeMap<String, Fingerprint> {
        self.gated.clear();
        let mut seen: BTreeMap<String, Fingerprint> = BTreeMap::new();
        let is_any = view.unscheduled_pods.values().any(|pod| pod.gates.has_own());
        let Some(rules) = self.rules_now().filter(|_| is_any) else { return seen };
        let places = if rules.places { expected_places(view, None) } else { ExpectedPlaces::new() };
        let mut granted: BTreeMap<ObjectKey, SeenGrant> = match self.hands_over() {
            true => owners_on_the_way(view)
                .map(|it| (ObjectKey::new(&it.owner.namespace, &it.owner.name), SeenGrant::of(view, &it)))
                .collect(),
            false => BTreeMap::new(),
        };
        for (key, pod) in view.unscheduled_pods.iter().filter(|(_, pod)| pod.gates.has_own()) {
            let wait = wait_of(view, &rules, &places, key, pod);
            let granted = granted.remove(key);
            seen.entry(key.to_string()).or_default().add((pod.stamp, &wait, &granted));
            let gated =
                GatedPod { key: key.clone(), uid: pod.owner.uid.clone(), created: pod.created.clone(), wait, granted };
            self.gated.insert(key.to_string(), gated);
        }
        seen
    }

    fn reconcile(
        &mut self,
        name: &str,
        now: ReconcileMoment<ClusterView>,
    ) -> impl Future<Output = GateAnswer> + Send + 'static {
        let (client, gated) = (self.client.clone(), self.gated.get(name).cloned());
        async move {
            let answer = match gated {
                Some(gated) => GateKeeper { client, gated }.reconcile(&now).await,
                None => GateAnswer::new(Requeue::Now),
            };
            GateAnswer { elapsed: now.elapsed, ..answer }
        }
    }

    /// Takes the result of a reconciliation. An Event tells each reason, and again after a while: servers forget Events.
    fn reconciled(&mut self, name: &str, answer: GateAnswer) -> Requeue {
        self.count(name, &answer);
        if let (Some((uid, note)), Some(gated)) = (answer.note, self.gated.get(name)) {
            let key = gated.key.clone();
            let last = self.told.get(&(uid.clone(), note.clone()));
            if last.is_none_or(|last| answer.elapsed.saturating_sub(*last) >= TOLD_AGAIN) {
                let is_new = last.is_none();
                self.told.insert((uid.clone(), note.clone()), answer.elapsed);
                if is_new && note.reason == GATE_NOT_REMOVED {
                    warn!(pod = name, error = note.message, "the gate of a pod cannot be removed for now");
                }
                self.events.record(subject(key, uid), EventNote::new(note.reason, note.message));
            }
        }
        answer.end
    }

    fn forget(&mut self, name: &str) {
        self.stuck.remove(name);
        self.tell_stuck();
        if let Some(gated) = self.gated.remove(name) {
            self.told.retain(|(uid, _), _| *uid != gated.uid);
        }
    }

    async fn changed(&mut self) {
        tokio::select! {
            // Both are cancel safe: a changed value still differs from the one that was read.
            Ok(()) = self.gates_rx.changed() => {}
            Ok(()) = self.places_rx.changed() => {}
            // Neither changes any more.
            else => std::future::pending().await,
        }
    }
}

impl SeenGrant {
    fn of(view: &ClusterView, on_the_way: &OwnerOnTheWay<'_>) -> Self {
        let OwnerOnTheWay { reservation, place, owner } = on_the_way;
        let holder = former_holder(reservation, place);
        let key = holder.as_ref().map(|name| (ObservedKind::Pod, ObjectKey::new(PLACES_NAMESPACE, name)));
        Self {
            reservation: reservation.name.clone(),
            owner: owner.uid.clone(),
            node: place.node_name.clone(),
            is_only: reservation.spec.allocate_policy == Some(ReservationAllocatePolicy::Restricted),
            standing: key.and_then(|key| view.marks.made.get(&key)).map(|mark| mark.stamp),
            holder,
        }
    }
}

fn subject(key: ObjectKey, uid: String) -> EventSubject {
    EventSubject { api_version: "v1".to_owned(), kind: "Pod", namespace: key.namespace, name: key.name, uid }
}

impl GateAnswer {
    fn new(end: Requeue) -> Self {
        Self { end, note: None, elapsed: Duration::ZERO }
    }
}

/// Reconciles one pod.
struct GateKeeper {
    client: ApiClient,
    gated: GatedPod,
}

impl GateKeeper {
    async fn reconcile(self, now: &ReconcileMoment<ClusterView>) -> GateAnswer {
        // Times of creation are the server's.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = now.server_time().unwrap_or(wall);
        // The view of a pod changes with what it waits for; before that it is not read.
        let step = match (&self.gated.wait, &self.gated.granted) {
            (PodWait::Place(_) | PodWait::Decision(_), None) => GateStep::Hold(self.gated.wait.clone(), None),
            (_, Some(SeenGrant { reservation, standing: Some(_), .. })) => {
                GateStep::Hold(PodWait::Place(reservation.clone()), None)
            }
            _ => match self.read(time).await {
                Ok(cx) => decide(&cx),
                Err(failure) => return self.failed(&failure),
            },
        };
        match step {
            GateStep::Rest => GateAnswer::new(Requeue::After(RECONCILE_AGAIN)),
            GateStep::Hold(wait, left) => self.hold(&wait, left, time),
            GateStep::Write(_) if !now.may_write() => GateAnswer::new(Requeue::Failed),
            GateStep::Write(write) => match self.write(&write).await {
                // The pod is none of the view's gated ones soon.
                Ok(()) => GateAnswer::new(Requeue::After(RECONCILE_AGAIN)),
                // The next reconciliation reads the pod anew.
                Err(failure) if matches!(failure.code(), Some(404 | 409)) => GateAnswer::new(Requeue::After(SOON)),
                Err(failure) => self.failed(&failure),
            },
        }
    }

    /// Keeps the gate, and has people told once the pod has waited for a while.
    fn hold(&self, wait: &PodWait, left: Option<Duration>, now: Duration) -> GateAnswer {
        let age = since_1970(&self.gated.created).map(|created| now.saturating_sub(created)).unwrap_or_default();
        let until_told = TOLD_AFTER.saturating_sub(age);
        if !until_told.is_zero() {
            let again = left.map_or(until_told, |left| left.min(until_told));
            return GateAnswer::new(Requeue::After(again));
        }
        let note = GateNote { reason: GATE_WAITS, message: told(wait) };
        let again = left.map_or(RECONCILE_AGAIN, |left| left.min(RECONCILE_AGAIN));
        GateAnswer { note: Some((self.gated.uid.clone(), note)), ..GateAnswer::new(Requeue::After(again)) }
    }

    /// Reports a failure; one that only people can repair is an Event.
    fn failed(&self, failure: &ApiFailure) -> GateAnswer {
        let advice = match failure.code() {
            Some(403) if self.client.refusals().refused(GATE_NOT_REMOVED) => {
                "apply deploy/holds/gates, whose role allows it, or change the policy or webhook that refuses it"
            }
            Some(400 | 422) => "change the policy or webhook that refuses it",
            _ => {
                debug!(pod = %self.gated.key, error = %Chain(failure), "a gated pod cannot be looked at for now");
                return GateAnswer::new(Requeue::Failed);
            }
        };
        let message = format!("{}; {advice}, or remove the scheduling gate {RESERVATION_GATE} by hand", Chain(failure));
        let note = GateNote { reason: GATE_NOT_REMOVED, message };
        GateAnswer { note: Some((self.gated.uid.clone(), note)), ..GateAnswer::new(Requeue::Failed) }
    }

    /// Reads everything from the server.
    async fn read(&self, now: Duration) -> Result<GateContext, ApiFailure> {
        let key = &self.gated.key;
        let pod: Option<PlacePod> = self.client.find(&pods(&key.namespace), &key.name).await?;
        let mut place = None;
        if let (Some(granted), Some(pod)) = (&self.gated.granted, &pod) {
            place = self.place(granted, pod).await?;
        }
        Ok(GateContext { pod, wait: self.gated.wait.clone(), place, now })
    }

    /// Reads whether the place that a Reservation gives to the pod is free.
    async fn place(&self, granted: &SeenGrant, pod: &PlacePod) -> Result<Option<GrantedPlace>, ApiFailure> {
        let SeenGrant { reservation, owner, node, is_only, holder, .. } = granted.clone();
        if owner != pod.uid() {
            return Ok(None);
        }
        let is_free = match holder {
            Some(holder) => self.client.find::<Value>(&pods(PLACES_NAMESPACE), &holder).await?.is_none(),
            None => true,
        };
        Ok(Some(GrantedPlace { reservation, node, is_free, is_only }))
    }

    async fn write(&self, write: &GateWrite) -> Result<(), ApiFailure> {
        debug!(pod = %write.pod, is_led = write.affinity.is_some(), "the gate of a pod goes");
        match self.send(write, true).await {
            // The pod is nominated for its node all the same. Policies and webhooks refuse with any of these codes.
            Err(failure) if matches!(failure.code(), Some(400 | 403 | 422)) && write.affinity.is_some() => {
                self.send(write, false).await
            }
            written => written,
        }
    }

    async fn send(&self, write: &GateWrite, is_led: bool) -> Result<(), ApiFailure> {
        let (all, patch) = (pods(&write.pod.namespace), patch(write, is_led));
        self.client.change::<Value>(&all, &write.pod.name, CONTROLLER_FIELD_MANAGER, &patch).await.map(drop)
    }
}

/// Returns the patch that removes the gate.
fn patch(write: &GateWrite, is_led: bool) -> Value {
    let gates: Vec<Value> = write.gates.iter().map(|name| json!({"name": name})).collect();
    let mut spec = json!({ "schedulingGates": gates });
    if let Some(affinity) = write.affinity.as_ref().filter(|_| is_led) {
        spec["affinity"] = json!({ "nodeAffinity": affinity });
    }
    json!({
        "metadata": {"uid": write.version.uid, "resourceVersion": write.version.resource_version}, "spec": spec,
    })
}

/// Returns what people are told of a pod that waits.
fn told(wait: &PodWait) -> String {
    let by = format!("by the scheduling gate {RESERVATION_GATE}");
    match wait {
        PodWait::Nothing => format!("the pod waits for nothing any more, and its gate {RESERVATION_GATE} goes"),
        PodWait::Place(name) => format!("the pod waits for a place of Reservation {name}, {by}"),
        PodWait::Request(request) => {
            format!("the pod waits for ProvisioningRequest {request}, which is not there, {by}; for a minute at most")
        }
        PodWait::Decision(request) => format!("the pod waits for the decision on ProvisioningRequest {request}, {by}"),
    }
}

/// Returns the pods of a namespace.
fn pods(namespace: &str) -> Collection {
    Collection::core("Pod", "pods").of(namespace)
}

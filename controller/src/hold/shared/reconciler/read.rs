//! A reconcile of a Reservation: reads everything, decides the next step, and makes one write.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{
    Chain, ObjectKey,
    reservation::{ReservationConditionType, ReservationMode, ReservedClaim},
};
use hostler_cluster::{ApiFailure, Collection};
use hostler_reconcile::WriteOutcome;
use hostler_reconcile::{ReconcileMoment, Requeue};
use serde_json::Value;
use tracing::debug;

use super::super::{
    context::{ObservedClaim, SharedContext, SharedStep, SharedWrite},
    decide::decide,
    objects::{claim_key, pod_key, wanted},
};
use crate::{
    config::ReservationsConfig,
    hold::{
        HoldEventNote, HoldWrite, OwnerPod,
        adapter::{HoldCaller, HoldKind},
    },
    observed::ObservedKind,
    reservation_object::ReservationObject,
    view::ClusterView,
};

/// The first release whose controller manager accepts consumers that are no pods.
const FIRST_MINOR: u32 = 36;
/// The longest time between two reconciles: templates and nodes come and go without an event here.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The pause before the time is known: the server tells its time with each renewal of the Lease.
const TIME_COMES: Duration = Duration::from_secs(1);

/// Reconciles Reservations.
#[derive(Clone, Debug)]
pub(super) struct Looker {
    pub(super) caller: HoldCaller,
    /// The minor release of the server.
    pub(super) minor: u32,
    pub(super) config: ReservationsConfig,
}

/// The input of a reconcile.
pub(super) struct LookQuestion {
    pub(super) name: String,
    pub(super) moment: ReconcileMoment<ClusterView>,
    pub(super) lost_nodes: BTreeSet<String>,
    pub(super) trouble: Option<String>,
    /// `None` before the server has said what time it is.
    pub(super) now: Option<Duration>,
}

/// The result of a reconcile.
pub(super) struct LookAnswer {
    pub(super) end: Requeue,
    /// The server's refusal of a write; `Some(None)` if the refusal is over.
    pub(super) trouble: Option<Option<String>>,
    pub(super) notice: Option<HoldEventNote>,
    /// The reason why the reconcile failed.
    pub(super) error: Option<String>,
}

impl LookAnswer {
    fn new(end: Requeue) -> Self {
        Self { end, trouble: None, notice: None, error: None }
    }
}

impl Looker {
    pub(super) async fn look(&self, question: LookQuestion) -> LookAnswer {
        // By this machine's clock alone every Reservation might seem over.
        let Some(now) = question.now else { return LookAnswer::new(Requeue::After(TIME_COMES)) };
        let cx = match self.cx(&question, now).await {
            Ok(Some(cx)) => cx,
            Ok(None) => return LookAnswer::new(Requeue::After(LOOK_AGAIN)),
            Err(failure) => {
                return LookAnswer { error: Some(Chain(&failure).to_string()), ..LookAnswer::new(Requeue::Failed) };
            }
        };
        match decide(&cx) {
            SharedStep::Rest(left) => LookAnswer::new(Requeue::After(left.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN))),
            SharedStep::Write(_) if !question.moment.may_write() => LookAnswer::new(Requeue::Failed),
            SharedStep::Write(write) => self.write(&cx, &write).await,
        }
    }

    async fn write(&self, cx: &SharedContext, write: &SharedWrite) -> LookAnswer {
        let written = self.send(write).await;
        let outcome = written.as_ref().map_or_else(WriteOutcome::of_failure, |_| WriteOutcome::Done);
        let is_reservation = matches!(write, SharedWrite::Reservation(_));
        let mut answer = LookAnswer::new(Requeue::Failed);
        match outcome {
            WriteOutcome::Done => {
                answer.end = Requeue::Now;
                answer.trouble = (!is_reservation).then_some(None);
                answer.notice = news(cx, write);
            }
            // The next reconcile reads the state anew.
            WriteOutcome::Conflict | WriteOutcome::Gone => {}
            WriteOutcome::Failed(error) | WriteOutcome::Dropped(error) => answer.error = Some(error),
            WriteOutcome::Refused(error) | WriteOutcome::Forbidden(error) => answer.trouble = Some(Some(error)),
        }
        debug!(reservation = cx.name, what = write.what(), end = ?answer.end, "a write was sent");
        answer
    }

    async fn send(&self, write: &SharedWrite) -> Result<Option<Value>, ApiFailure> {
        let client = &self.caller.client;
        let pods = |key: &ObjectKey| Collection::core("Pod", "pods").of(&key.namespace);
        match write {
            SharedWrite::Reservation(write) => self.caller.write(write).await,
            SharedWrite::Claim(write) => write.send(client, self.caller.places.version).await,
            SharedWrite::CreatePod(key, pod) => client.create(&pods(key), &key.name, &**pod).await.map(Some),
            SharedWrite::DeletePod(key, version) => client.delete(&pods(key), &key.name, version).await.map(|()| None),
        }
    }

    /// Reads everything from the server; `None` where the Reservation is not of this mode.
    async fn cx(&self, question: &LookQuestion, now: Duration) -> Result<Option<SharedContext>, ApiFailure> {
        let (name, view) = (&question.name, &question.moment.view);
        let reservation: Option<ReservationObject> = self.caller.client.find(&HoldKind::reservations(), name).await?;
        if reservation.as_ref().is_some_and(|it| it.spec.mode() != ReservationMode::SharedClaim) {
            return Ok(None);
        }
        let asked = |it: &ReservationObject| wanted(it, |key| view.facts.template(key).map(|spec| (**spec).clone()));
        let mut cx = SharedContext {
            name: name.clone(),
            wanted: reservation.as_ref().map_or_else(|| Ok(Vec::new()), asked),
            reservation,
            claims: BTreeMap::new(),
            pods: BTreeMap::new(),
            consumers: BTreeMap::new(),
            lost_node: None,
            is_served: self.minor >= FIRST_MINOR,
            trouble: question.trouble.clone(),
            now,
            keep: Duration::from_secs(self.config.keep_seconds.into()),
            image: self.config.reserve_image.clone(),
        };
        self.read_claims(&mut cx, view).await?;
        self.read_pods(&mut cx, view).await?;
        self.read_consumers(&mut cx).await?;
        cx.lost_node = cx.nodes().into_iter().find(|node| question.lost_nodes.contains(node));
        Ok(Some(cx))
    }

    async fn read_claims(&self, cx: &mut SharedContext, view: &ClusterView) -> Result<(), ApiFailure> {
        let wanted = cx.wanted.iter().flatten().map(|it| claim_key(&it.is));
        let said = cx.reservation.iter().flat_map(|it| &it.status.claims).filter(|it| is_claim_name(it)).map(claim_key);
        let made = marked(view, ObservedKind::ResourceClaim, &cx.name);
        let keys: BTreeSet<ObjectKey> = wanted.chain(said).chain(made).collect();
        for key in keys {
            let version = self.caller.places.version;
            let all = Collection::resource(version, "ResourceClaim", "resourceclaims").of(&key.namespace);
            if let Some(claim) = self.caller.client.find::<ObservedClaim>(&all, &key.name).await? {
                cx.claims.insert(key, claim);
            }
        }
        Ok(())
    }

    async fn read_pods(&self, cx: &mut SharedContext, view: &ClusterView) -> Result<(), ApiFailure> {
        let asking = cx.claims.keys().map(|key| key.namespace.clone());
        let wanted = cx.wanted.iter().flatten().map(|it| it.is.namespace.clone());
        let asking = asking.chain(wanted).map(|namespace| pod_key(&cx.name, &namespace));
        let made = marked(view, ObservedKind::Pod, &cx.name);
        let keys: BTreeSet<ObjectKey> = asking.chain(made).collect();
        for key in keys {
            let all = Collection::core("Pod", "pods").of(&key.namespace);
            if let Some(pod) = self.caller.client.find(&all, &key.name).await? {
                cx.pods.insert(key, pod);
            }
        }
        Ok(())
    }

    /// Reads the pods that use the claims, except those that only ask for devices.
    async fn read_consumers(&self, cx: &mut SharedContext) -> Result<(), ApiFailure> {
        let own: BTreeSet<&String> = cx.pods.values().map(|pod| &pod.metadata.uid).collect();
        let mut found: BTreeMap<String, (ObjectKey, OwnerPod)> = BTreeMap::new();
        for claim in cx.claims.values() {
            for user in claim.users().into_iter().filter(|user| user.is_pod() && !own.contains(&user.uid)) {
                let key = ObjectKey::new(&claim.metadata.namespace, &user.name);
                if found.contains_key(&user.uid) {
                    continue;
                }
                let unknown = |error| ApiFailure::unusable(format!("get Pod {key}"), error);
                let pod = self.caller.owner_pod(&key).await.map_err(unknown)?;
                if let Some(pod) = pod.filter(|pod| pod.uid == user.uid) {
                    found.insert(user.uid.clone(), (key, *pod));
                }
            }
        }
        cx.consumers = found;
        Ok(())
    }
}

/// Returns the objects whose annotations say that they were made for the Reservation of this name.
fn marked(view: &ClusterView, kind: ObservedKind, name: &str) -> Vec<ObjectKey> {
    let marks = view.marks.made.iter().filter(|((of, _), mark)| *of == kind && mark.reservation == name);
    marks.map(|((_, key), _)| key.clone()).collect()
}

/// True if the claim's names can be parts of a path, as the names of every existing object can.
fn is_claim_name(claim: &ReservedClaim) -> bool {
    ![&claim.namespace, &claim.resource_claim_name]
        .iter()
        .any(|name| name.is_empty() || name.contains(['/', '?', '#', '%']))
}

/// Returns the Event about a change.
fn news(cx: &SharedContext, write: &SharedWrite) -> Option<HoldEventNote> {
    let SharedWrite::Reservation(HoldWrite::Status(of, status)) = write else { return None };
    let ready = status.condition(ReservationConditionType::Ready)?;
    let known = cx.reservation.as_ref()?.status.condition(ReservationConditionType::Ready);
    if known.is_some_and(|known| known.reason == ready.reason) {
        return None;
    }
    let (reason, is_warning) = match ready.reason.as_str() {
        "Available" => ("Available", false),
        "Lost" => ("Lost", true),
        "Expired" => ("Expired", true),
        "NodeLost" => ("NodeLost", true),
        "Invalid" => ("Invalid", true),
        _ => return None,
    };
    let (name, uid, message) = (of.name.clone(), of.uid.clone(), ready.message.clone());
    Some(HoldEventNote { name, uid, is_warning, reason, message })
}

//! The edge of direct mode to the API server: each gated pod is reconciled until it is bound or gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{
    Chain, ObjectKey,
    reservation::{PLACED_POD_LABEL, placement_name},
    resource::{ApiVersion, DeviceClass},
};
use hostler_cluster::{
    ApiClient, ApiFailure, Collection,
    events::{EventNote, EventSubject},
};
use hostler_reconcile::{Controller, ControllerParts, EventSink, Fingerprint, ReconcileMoment, Reconciler, Requeue};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    attempt::Attempt,
    context::{DirectClaim, DirectContext, DirectPod, DirectStep, DirectWrite, LET_GO},
    decide::decide,
};
use crate::{
    COMPONENT,
    config::{MeantVerb, SwitchMode},
    hold::adapter::reservations,
    reservation_object::ReservationObject,
    view::ClusterView,
};

const FIELD_MANAGER: &str = "hostler-controller";
/// The reason of Events about refused pods.
const REFUSED: &str = "PlacementRefused";
/// The permission that the server checks only after it has read the claim.
const BINDING: &str = "resourceclaims/binding";
/// The name of all reads, under which refusals are remembered.
const SIGHT: &str = "cx of a gated pod";
/// The longest time between two reconciles of a pod.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The pause before the role is asked for again, while a refusal does not count yet.
const ASK_SOON: Duration = Duration::from_secs(1);

/// Places pods as long as this process leads, if the switch is on.
pub(crate) fn start(mode: SwitchMode, parts: ControllerParts<ClusterView>) {
    if mode != SwitchMode::Off {
        DirectController { mode }.start("direct placement", parts);
    }
}

struct DirectController {
    mode: SwitchMode,
}

impl DirectController {
    /// True if the switch is on. A server that may not have read its roles yet is asked again until its refusal counts.
    async fn is_on(&self, client: &ApiClient) -> Result<bool, ApiFailure> {
        loop {
            match self.mode.is_on(MeantVerb::Place, client).await? {
                Some(is_on) => return Ok(is_on),
                None => sleep(ASK_SOON).await,
            }
        }
    }
}

struct DirectReconciler {
    placer: Placer,
    events: EventSink,
    /// Last refusals, by the pod's name in the loop.
    troubles: BTreeMap<String, PlaceTrouble>,
}

/// Reconciles pods.
#[derive(Clone)]
struct Placer {
    client: ApiClient,
    version: ApiVersion,
}

/// The reason why a pod is not given its devices.
#[derive(Clone, Debug, PartialEq)]
struct PlaceTrouble {
    /// Identity of the pod.
    uid: String,
    message: String,
}

/// The result of a reconcile.
struct PlaceAnswer {
    end: Requeue,
    /// The new trouble of the pod; `Some(None)` if it has none any more.
    trouble: Option<Option<PlaceTrouble>>,
}

impl Controller for DirectController {
    type Reconciler = DirectReconciler;

    async fn begin(&self, parts: &ControllerParts<ClusterView>) -> Result<DirectReconciler, String> {
        let client = parts.client.clone();
        let told = |failure: ApiFailure| Chain(&failure).to_string();
        if !self.is_on(&client).await.map_err(told)? {
            return Err("the role of deploy/holds/direct is not there".to_owned());
        }
        let version = client.version().await.map_err(told)?;
        let events = EventSink::start(COMPONENT, client.clone(), &parts.tasks);
        Ok(DirectReconciler { placer: Placer { client, version }, events, troubles: BTreeMap::new() })
    }
}

impl Reconciler for DirectReconciler {
    type View = ClusterView;
    type Answer = PlaceAnswer;

    /// Pods that have to be placed, and pods for which a Reservation was made, by `namespace/name`.
    fn keys(&mut self, view: &ClusterView) -> BTreeMap<String, Fingerprint> {
        let mut seen: BTreeMap<String, Fingerprint> = BTreeMap::new();
        for (key, pod) in &view.marks.placed {
            let fingerprint = seen.entry(key.to_string()).or_default();
            fingerprint.add(pod.stamp);
            pod.claims.iter().for_each(|claim| fingerprint.add((claim, view.marks.placed_claims.get(claim))));
        }
        for reservation in view.reservations.values() {
            if let Some(key) = pod_of(reservation) {
                seen.entry(key.to_string()).or_default().add(&reservation.version);
            }
        }
        seen
    }

    fn reconcile(
        &mut self,
        name: &str,
        now: ReconcileMoment<ClusterView>,
    ) -> impl Future<Output = PlaceAnswer> + Send + 'static {
        let (placer, key, trouble) = (self.placer.clone(), key_of(name), self.troubles.get(name).cloned());
        async move { placer.look(&key, &now, trouble).await }
    }

    /// Takes the result of a reconcile. An Event tells each reason once.
    fn reconciled(&mut self, name: &str, answer: PlaceAnswer) -> Requeue {
        match answer.trouble {
            Some(Some(trouble)) if self.troubles.get(name) != Some(&trouble) => {
                warn!(pod = name, error = trouble.message, "a pod cannot be placed");
                self.events
                    .record(subject(&key_of(name), &trouble.uid), EventNote::new(REFUSED, trouble.message.clone()));
                self.troubles.insert(name.to_owned(), trouble);
            }
            Some(None) => drop(self.troubles.remove(name)),
            Some(Some(_)) | None => {}
        }
        answer.end
    }

    fn forget(&mut self, name: &str) {
        self.troubles.remove(name);
    }
}

impl PlaceAnswer {
    fn new(end: Requeue) -> Self {
        Self { end, trouble: None }
    }
}

impl DirectPod {
    fn trouble(&self, message: String) -> PlaceTrouble {
        PlaceTrouble { uid: self.metadata.uid.clone(), message }
    }
}

impl Placer {
    /// Reports a failure that only people can repair. `what` names the call, in one word; a missing role counts once it
    /// lasts.
    fn failed(&self, what: &str, pod: Option<&DirectPod>, failure: &ApiFailure) -> PlaceAnswer {
        let is_refused = match failure.code() {
            _ if failure.lacks_permission(BINDING) => self.client.refusals().refused(what),
            code => matches!(code, Some(400 | 413 | 422)),
        };
        match pod.filter(|_| is_refused) {
            Some(pod) => PlaceAnswer { end: Requeue::Failed, trouble: Some(Some(pod.trouble(refusal(failure)))) },
            None => {
                warn!(error = %Chain(failure), "a pod cannot be placed for now");
                PlaceAnswer::new(Requeue::Failed)
            }
        }
    }

    async fn look(
        &self,
        key: &ObjectKey,
        now: &ReconcileMoment<ClusterView>,
        trouble: Option<PlaceTrouble>,
    ) -> PlaceAnswer {
        let pods = Collection::core("Pod", "pods").of(&key.namespace);
        let pod: Option<DirectPod> = match self.get(&pods, &key.name).await {
            Ok(pod) => pod,
            Err(failure) => return self.failed(SIGHT, None, &failure),
        };
        // The last refusal of another pod of this name does not count for this pod.
        let trouble = trouble.filter(|it| pod.as_ref().is_some_and(|pod| pod.metadata.uid == it.uid));
        let cx = match self.cx(key, pod.clone(), &now.view).await {
            Ok(cx) => DirectContext { trouble: trouble.map(|it| it.message), ..cx },
            Err(failure) => return self.failed(SIGHT, pod.as_ref(), &failure),
        };
        self.client.refusals().allowed(SIGHT);
        match (decide(&cx), &cx.pod) {
            (DirectStep::Refuse(why), Some(pod)) => {
                PlaceAnswer { end: Requeue::After(LOOK_AGAIN), trouble: Some(Some(pod.trouble(why))) }
            }
            (DirectStep::Rest | DirectStep::Refuse(_), _) => PlaceAnswer::new(Requeue::After(LOOK_AGAIN)),
            (DirectStep::Wait, _) => PlaceAnswer::new(Requeue::Waiting),
            (DirectStep::Write(_), _) if !now.may_write() => PlaceAnswer::new(Requeue::Failed),
            (DirectStep::Write(write), _) => self.write(&cx, &write).await,
        }
    }

    async fn write(&self, cx: &DirectContext, write: &DirectWrite) -> PlaceAnswer {
        let is_status = matches!(write, DirectWrite::Status(..));
        debug!(pod = ?cx.pod.as_ref().map(|pod| &pod.metadata.uid), what = write.what(), "a write for a gated pod");
        match self.send(write).await {
            // The status names the obstacle; the obstacle is still there.
            Ok(()) => {
                self.client.refusals().allowed(write.what());
                PlaceAnswer { end: Requeue::Now, trouble: (!is_status).then_some(None) }
            }
            // The next reconcile reads the object anew.
            Err(failure) if matches!(failure.code(), Some(404 | 409)) => PlaceAnswer::new(Requeue::Failed),
            Err(failure) => self.failed(write.what(), cx.pod.as_ref().filter(|_| !is_status), &failure),
        }
    }

    async fn send(&self, write: &DirectWrite) -> Result<(), ApiFailure> {
        let all = reservations();
        match write {
            DirectWrite::Reserve(name, object) => self.client.create::<Value>(&all, name, &**object).await.map(drop),
            DirectWrite::Release(name, version) => self.client.delete(&all, name, version).await,
            DirectWrite::Status(name, version, status) => {
                let whole = (&*version.resource_version, &**status);
                self.client.write_status::<Value>(&all, name, FIELD_MANAGER, whole).await.map(drop)
            }
            DirectWrite::Claim(write) => write.send(&self.client, self.version).await.map(drop),
            DirectWrite::Gates(key, version, gates) => {
                let pods = Collection::core("Pod", "pods").of(&key.namespace);
                let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
                let patch = json!({
                    "metadata": {
                        "uid": version.uid, "resourceVersion": version.resource_version, "annotations": {LET_GO: "true"},
                    },
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

    /// Reads everything else from the server.
    async fn cx(
        &self,
        key: &ObjectKey,
        pod: Option<DirectPod>,
        view: &ClusterView,
    ) -> Result<DirectContext, ApiFailure> {
        let own = pod.as_ref().map(|pod| placement_name(&pod.metadata.uid));
        let names: BTreeSet<String> = reservations_for(view, key).into_iter().chain(own).collect();
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
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(DirectContext { pod, claims, reservations: kept, classes, trouble: None, now })
    }
}

/// Returns the server's refusal, and advice about it.
fn refusal(failure: &ApiFailure) -> String {
    let said = Chain(failure).to_string();
    if failure.lacks_permission(BINDING) {
        return format!("{said}; apply deploy/holds/direct, whose role allows it");
    }
    said
}

fn subject(pod: &ObjectKey, uid: &str) -> EventSubject {
    EventSubject {
        api_version: "v1".to_owned(),
        kind: "Pod",
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: uid.to_owned(),
    }
}

/// Parses a pod's name from [`Reconciler::keys`]; names have no slash.
fn key_of(name: &str) -> ObjectKey {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectKey::new(namespace, name)
}

fn reservations_for(view: &ClusterView, key: &ObjectKey) -> Vec<String> {
    let made = view.reservations.values().filter(|it| pod_of(it).as_ref() == Some(key));
    made.map(|it| it.name.clone()).collect()
}

/// Returns the pod that a Reservation was made for.
pub(super) fn pod_of(reservation: &ReservationObject) -> Option<ObjectKey> {
    let uid = reservation.labels.get(PLACED_POD_LABEL)?;
    let owner = reservation.spec.owners.first()?.object.as_ref()?;
    let is_name = |name: &String| !name.is_empty() && !name.contains(['/', '?', '#', '%']);
    let is_key =
        is_name(&owner.namespace) && is_name(&owner.name) && reservation.name == Attempt::of(reservation).name(uid);
    is_key.then(|| ObjectKey::new(&owner.namespace, &owner.name))
}

#[cfg(test)]
mod tests {
    use hostler_cluster::{CallError, StatusError};
    use hostler_testing::apiserver::{ApiServer, ApiServerRelease};

    use super::*;

    #[tokio::test]
    async fn a_first_refusal_for_want_of_a_role_is_not_told_yet_and_one_of_the_object_is() {
        let server = ApiServer::of(ApiServerRelease::default()).await;
        let client = ApiClient::new(Some(&*server.kubeconfig("controller"))).unwrap();
        let placer = Placer { client, version: ApiVersion::V1 };
        let is_told = |code: u16| {
            let source = CallError::Status(StatusError { code, ..StatusError::default() });
            let failure = ApiFailure::Call { step: "create Reservation r".to_owned(), source };
            let answer = placer.failed("reservation", Some(&DirectPod::default()), &failure);
            assert!(matches!(answer.end, Requeue::Failed), "it is tried again soon");
            answer.trouble.is_some()
        };
        assert_eq!([403, 403, 422, 503].map(is_told), [false, false, true, false]);
    }
}

//! The edge of direct mode to the API server: each gated pod is looked at until it is bound or gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use hostler_allocator::plan::ObjectKey;
use hostler_api::{
    Chain,
    reservation::PLACED_POD_LABEL,
    resource::{ApiVersion, DeviceClass},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection, rfc3339};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{debug, warn};

use super::{
    decide::decide,
    sight::{DirectClaim, DirectPod, DirectSight, DirectStep, DirectWrite},
};
use crate::{
    hold::{ReservationObject, adapter::reservations},
    looks::{self, Fingerprint, LookKeeper, LookMoment, LookParts, LookTerm},
    rounds::LookEnd,
    view::ClusterView,
};

const FIELD_MANAGER: &str = "hostler-controller";
/// While others do something: a pod that is placed is waited for by somebody.
const SOON: Duration = Duration::from_secs(1);
/// Everything is looked at this often at least.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Places pods as long as this process leads.
pub(crate) fn start(parts: LookParts) {
    looks::start("direct placement", DirectKeeper, parts);
}

struct DirectKeeper;

/// Looks at pods.
#[derive(Clone)]
struct Placer {
    client: ApiClient,
    version: ApiVersion,
}

impl LookKeeper for DirectKeeper {
    type Term = Placer;

    async fn begin(&self, parts: &LookParts) -> Result<Placer, String> {
        let client = parts.client.clone();
        let version = client.version().await.map_err(|failure| Chain(&failure).to_string())?;
        Ok(Placer { client, version })
    }
}

impl LookTerm for Placer {
    type Answer = LookEnd;

    /// Pods that are gated, and those for which a Reservation was made, by `namespace/name`.
    fn objects(view: &ClusterView) -> BTreeMap<String, Fingerprint> {
        let mut seen: BTreeMap<String, Fingerprint> = BTreeMap::new();
        for (key, stamp) in &view.marks.gated {
            seen.entry(key.to_string()).or_default().add(stamp);
        }
        for reservation in view.reservations.values() {
            if let Some(key) = pod_of(reservation) {
                seen.entry(key.to_string()).or_default().add(&reservation.version);
            }
        }
        seen
    }

    fn look(&mut self, name: &str, now: LookMoment) -> impl Future<Output = LookEnd> + Send + 'static {
        let (placer, key) = (self.clone(), key_of(name));
        async move {
            let made = reservations_for(&now.view, &key);
            placer.place(&key, &made, &now).await.unwrap_or_else(|failure| {
                warn!(pod = %key, error = %Chain(&failure), "a pod cannot be placed for now");
                LookEnd::Failed
            })
        }
    }

    fn answered(&mut self, _name: &str, end: LookEnd) -> LookEnd {
        end
    }

    fn forget(&mut self, _name: &str) {}
}

impl Placer {
    async fn place(&self, key: &ObjectKey, made: &[String], now: &LookMoment) -> Result<LookEnd, ApiFailure> {
        let sight = self.sight(key, made).await?;
        match decide(&sight) {
            DirectStep::Rest => Ok(LookEnd::Rest(LOOK_AGAIN)),
            DirectStep::Wait => Ok(LookEnd::Rest(SOON)),
            DirectStep::Write(_) if !now.may_write() => Ok(LookEnd::Failed),
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

/// What [`LookTerm::objects`] calls a pod; no name has a slash.
fn key_of(name: &str) -> ObjectKey {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectKey::new(namespace, name)
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

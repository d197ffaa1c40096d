//! The edge of places to the API server: each Reservation with places is reconciled when one of its objects changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{
    Chain, ObjectKey,
    reservation::{PLACES_NAMESPACE, RESERVATION_UID},
    well_known::CONTROLLER_FIELD_MANAGER,
};
use hostler_cluster::{ApiClient, ApiFailure, ListSelector};
use hostler_reconcile::{Controller, ControllerParts, Fingerprint, ReconcileMoment, Reconciler, Requeue, Troubles};
use serde_json::{Value, json};
use tokio::{sync::watch, time::sleep};
use tracing::{debug, warn};

use super::{
    assign::{PlaceCandidates, assign},
    context::{PlacePod, PlacesContext, PlacesStatus, PlacesStep, PlacesWrite},
    decide::{decide, is_for_places},
    gate::{HandOverGate, waiting},
    gate_owner::{GateHandle, GatedResult, GatedWrite},
    handing_over::HandingOver,
    holder::known_holders,
    pods::{SOON, list_place_holders, place_holders, pods},
};
use crate::{
    config::{MeantVerb, ReservationsConfig, SwitchMode},
    hold::adapter::reservations,
    observed::ObservedKind,
    reservation_object::ReservationObject,
    view::ClusterView,
};

/// The longest time between two reconciliations of a Reservation.
const RECONCILE_AGAIN: Duration = Duration::from_secs(30);
/// The pause before the role is asked for again, while a refusal does not count yet.
const ASK_SOON: Duration = Duration::from_secs(1);

/// Places of a Reservation whose holders are read by their names: more are listed, which costs the server a look at all
/// place holders.
const MOST_BY_NAME: usize = 8;

/// Keeps places as long as this process leads, if the switch is on. Tells the part that keeps devices if places are
/// kept.
pub(crate) fn start(
    config: &ReservationsConfig,
    kept_tx: watch::Sender<Option<bool>>,
    parts: ControllerParts<ClusterView>,
) {
    match config.places {
        // A Reservation that asks for no device is refused.
        SwitchMode::Off => drop(kept_tx.send_replace(Some(false))),
        mode => PlacesController { mode, image: config.reserve_image.clone(), kept_tx }.start("places", parts),
    }
}

struct PlacesController {
    mode: SwitchMode,
    image: String,
    kept_tx: watch::Sender<Option<bool>>,
}

struct PlacesReconciler {
    keeper: PlaceKeeper,
    /// Pods that are to get places, by the latest view.
    candidates: PlaceCandidates,
    /// True for Reservations that ask for places, by UID and generation.
    asking: BTreeMap<(String, i64), bool>,
    troubles: Troubles<String>,
}

/// Reads, and makes the writes.
#[derive(Clone)]
struct PlaceKeeper {
    client: ApiClient,
    image: String,
    gate: GateHandle,
}

/// The result of a reconciliation.
struct PlacesAnswer {
    end: Requeue,
    error: Option<String>,
}

impl Controller for PlacesController {
    type Reconciler = PlacesReconciler;

    async fn begin(&self, parts: &ControllerParts<ClusterView>) -> Result<PlacesReconciler, String> {
        let client = parts.client.clone();
        let is_on = loop {
            let asked = self.mode.is_on(MeantVerb::Keep, &client).await;
            match asked.map_err(|failure| Chain(&failure).to_string())? {
                Some(is_on) => break is_on,
                None => sleep(ASK_SOON).await,
            }
        };
        self.kept_tx.send_replace(Some(is_on));
        if !is_on {
            return Err("the role of deploy/holds/places is not there".to_owned());
        }
        let view = parts.view_rx.borrow().clone();
        let gate = HandOverGate::of(view.reservations.values().map(|it| &**it), Duration::ZERO);
        Ok(PlacesReconciler {
            keeper: PlaceKeeper {
                client: client.clone(),
                image: self.image.clone(),
                gate: GateHandle::start(gate, client, &parts.tasks),
            },
            candidates: PlaceCandidates::new(),
            asking: BTreeMap::new(),
            troubles: Troubles::default(),
        })
    }
}

impl Reconciler for PlacesReconciler {
    type View = ClusterView;
    type Answer = PlacesAnswer;

    /// Returns each Reservation that keeps places, or kept some.
    fn keys(&mut self, view: &ClusterView) -> BTreeMap<String, Fingerprint> {
        self.candidates = assign(view);
        let mut seen: BTreeMap<String, Fingerprint> = BTreeMap::new();
        let mut asking = BTreeMap::new();
        for reservation in view.reservations.values() {
            let key = (reservation.uid.clone(), reservation.generation);
            let asks = self.asking.get(&key).copied().unwrap_or_else(|| is_for_places(reservation));
            asking.insert(key, asks);
            if !asks && reservation.status.places.is_empty() {
                continue;
            }
            let fingerprint = seen.entry(reservation.name.clone()).or_default();
            fingerprint.add((&reservation.uid, &reservation.version));
            for owner in reservation.status.places.iter().flat_map(|place| &place.owners) {
                let key = ObjectKey::new(&owner.namespace, &owner.name);
                fingerprint.add((view.unscheduled_pods.get(&key).map(|pod| pod.stamp), view.facts.has_pod(&key)));
            }
            for (replica, pod) in self.candidates.get(&reservation.name).into_iter().flatten() {
                fingerprint.add((replica, pod));
            }
        }
        self.asking = asking;
        let of_places = |((kind, key), _): &(&(ObservedKind, ObjectKey), _)| {
            *kind == ObservedKind::Pod && key.namespace == PLACES_NAMESPACE
        };
        for ((_, key), mark) in view.marks.made.iter().filter(of_places) {
            seen.entry(mark.reservation.clone()).or_default().add((key, mark.stamp));
        }
        seen
    }

    fn reconcile(
        &mut self,
        name: &str,
        now: ReconcileMoment<ClusterView>,
    ) -> impl Future<Output = PlacesAnswer> + Send + 'static {
        let candidates = self.candidates.get(name).cloned().unwrap_or_default();
        let (keeper, name) = (self.keeper.clone(), name.to_owned());
        async move { keeper.reconcile(&name, candidates, &now).await }
    }

    fn reconciled(&mut self, name: &str, answer: PlacesAnswer) -> Requeue {
        match answer.error {
            Some(error) if self.troubles.is_news(name.to_owned(), &error) => {
                warn!(reservation = name, error, "places of a Reservation cannot be kept for now");
            }
            Some(_) => {}
            None => self.troubles.mended(&name.to_owned()),
        }
        answer.end
    }

    fn forget(&mut self, name: &str) {
        self.troubles.mended(&name.to_owned());
    }
}

impl PlaceKeeper {
    async fn reconcile(
        &self,
        name: &str,
        candidates: BTreeMap<u32, ObjectKey>,
        now: &ReconcileMoment<ClusterView>,
    ) -> PlacesAnswer {
        let failed =
            |failure: &ApiFailure| PlacesAnswer { end: Requeue::Failed, error: Some(Chain(failure).to_string()) };
        let done = |end| PlacesAnswer { end, error: None };
        let mut cx = match self.read(name, candidates, now).await {
            Ok(cx) => cx,
            Err(failure) => return failed(&failure),
        };
        self.see_handing_over(name, &mut cx, now.elapsed).await;
        let mut step = decide(&cx);
        if let PlacesStep::Status(status) = step {
            match self.write_status(*status, now).await {
                Ok(Ok(written)) => {
                    cx.reservation = Some(written);
                    self.see_handing_over(name, &mut cx, now.elapsed).await;
                }
                Ok(Err(end)) => return done(end),
                Err(failure) => return failed(&failure),
            }
            step = decide(&cx);
        }
        match step {
            PlacesStep::Rest => done(Requeue::After(RECONCILE_AGAIN)),
            PlacesStep::Wait(time) => done(Requeue::After(time.min(RECONCILE_AGAIN))),
            PlacesStep::Status(_) => done(Requeue::Now),
            PlacesStep::Write(chains) => match self.write_each(name, chains, now).await {
                Ok(end) => done(end),
                Err(failure) => failed(&failure),
            },
        }
    }

    /// Makes the writes for each place until one of them fails. One that another one came before is decided anew by the
    /// next reconciliation.
    async fn write_each(
        &self,
        name: &str,
        chains: Vec<Vec<PlacesWrite>>,
        now: &ReconcileMoment<ClusterView>,
    ) -> GatedResult {
        let mut end = Requeue::Now;
        for chain in chains {
            for write in chain {
                if !now.may_write() {
                    return Ok(Requeue::Failed);
                }
                debug!(reservation = name, what = write.what(), "a write for the places of a Reservation");
                match self.write(name, write, now.elapsed).await {
                    Ok(Requeue::Now) => continue,
                    Ok(later) => end = later,
                    Err(failure) if matches!(failure.code(), Some(404 | 409)) => end = Requeue::After(SOON),
                    Err(failure) => return Err(failure),
                }
                break;
            }
        }
        Ok(end)
    }

    /// Reads everything from the server.
    async fn read(
        &self,
        name: &str,
        candidates: BTreeMap<u32, ObjectKey>,
        now: &ReconcileMoment<ClusterView>,
    ) -> Result<PlacesContext, ApiFailure> {
        let reservation: Option<ReservationObject> = self.client.find(&reservations(), name).await?;
        let holders = self.read_holders(name, reservation.as_ref(), &now.view).await?;
        let is_once = reservation.as_ref().is_some_and(|it| it.spec.is_once());
        let places = reservation.iter().flat_map(|it| &it.status.places);
        // An owner that has the whole place keeps it, whatever becomes of the pod.
        let named = places.flat_map(|place| &place.owners).filter(|owner| !(is_once && owner.bound));
        let named = named.map(|owner| ObjectKey::new(&owner.namespace, &owner.name));
        let mut owners = BTreeMap::new();
        for key in named.chain(candidates.values().cloned()).collect::<BTreeSet<ObjectKey>>() {
            if let Some(found) = self.client.find::<PlacePod>(&pods(&key.namespace), &key.name).await? {
                owners.insert(key, found);
            }
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Times of conditions are the server's.
        let now = now.server_time().unwrap_or(wall);
        let (handing_over, image) = (HandingOver::default(), self.image.clone());
        Ok(PlacesContext { handing_over, reservation, holders, owners, candidates, image, now })
    }

    /// Reads the place holders of a Reservation: a few by their names, many at once.
    async fn read_holders(
        &self,
        name: &str,
        reservation: Option<&ReservationObject>,
        view: &ClusterView,
    ) -> Result<BTreeMap<String, PlacePod>, ApiFailure> {
        if let Some(reservation) = reservation.filter(|it| it.status.places.len() > MOST_BY_NAME) {
            let labels = format!("{RESERVATION_UID}={}", reservation.uid);
            let all = list_place_holders(&self.client, ListSelector::Labels(&labels)).await?;
            return Ok(all.into_iter().map(|pod| (pod.metadata.name.clone(), pod)).collect());
        }
        let marked = view.marks.made.iter().filter(|((kind, key), mark)| {
            *kind == ObservedKind::Pod && key.namespace == PLACES_NAMESPACE && mark.reservation == name
        });
        let mut names: BTreeSet<String> = marked.map(|((_, key), _)| key.name.clone()).collect();
        names.extend(reservation.map(known_holders).unwrap_or_default());
        let mut holders = BTreeMap::new();
        for pod in names {
            if let Some(found) = self.client.find::<PlacePod>(&place_holders(), &pod).await? {
                holders.insert(pod, found);
            }
        }
        Ok(holders)
    }

    /// Notes the places of which no pod is waited for any more, also because they are given up, and looks at those that
    /// are left.
    async fn see_handing_over(&self, name: &str, cx: &mut PlacesContext, now: Duration) {
        self.gate.keep(name, waiting(cx.reservation.as_ref())).await;
        cx.handing_over = self.gate.handing_over(now).await;
    }

    /// Makes a write; says when to go on.
    async fn write(&self, name: &str, write: PlacesWrite, now: Duration) -> GatedResult {
        match write {
            PlacesWrite::Delete(holder, version) => self.client.delete(&place_holders(), &holder, &version).await?,
            PlacesWrite::Nominate(key, version, node) => {
                let patch = json!({
                    "metadata": {"uid": version.uid, "resourceVersion": version.resource_version},
                    "status": {"nominatedNodeName": node},
                });
                let all = pods(&key.namespace);
                self.client.change_status::<Value>(&all, &key.name, CONTROLLER_FIELD_MANAGER, &patch).await?;
            }
            PlacesWrite::Create { .. } | PlacesWrite::HandOver { .. } => {
                let write = GatedWrite { reservation: name.to_owned(), write, now };
                return self.gate.write(write).await.unwrap_or(Ok(Requeue::Failed));
            }
        }
        Ok(Requeue::Now)
    }

    /// Writes the status. Returns the Reservation as it is now; or, where another write came before, when to go on.
    async fn write_status(
        &self,
        PlacesStatus { name, version, status }: PlacesStatus,
        now: &ReconcileMoment<ClusterView>,
    ) -> Result<Result<ReservationObject, Requeue>, ApiFailure> {
        if !now.may_write() {
            return Ok(Err(Requeue::Failed));
        }
        debug!(reservation = name, what = "status", "a write for the places of a Reservation");
        let (all, whole) = (reservations(), (&*version.resource_version, &status));
        let written = self.client.write_status::<ReservationObject>(&all, &name, CONTROLLER_FIELD_MANAGER, whole).await;
        match written {
            Ok(written) if written.status.places == status.places => Ok(Ok(written)),
            Ok(_) => {
                let why = "the API server has kept other places than it was given: apply deploy/holds of this release";
                Err(ApiFailure::unusable(format!("write the status of Reservation {name}"), why))
            }
            Err(failure) if matches!(failure.code(), Some(404 | 409)) => Ok(Err(Requeue::After(SOON))),
            Err(failure) => Err(failure),
        }
    }
}

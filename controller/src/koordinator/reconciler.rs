//! The edge of Koordinator's Reservations to the API server: each is reconciled when it or hostler's Reservation of its
//! name changes.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{Chain, well_known::CONTROLLER_FIELD_MANAGER};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use hostler_reconcile::{Controller, ControllerParts, Fingerprint, ReconcileMoment, Reconciler, Requeue, Troubles};
use serde_json::Value;
use tracing::{debug, warn};

use super::{
    context::{KOORDINATOR_UID, KoordinatorContext, KoordinatorObject, KoordinatorWrite, OwnReservation},
    decide::{decide, refused},
    scheduler,
};
use crate::{hold::adapter::reservations, observed::ObservedKind, view::ClusterView};

/// The longest time between two reconciliations of an object.
const RECONCILE_AGAIN: Duration = Duration::from_secs(30);
/// The pause after a write that another one came before.
const SOON: Duration = Duration::from_millis(50);

/// Serves Koordinator's objects as long as this process leads.
pub(crate) fn start(parts: ControllerParts<ClusterView>) {
    KoordinatorController.start("koordinator", parts);
}

struct KoordinatorController;

struct KoordinatorReconciler {
    client: ApiClient,
    troubles: Troubles<String>,
}

/// The result of a reconciliation.
struct KoordinatorAnswer {
    end: Requeue,
    error: Option<String>,
}

impl Controller for KoordinatorController {
    type Reconciler = KoordinatorReconciler;

    async fn begin(&self, parts: &ControllerParts<ClusterView>) -> Result<KoordinatorReconciler, String> {
        Ok(KoordinatorReconciler { client: parts.client.clone(), troubles: Troubles::default() })
    }
}

impl Reconciler for KoordinatorReconciler {
    type View = ClusterView;
    type Answer = KoordinatorAnswer;

    /// Returns each object of Koordinator, and each Reservation that was made for one.
    fn keys(&mut self, view: &ClusterView) -> BTreeMap<String, Fingerprint> {
        let mut seen: BTreeMap<String, Fingerprint> = BTreeMap::new();
        for (name, stamp) in view.koordinator.iter() {
            seen.entry(name.clone()).or_default().add(stamp);
        }
        for reservation in view.reservations.values() {
            let is_made = reservation.labels.contains_key(KOORDINATOR_UID);
            if is_made || seen.contains_key(&reservation.name) {
                seen.entry(reservation.name.clone()).or_default().add((&reservation.uid, &reservation.version));
            }
        }
        seen
    }

    fn reconcile(
        &mut self,
        name: &str,
        now: ReconcileMoment<ClusterView>,
    ) -> impl Future<Output = KoordinatorAnswer> + Send + 'static {
        let (client, name) = (self.client.clone(), name.to_owned());
        async move {
            match reconcile(&client, &name, &now).await {
                Ok(answer) => answer,
                Err(failure) => KoordinatorAnswer { end: Requeue::Failed, error: Some(Chain(&failure).to_string()) },
            }
        }
    }

    fn reconciled(&mut self, name: &str, answer: KoordinatorAnswer) -> Requeue {
        match answer.error {
            Some(error) if self.troubles.is_news(name.to_owned(), &error) => {
                warn!(reservation = name, error, "a Reservation of Koordinator cannot be served for now");
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

/// Koordinator's Reservations.
fn theirs() -> Collection {
    let mut all = ObservedKind::KoordinatorReservation.collections(None);
    all.remove(0)
}

async fn reconcile(
    client: &ApiClient,
    name: &str,
    now: &ReconcileMoment<ClusterView>,
) -> Result<KoordinatorAnswer, ApiFailure> {
    let done = |end| Ok(KoordinatorAnswer { end, error: None });
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = now.server_time().unwrap_or(wall);
    if let Some(error) = scheduler::running(client, time).await? {
        return Ok(KoordinatorAnswer { end: Requeue::After(RECONCILE_AGAIN), error: Some(error) });
    }
    let cx = read(client, name, time).await?;
    let Some(write) = decide(&cx) else { return done(Requeue::After(RECONCILE_AGAIN)) };
    if !now.may_write() {
        return done(Requeue::Failed);
    }
    debug!(reservation = name, what = write.what(), "a write for a Reservation of Koordinator");
    match carry_out(client, name, write).await {
        Ok(()) => done(Requeue::Now),
        // Another write came before.
        Err(failure) if matches!(failure.code(), Some(404 | 409)) => done(Requeue::After(SOON)),
        Err(failure) if matches!(failure.code(), Some(400 | 403 | 422)) => {
            let message = Chain(&failure).to_string();
            if let Some(write) = refused(&cx, &message).filter(|_| now.may_write()) {
                carry_out(client, name, write).await?;
            }
            Ok(KoordinatorAnswer { end: Requeue::After(RECONCILE_AGAIN), error: Some(message) })
        }
        Err(failure) => Err(failure),
    }
}

/// Reads everything from the server.
async fn read(client: &ApiClient, name: &str, now: Duration) -> Result<KoordinatorContext, ApiFailure> {
    let found: Option<Value> = client.find(&theirs(), name).await?;
    let own: Option<Value> = client.find(&reservations(), name).await?;
    let unusable = |error| ApiFailure::unusable(format!("read Reservation {name}"), error);
    let own = own.map(OwnReservation::of).transpose().map_err(unusable)?;
    Ok(KoordinatorContext { theirs: found.map(KoordinatorObject::of), own, now })
}

async fn carry_out(client: &ApiClient, name: &str, write: KoordinatorWrite) -> Result<(), ApiFailure> {
    match write {
        KoordinatorWrite::Create(object) => client.create::<Value>(&reservations(), name, &*object).await.map(drop),
        KoordinatorWrite::Replace(object) => client.replace::<Value>(&reservations(), name, &*object).await.map(drop),
        KoordinatorWrite::Delete(version) => client.delete(&reservations(), name, &version).await,
        KoordinatorWrite::DeleteTheirs(version) => client.delete(&theirs(), name, &version).await,
        KoordinatorWrite::Status(version, status) => {
            let status = (&*version, &*status);
            client.write_status::<Value>(&theirs(), name, CONTROLLER_FIELD_MANAGER, status).await.map(drop)
        }
    }
}

//! Creates, shrinks and deletes the Reservations that keep devices for requests.

use hostler_api::{
    hardware,
    reservation::{RESERVATION_KIND, RESERVATIONS},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection, ObjectVersion};
use hostler_reconcile::WriteOutcome;
use serde_json::json;

use super::calls::{FIELD_MANAGER, SeenAfter, WriteAnswer, WrittenObject};
use crate::{
    hold::WrittenReservation,
    provision::event::{NewReservation, ReservationWrite},
};

/// Carries out a write.
pub(super) async fn keep(client: &ApiClient, write: ReservationWrite) -> WriteAnswer {
    let object = WrittenObject::Reservation(write.name().to_owned());
    let written = carry_out(client, &write).await.map_err(|failure| WriteOutcome::of_failure(&failure));
    WriteAnswer { object, result: written.and_then(|version| version.ok_or(WriteOutcome::Gone)) }
}

/// Returns the version of the Reservation after the write; `None` after it was deleted.
async fn carry_out(client: &ApiClient, write: &ReservationWrite) -> Result<Option<ObjectVersion>, ApiFailure> {
    let all = Collection::custom(hardware::GROUP, hardware::VERSION, RESERVATION_KIND, RESERVATIONS);
    let after: SeenAfter = match write {
        ReservationWrite::Create(new) => {
            let NewReservation { name, labels, spec } = &**new;
            let object = json!({
                "apiVersion": all.api_version(), "kind": all.kind(),
                "metadata": {"name": name, "labels": labels}, "spec": spec,
            });
            client.create(&all, name, &object).await?
        }
        ReservationWrite::Shrink(of, replicas) => {
            let patch = json!({
                "metadata": {"uid": of.uid, "resourceVersion": of.version}, "spec": {"replicas": replicas},
            });
            client.change(&all, &of.name, FIELD_MANAGER, &patch).await?
        }
        ReservationWrite::Delete(WrittenReservation { name, uid, version }) => {
            let version = ObjectVersion { uid: uid.clone(), resource_version: version.clone() };
            client.delete(&all, name, &version).await?;
            return Ok(None);
        }
    };
    Ok(Some(after.version()))
}

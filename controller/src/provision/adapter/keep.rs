//! Creates, shrinks and deletes the Reservations that keep devices for requests.

use hostler_api::{
    hardware,
    reservation::{RESERVATION_KIND, RESERVATIONS},
};
use hostler_cluster::{ApiClient, ApiFailure, Collection, ObjectVersion};
use serde_json::json;

use super::calls::{FIELD_MANAGER, SeenAfter, WriteAnswer, WrittenObject, outcome};
use crate::{
    hold::WrittenReservation,
    provision::event::{NewReservation, ReservationWrite, WriteOutcome},
};

/// Carries out a write.
pub(super) async fn keep(client: &ApiClient, write: ReservationWrite) -> WriteAnswer {
    let object = WrittenObject::Reservation(write.name().to_owned());
    let (outcome, trouble) = match carry_out(client, &write).await {
        Ok(outcome) => (outcome, None),
        Err(failure) => outcome(&failure),
    };
    WriteAnswer { object, outcome, trouble }
}

async fn carry_out(client: &ApiClient, write: &ReservationWrite) -> Result<WriteOutcome, ApiFailure> {
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
            return Ok(WriteOutcome::Gone);
        }
    };
    Ok(WriteOutcome::Done(after.version()))
}

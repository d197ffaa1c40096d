//! Decisions about the claims that stand for parts.

use std::time::UNIX_EPOCH;

use hostler_api::{
    ObjectKey,
    reservation::{RESERVATION_UID, ReservedDevice, ReservedDeviceState as State, toleration_value},
};
use hostler_cluster::rfc3339;

use super::{
    context::HoldContext,
    devices::devices_now,
    objects::device_key,
    parts::{is_asked_for, is_closed_for_all},
    placeholder::{WantedPart, new_placeholder, next_placeholder_write, placeholder_name},
    reservations::Related,
    writes::HoldWrite,
};
use crate::claim_write::ClaimWrite;

/// True if claims stand for parts of this Reservation, or are being made.
pub(super) fn has_placeholders(cx: &HoldContext<'_>, uid: &str) -> bool {
    let is_making = |write: &HoldWrite| match write {
        HoldWrite::Claim(write) => matches!(
            &**write, ClaimWrite::Create(claim) if claim.labels.get(RESERVATION_UID).is_some_and(|it| it == uid)
        ),
        _ => false,
    };
    cx.cluster.placeholders(uid).next().is_some() || cx.writes.in_flight().any(is_making)
}

/// Decides the part that the claim with this name stands for.
pub(super) fn decide_placeholder(cx: &mut HoldContext<'_>, name: &str) -> Option<HoldWrite> {
    let key = ObjectKey { namespace: cx.settings.namespace.clone()?, name: name.to_owned() };
    let wanted = wanted_part(cx, name);
    let now = rfc3339(UNIX_EPOCH + cx.clock.told());
    let write = match (cx.cluster.claims.get(&key), wanted) {
        (None, Some(part)) if part.can_take => Some(ClaimWrite::Create(Box::new(new_placeholder(&key, &part)))),
        (None, _) => None,
        (Some(claim), wanted) => {
            let uid = claim.placeholder.as_ref().map(|it| &*it.reservation_uid);
            let is_left_alone = uid.is_some_and(|uid| cx.reservations.is_unreadable(&toleration_value(uid)));
            let write = next_placeholder_write(claim, wanted.as_ref(), now);
            write.filter(|_| !is_left_alone)
        }
    };
    write.map(|write| HoldWrite::Claim(Box::new(write)))
}

/// Returns the part that the claim shall stand for, if a Reservation still keeps it and no owner has it.
fn wanted_part(cx: &mut HoldContext<'_>, claim: &str) -> Option<WantedPart> {
    let related = Related::Placeholder(claim.to_owned());
    let reservation = cx.reservations.related_to(&related).next().filter(|it| it.is_open())?;
    let object = &reservation.object;
    let is_it = |device: &&ReservedDevice| device.is_part() && placeholder_name(&device.share_id) == claim;
    let device = object.status.devices.iter().find(is_it)?.clone();
    if matches!(device.state, State::HandedOver | State::Releasing) {
        return None;
    }
    let is_asked = is_asked_for(cx, reservation);
    let is_closed = cx.is_closed_for(reservation, &device_key(&device));
    let is_closed_for_all = is_closed_for_all(cx, reservation, &device);
    // An owner may have got the part, and the status may not say so yet.
    let now = devices_now(cx, reservation);
    let is_free = now.iter().any(|it| it.share_id == device.share_id && it.state == State::Held);
    let is_held = device.state == State::Held && is_free;
    Some(WantedPart {
        reservation: object.name.clone(),
        uid: object.uid.clone(),
        can_take: is_held && is_closed && is_asked == Some(false),
        is_wanted: is_held && is_asked == Some(true) && is_closed_for_all,
        device,
    })
}

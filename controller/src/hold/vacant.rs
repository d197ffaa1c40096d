//! The state of a device that no claim has.

use std::time::Duration;

use hostler_api::reservation::{ReservedDevice, ReservedDeviceState as State};

use super::{
    attaching::could_not_be_attached,
    context::{HoldContext, HoldEffect, Timer},
    objects::{DeviceKey, device_key},
    places::is_without_room,
    reservation::Reservation,
    topics::DecisionTopic,
};

/// Time for which a device is left alone that could not be closed: its node does not answer, or cannot close the
/// device, and other Reservations would fail with it as well.
pub(super) const LEFT_ALONE: Duration = Duration::from_secs(300);

/// Returns the state of a device that no claim has.
pub(super) fn state_of_vacant(cx: &mut HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice) -> State {
    let key = device_key(device);
    if is_without_room(cx.settings, reservation, device) {
        cx.push(HoldEffect::Avoid(key, LEFT_ALONE));
        return State::Lost;
    }
    if could_not_be_attached(cx, reservation, device) {
        return State::Lost;
    }
    let published = cx.cluster.device(&key).map(|(_, it)| it.is_usable);
    let is_fine = published == Some(true) && cx.is_closed_for(reservation, &key);
    if is_fine || device.state == State::Lost {
        cx.stop(Timer::Amiss(reservation.object.name.clone(), key.clone()));
    }
    match (published, is_fine, device.state) {
        (_, true, State::Lost) if is_kept_by_another(cx, reservation, device) => State::Lost,
        (_, true, State::HandedOver) => State::Held,
        (_, true, State::Lost) => State::Fencing,
        (_, true, state) => state,
        (_, false, State::Lost) | (Some(false), false, _) => State::Lost,
        (None, false, state) => state_after_grace(cx, reservation, &key, state),
        (Some(true), false, State::Fencing) => {
            let state = state_after_grace(cx, reservation, &key, State::Fencing);
            if state == State::Lost {
                cx.push(HoldEffect::Avoid(key, LEFT_ALONE));
            }
            state
        }
        (Some(true), false, _) => State::Fencing,
    }
}

/// True if another Reservation keeps the device, or a part of it. A Reservation that lost the device does not close it
/// again: the amounts are promised to the other one.
pub(super) fn is_kept_by_another(cx: &HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice) -> bool {
    let key = device_key(device);
    let is_kept = |it: &ReservedDevice| {
        matches!(it.state, State::Fencing | State::Held | State::HandedOver) && device_key(it) == key
    };
    let mut others = cx.reservations.with_pool_of(&key).filter(|it| it.object.uid != reservation.object.uid);
    others.any(|it| !it.is_over() && it.object.status.devices.iter().any(is_kept))
}

/// Returns the present state until the time of grace is over: a fault may pass by itself.
pub(super) fn state_after_grace(
    cx: &mut HoldContext<'_>,
    reservation: &Reservation,
    key: &DeviceKey,
    state: State,
) -> State {
    let name = &reservation.object.name;
    let age = cx.age(Timer::Amiss(name.clone(), key.clone()));
    if age >= cx.settings.grace {
        return State::Lost;
    }
    cx.decide_after(cx.settings.grace - age, DecisionTopic::Reservation(name.clone()));
    state
}

//! The state of each device of a Reservation, as the cluster shows it.

use std::collections::BTreeSet;

use hostler_api::reservation::{DeviceOwner, ReservedDevice, ReservedDeviceState as State};

use super::{
    conflicts::{is_in_conflict, is_strangers, released},
    context::{HoldContext, HoldEffect, Timer},
    holders::{ClaimOwnership, ownership},
    objects::{DeviceKey, device_key},
    parts::parts_now,
    reservation::{ClosedCheck, Reservation},
    topics::DecisionTopic,
    vacant::{LEFT_ALONE, state_after_grace, state_of_vacant},
};

/// The holder of a device.
enum Holder {
    None,
    /// A pod that had the device before it was reserved.
    Victim,
    Owner(DeviceOwner),
    Stranger(DeviceOwner),
    Unknown,
}

/// Returns the devices of a Reservation as they are now, without those that it does not keep any more.
pub(super) fn devices_now(cx: &mut HoldContext<'_>, reservation: &Reservation) -> Vec<ReservedDevice> {
    let (spec, status) = (&reservation.object.spec, &reservation.object.status);
    let (is_once, owners) = (spec.is_once(), status.current_owners.len());
    let parts = parts_now(cx, reservation, &status.devices);
    let (mut devices, mut left) = (Vec::new(), Vec::new());
    for (device, part) in status.devices.iter().zip(parts) {
        if device.state == State::Releasing {
            left.push(device.clone());
            continue;
        }
        let now = part.unwrap_or_else(|| device_now(cx, reservation, device));
        // An owner had the device once and gave it back.
        let was_used = is_once && device.state == State::HandedOver && now.state != State::HandedOver;
        if was_used { left.push(now) } else { devices.push(now) }
    }
    left.extend(drop_spare(&mut devices, spec.replicas() as usize, if is_once { owners } else { 0 }));
    check_closed(cx, reservation, &mut devices);
    devices.extend(left.into_iter().filter_map(|device| released(cx, device)));
    devices
}

fn device_now(cx: &mut HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice) -> ReservedDevice {
    let holder = holder(cx, reservation, device);
    // The owner has gone, and the claim that has the device now is not an owner's.
    let is_strangers = matches!(holder, Holder::Stranger(_)) && is_strangers(cx, reservation, device);
    let (state, owner) = match holder {
        Holder::Unknown => (device.state, device.owner.clone()),
        Holder::Victim => (state_of_victims(cx, reservation, device), device.owner.clone()),
        Holder::Owner(owner) => (State::HandedOver, Some(owner)),
        Holder::Stranger(owner) => (State::Lost, Some(owner)),
        Holder::None => (state_of_vacant(cx, reservation, device), None),
    };
    ReservedDevice { state, owner, conflict: is_strangers || is_in_conflict(cx, device), ..device.clone() }
}

/// The holder of a device, the same in any order of the claims: an owner counts before all others, and a claim that is
/// not known yet may be an owner's.
fn holder(cx: &mut HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice) -> Holder {
    let claims = || cx.cluster.claims_on(&device_key(device)).collect::<Vec<_>>();
    let known = device.owner.as_ref().map(|owner| &*owner.uid).unwrap_or_default();
    let is_known = claims().iter().any(|claim| claim.uid == known);
    match device.state {
        State::Fencing if is_known => return Holder::Victim,
        // The pod of the claim may be gone, or no longer a consumer: the claim was an owner's.
        State::HandedOver if is_known => return Holder::Owner(device.owner.clone().unwrap_or_default()),
        _ => {}
    }
    claims().into_iter().fold(Holder::None, |holder, claim| match (ownership(cx, reservation, claim), holder) {
        (_, holder @ Holder::Owner(_)) => holder,
        (ClaimOwnership::Owner(owner), _) => Holder::Owner(owner),
        (ClaimOwnership::Unknown, _) | (_, Holder::Unknown) => Holder::Unknown,
        (ClaimOwnership::Stranger(owner), Holder::None) => Holder::Stranger(owner),
        (_, holder) => holder,
    })
}

/// The state of a device that a pod has until it is evicted. No pod is evicted before its device is closed: where the
/// device cannot be closed, another pod is chosen.
fn state_of_victims(cx: &mut HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice) -> State {
    if !reservation.object.spec.preempts() {
        return device.state;
    }
    let key = device_key(device);
    if cx.cluster.is_contested(&key) {
        // If the pod went, another pod would still have the device.
        return State::Lost;
    }
    if cx.is_closed_for(reservation, &key) {
        cx.stop(Timer::Amiss(reservation.object.name.clone(), key));
        return State::Fencing;
    }
    let state = state_after_grace(cx, reservation, &key, State::Fencing);
    if state == State::Lost {
        cx.push(HoldEffect::Avoid(key, LEFT_ALONE));
    }
    state
}

/// Closed devices become kept once it is certain that no claim got them before. After the time in which every decision
/// of schedulers must become visible, a list of all claims shows no claim that has them.
fn check_closed(cx: &mut HoldContext<'_>, reservation: &Reservation, devices: &mut [ReservedDevice]) {
    let name = reservation.object.name.clone();
    let is_checked = |device: &&ReservedDevice| device.state == State::Fencing && device.owner.is_none();
    let closing: BTreeSet<DeviceKey> = devices.iter().filter(is_checked).map(device_key).collect();
    if closing.is_empty() || !closing.iter().all(|key| cx.is_closed_for(reservation, key)) {
        return if reservation.check.is_some() {
            cx.push(HoldEffect::Check(name, None))
        };
    }
    let known = reservation.check.as_ref().filter(|check| check.devices == closing);
    let new = ClosedCheck { devices: closing.clone(), since: cx.now, list: None };
    if known.is_none() {
        cx.push(HoldEffect::Check(name.clone(), Some(new.clone())));
    }
    let check = known.unwrap_or(&new);
    let age = cx.now.saturating_sub(check.since);
    if age < cx.settings.settle {
        cx.decide_after(cx.settings.settle - age, DecisionTopic::Reservation(name));
    } else if check.list.is_none() {
        cx.push(HoldEffect::ListClaims(name));
    } else if check.list.is_some_and(|list| cx.listed >= list) {
        let kept = devices.iter_mut().filter(|device| check.devices.contains(&device_key(device)));
        kept.for_each(|device| device.state = State::Held);
    }
}

/// Removes and returns the devices of spare replicas, where the Reservation has fewer replicas than before. Replicas of
/// which an owner has or had a device count; of the others the first stay.
fn drop_spare(devices: &mut Vec<ReservedDevice>, replicas: usize, owners: usize) -> Vec<ReservedDevice> {
    let used: BTreeSet<u32> =
        devices.iter().filter(|it| it.state == State::HandedOver).map(|device| device.replica).collect();
    let unused: BTreeSet<u32> =
        devices.iter().map(|device| device.replica).filter(|replica| !used.contains(replica)).collect();
    let left = replicas.saturating_sub(owners.max(used.len()));
    let spare: BTreeSet<u32> = unused.into_iter().skip(left).collect();
    devices.extract_if(.., |device| spare.contains(&device.replica)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(replica: u32, state: State) -> ReservedDevice {
        ReservedDevice { replica, state, ..ReservedDevice::default() }
    }

    #[test]
    fn fewer_replicas_keep_as_many_as_still_come_whichever_were_used() {
        let states = [State::Held, State::Held, State::Held, State::HandedOver];
        let all: Vec<ReservedDevice> = (0..).zip(states).map(|(replica, state)| device(replica, state)).collect();
        let left = |replicas: usize, owners: usize| {
            let mut devices = all.clone();
            drop_spare(&mut devices, replicas, owners);
            devices.iter().map(|it| it.replica).collect::<Vec<_>>()
        };
        assert_eq!(left(4, 1), [0, 1, 2, 3]);
        assert_eq!(left(3, 1), [0, 1, 3]);
        assert_eq!(left(3, 2), [0, 3], "one more had its devices and is gone");
        assert_eq!(left(1, 1), [3]);
    }
}

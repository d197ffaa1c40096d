//! Parts of devices that several claims can share. To keep a part, hostler closes the device first, like a whole one,
//! and makes a claim that stands for the part (placeholder). Once every scheduler has seen that claim, the rest of the
//! device is open to all pods. When an owner comes, hostler closes the device again, the claim gives the part back, and
//! the scheduler gives it to the owner.
//!
//! One Reservation at a time keeps parts of a device: two Reservations could not both close it when owners of both
//! wait.

use std::collections::BTreeSet;

use hostler_api::{
    ObjectKey, Quantity,
    reservation::{DeviceOwner, ReservedDevice, ReservedDeviceState as State},
};

use super::{
    closed::rule_name,
    context::{HoldContext, Timer},
    holders::{ClaimOwnership, ownership},
    objects::{AllocatedClaim, Amounts, DeviceKey, PlaceholderMark, device_key, owner_of_first_pod},
    placeholder::{has_part, placeholder_name},
    reservation::Reservation,
    topics::DecisionTopic,
    vacant::state_of_vacant,
};

/// The holder of a part.
#[derive(Clone, Debug)]
enum PartHolder {
    None,
    Owner(DeviceOwner),
    Unknown,
}

/// Returns the parts among the devices of a Reservation as they are now.
pub(super) fn parts_now(
    cx: &mut HoldContext<'_>,
    reservation: &Reservation,
    devices: &[ReservedDevice],
) -> Vec<Option<ReservedDevice>> {
    let mut parts: Vec<Option<ReservedDevice>> = vec![None; devices.len()];
    let keys: BTreeSet<DeviceKey> = devices.iter().filter(|device| device.is_part()).map(device_key).collect();
    for key in keys {
        let here: Vec<usize> =
            (0..devices.len()).filter(|at| devices[*at].is_part() && device_key(&devices[*at]) == key).collect();
        let of_device: Vec<&ReservedDevice> = here.iter().map(|at| &devices[*at]).collect();
        let holders = part_holders(cx, reservation, &key, &of_device);
        let thief = overdrawn(cx, reservation, (&key, &of_device), &holders);
        for ((at, device), holder) in here.into_iter().zip(of_device).zip(holders) {
            parts[at] = Some(part_now(cx, reservation, device, (holder, thief.clone())));
        }
    }
    parts
}

fn part_now(
    cx: &mut HoldContext<'_>,
    reservation: &Reservation,
    device: &ReservedDevice,
    held_by: (PartHolder, Option<DeviceOwner>),
) -> ReservedDevice {
    let key = device_key(device);
    let victim = device.owner.as_ref().filter(|_| device.state == State::Fencing);
    let has_victim = victim.is_some_and(|victim| cx.cluster.claims_on(&key).any(|claim| claim.uid == victim.uid));
    let is_usable = cx.cluster.device(&key).is_some_and(|(_, it)| it.is_usable);
    let (state, owner) = match held_by {
        (PartHolder::Unknown, _) => (device.state, device.owner.clone()),
        (PartHolder::Owner(owner), _) => (State::HandedOver, Some(owner)),
        _ if has_victim => (State::Fencing, device.owner.clone()),
        (_, Some(thief)) => (State::Lost, Some(thief)),
        // The claim keeps the part, with the device closed or open.
        _ if is_usable && device.state == State::Held && is_accounted(cx, device) => (State::Held, None),
        _ => (state_of_vacant(cx, reservation, device), None),
    };
    ReservedDevice { state, owner, ..device.clone() }
}

/// Returns the owners that have the kept parts of a device: those whose claims tolerate the value by name. Parts that
/// pods of owners had before, and parts of the rest that they get without tolerating it, do not count.
fn part_holders(
    cx: &mut HoldContext<'_>,
    reservation: &Reservation,
    key: &DeviceKey,
    parts: &[&ReservedDevice],
) -> Vec<PartHolder> {
    let mut holders = vec![PartHolder::None; parts.len()];
    let is_owners =
        |claim: &&AllocatedClaim| claim.placeholder.is_none() && claim.tolerates.contains(&reservation.value);
    for claim in cx.cluster.claims_on(key).filter(is_owners) {
        let mut left = claim.parts.iter().filter(|part| part.device == *key).count();
        let is_known = |part: &&ReservedDevice| {
            part.state == State::HandedOver && part.owner.as_ref().is_some_and(|owner| owner.uid == claim.uid)
        };
        for at in (0..parts.len()).filter(|at| is_known(&parts[*at])).take(left) {
            holders[at] = PartHolder::Owner(parts[at].owner.clone().unwrap_or_default());
            left -= 1;
        }
        let is_free = |at: &usize| parts[*at].state != State::HandedOver && matches!(holders[*at], PartHolder::None);
        let open: Vec<usize> = (0..parts.len()).filter(is_free).collect();
        match ownership(cx, reservation, claim) {
            ClaimOwnership::Owner(owner) => {
                open.into_iter().take(left).for_each(|at| holders[at] = PartHolder::Owner(owner.clone()));
            }
            ClaimOwnership::Unknown if left > 0 => {
                open.into_iter().for_each(|at| holders[at] = PartHolder::Unknown);
            }
            ClaimOwnership::Unknown | ClaimOwnership::Stranger(_) => {}
        }
    }
    holders
}

/// Returns the owner that took so much of a device that the promised parts no longer fit: the one that got it last. Where
/// no pod has any of it, that is a claim that stands for a part of another Reservation.
fn overdrawn(
    cx: &HoldContext<'_>,
    reservation: &Reservation,
    (key, parts): (&DeviceKey, &[&ReservedDevice]),
    holders: &[PartHolder],
) -> Option<DeviceOwner> {
    let (_, published) = cx.cluster.device(key)?;
    let promised = parts.iter().zip(holders).filter(|(_, holder)| !matches!(holder, PartHolder::Owner(_)));
    let promised: Vec<&&ReservedDevice> = promised.map(|(part, _)| part).collect();
    let mut sum = Amounts::new();
    promised.iter().for_each(|part| add(&mut sum, &part.consumed_capacity));
    let (mut others, mut is_whole) = (Vec::new(), false);
    for claim in cx.cluster.claims_on(key) {
        let given: Vec<_> = claim.parts.iter().filter(|part| part.device == *key).collect();
        let is_ours = |share: &str| promised.iter().any(|part| part.share_id == share);
        is_whole |= given.is_empty();
        // A claim that stands for a part is that part.
        given
            .iter()
            .filter(|part| claim.placeholder.is_none() || !is_ours(&part.share_id))
            .for_each(|part| add(&mut sum, &part.amounts));
        let is_own = |mark: &PlaceholderMark| mark.reservation_uid == reservation.object.uid;
        others.extend(Some(claim).filter(|claim| !claim.placeholder.as_ref().is_some_and(is_own)));
    }
    let is_over = published.capacity.iter().any(|(name, all)| sum.get(name).is_some_and(|it| it > all));
    let last = others.into_iter().max_by_key(|it| (it.placeholder.is_none(), it.version.parse::<u64>().ok()));
    last.filter(|_| is_over || is_whole).map(owner_of_first_pod)
}

/// True if the claim of a part has the part, as the API server shows.
pub(super) fn is_accounted(cx: &HoldContext<'_>, device: &ReservedDevice) -> bool {
    let Some(namespace) = &cx.settings.namespace else { return false };
    let key = ObjectKey { namespace: namespace.clone(), name: placeholder_name(&device.share_id) };
    cx.cluster.claims.get(&key).is_some_and(|claim| has_part(claim, device))
}

/// True if a device has to be closed for the sake of a kept part of it.
pub(super) fn is_part_closed(
    cx: &mut HoldContext<'_>,
    reservation: &Reservation,
    device: &ReservedDevice,
    is_closed: bool,
) -> bool {
    let timer = Timer::Accounted(placeholder_name(&device.share_id));
    if !is_accounted(cx, device) {
        cx.stop(timer);
        return true;
    }
    let age = cx.age(timer);
    if device.state != State::Held {
        return true;
    }
    match is_asked_for(cx, reservation) {
        None => return is_closed,
        Some(true) => return true,
        Some(false) => {}
    }
    // An open device stays open: a controller that has just begun does not close the device to wait once more.
    let is_fresh = is_closed && age < cx.settings.settle;
    if is_fresh {
        let left = cx.settings.settle - age;
        cx.decide_after(left, DecisionTopic::NodeFences(device.node_name.clone()));
        cx.decide_after(left, DecisionTopic::Rule(rule_name(&device_key(device))));
    }
    is_fresh
}

/// True if an owner waits: its claim tolerates the value by name, and has no devices. `None` where the pods of such a
/// claim are not known.
pub(super) fn is_asked_for(cx: &mut HoldContext<'_>, reservation: &Reservation) -> Option<bool> {
    let is_waiting = |claim: &&AllocatedClaim| claim.devices.is_empty() && claim.placeholder.is_none();
    let mut is_known = true;
    for claim in cx.cluster.tolerating(&reservation.value).filter(is_waiting) {
        match ownership(cx, reservation, claim) {
            ClaimOwnership::Owner(_) => return Some(true),
            ClaimOwnership::Stranger(_) => {}
            ClaimOwnership::Unknown => is_known = false,
        }
    }
    is_known.then_some(false)
}

/// True if a part's device has been closed for so long that no scheduler gives any of it to other pods.
pub(super) fn is_closed_for_all(cx: &mut HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice) -> bool {
    let (key, settle) = (device_key(device), cx.settings.settle);
    if !cx.is_closed_for(reservation, &key) {
        cx.stop(Timer::PartClosed(key));
        return false;
    }
    let age = cx.age(Timer::PartClosed(key));
    if age < settle {
        cx.decide_after(settle - age, DecisionTopic::Placeholder(placeholder_name(&device.share_id)));
    }
    age >= settle
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let known: &mut Quantity = sum.entry(name.clone()).or_default();
        *known = known.plus(*amount);
    }
}

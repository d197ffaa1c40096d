//! Devices that two claims have. Schedulers count devices in a plain set: when the first of the claims goes, they take
//! the device for free, though the other claim still has it. A device that a Reservation kept therefore stays closed
//! until no claim has it, whichever claim goes first, and whatever becomes of the Reservation. The status names these
//! devices, for a controller that leads later.

use hostler_api::{
    few,
    reservation::{ReservedDevice, ReservedDeviceState as State},
};

use super::{
    closed::rule_name,
    context::HoldContext,
    objects::{device_key, owner_of_first_pod},
    reservation::Reservation,
};

/// True if two claims had a device at once, and any claim still has it: by what this controller saw, or by the status.
pub(super) fn is_in_conflict(cx: &HoldContext<'_>, device: &ReservedDevice) -> bool {
    let key = device_key(device);
    let is_marked = || device.conflict && cx.cluster.claims_on(&key).next().is_some();
    !device.is_part() && (cx.cluster.is_contested(&key) || is_marked())
}

/// True if a stranger has the device that the status gives to an owner, and only these two could get it: a controller
/// that reads this only now cannot know that they did not have the device at once.
pub(super) fn is_strangers(cx: &HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice) -> bool {
    let key = device_key(device);
    let owner = device.owner.as_ref().map(|owner| &*owner.uid);
    let mut claims = cx.cluster.claims_on(&key).peekable();
    let is_left = claims.peek().is_some() && claims.all(|claim| Some(&*claim.uid) != owner);
    let rule = || cx.cluster.rules.get(&rule_name(&key)).map(|rule| &*rule.value);
    let told = cx.cluster.told_to_hold(&device.node_name, &key).or_else(rule);
    let is_ours = told == Some(&*reservation.value);
    device.state == State::HandedOver && !device.is_part() && is_left && is_ours
}

/// Returns a device that the Reservation drops, if it stays closed because claims have it together.
pub(super) fn released(cx: &HoldContext<'_>, device: ReservedDevice) -> Option<ReservedDevice> {
    let conflict = is_in_conflict(cx, &device);
    let owner = cx.cluster.claims_on(&device_key(&device)).next().map(owner_of_first_pod);
    conflict.then_some(ReservedDevice { state: State::Releasing, owner, conflict, ..device })
}

/// Names the claims that have devices together, for the status.
pub(super) fn conflicts(cx: &HoldContext<'_>, devices: &[ReservedDevice]) -> Option<String> {
    let marked: Vec<String> = devices.iter().filter(|device| device.conflict).map(|it| conflict(cx, it)).collect();
    let text = || format!("{}; closed to others until no claim has it: end the pods", few(&marked));
    (!marked.is_empty()).then(text)
}

fn conflict(cx: &HoldContext<'_>, device: &ReservedDevice) -> String {
    let key = device_key(device);
    let claims: Vec<String> = cx.cluster.claims_on(&key).map(|claim| claim.key.to_string()).collect();
    match &claims[..] {
        [] => format!("{key}, which two claims had"),
        [last] => format!("{key}, which another claim had and claim {last} still has"),
        _ => format!("{key}, which claims {} have", claims.join(" and ")),
    }
}

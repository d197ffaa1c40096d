//! Devices behind switches that a Reservation keeps: they are attached to their nodes before owners come. The part that
//! attaches (`crate::fabric`) reads the Reservation's status; here its FabricAttachments are read.

use std::time::Duration;

use hostler_api::{
    fabric::{AttachmentPhase as Phase, of_fabric_pool},
    few,
    reservation::{ReservedDevice, ReservedDeviceState as State},
};

use super::{
    context::HoldContext,
    objects::{KnownAttachment, device_key},
    reservation::Reservation,
    topics::DecisionTopic,
};

/// State of a device that is to be on its node before an owner comes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum AttachStand {
    /// Nothing is attached ahead: the device is the node's own, or an owner has it.
    NotAsked,
    /// The device is being attached; holds the phase and its message.
    Waits(String),
    Ready,
    /// The device could not be attached, for this reason.
    Failed(String),
}

/// Returns the state of a device of a Reservation.
pub(super) fn attach_stand(cx: &HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice) -> AttachStand {
    let is_asked = cx.settings.attaches
        && device.driver == cx.settings.own_driver
        && of_fabric_pool(&device.pool).is_some()
        && !matches!(device.state, State::HandedOver | State::Releasing);
    if !is_asked {
        return AttachStand::NotAsked;
    }
    let is_its = |it: &&KnownAttachment| {
        it.keeper.as_deref() == Some(&*reservation.object.uid) && it.pool == device.pool && it.node == device.node_name
    };
    let Some(known) = cx.cluster.attachments.get(&device.device).filter(is_its) else {
        return AttachStand::Waits("asked for".to_owned());
    };
    // After a failure the device is left alone until the time of the next try.
    let is_paused = || known.retry_at.is_some_and(|at| cx.clock.certain().is_none_or(|now| now < at));
    let is_ending = matches!(known.phase, Phase::Releasing | Phase::Detaching | Phase::Detached);
    match known.phase {
        Phase::Failed => AttachStand::Failed(known.message.clone()),
        _ if is_ending && is_paused() => AttachStand::Failed(known.message.clone()),
        Phase::Ready if !known.is_released => AttachStand::Ready,
        phase if known.message.is_empty() => AttachStand::Waits(phase.as_str().to_owned()),
        phase => AttachStand::Waits(format!("{}: {}", phase.as_str(), known.message)),
    }
}

/// True if a kept device could not be attached to its node: another device is looked for.
pub(super) fn could_not_be_attached(
    cx: &mut HoldContext<'_>,
    reservation: &Reservation,
    device: &ReservedDevice,
) -> bool {
    if !matches!(device.state, State::Held | State::Lost) {
        return false;
    }
    let has_failed = matches!(attach_stand(cx, reservation, device), AttachStand::Failed(_));
    let retry_at = cx.cluster.attachments.get(&device.device).and_then(|known| known.retry_at);
    if let (true, Some(at), Some(now)) = (has_failed, retry_at, cx.clock.certain()) {
        let topic = DecisionTopic::Reservation(reservation.object.name.clone());
        cx.decide_after(at.saturating_sub(now).max(SHORTEST_WAIT), topic);
    }
    has_failed
}

/// Pause until clocks are read again, where one of them is behind.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Names the kept devices that are not on their nodes yet, for the status.
pub(super) fn attaching(cx: &HoldContext<'_>, reservation: &Reservation, devices: &[ReservedDevice]) -> Option<String> {
    let waits = |device: &ReservedDevice| match attach_stand(cx, reservation, device) {
        AttachStand::Waits(how) => Some(format!("{} to node {} ({how})", device.device, device.node_name)),
        _ => None,
    };
    let held = devices.iter().filter(|device| device.state == State::Held);
    let all: Vec<String> = held.filter_map(waits).collect();
    (!all.is_empty()).then(|| {
        format!(
            "{} of {} devices are being attached: {}; see kubectl get fabricattachments",
            all.len(),
            devices.iter().filter(|device| device.state != State::Releasing).count(),
            few(&all)
        )
    })
}

/// Names the lost devices that could not be attached, each with its reason.
pub(super) fn not_attached(cx: &HoldContext<'_>, reservation: &Reservation, device: &ReservedDevice) -> Option<String> {
    match attach_stand(cx, reservation, device) {
        AttachStand::Failed(why) => Some(format!(
            "{}, which could not be attached to node {}: {why} (FabricAttachment {})",
            device_key(device),
            device.node_name,
            device.device
        )),
        _ => None,
    }
}

//! What must be true when anybody is asked to go.

use hostler_api::reservation::{ReservationPhase, ReservedDevice, ReservedDeviceState};

use super::world::World;
use crate::{
    hold::{HoldCommand, HoldWrite, PodWrite},
    reservation_object::ReservationObject,
};

impl World {
    /// Nobody is asked to go before it is certain that what he has, or others, is kept for whoever he goes for.
    pub(super) fn check_eviction(&self, command: &HoldCommand) {
        let HoldCommand::Write(HoldWrite::Pod(PodWrite::Evict { pod, uid })) = command else { return };
        // Of two controllers one may know less than the server.
        if self.is_disputed {
            return;
        }
        let is_asked = |it: &&ReservationObject| {
            it.status.evictions.iter().any(|eviction| eviction.uid == *uid && eviction.state.is_open())
        };
        let is_certain = self.server.reservations.values().filter(is_asked).any(|it| self.is_certain(it, uid));
        assert!(is_certain, "nobody may evict {pod} yet");
    }

    fn is_certain(&self, object: &ReservationObject, uid: &str) -> bool {
        let is_moved = object.spec.replaces.as_ref().is_some_and(|it| it.uid == uid);
        let is_safe = |device: &ReservedDevice| match device.state {
            ReservedDeviceState::Held | ReservedDeviceState::HandedOver | ReservedDeviceState::Releasing => true,
            ReservedDeviceState::Fencing => {
                device.owner.is_some() && !is_moved && self.is_told_to_close(object, device)
            }
            _ => false,
        };
        let phase = if is_moved { ReservationPhase::Available } else { ReservationPhase::Waiting };
        object.status.phase == phase && object.status.devices.iter().all(is_safe)
    }

    fn is_told_to_close(&self, object: &ReservationObject, device: &ReservedDevice) -> bool {
        let value = self.value(&object.name);
        let wanted = (&device.pool, &device.device, &value);
        let mut told = self.server.node_fences.get(&device.node_name).into_iter().flat_map(|it| &it.fences);
        let mut rules = self.server.rules.values();
        told.any(|it| (&it.pool, &it.device, &it.value) == wanted)
            || rules.any(|it| (&it.device.pool, &it.device.device, &it.value) == wanted)
            || !self.server.nodes.contains(&device.node_name)
    }
}

//! Reservations that keep devices behind switches for nodes, as their statuses say. Pure.
//!
//! A Reservation keeps its devices together: none is attached before all of them are closed to others, and all are let go
//! when one is lost and nothing is found in its place.

use std::collections::BTreeMap;

use hostler_api::{
    Quantity,
    fabric::{AttachmentKeeper, of_fabric_pool},
    hardware::ConditionStatus,
    reservation::{ReservationConditionType, ReservationStatus, ReservedDevice, ReservedDeviceState as State},
};

use crate::{reservation_object::ReservationObject, view::ClusterView};

/// A device that a Reservation keeps for a node.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct DeviceKeeper {
    pub(crate) keeper: AttachmentKeeper,
    pub(crate) pool: String,
    pub(crate) node: String,
    /// Memory that is made for the device.
    pub(crate) memory: Option<Quantity>,
    /// True if the device is to be attached; else it only stays attached, if it is.
    pub(crate) is_wanted: bool,
}

/// All devices behind switches that Reservations keep, by name.
pub(crate) fn device_keepers(view: &ClusterView, driver: &str) -> BTreeMap<String, DeviceKeeper> {
    let mut kept: BTreeMap<String, DeviceKeeper> = BTreeMap::new();
    for reservation in view.reservations.values() {
        for (device, found) in kept_by(reservation, driver) {
            add(&mut kept, device.device.clone(), found);
        }
    }
    kept
}

/// The device of this name, if a Reservation keeps it.
pub(crate) fn device_keeper(view: &ClusterView, driver: &str, name: &str) -> Option<DeviceKeeper> {
    let mut kept = BTreeMap::new();
    for reservation in view.reservations.values() {
        let found = kept_by(reservation, driver).filter(|(device, _)| device.device == name);
        found.for_each(|(_, found)| add(&mut kept, String::new(), found));
    }
    kept.remove("")
}

/// Of two Reservations the one that has closed the device counts.
fn add(kept: &mut BTreeMap<String, DeviceKeeper>, name: String, found: DeviceKeeper) {
    let known = kept.get(&name);
    let rank = |it: &DeviceKeeper| (!it.is_wanted, it.keeper.uid.clone());
    if known.is_none_or(|known| rank(&found) < rank(known)) {
        kept.insert(name, found);
    }
}

/// The devices behind switches that a Reservation keeps.
fn kept_by<'a>(
    reservation: &'a ReservationObject,
    driver: &'a str,
) -> impl Iterator<Item = (&'a ReservedDevice, DeviceKeeper)> {
    let status = &reservation.status;
    // A device that an owner has stays for its claim, of which the news may come later.
    let is_open = !reservation.is_deleting && !status.phase.is_over();
    let (is_whole, stays) = (is_whole(status), status.kept().all(|device| device.state != State::Lost));
    let is_ours = move |device: &&ReservedDevice| {
        (device.state == State::HandedOver || is_open && stays)
            && device.driver == driver
            && !device.node_name.is_empty()
            && of_fabric_pool(&device.pool).is_some()
            && is_kept(device)
    };
    let kept = move |device: &'a ReservedDevice| {
        let keeper = AttachmentKeeper { name: reservation.name.clone(), uid: reservation.uid.clone() };
        let (pool, node) = (device.pool.clone(), device.node_name.clone());
        let is_wanted = is_open && is_whole && device.state != State::Fencing;
        (device, DeviceKeeper { keeper, pool, node, memory: device.memory, is_wanted })
    };
    status.kept().filter(is_ours).map(kept)
}

/// True if no other claim can have the device, or can get it: what is attached for the Reservation stays so.
fn is_kept(device: &ReservedDevice) -> bool {
    match device.state {
        State::Held | State::HandedOver => true,
        // A taint may be away for a moment; a device with an owner is another pod's.
        State::Fencing => device.owner.is_none(),
        State::Lost | State::Releasing => false,
    }
}

/// True if everything that the Reservation asks for is closed to others.
fn is_whole(status: &ReservationStatus) -> bool {
    let scheduled = status.condition(ReservationConditionType::Scheduled);
    scheduled.is_some_and(|it| it.status == ConditionStatus::True)
        && status.kept().all(|device| matches!(device.state, State::Held | State::HandedOver))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn reservation(name: &str, states: &[&str], scheduled: &str) -> ReservationObject {
        let device = |(at, state): (usize, &&str)| {
            json!({
                "driver": "hostler.dev", "pool": "fabric/m/d", "device": format!("d{at}"), "nodeName": format!("n{at}"),
                "state": state,
            })
        };
        let devices: Vec<_> = states.iter().enumerate().map(device).collect();
        let scheduled = json!({"type": "Scheduled", "status": scheduled, "reason": "r", "lastTransitionTime": "t"});
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("uid-of-{name}")}, "spec": {"template": {}},
            "status": {"devices": devices, "conditions": [scheduled]},
        }))
        .unwrap()
    }

    fn kept(reservations: &[ReservationObject]) -> Vec<String> {
        let all = reservations.iter().map(|it| (it.name.clone(), Arc::new(it.clone()))).collect();
        let view = ClusterView { reservations: Arc::new(all), ..ClusterView::default() };
        let kept = device_keepers(&view, "hostler.dev");
        for (name, found) in &kept {
            assert_eq!(device_keeper(&view, "hostler.dev", name).as_ref(), Some(found));
        }
        let text = |(name, it): (&String, &DeviceKeeper)| {
            format!("{name} {} {}{}", it.node, it.keeper.name, if it.is_wanted { " wanted" } else { "" })
        };
        kept.iter().map(text).collect()
    }

    #[test]
    fn devices_are_attached_once_all_of_a_reservation_are_closed_to_others() {
        assert_eq!(kept(&[reservation("r", &["Held", "HandedOver"], "True")]), ["d0 n0 r wanted", "d1 n1 r wanted"]);
        assert_eq!(kept(&[reservation("r", &["Held", "Fencing"], "True")]), ["d0 n0 r", "d1 n1 r"]);
        assert_eq!(kept(&[reservation("r", &["Held", "Held"], "False")]), ["d0 n0 r", "d1 n1 r"]);
    }

    #[test]
    fn one_lost_device_lets_all_go_but_those_of_owners() {
        assert_eq!(kept(&[reservation("r", &["Held", "Lost", "HandedOver"], "True")]), ["d2 n2 r"]);
        assert_eq!(kept(&[reservation("r", &["Held", "Releasing"], "True")]), ["d0 n0 r wanted"]);
    }

    #[test]
    fn of_two_reservations_the_one_that_closed_the_device_keeps_it() {
        let both = [reservation("a", &["Fencing"], "True"), reservation("b", &["Held"], "True")];
        assert_eq!(kept(&both), ["d0 n0 b wanted"]);
    }

    #[test]
    fn nothing_is_kept_for_a_reservation_that_goes() {
        let mut gone = reservation("r", &["Held"], "True");
        gone.is_deleting = true;
        assert_eq!(kept(&[gone]), [""; 0]);
    }
}

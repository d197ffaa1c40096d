//! Devices behind switches that are kept for a request: they are attached before it is told yes.

use std::{sync::Arc, time::Duration};

use hostler_api::{
    provisioning::ProvisioningConditionType as Type,
    reservation::{ReservationStatus, ReservedDevice, ReservedDeviceState},
};

use super::world::World;
use crate::reservation_object::ReservationObject;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn devices_that_are_being_attached_are_waited_for_longer_than_for_a_taint() {
    let mut world = World::of(&[1]);
    world.is_kept = false;
    world.ask("r", 1);
    world.settle();
    let known: Vec<Arc<ReservationObject>> = world.server.reservations.values().cloned().collect();
    let [known] = &known[..] else { panic!("{known:?}") };
    let device = ReservedDevice {
        driver: "gpu.example".to_owned(),
        pool: "fabric/m/d".to_owned(),
        device: "d".to_owned(),
        node_name: "n0".to_owned(),
        state: ReservedDeviceState::Held,
        ..ReservedDevice::default()
    };
    let status = ReservationStatus { devices: vec![device], ..ReservationStatus::default() };
    world.server.put(Arc::new(ReservationObject { status, ..(**known).clone() }));
    world.pass(10 * MINUTE);
    assert_eq!(world.provisioned("r"), "False BookingCapacity");
    world.pass(8 * MINUTE);
    assert_eq!(world.provisioned("r"), "False CapacityIsNotFound");
    let message = world.message("r", Type::Provisioned);
    assert!(message.contains("could not be closed to others within 18 min"), "{message}");
}

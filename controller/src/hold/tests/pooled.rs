//! Devices behind switches: a Reservation is available once all of them are on their nodes.

use std::time::Duration;

use hostler_api::{
    fabric::AttachmentPhase,
    reservation::{ReservationPhase as Phase, ReservedDeviceState as State},
};

use super::{
    super::{HoldEvent, HoldSettings, KnownAttachment},
    world::{DRIVER, World, settings, wants},
};

const POOL: &str = "fabric/m/d";

/// A node that reaches so many devices behind a switch.
fn world(devices: usize, attaches: bool) -> World {
    let mut world = World::with(HoldSettings { attaches, ..settings() }, DRIVER, &[devices]);
    let mut slice = world.server.slices["a"].clone();
    slice.pool = POOL.to_owned();
    world.server.put(slice);
    world
}

/// A device is attached to a node for a Reservation, and has this phase.
fn attachment(world: &World, device: &str, phase: AttachmentPhase) -> KnownAttachment {
    KnownAttachment {
        name: device.to_owned(),
        version: format!("{}", world.server.log.len() + 1000),
        pool: POOL.to_owned(),
        node: "a".to_owned(),
        keeper: Some(world.get("r").uid.clone()),
        phase,
        ..KnownAttachment::default()
    }
}

fn tell(world: &mut World, attachment: KnownAttachment) {
    world.feed(HoldEvent::Attachment(Box::new(attachment)));
    world.settle();
}

fn ready(world: &mut World, device: &str) {
    let ready = attachment(world, device, AttachmentPhase::Ready);
    tell(world, ready);
}

#[test]
fn a_reservation_is_available_once_all_its_devices_are_on_their_nodes() {
    let mut world = world(2, true);
    world.reserve("r", wants(2, "web"));
    world.settle();
    assert_eq!((world.phase("r"), world.held("r").len()), (Phase::Pending, 2));
    assert_eq!(world.reason("r"), "Attaching");
    ready(&mut world, "gpu-0");
    let said = world.condition("r", "Ready").1;
    assert!(said.starts_with("1 of 2 devices are being attached: gpu-1 to node a (asked for)"), "{said}");
    for change in [
        |it: &mut KnownAttachment| it.keeper = Some("another".to_owned()),
        |it: &mut KnownAttachment| it.node = "b".to_owned(),
        |it: &mut KnownAttachment| it.is_released = true,
    ] {
        let mut other = attachment(&world, "gpu-1", AttachmentPhase::Ready);
        change(&mut other);
        tell(&mut world, other);
        assert_eq!(world.phase("r"), Phase::Pending);
    }
    ready(&mut world, "gpu-1");
    assert_eq!((world.phase("r"), world.reason("r")), (Phase::Available, "Available"));
    world.feed(HoldEvent::AttachmentGone("gpu-0".to_owned()));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Pending);
}

#[test]
fn a_device_that_could_not_be_attached_is_lost_and_another_one_is_looked_for() {
    for (devices, replaced) in [(2, false), (3, true)] {
        let mut world = world(devices, true);
        world.reserve("r", wants(2, "web"));
        world.settle();
        ready(&mut world, "gpu-0");
        let mut failed = attachment(&world, "gpu-1", AttachmentPhase::Failed);
        failed.message = "the link does not train".to_owned();
        // As the part that publishes says it.
        world.edit_device("a", "gpu-1", |device| device.is_usable = false);
        tell(&mut world, failed);
        if replaced {
            assert_eq!(world.held("r"), ["fabric/m/d/gpu-0", "fabric/m/d/gpu-2"]);
            continue;
        }
        assert_eq!(world.devices("r", State::Lost), ["fabric/m/d/gpu-1"]);
        let expected = "lost: hostler.dev/fabric/m/d/gpu-1, which could not be attached to node a: the link does not \
                        train (FabricAttachment gpu-1)";
        assert_eq!(world.condition("r", "Ready"), ("Lost", expected));
    }
}

#[test]
fn a_failed_device_is_tried_again_once_its_pause_is_over() {
    let mut world = world(1, true);
    world.reserve("r", wants(1, "web"));
    world.settle();
    let mut paused = attachment(&world, "gpu-0", AttachmentPhase::Detached);
    (paused.is_released, paused.retry_at) = (true, Some(world.true_time() + Duration::from_secs(20)));
    // As the part that publishes says it.
    world.edit_device("a", "gpu-0", |device| device.is_usable = false);
    tell(&mut world, paused);
    assert_eq!(world.devices("r", State::Lost), ["fabric/m/d/gpu-0"]);
    world.edit_device("a", "gpu-0", |device| device.is_usable = true);
    world.settle();
    assert_eq!(world.held("r"), ["fabric/m/d/gpu-0"]);
    assert_eq!(world.reason("r"), "Attaching");
}

#[test]
fn where_nothing_is_attached_a_device_behind_a_switch_is_kept_like_any_other() {
    let mut world = world(1, false);
    world.reserve("r", wants(1, "web"));
    world.settle();
    assert_eq!(world.phase("r"), Phase::Available);
}

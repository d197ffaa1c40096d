//! Everything in any order, with Reservations: their devices are attached before owners come, all of them or none.

use std::{collections::BTreeMap, sync::Arc};

use hostler_api::{
    fabric::{AttachmentPhase, fabric_pool},
    hardware::{Condition, ConditionStatus},
    reservation::{DeviceOwner, ReservationStatus, ReservedDevice, ReservedDeviceState as State},
};
use hostler_cluster::since_1970;

use super::{
    random::{DEVICES, NODES, rest, rounds, step},
    world::{FabricWorld, SECOND, device_name, node_name},
};
use crate::{
    fabric::keepers::device_keepers,
    reservation_object::ReservationObject,
    testkit::{Dice, RandomLife, expect_enough, live, seeds},
    view::ClusterView,
};

/// A Reservation: its devices, each with its node and state.
#[derive(Clone, Debug)]
struct ModelReservation {
    uid: String,
    devices: Vec<(u32, u32, State)>,
}

/// Devices that are kept in a cluster, as `crate::hold` keeps them.
struct ReservedChaos {
    world: FabricWorld,
    dice: Dice,
    reservations: Vec<ModelReservation>,
    made: usize,
    came: ReservedSeen,
}

/// What came about.
#[derive(Clone, Debug, Default)]
struct ReservedSeen {
    whole: usize,
    lost: usize,
    replaced: usize,
    handed_over: usize,
    elsewhere: usize,
    ended: usize,
}

impl RandomLife for ReservedChaos {
    fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    fn check(&mut self) {
        self.world.check();
    }

    fn step(&mut self) {
        match self.dice.roll(20) {
            0 | 9 if self.reservations.len() < 3 => {
                let count = 1 + self.dice.roll(2);
                self.reserve(count);
            }
            1..=4 => self.hold(),
            5 => self.show(),
            6 | 7 => self.owner(),
            8 if self.dice.one_in(4) => self.end(),
            10 => self.lose(),
            _ => step(&mut self.world, &mut self.dice, false),
        }
    }
}

impl ReservedChaos {
    fn new(seed: u64) -> Self {
        let (world, dice) = (FabricWorld::new(NODES, DEVICES), Dice::new(seed));
        Self { world, dice, reservations: Vec::new(), made: 0, came: ReservedSeen::default() }
    }

    /// UID of the claim that has a device.
    fn holder(&self, device: u32) -> Option<String> {
        let mut claims = self.world.server.claims.values();
        claims.find(|it| it.given.as_ref().is_some_and(|given| given.device == device)).map(|claim| claim.uid.clone())
    }

    /// A device that nothing keeps from a Reservation, and a node that runs.
    fn free(&mut self) -> Option<(u32, u32)> {
        let is_free = |device: &u32| {
            !self.world.tainted.contains(device)
                && !self.world.closed.contains(device)
                && self.holder(*device).is_none()
        };
        let free: Vec<u32> = (0..DEVICES).filter(is_free).collect();
        let node = u32::try_from(self.dice.roll(NODES as usize)).unwrap();
        let is_on = self.world.machines[node as usize].is_on;
        (!free.is_empty() && is_on).then(|| (self.dice.pick(&free), node))
    }

    fn reserve(&mut self, count: usize) {
        let mut devices = Vec::new();
        for _ in 0..count {
            let Some((device, node)) = self.free() else { break };
            self.world.closed.insert(device);
            devices.push((device, node, State::Fencing));
        }
        if devices.len() < count {
            return self.world.closed.retain(|closed| devices.iter().all(|(device, ..)| device != closed));
        }
        self.made += 1;
        self.reservations.push(ModelReservation { uid: format!("uid-of-r{}", self.made), devices });
    }

    /// The Reservations are decided about: all states are as the cluster shows.
    fn hold(&mut self) {
        let mut all = std::mem::take(&mut self.reservations);
        for reservation in &mut all {
            for at in 0..reservation.devices.len() {
                let (device, node, state) = reservation.devices[at];
                let next = match (self.holder(device), state) {
                    (Some(_), State::Held | State::HandedOver) => State::HandedOver,
                    (Some(_), state) => state,
                    (None, State::Held | State::Lost) if self.has_failed(&reservation.uid, device, node) => State::Lost,
                    (None, State::Lost) if self.dice.one_in(3) => State::Lost,
                    (None, State::Lost) => State::Fencing,
                    (None, _) => State::Held,
                };
                self.came.lost += usize::from(next == State::Lost && state != State::Lost);
                self.came.handed_over += usize::from(next == State::HandedOver && state != next);
                reservation.devices[at] = (device, node, next);
                if next == State::Lost
                    && self.dice.one_in(2)
                    && let Some((other, node)) = self.free()
                {
                    self.came.replaced += 1;
                    self.world.closed.remove(&device);
                    self.world.closed.insert(other);
                    reservation.devices[at] = (other, node, State::Fencing);
                }
            }
        }
        // A node is gone for good: its Reservations are over.
        let is_over =
            |it: &ModelReservation| it.devices.iter().any(|(_, node, _)| !self.world.machines[*node as usize].is_on);
        let (over, open): (Vec<_>, Vec<_>) = all.into_iter().partition(is_over);
        self.reservations = open;
        over.iter().for_each(|it| self.open(it));
    }

    /// A device that is kept does not work for a while.
    fn lose(&mut self) {
        let all = self.reservations.iter_mut().flat_map(|it| &mut it.devices);
        let mut held: Vec<&mut (u32, u32, State)> = all.filter(|(.., state)| *state == State::Held).collect();
        if let Some((.., state)) = self.dice.take(&mut held) {
            *state = State::Lost;
            self.came.lost += 1;
        }
    }

    fn open(&mut self, reservation: &ModelReservation) {
        self.came.ended += 1;
        self.world.closed.retain(|closed| reservation.devices.iter().all(|(device, ..)| device != closed));
    }

    fn has_failed(&self, uid: &str, device: u32, node: u32) -> bool {
        let Some(it) = self.world.attachment(device) else { return false };
        let is_its = it.spec.kept_for.as_ref().is_some_and(|keeper| keeper.uid == uid);
        let retry_at = it.status.retry_at.as_deref().and_then(since_1970).unwrap_or_default();
        let is_ending = matches!(
            it.status.phase,
            AttachmentPhase::Releasing | AttachmentPhase::Detaching | AttachmentPhase::Detached
        );
        let has_failed = it.status.phase == AttachmentPhase::Failed || is_ending && retry_at > self.world.now;
        is_its && it.spec.node_name == node_name(node) && has_failed
    }

    /// The part that attaches reads the Reservations.
    fn show(&mut self) {
        let object = |it: &ModelReservation| {
            let device = |(replica, (device, node, state)): (usize, &(u32, u32, State))| ReservedDevice {
                replica: u32::try_from(replica).unwrap(),
                driver: "hostler.dev".to_owned(),
                pool: fabric_pool("m", "d"),
                device: device_name(*device),
                node_name: node_name(*node),
                state: *state,
                owner: (*state == State::HandedOver).then(DeviceOwner::default),
                ..ReservedDevice::default()
            };
            let scheduled = Condition {
                kind: "Scheduled".to_owned(),
                status: ConditionStatus::True,
                reason: String::new(),
                message: String::new(),
                last_transition_time: String::new(),
            };
            let devices = it.devices.iter().enumerate().map(device).collect();
            let status = ReservationStatus { devices, conditions: vec![scheduled], ..ReservationStatus::default() };
            let object: ReservationObject = serde_json::from_value(serde_json::json!({
                "metadata": {"name": it.uid, "uid": it.uid}, "spec": {"template": {}}, "status": status,
            }))
            .unwrap();
            (it.uid.clone(), Arc::new(object))
        };
        let all: BTreeMap<_, _> = self.reservations.iter().map(object).collect();
        let view = ClusterView { reservations: Arc::new(all), ..ClusterView::default() };
        let found = device_keepers(&view, "hostler.dev");
        self.world.kept =
            (0..DEVICES).filter_map(|device| Some((device, found.get(&device_name(device))?.clone()))).collect();
    }

    /// The scheduler gives an owner a device that is kept, on its node; one that does not know that yet, on another one.
    fn owner(&mut self) {
        let all = self.reservations.iter().flat_map(|it| &it.devices);
        let held: Vec<(u32, u32)> =
            all.filter(|(.., state)| *state == State::Held).map(|(device, node, _)| (*device, *node)).collect();
        if held.is_empty() {
            return;
        }
        let (device, mut node) = self.dice.pick(&held);
        if self.dice.one_in(6) {
            self.came.elsewhere += 1;
            node = (node + 1) % NODES;
        }
        self.world.owner(device, node);
    }

    fn end(&mut self) {
        if let Some(gone) = self.dice.take(&mut self.reservations) {
            self.open(&gone);
        }
    }

    /// Everybody does what is to be done, for so many rounds.
    fn rounds(&mut self, count: usize, pause: u32) {
        for _ in 0..count {
            self.hold();
            self.show();
            rounds(&mut self.world, &mut self.dice, 1, pause);
        }
    }

    /// True if each Reservation has all of its devices, or has lost one and has none.
    fn is_all_or_none(&self) -> bool {
        self.reservations.iter().all(|reservation| {
            let is_lost = reservation.devices.iter().any(|(.., state)| *state == State::Lost);
            let expected = if is_lost { 0 } else { reservation.devices.len() };
            self.attached(reservation) == (expected, expected)
        })
    }

    /// Number of devices of a Reservation that are ready for it, and of those that are attached for it in any way.
    fn attached(&self, reservation: &ModelReservation) -> (usize, usize) {
        let connections = self.world.connections();
        let is_for_it = |device: &u32| {
            let spec = self.world.attachment(*device).map(|it| &it.spec);
            let keeper = spec.and_then(|spec| spec.kept_for.as_ref());
            keeper.is_some_and(|keeper| keeper.uid == reservation.uid)
                && connections.iter().any(|(it, ..)| it == device)
        };
        let open: Vec<u32> = reservation.devices.iter().map(|(device, ..)| *device).collect();
        let is_ready = |device: &u32| self.world.phase(*device) == Some(AttachmentPhase::Ready);
        let attached: Vec<u32> = open.into_iter().filter(is_for_it).collect();
        (attached.iter().filter(|device| is_ready(device)).count(), attached.len())
    }
}

fn lives(seed: u64, mut seen: ReservedSeen) -> ReservedSeen {
    let mut chaos = ReservedChaos::new(seed);
    chaos.came = std::mem::take(&mut seen);
    live(&mut chaos, 300);
    chaos.world.fates.clear();
    let ReservedChaos { world, dice, .. } = &mut chaos;
    world.finish_work(dice);
    for node in 0..NODES {
        if !chaos.world.machines[node as usize].is_on {
            chaos.world.switch(node);
        }
    }
    // The owners go, and what failed is tried again. Devices that are lost meanwhile take all others with them.
    chaos.world.claims().iter().for_each(|claim| chaos.world.delete_pod(claim, false));
    let is_settled = (0..100).any(|_| {
        chaos.rounds(1, 20);
        chaos.is_all_or_none()
    });
    assert!(is_settled, "some devices of {:?} are attached: {}", chaos.reservations, chaos.world.told());
    chaos.rounds(10, 60 * 60 * 30);
    for reservation in chaos.reservations.clone() {
        let all = reservation.devices.len();
        chaos.came.whole += 1;
        assert_eq!(chaos.attached(&reservation), (all, all), "{reservation:?}: {}", chaos.world.told());
    }
    while !chaos.reservations.is_empty() {
        chaos.end();
    }
    chaos.show();
    let ReservedChaos { world, dice, .. } = &mut chaos;
    rest(world, dice);
    world.pass(SECOND);
    chaos.came
}

#[test]
fn in_any_order_all_devices_of_a_reservation_are_attached_or_none_of_them() {
    let seen = seeds(0..150).fold(ReservedSeen::default(), |seen, seed| lives(seed, seen));
    let is_enough = seen.whole > 30
        && seen.lost > 50
        && seen.replaced > 10
        && seen.handed_over > 100
        && seen.elsewhere > 20
        && seen.ended > 50;
    expect_enough(is_enough, &seen);
}

//! Everybody else in the cluster: node daemons, kube-scheduler, the controller manager, users.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{ObjectKey, Quantity};

use super::{
    super::{
        AllocatedClaim, ClaimPart, DeviceKey, FenceRule, HoldEvent, NodeFences, OwnerPod, PodRef, PublishedDevice,
        PublishedSlice,
    },
    server::{ModelPod, Server},
    world::{Means, World},
};
use crate::testkit::{Dice, ModelWatch};

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// What a scheduler takes for given away, as upstream's does: a plain set. A claim that gets devices adds them, and one that loses
/// them or goes takes them out, whoever else has them.
#[derive(Debug, Default)]
pub(super) struct GivenDevices {
    pub(super) devices: BTreeSet<DeviceKey>,
    /// What claims were seen to have, by UID.
    claims: BTreeMap<String, Vec<DeviceKey>>,
    watch: ModelWatch,
}

impl GivenDevices {
    /// One that begins, and reads what there is.
    fn of(server: &Server) -> Self {
        let mut given = Self { watch: ModelWatch::from_now(&server.log), ..Self::default() };
        server.claims.values().for_each(|claim| given.claim(&claim.uid, whole_devices(claim)));
        given
    }

    fn hear(&mut self, server: &Server) {
        while let Some(event) = self.watch.next(&server.log) {
            match event {
                HoldEvent::Claim(claim) => self.claim(&claim.uid, whole_devices(claim)),
                HoldEvent::ClaimGone(_, uid) => self.claim(uid, Vec::new()),
                _ => {}
            }
        }
    }

    fn claim(&mut self, uid: &str, devices: Vec<DeviceKey>) {
        let before = self.claims.insert(uid.to_owned(), devices.clone()).unwrap_or_default();
        match (before.is_empty(), devices.is_empty()) {
            (true, false) => self.devices.extend(devices),
            (false, true) => before.iter().for_each(|device| {
                self.devices.remove(device);
            }),
            _ => {}
        }
    }
}

/// Parts are counted one by one.
fn whole_devices(claim: &AllocatedClaim) -> Vec<DeviceKey> {
    let is_part = |device: &&DeviceKey| claim.parts.iter().any(|part| part.device == **device);
    claim.devices.iter().filter(|device| !is_part(device)).cloned().collect()
}

impl World {
    /// The scheduler begins anew.
    pub(super) fn restart_scheduler(&mut self) {
        self.given = GivenDevices::of(&self.server);
    }

    pub(super) fn node(&mut self, name: &str, driver: &str, devices: usize) {
        self.server.put_node(name);
        self.server.put(NodeFences { node: name.to_owned(), ..NodeFences::default() });
        // One that comes anew closes nothing before it is told to.
        self.sealed.retain(|device| device.pool != name);
        let device = |at| PublishedDevice { name: format!("gpu-{at}"), is_usable: true, ..PublishedDevice::default() };
        self.server.put(PublishedSlice {
            name: name.to_owned(),
            driver: driver.to_owned(),
            pool: name.to_owned(),
            node: name.to_owned(),
            devices: (0..devices).map(device).collect(),
            ..PublishedSlice::default()
        });
    }

    pub(super) fn edit_device(&mut self, node: &str, device: &str, change: impl FnOnce(&mut PublishedDevice)) {
        let mut slice = self.server.slices[node].clone();
        change(slice.devices.iter_mut().find(|it| it.name == device).unwrap());
        self.server.put(slice);
    }

    /// Whether a device is closed to those who do not tolerate that.
    pub(super) fn is_closed(&self, node: &str, device: &str) -> bool {
        let slice = &self.server.slices[node];
        let is_published = slice.devices.iter().any(|it| it.name == device && it.is_closed());
        let key = DeviceKey::new(&slice.driver, &slice.pool, device);
        is_published || self.server.rules.values().any(|rule| rule.device == key && !rule.value.is_empty())
    }

    /// Somebody who may write everything takes away what closes a device, or has it close another one. Of a device that several share
    /// strangers would have parts then beside owners, and it would stay closed.
    pub(super) fn tamper(&mut self, dice: &mut Dice) {
        let is_shared = |pool: &str, device: &str| {
            let devices = self.server.slices.values().filter(|slice| slice.pool == pool).flat_map(|it| &it.devices);
            devices.into_iter().any(|it| it.name == device && it.is_shareable)
        };
        let rules = self.server.rules.values().filter(|rule| !is_shared(&rule.device.pool, &rule.device.device));
        let rules: Vec<FenceRule> = rules.cloned().collect();
        let fences = self.server.node_fences.values().find_map(|of_node| {
            let at = of_node.fences.iter().position(|fence| !is_shared(&fence.pool, &fence.device))?;
            let mut left = of_node.clone();
            left.fences.remove(at);
            Some(left)
        });
        if let Some(rule) = rules.get(dice.roll(rules.len())) {
            self.server.remove_rule(&rule.name);
            if dice.roll(2) == 0 {
                let device = DeviceKey { device: format!("gpu-{}", dice.roll(3)), ..rule.device.clone() };
                self.server.put(FenceRule { device, ..rule.clone() });
                self.edited.insert(rule.name.clone());
            }
        }
        if let Some(fences) = fences {
            self.server.put(fences);
        }
    }

    /// One daemon publishes what is closed on its node: one write of its slice, however many devices. Says whether any did.
    pub(super) fn publish(&mut self) -> bool {
        let by_attribute = self.means == Means::Attribute;
        let mut nodes = self.server.node_fences.values().filter(|it| !self.daemons_down.contains(&it.node));
        let changed = nodes.find_map(|fences| {
            let slice = self.server.slices.get(&fences.node)?;
            let mut new = slice.clone();
            for device in &mut new.devices {
                let fence = fences.fences.iter().find(|it| it.pool == slice.pool && it.device == device.name);
                device.is_held = by_attribute && fence.is_some();
                device.held_for = fence.filter(|_| !by_attribute).map(|fence| fence.value.clone());
            }
            (new != *slice).then_some(new)
        });
        changed.map(|slice| self.server.put(slice)).is_some()
    }

    /// A device is one of which several claims can have parts, of so many CPUs.
    pub(super) fn share(&mut self, node: &str, device: &str, cpus: u64) {
        self.edit_device(node, device, |device| {
            device.is_shareable = true;
            device.capacity = [("cpus".to_owned(), Quantity::whole(cpus))].into();
        });
    }

    /// A pod with this label that wants so many devices and tolerates this value (`*`: all).
    pub(super) fn pod(&mut self, name: &str, app: &str, wants: usize, tolerates: &str) {
        self.pod_with(name, app, (wants, 0), tolerates);
    }

    /// A pod that wants so many CPUs of a shared device.
    pub(super) fn pod_of_part(&mut self, name: &str, app: &str, cpus: u64, tolerates: &str) {
        self.pod_with(name, app, (1, cpus), tolerates);
    }

    fn pod_with(&mut self, name: &str, app: &str, (wants, part): (usize, u64), tolerates: &str) {
        let uid = format!("uid-{}", self.server.next());
        let labels = [("app".to_owned(), app.to_owned())].into();
        let is = OwnerPod { uid: uid.clone(), labels, ..OwnerPod::default() };
        let tolerates = tolerates.to_owned();
        let values = Some(tolerates.clone()).filter(|value| !["", "*"].contains(&&**value));
        self.server.pods.insert(key(name), ModelPod { is, wants, part, tolerates });
        let pods = vec![PodRef { name: name.to_owned(), uid }];
        let uid = format!("uid-{}", self.server.next());
        let tolerates = values.into_iter().collect();
        self.server.put(AllocatedClaim { key: key(name), uid, pods, tolerates, ..AllocatedClaim::default() });
    }

    /// The same, which has its devices at once and is so important.
    pub(super) fn running(&mut self, name: &str, app: &str, wants: usize, priority: i32) {
        self.pod(name, app, wants, "");
        self.server.pods.get_mut(&key(name)).unwrap().is.priority = priority;
        assert!(self.schedule(name), "there is nothing for {name}");
    }

    /// kube-scheduler decides where a pod goes, by what is published and what it knows to be given. Written later.
    pub(super) fn decide(&mut self, name: &str) -> bool {
        let found = self.server.pods.get(&key(name)).filter(|pod| !pod.is.is_deleting);
        let Some(pod) = found.cloned() else { return false };
        self.model.given.hear(&self.server);
        let is_placed = self.server.claims.get(&key(name)).is_none_or(|claim| !claim.devices.is_empty());
        if is_placed || self.in_flight.contains_key(&key(name)) {
            return false;
        }
        let found = self.server.slices.values().find_map(|slice| {
            let is_open = |device: &&PublishedDevice| self.is_open(slice, device, &pod);
            let free: Vec<DeviceKey> = slice
                .devices
                .iter()
                .filter(is_open)
                .map(|device| DeviceKey::new(&slice.driver, &slice.pool, &device.name))
                .take(pod.wants)
                .collect();
            (free.len() == pod.wants && self.server.nodes.contains(&slice.node)).then_some(free)
        });
        let is_found = found.is_some();
        self.in_flight.extend(found.map(|devices| (key(name), devices)));
        is_found
    }

    fn is_open(&self, slice: &PublishedSlice, device: &PublishedDevice, pod: &ModelPod) -> bool {
        let is_it = |it: &DeviceKey| it.driver == slice.driver && it.pool == slice.pool && it.device == device.name;
        let parts = self.server.claims.values().flat_map(|claim| &claim.parts).map(|part| &part.device);
        let is_given = self.given.devices.iter().chain(parts).chain(self.in_flight.values().flatten()).any(is_it);
        let is_given = if pod.part > 0 { !self.has_room(slice, device, pod.part) } else { is_given };
        let tolerates = &pod.tolerates;
        let of_rules = self.server.rules.values().filter(|rule| is_it(&rule.device) && !rule.value.is_empty());
        let of_rules = of_rules.map(|rule| &rule.value);
        let is_borne = |value: &String| tolerates == "*" || tolerates == value;
        // Who asks for a class that has devices that are held can have any of them.
        let is_asked = !device.is_held || !tolerates.is_empty();
        device.is_usable && !is_given && is_asked && device.held_for.iter().chain(of_rules).all(is_borne)
    }

    /// Whether so many CPUs of a shared device are left, by what claims have and what is decided.
    fn has_room(&self, slice: &PublishedSlice, device: &PublishedDevice, cpus: u64) -> bool {
        let is_it = |it: &DeviceKey| it.driver == slice.driver && it.pool == slice.pool && it.device == device.name;
        let parts = self.server.claims.values().flat_map(|claim| &claim.parts).filter(|part| is_it(&part.device));
        let given: u64 = parts.map(|part| part.amounts["cpus"].as_whole().unwrap()).sum();
        let decided = self.in_flight.iter().filter(|(_, devices)| devices.iter().any(is_it));
        let decided: u64 = decided.map(|(pod, _)| self.server.pods.get(pod).map_or(0, |pod| pod.part)).sum();
        let all = device.capacity.get("cpus").and_then(|all| all.as_whole()).unwrap_or(0);
        device.is_shareable && given + decided + cpus <= all
    }

    /// What was decided is written.
    pub(super) fn bind(&mut self, name: &str) -> bool {
        let Some(devices) = self.in_flight.remove(&key(name)) else { return false };
        match self.server.claims.get(&key(name)).cloned() {
            Some(claim) if self.server.pods.contains_key(&key(name)) => {
                if let Some(pod) = self.server.pods.get_mut(&key(name)) {
                    pod.is.node = devices.first().map(|device| device.pool.clone()).unwrap_or_default();
                }
                let cpus = self.server.pods[&key(name)].part;
                let amounts = || [("cpus".to_owned(), Quantity::whole(cpus))].into();
                let part = |(at, device): (usize, &DeviceKey)| ClaimPart {
                    device: device.clone(),
                    share_id: format!("{}-{at}", claim.uid),
                    amounts: amounts(),
                };
                let parts = devices.iter().enumerate().filter(|_| cpus > 0).map(part).collect();
                self.server.put(AllocatedClaim { devices, parts, ..claim });
                true
            }
            _ => false,
        }
    }

    pub(super) fn schedule(&mut self, name: &str) -> bool {
        self.decide(name) && self.bind(name)
    }

    pub(super) fn delete_pod(&mut self, name: &str) {
        self.server.pods.remove(&key(name));
    }

    /// One round of the controller manager: claims of pods that are gone are deallocated, then deleted.
    pub(super) fn control(&mut self) {
        let is_orphan = |claim: &&AllocatedClaim| match &claim.placeholder {
            Some(mark) => mark.is_deleting,
            None => !self.server.pods.contains_key(&claim.key),
        };
        let orphans: Vec<AllocatedClaim> = self.server.claims.values().filter(is_orphan).cloned().collect();
        for claim in orphans {
            if claim.devices.is_empty() {
                self.server.remove_claim(&claim.key);
            } else {
                self.server.put(AllocatedClaim { devices: Vec::new(), parts: Vec::new(), pods: Vec::new(), ..claim });
            }
        }
    }

    /// The kubelets end pods that are to go. Says whether there were any.
    pub(super) fn end_going_pods(&mut self) -> bool {
        let is_going = |pod: &&super::server::ModelPod| pod.is.is_deleting;
        let count = self.server.pods.values().filter(is_going).count();
        self.server.pods.retain(|_, pod| !pod.is.is_deleting);
        if count > 0 {
            self.control();
            self.control();
        }
        count > 0
    }

    /// A pod goes, and what it had gets free.
    pub(super) fn end_pod(&mut self, name: &str) {
        self.delete_pod(name);
        self.control();
        self.control();
    }

    /// The devices of a pod, as `pool/device`.
    pub(super) fn has(&self, name: &str) -> Vec<String> {
        let claim = self.server.claims.get(&key(name));
        claim.into_iter().flat_map(|it| &it.devices).map(|it| format!("{}/{}", it.pool, it.device)).collect()
    }
}

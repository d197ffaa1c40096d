//! News of objects: the topics that are decided about again.

use std::collections::BTreeSet;

use hostler_api::{ObjectKey, reservation::ReservedDevice};
use hostler_cluster::is_older;

use super::{
    closed::fence_topic,
    context::Timer,
    core::{HoldCore, PLAN_DELAY, READ_AGAIN},
    known::PodReading,
    objects::{FenceRule, KnownAttachment, NodeFences, OwnerPod, PublishedSlice, device_key},
    placeholder::placeholder_name,
    published::PoolName,
    reservation::Reservation,
    reservations::Related,
    topics::DecisionTopic,
    writes::HoldTarget,
};
use crate::reservation_object::ReservationObject;

impl HoldCore {
    pub(super) fn reservation_seen(&mut self, object: ReservationObject) {
        let name = object.name.clone();
        self.unreadable_gone(&object.uid);
        if object.is_deleting && object.finalizers.is_empty() {
            // No finalizer keeps the Reservation any more. The answer to the write is the last news of it.
            return self.reservation_gone(&name, &object.uid);
        }
        let replaced = object.spec.replaces.as_ref().map(|pod| ObjectKey::new(&pod.namespace, &pod.name));
        let other = self.reservations.get(&name).filter(|known| known.object.uid != object.uid);
        if let Some(uid) = other.map(|known| known.object.uid.clone()) {
            self.reservation_gone(&name, &uid);
        }
        let Some(change) = self.reservations.insert(object) else { return };
        if change.is_new
            && let Some(pod) = replaced
        {
            // Earlier knowledge may be about another pod of the same name.
            self.cluster.pods.remove(&pod);
        }
        change.dropped.iter().for_each(|part| self.part_gone(part));
        change.devices.iter().for_each(|device| self.device_changed(device));
        self.writes.object_changed(&HoldTarget::Reservation(name.clone()));
        self.queue.now(DecisionTopic::Reservation(name));
    }

    pub(super) fn reservation_gone(&mut self, name: &str, uid: &str) {
        self.unreadable_gone(uid);
        let Some(gone) = self.reservations.remove(name, uid) else { return };
        self.timers.stop_all_of(name);
        for device in &gone.object.status.devices {
            self.device_changed(device);
            self.part_gone(device);
        }
        // Other Reservations can have the devices.
        self.queue.gained(self.questions.cost);
        self.writes.object_gone(&HoldTarget::Reservation(name.to_owned()));
    }

    /// A Reservation has the device, or had it.
    fn device_changed(&mut self, device: &ReservedDevice) {
        let effect = fence_topic(&self.settings, device);
        self.apply(effect);
        if device.is_part() {
            self.queue.now(DecisionTopic::Placeholder(placeholder_name(&device.share_id)));
        }
    }

    /// No Reservation keeps the part any more. The part's timers run until now: each event about its Reservation would
    /// start them anew.
    fn part_gone(&mut self, device: &ReservedDevice) {
        self.timers.stop(&Timer::Accounted(placeholder_name(&device.share_id)));
        self.timers.stop(&Timer::PartClosed(device_key(device)));
    }

    /// The Reservation can be understood now, or is gone: objects that were left alone for its sake are decided about
    /// like all others.
    fn unreadable_gone(&mut self, uid: &str) {
        let Some(value) = self.reservations.remove_unreadable(uid) else { return };
        for node in self.cluster.nodes_closed_with(&value) {
            self.queue.now(DecisionTopic::NodeFences(node.clone()));
        }
        for rule in self.cluster.rules.values().filter(|rule| rule.value == value) {
            self.queue.now(DecisionTopic::Rule(rule.name.clone()));
        }
        for claim in self.cluster.placeholders(uid) {
            self.queue.now(DecisionTopic::Placeholder(claim.name.clone()));
        }
    }

    pub(super) fn slice_seen(&mut self, slice: PublishedSlice) {
        // The planner may have read of the device earlier, and was told then that there is none.
        if self.cluster.published.has_gained(&slice) {
            self.queue.gained(self.questions.cost);
        }
        let pools = self.cluster.slice(slice);
        self.decide_about_pools(pools);
    }

    pub(super) fn node_fences_seen(&mut self, fences: NodeFences) {
        let node = fences.node.clone();
        let known = self.cluster.node_fences.get(&node).map(|known| known.version.clone());
        let is_other = known.as_ref() != Some(&fences.version);
        if let Some(values) = self.cluster.node_fences(fences) {
            if is_other && self.writes.object_changed(&HoldTarget::NodeFences(node.clone())) {
                self.decide_about_closed();
            }
            self.queue.now(DecisionTopic::NodeFences(node));
            self.decide_about_values(&values);
        }
    }

    pub(super) fn attachment_seen(&mut self, attachment: KnownAttachment) {
        let known = self.cluster.attachments.get(&attachment.name);
        if known.is_some_and(|known| is_older(&attachment.version, &known.version)) {
            return;
        }
        let pool = attachment.pool.clone();
        self.cluster.attachments.insert(attachment.name.clone(), attachment);
        self.decide_about_device(pool);
    }

    pub(super) fn attachment_gone(&mut self, name: &str) {
        let gone = self.cluster.attachments.remove(name);
        gone.into_iter().for_each(|known| self.decide_about_device(known.pool));
    }

    /// Decides about the Reservations that keep devices of a pool behind switches.
    fn decide_about_device(&mut self, pool: String) {
        self.decide_about_pools(vec![(self.settings.own_driver.clone(), pool)]);
    }

    pub(super) fn rule_seen(&mut self, rule: FenceRule) {
        let name = rule.name.clone();
        self.cluster.rules.insert(name.clone(), rule);
        self.rule_changed(name);
    }

    pub(super) fn rule_gone(&mut self, name: String) {
        self.cluster.rules.remove(&name);
        self.rule_changed(name);
    }

    fn rule_changed(&mut self, name: String) {
        self.writes.object_changed(&HoldTarget::Rule(name.clone()));
        self.queue.now(DecisionTopic::Rule(name));
        self.decide_about_all();
    }

    /// Decides about all that depends on a changed claim: Reservations whose value the claim tolerates, and the part
    /// that it stands for.
    pub(super) fn claim_changed(&mut self, key: &ObjectKey) {
        let Some(claim) = self.cluster.claims.get(key) else { return };
        let values: BTreeSet<String> = claim.tolerates.iter().cloned().collect();
        if claim.placeholder.is_some() {
            self.writes.object_changed(&HoldTarget::Claim(key.clone()));
            self.decide_about_related(&Related::Placeholder(key.name.clone()));
            self.queue.now(DecisionTopic::Placeholder(key.name.clone()));
            self.decide_about_closed();
        }
        self.decide_about_values(&values);
    }

    pub(super) fn pod_read(&mut self, key: ObjectKey, pod: Result<Option<Box<OwnerPod>>, String>) {
        self.reading = self.reading.saturating_sub(1);
        let Ok(pod) = pod else {
            self.cluster.pods.remove(&key);
            self.queue.after(READ_AGAIN, DecisionTopic::Pod(key));
            self.queue.after(READ_AGAIN, DecisionTopic::Plan);
            let names = self.reservations.names();
            return names.into_iter().for_each(|name| self.queue.after(READ_AGAIN, DecisionTopic::Reservation(name)));
        };
        let (mut pools, mut values) = (Vec::new(), BTreeSet::new());
        for claim in self.cluster.claims_of_pod(&key) {
            pools.extend(claim.devices.iter().map(|device| (device.driver.clone(), device.pool.clone())));
            values.extend(claim.tolerates.iter().cloned());
        }
        self.decide_about_pools(pools);
        self.decide_about_values(&values);
        let related = Related::Pod(key.clone());
        if self.reservations.related_to(&related).next().is_some() {
            self.queue.now(DecisionTopic::Pod(key.clone()));
            self.decide_about_related(&related);
        }
        let is_replaced = |it: &Reservation| {
            it.object.spec.replaces.as_ref().is_some_and(|pod| pod.namespace == key.namespace && pod.name == key.name)
        };
        let is_awaited = self.reservations.related_to(&related).any(is_replaced);
        self.cluster.pods.insert(key, PodReading::Known(pod));
        // Pods that make room are chosen once all of them are known.
        let seeks = |it: &Reservation| it.seeks_victims() && (it.problem.is_some() || it.is_without_free);
        if is_awaited || self.reading == 0 && self.reservations.iter().any(seeks) {
            self.plan_soon();
        }
    }

    pub(super) fn claims_listed(&mut self, list: u64) {
        self.lists.done = self.lists.done.max(list);
        if std::mem::take(&mut self.lists.is_wanted) {
            self.list_claims();
        }
        self.decide_about(|it| it.check.is_some());
    }

    pub(super) fn decide_about_pools(&mut self, mut pools: Vec<PoolName>) {
        pools.sort();
        pools.dedup();
        pools.into_iter().for_each(|pool| self.decide_about_related(&Related::Pool(pool)));
    }

    pub(super) fn decide_about_related(&mut self, related: &Related) {
        for reservation in self.reservations.related_to(related) {
            self.queue.now(DecisionTopic::Reservation(reservation.object.name.clone()));
        }
    }

    pub(super) fn decide_about_values(&mut self, values: &BTreeSet<String>) {
        for reservation in values.iter().filter_map(|value| self.reservations.with_value(value)) {
            self.queue.now(DecisionTopic::Reservation(reservation.object.name.clone()));
        }
    }

    pub(super) fn decide_about_all(&mut self) {
        self.decide_about(|_| true);
    }

    /// Reservations that are over or deleted wait until no device is closed for them.
    pub(super) fn decide_about_closed(&mut self) {
        self.decide_about(|it| !it.is_open());
    }

    fn decide_about(&mut self, is_concerned: impl Fn(&Reservation) -> bool) {
        for reservation in self.reservations.iter().filter(|it| is_concerned(it)) {
            self.queue.now(DecisionTopic::Reservation(reservation.object.name.clone()));
        }
    }

    /// Plans soon, together with other Reservations that come meanwhile.
    pub(super) fn plan_soon(&mut self) {
        self.queue.after(PLAN_DELAY, DecisionTopic::Plan);
    }
}

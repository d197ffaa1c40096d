//! How each device of a Reservation is, by what was seen.

use std::{collections::BTreeSet, time::Duration};

use hostler_api::ObjectKey;
use hostler_api::reservation::{DeviceOwner, ReservedDevice, ReservedDeviceState as State};

use super::{
    agenda::Topic,
    core::{HoldCheck, HoldCore, device_key, owner_of},
    event::{AllocatedClaim, DeviceKey},
    fences::fenced_for,
    seen::PodKnowledge,
};

/// Devices that could not be closed are left alone for so long.
const AVOID: Duration = Duration::from_secs(300);

/// Whose a claim is.
pub(super) enum Whose {
    Owner(DeviceOwner),
    Stranger(DeviceOwner),
    /// Who its pods are is being asked.
    Unknown,
}

/// Who has a device.
enum Holder {
    Nobody,
    /// A pod whose devices were kept while it had them.
    Victim,
    Owner(DeviceOwner),
    Stranger(DeviceOwner),
    Unknown,
}

impl HoldCore {
    /// The devices of a Reservation as they are now; those that it does not keep any more are left out.
    pub(super) fn look_at_devices(&mut self, name: &str) -> Vec<ReservedDevice> {
        let Some(hold) = self.holds.get(name) else { return Vec::new() };
        let (known, replicas) = (hold.object.status.devices.clone(), hold.object.spec.replicas() as usize);
        let is_once = hold.object.spec.is_once();
        let owners = hold.object.status.current_owners.len();
        let parts = self.look_at_all_parts(name, &known);
        let (mut devices, mut left) = (Vec::new(), Vec::new());
        for (device, part) in known.into_iter().zip(parts) {
            if device.state == State::Releasing {
                left.push(device);
                continue;
            }
            let now = part.unwrap_or_else(|| self.look_at_device(name, &device));
            // One that an owner had once and gave back.
            let was_used = is_once && device.state == State::HandedOver && now.state != State::HandedOver;
            if was_used { left.push(now) } else { devices.push(now) }
        }
        left.extend(drop_spare(&mut devices, replicas, if is_once { owners } else { 0 }));
        self.check_closed(name, &mut devices);
        devices.extend(left.into_iter().filter_map(|device| self.released(device)));
        devices
    }

    fn look_at_device(&mut self, name: &str, device: &ReservedDevice) -> ReservedDevice {
        let holder = self.holder(name, device);
        // Its owner has gone, and who has it now is no other owner.
        let is_anothers = matches!(holder, Holder::Stranger(_)) && self.is_anothers(name, device);
        let (state, owner) = match holder {
            Holder::Unknown => (device.state, device.owner.clone()),
            Holder::Victim => (self.state_of_victims(name, device), device.owner.clone()),
            Holder::Owner(owner) => (State::HandedOver, Some(owner)),
            Holder::Stranger(owner) => (State::Lost, Some(owner)),
            Holder::Nobody => (self.state_of_free(name, device), None),
        };
        ReservedDevice { state, owner, conflict: is_anothers || self.is_in_conflict(device), ..device.clone() }
    }

    /// Whichever order claims are looked at in: an owner has it before all others, and who is not known yet may be one.
    fn holder(&mut self, name: &str, device: &ReservedDevice) -> Holder {
        let claims: Vec<AllocatedClaim> = self.seen.claims_on(&device_key(device)).cloned().collect();
        let known = device.owner.as_ref().map(|owner| &*owner.uid).unwrap_or_default();
        let is_known = claims.iter().any(|claim| claim.uid == known);
        match device.state {
            State::Fencing if is_known => return Holder::Victim,
            // Its pod may be gone, or no consumer any more: it was an owner's.
            State::HandedOver if is_known => return Holder::Owner(device.owner.clone().unwrap_or_default()),
            _ => {}
        }
        let mut holder = Holder::Nobody;
        for claim in claims {
            holder = match (self.whose(name, &claim), holder) {
                (_, holder @ Holder::Owner(_)) => holder,
                (Whose::Owner(owner), _) => Holder::Owner(owner),
                (Whose::Unknown, _) | (_, Holder::Unknown) => Holder::Unknown,
                (Whose::Stranger(owner), Holder::Nobody) => Holder::Stranger(owner),
                (_, holder) => holder,
            };
        }
        holder
    }

    pub(super) fn whose(&mut self, name: &str, claim: &AllocatedClaim) -> Whose {
        let mut is_known = true;
        for pod in &claim.pods {
            let key = ObjectKey::new(&claim.key.namespace, &pod.name);
            self.ask_for(&key);
            match self.seen.pods.get(&key) {
                Some(PodKnowledge::Known(Some(known))) if known.uid == pod.uid => {
                    let spec = self.holds.get(name).map(|hold| &hold.object.spec);
                    if spec.is_some_and(|spec| spec.is_owned_by(&known.candidate(&key))) {
                        return Whose::Owner(owner_of(claim, &pod.name));
                    }
                }
                Some(PodKnowledge::Known(_)) => {}
                _ => is_known = false,
            }
        }
        let first = claim.pods.first().map(|pod| &*pod.name).unwrap_or_default();
        if is_known { Whose::Stranger(owner_of(claim, first)) } else { Whose::Unknown }
    }

    /// Of a device that a pod has until it goes. Nobody is evicted before it is closed: where that does not come about, another
    /// pod is looked for.
    fn state_of_victims(&mut self, name: &str, device: &ReservedDevice) -> State {
        let Some(hold) = self.holds.get_mut(name).filter(|hold| hold.object.spec.preempts()) else {
            return device.state;
        };
        let key = device_key(device);
        if self.seen.is_contested(&key) {
            // Were the pod to go, somebody else would still have it.
            return State::Lost;
        }
        if fenced_for(&self.seen, &self.settings.own_driver, &key) == Some(&*hold.value) {
            hold.amiss.remove(&key);
            return State::Fencing;
        }
        let state = self.after_grace(name, &key, State::Fencing);
        if state == State::Lost {
            self.avoided.insert(key, self.agenda.now + AVOID);
        }
        state
    }

    /// Of a device that nobody has.
    pub(super) fn state_of_free(&mut self, name: &str, device: &ReservedDevice) -> State {
        let key = device_key(device);
        let published = self.seen.device(&key).map(|(_, it)| it.is_usable);
        let value = fenced_for(&self.seen, &self.settings.own_driver, &key);
        let is_closed = self.holds.get(name).is_some_and(|hold| value == Some(&*hold.value));
        let is_fine = published == Some(true) && is_closed;
        if (is_fine || device.state == State::Lost)
            && let Some(hold) = self.holds.get_mut(name)
        {
            hold.amiss.remove(&key);
        }
        match (published, is_fine, device.state) {
            (_, true, State::HandedOver) => State::Held,
            (_, true, State::Lost) => State::Fencing,
            (_, true, state) => state,
            (_, false, State::Lost) | (Some(false), false, _) => State::Lost,
            (None, false, state) => self.after_grace(name, &key, state),
            (Some(true), false, State::Fencing) => {
                let state = self.after_grace(name, &key, State::Fencing);
                if state == State::Lost {
                    // Its node does not answer, or cannot close it: others are no luckier with it.
                    self.avoided.insert(key, self.agenda.now + AVOID);
                }
                state
            }
            (Some(true), false, _) => State::Fencing,
        }
    }

    /// What is amiss may come right by itself for a while.
    fn after_grace(&mut self, name: &str, key: &DeviceKey, state: State) -> State {
        let (now, grace) = (self.agenda.now, self.settings.grace);
        let Some(hold) = self.holds.get_mut(name) else { return state };
        let since = *hold.amiss.entry(key.clone()).or_insert(now);
        let age = now.saturating_sub(since);
        if age >= grace {
            return State::Lost;
        }
        self.agenda.after(grace - age, Topic::Reservation(name.to_owned()));
        state
    }

    /// Devices that are closed become kept once it is certain that nobody got them before: when all that schedulers had decided
    /// on until then must be visible, a list of all claims as of then shows none that has them.
    fn check_closed(&mut self, name: &str, devices: &mut [ReservedDevice]) {
        let own = self.settings.own_driver.clone();
        let Some(hold) = self.holds.get(name) else { return };
        let is_checked = |device: &&ReservedDevice| device.state == State::Fencing && device.owner.is_none();
        let closing: BTreeSet<DeviceKey> = devices.iter().filter(is_checked).map(device_key).collect();
        let is_closed = |key: &DeviceKey| fenced_for(&self.seen, &own, key) == Some(&*hold.value);
        if closing.is_empty() || !closing.iter().all(is_closed) {
            return self.set_check(name, None);
        }
        let now = self.agenda.now;
        let known = hold.check.as_ref().filter(|check| check.devices == closing);
        let (since, list) = known.map_or((now, None), |check| (check.since, check.list));
        let age = now.saturating_sub(since);
        let mut check = HoldCheck { devices: closing, since, list };
        if age < self.settings.settle {
            self.agenda.after(self.settings.settle - age, Topic::Reservation(name.to_owned()));
        } else if list.is_none() {
            check.list = Some(self.want_list());
        } else if list.is_some_and(|list| self.is_listed(list)) {
            let kept = devices.iter_mut().filter(|device| check.devices.contains(&device_key(device)));
            kept.for_each(|device| device.state = State::Held);
        }
        self.set_check(name, Some(check));
    }

    fn set_check(&mut self, name: &str, check: Option<HoldCheck>) {
        if let Some(hold) = self.holds.get_mut(name) {
            hold.check = check;
        }
    }
}

/// Leaves out what nobody wants any more, since there are fewer replicas than before. Those of which an owner has something, or
/// had, count; of the others the first stay. Says what is left out.
fn drop_spare(devices: &mut Vec<ReservedDevice>, replicas: usize, owners: usize) -> Vec<ReservedDevice> {
    let used: BTreeSet<u32> =
        devices.iter().filter(|it| it.state == State::HandedOver).map(|device| device.replica).collect();
    let unused: BTreeSet<u32> =
        devices.iter().map(|device| device.replica).filter(|replica| !used.contains(replica)).collect();
    let left = replicas.saturating_sub(owners.max(used.len()));
    let spare: BTreeSet<u32> = unused.into_iter().skip(left).collect();
    devices.extract_if(.., |device| spare.contains(&device.replica)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(replica: u32, state: State) -> ReservedDevice {
        ReservedDevice { replica, state, ..ReservedDevice::default() }
    }

    #[test]
    fn fewer_replicas_keep_as_many_as_still_come_whichever_were_used() {
        let states = [State::Held, State::Held, State::Held, State::HandedOver];
        let all: Vec<ReservedDevice> = (0..).zip(states).map(|(replica, state)| device(replica, state)).collect();
        let left = |replicas: usize, owners: usize| {
            let mut devices = all.clone();
            drop_spare(&mut devices, replicas, owners);
            devices.iter().map(|it| it.replica).collect::<Vec<_>>()
        };
        assert_eq!(left(4, 1), [0, 1, 2, 3]);
        assert_eq!(left(3, 1), [0, 1, 3]);
        assert_eq!(left(3, 2), [0, 3], "one more had its devices and is gone");
        assert_eq!(left(1, 1), [3]);
    }
}

//! Parts of devices that several claims can share. A part is kept by closing the device first, like a whole one; then a claim is
//! made that stands for the part, and once every scheduler has seen it the rest of the device is open to everybody. When an owner
//! comes the device is closed again, the claim gives the part back, and the scheduler gives it to the owner.
//!
//! One Reservation at a time keeps parts of a device: two could not both close it when owners of both wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{
    ObjectKey, Quantity,
    reservation::{DeviceOwner, ReservedDevice, ReservedDeviceState as State},
};

use super::{
    agenda::Topic,
    core::{HoldCore, device_key, owner_of},
    devices::Whose,
    event::{AllocatedClaim, Amounts, DeviceKey, HoldTarget},
    fences::{fenced_for, rule_name},
    placeholder::placeholder_name,
};

/// What is remembered of parts; after a crash it is waited for once more.
#[derive(Debug, Default)]
pub(super) struct KnownParts {
    /// The Reservation that keeps the part for which the claim of this name stands.
    pub(super) names: BTreeMap<String, String>,
    /// Since when the claim of this name stands for its part, for all to see.
    accounted: BTreeMap<String, Duration>,
    /// Since when devices are closed of which owners want parts.
    closed: BTreeMap<DeviceKey, Duration>,
}

/// Who has a part.
#[derive(Clone, Debug)]
enum PartHolder {
    Nobody,
    Owner(DeviceOwner),
    Unknown,
}

impl HoldCore {
    /// The part is one of this Reservation now, or is none any more.
    pub(super) fn part_changed(&mut self, device: &ReservedDevice, reservation: Option<&String>) {
        let name = placeholder_name(&device.share_id);
        match reservation {
            Some(reservation) => drop(self.parts.names.insert(name.clone(), reservation.clone())),
            None => drop(self.parts.names.remove(&name)),
        }
        self.agenda.now(Topic::Placeholder(name));
    }

    /// Nobody keeps the part any more. Since when it is accounted for, and its device closed, is not forgotten before: each word about
    /// its Reservation would have that waited for once more.
    pub(super) fn part_gone(&mut self, device: &ReservedDevice) {
        self.parts.accounted.remove(&placeholder_name(&device.share_id));
        self.parts.closed.remove(&device_key(device));
    }

    /// Something is different about a claim: Reservations whose value it tolerates, and the part that it stands for.
    pub(super) fn look_at_claim(&mut self, key: &ObjectKey) {
        let Some(claim) = self.seen.claims.get(key) else { return };
        let values: BTreeSet<String> = claim.tolerates.iter().cloned().collect();
        if claim.placeholder.is_some() {
            let name = key.name.clone();
            self.writes.object_changed(&HoldTarget::Claim(key.clone()));
            if let Some(reservation) = self.parts.names.get(&name) {
                self.agenda.now(Topic::Reservation(reservation.clone()));
            }
            self.agenda.now(Topic::Placeholder(name));
            self.look_at_those_that_go();
        }
        self.look_at_values(&values);
    }

    /// Claims that stand for its parts, and what is closed for them, may have to be others than before.
    pub(super) fn look_at_parts(&mut self, name: &str) {
        let Some(hold) = self.holds.get(name) else { return };
        let parts: Vec<ReservedDevice> =
            hold.object.status.devices.iter().filter(|device| device.is_part()).cloned().collect();
        for part in parts {
            self.agenda.now(Topic::Placeholder(placeholder_name(&part.share_id)));
            self.fence_changed(&part);
        }
    }

    /// How the parts among the devices of a Reservation are now.
    pub(super) fn look_at_all_parts(&mut self, name: &str, devices: &[ReservedDevice]) -> Vec<Option<ReservedDevice>> {
        let mut parts: Vec<Option<ReservedDevice>> = vec![None; devices.len()];
        let keys: BTreeSet<DeviceKey> = devices.iter().filter(|device| device.is_part()).map(device_key).collect();
        for key in keys {
            let here: Vec<usize> =
                (0..devices.len()).filter(|at| devices[*at].is_part() && device_key(&devices[*at]) == key).collect();
            let of_device: Vec<&ReservedDevice> = here.iter().map(|at| &devices[*at]).collect();
            let holders = self.part_holders(name, &key, &of_device);
            let thief = self.overdrawn(&key, &of_device, &holders);
            for ((at, device), holder) in here.into_iter().zip(of_device).zip(holders) {
                parts[at] = Some(self.look_at_part(name, device, holder, thief.clone()));
            }
        }
        parts
    }

    fn look_at_part(
        &mut self,
        name: &str,
        device: &ReservedDevice,
        holder: PartHolder,
        thief: Option<DeviceOwner>,
    ) -> ReservedDevice {
        let key = device_key(device);
        let victim = device.owner.as_ref().filter(|_| device.state == State::Fencing);
        let has_victim = victim.is_some_and(|victim| self.seen.claims_on(&key).any(|claim| claim.uid == victim.uid));
        let is_usable = self.seen.device(&key).is_some_and(|(_, it)| it.is_usable);
        let (state, owner) = match (holder, thief) {
            (PartHolder::Unknown, _) => (device.state, device.owner.clone()),
            (PartHolder::Owner(owner), _) => (State::HandedOver, Some(owner)),
            _ if has_victim => (State::Fencing, device.owner.clone()),
            (_, Some(thief)) => (State::Lost, Some(thief)),
            // The claim keeps it, whether or not the device is closed.
            _ if is_usable && device.state == State::Held && self.is_accounted(device) => (State::Held, None),
            _ => (self.state_of_free(name, device), None),
        };
        ReservedDevice { state, owner, ..device.clone() }
    }

    /// Which owners have the parts that are kept of a device: those whose claims tolerate the value by name. What pods of owners had
    /// before, and what they get of the rest without tolerating it, is theirs and none of these.
    fn part_holders(&mut self, name: &str, key: &DeviceKey, parts: &[&ReservedDevice]) -> Vec<PartHolder> {
        let mut holders = vec![PartHolder::Nobody; parts.len()];
        let Some(value) = self.holds.get(name).map(|hold| hold.value.clone()) else { return holders };
        let is_owners = |claim: &&AllocatedClaim| claim.placeholder.is_none() && claim.tolerates.contains(&value);
        let claims: Vec<AllocatedClaim> = self.seen.claims_on(key).filter(is_owners).cloned().collect();
        for claim in claims {
            let mut left = claim.parts.iter().filter(|part| part.device == *key).count();
            let is_known = |part: &&ReservedDevice| {
                part.state == State::HandedOver && part.owner.as_ref().is_some_and(|owner| owner.uid == claim.uid)
            };
            for at in (0..parts.len()).filter(|at| is_known(&parts[*at])).take(left) {
                holders[at] = PartHolder::Owner(parts[at].owner.clone().unwrap_or_default());
                left -= 1;
            }
            let free = |parts: &[&ReservedDevice], holders: &[PartHolder], at: &usize| {
                parts[*at].state != State::HandedOver && matches!(holders[*at], PartHolder::Nobody)
            };
            let open: Vec<usize> = (0..parts.len()).filter(|at| free(parts, &holders, at)).collect();
            match self.whose(name, &claim) {
                Whose::Owner(owner) => {
                    open.into_iter().take(left).for_each(|at| holders[at] = PartHolder::Owner(owner.clone()));
                }
                Whose::Unknown if left > 0 => open.into_iter().for_each(|at| holders[at] = PartHolder::Unknown),
                Whose::Unknown | Whose::Stranger(_) => {}
            }
        }
        holders
    }

    /// Who has so much of a device that what is promised of it is not there: the one that got it last.
    fn overdrawn(&self, key: &DeviceKey, parts: &[&ReservedDevice], holders: &[PartHolder]) -> Option<DeviceOwner> {
        let (_, published) = self.seen.device(key)?;
        let promised = parts.iter().zip(holders).filter(|(_, holder)| !matches!(holder, PartHolder::Owner(_)));
        let promised: Vec<&&ReservedDevice> = promised.map(|(part, _)| part).collect();
        let mut sum = Amounts::new();
        promised.iter().for_each(|part| add(&mut sum, &part.consumed_capacity));
        let (mut others, mut is_whole) = (Vec::new(), false);
        for claim in self.seen.claims_on(key) {
            let given: Vec<_> = claim.parts.iter().filter(|part| part.device == *key).collect();
            let is_ours = |share: &str| promised.iter().any(|part| part.share_id == share);
            is_whole |= given.is_empty();
            // What stands for a part is that part.
            given
                .iter()
                .filter(|part| claim.placeholder.is_none() || !is_ours(&part.share_id))
                .for_each(|part| add(&mut sum, &part.amounts));
            others.extend(Some(claim).filter(|claim| claim.placeholder.is_none()));
        }
        let is_over = published.capacity.iter().any(|(name, all)| sum.get(name).is_some_and(|it| it > all));
        let last = others.into_iter().max_by_key(|claim| claim.version.parse::<u64>().ok());
        let pod = |claim: &AllocatedClaim| claim.pods.first().map(|pod| pod.name.clone()).unwrap_or_default();
        last.filter(|_| is_over || is_whole).map(|claim| owner_of(claim, &pod(claim)))
    }

    /// Whether a device has to be closed for the sake of a part of it that is kept.
    pub(super) fn is_part_closed(&mut self, name: &str, device: &ReservedDevice, is_closed: bool) -> bool {
        let claim = placeholder_name(&device.share_id);
        if !self.is_accounted(device) {
            self.parts.accounted.remove(&claim);
            return true;
        }
        let now = self.agenda.now;
        let since = *self.parts.accounted.entry(claim).or_insert(now);
        if device.state != State::Held {
            return true;
        }
        match self.is_asked_for(name) {
            None => return is_closed,
            Some(true) => return true,
            Some(false) => {}
        }
        // What is open stays so: a controller that has just begun does not close it to wait once more.
        let age = now.saturating_sub(since);
        let is_fresh = is_closed && age < self.settings.settle;
        if is_fresh {
            self.agenda.after(self.settings.settle - age, Topic::NodeFences(device.node_name.clone()));
            self.agenda.after(self.settings.settle - age, Topic::Rule(rule_name(&device_key(device))));
        }
        is_fresh
    }

    /// Whether an owner waits for what is kept: its claim tolerates the value by name, and has nothing. `None` where it is not known
    /// whose such a claim is.
    pub(super) fn is_asked_for(&mut self, name: &str) -> Option<bool> {
        let Some(value) = self.holds.get(name).map(|hold| hold.value.clone()) else { return Some(false) };
        let is_waiting = |claim: &&AllocatedClaim| claim.devices.is_empty() && claim.placeholder.is_none();
        let claims: Vec<AllocatedClaim> = self.seen.tolerating(&value).filter(is_waiting).cloned().collect();
        let mut is_known = true;
        for claim in &claims {
            match self.whose(name, claim) {
                Whose::Owner(_) => return Some(true),
                Whose::Stranger(_) => {}
                Whose::Unknown => is_known = false,
            }
        }
        is_known.then_some(false)
    }

    /// Whether a part's device has been closed for so long that no scheduler gives anything of it to others; else it is looked at
    /// again.
    pub(super) fn is_closed_for_all(&mut self, name: &str, device: &ReservedDevice) -> bool {
        let key = device_key(device);
        if !self.is_closed_for(name, &key) {
            self.parts.closed.remove(&key);
            return false;
        }
        let now = self.agenda.now;
        let age = now.saturating_sub(*self.parts.closed.entry(key).or_insert(now));
        if age < self.settings.settle {
            let topic = Topic::Placeholder(placeholder_name(&device.share_id));
            self.agenda.after(self.settings.settle - age, topic);
        }
        age >= self.settings.settle
    }

    /// Whether a device is closed with the value of this Reservation.
    pub(super) fn is_closed_for(&self, name: &str, key: &DeviceKey) -> bool {
        let value = self.holds.get(name).map(|hold| &*hold.value);
        value.is_some() && fenced_for(&self.seen, &self.settings.own_driver, key) == value
    }
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let known: &mut Quantity = sum.entry(name.clone()).or_default();
        *known = known.plus(*amount);
    }
}

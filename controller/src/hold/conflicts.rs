//! Devices that two claims have. Schedulers count devices in a plain set: when the first of the claims goes they take the device
//! for free, though the other one still has it. So what a Reservation kept stays closed until no claim has it, whoever goes first
//! and whatever becomes of the Reservation; its status says so, for whoever takes over meanwhile.

use hostler_api::{
    few,
    reservation::{ReservationStatus, ReservedDevice, ReservedDeviceState as State},
};

use super::{
    core::{HoldCore, device_key, owner_of},
    fences::rule_name,
    status::NewStatus,
};

impl HoldCore {
    /// Whether two claims had a device at once, and any claim still has it: as was seen, or as the status says that it was.
    pub(super) fn is_in_conflict(&self, device: &ReservedDevice) -> bool {
        let key = device_key(device);
        let is_marked = || device.conflict && self.seen.claims_on(&key).next().is_some();
        !device.is_part() && (self.seen.is_contested(&key) || is_marked())
    }

    /// Whether somebody else has what the status says that an owner has, and nobody but the two of them could get it: who looks only
    /// now cannot know that they did not have it at once.
    pub(super) fn is_anothers(&self, name: &str, device: &ReservedDevice) -> bool {
        let key = device_key(device);
        let owner = device.owner.as_ref().map(|owner| &*owner.uid);
        let mut claims = self.seen.claims_on(&key).peekable();
        let is_left = claims.peek().is_some() && claims.all(|claim| Some(&*claim.uid) != owner);
        let value = self.holds.get(name).map(|hold| &*hold.value);
        let rule = || self.seen.rules.get(&rule_name(&key)).map(|rule| &*rule.value);
        let told = self.seen.told_to_hold(&device.node_name, &key).or_else(rule);
        device.state == State::HandedOver && !device.is_part() && is_left && told.is_some() && told == value
    }

    /// A device that is not wanted any more, which stays closed only as long as claims have it together.
    pub(super) fn released(&self, device: ReservedDevice) -> Option<ReservedDevice> {
        let conflict = self.is_in_conflict(&device);
        let holder = self.seen.claims_on(&device_key(&device)).next();
        let owner = holder.map(|claim| owner_of(claim, claim.pods.first().map_or("", |pod| &pod.name)));
        conflict.then_some(ReservedDevice { state: State::Releasing, owner, conflict, ..device })
    }

    /// Which claims have devices together, for people.
    pub(super) fn conflicts(&self, devices: &[ReservedDevice]) -> Option<String> {
        let marked: Vec<String> = devices.iter().filter(|device| device.conflict).map(|it| self.conflict(it)).collect();
        let text = || format!("{}; closed to others until no claim has it: end the pods", few(&marked));
        (!marked.is_empty()).then(text)
    }

    fn conflict(&self, device: &ReservedDevice) -> String {
        let key = device_key(device);
        let claims: Vec<String> = self.seen.claims_on(&key).map(|claim| claim.key.to_string()).collect();
        match &claims[..] {
            [] => format!("{key}, which two claims had"),
            [last] => format!("{key}, which another claim had and claim {last} still has"),
            _ => format!("{key}, which claims {} have", claims.join(" and ")),
        }
    }

    /// What shall be said of devices that two claims have of a Reservation that is over or deleted, where that is news.
    pub(super) fn news_of_conflicts(&self, name: &str) -> Option<Box<ReservationStatus>> {
        let object = &self.holds.get(name)?.object;
        let known = &object.status;
        let mark = |device: &ReservedDevice| ReservedDevice {
            conflict: self.is_in_conflict(device) || self.is_anothers(name, device),
            ..device.clone()
        };
        let devices: Vec<ReservedDevice> = known.devices.iter().map(mark).collect();
        if !devices.iter().chain(&known.devices).any(|device| device.conflict) {
            return None;
        }
        let text = self.conflicts(&devices);
        let new = NewStatus::after(object, self.clock.told()).released_but(devices, text.as_deref());
        (new != *known).then(|| Box::new(new))
    }
}

//! Taking a device and giving it back: its counters, its constraints, and its effect on other requests.

use hostler_api::resource::DeviceTaint;

use super::{Alternative, Chosen, Fatal, Feature, NodeDevice, Place, Quirk, Search, Stop};

impl<'a> Search<'_, 'a> {
    /// Takes a device that matches, if the request can have it.
    pub(super) fn take(&mut self, place: Place, device: usize) -> Result<bool, Stop> {
        let alternative = &self.compiled.alternatives[place.alternative];
        let at = &self.pools.devices[device];
        let is_shared = self.is_shared(device);
        if !(is_shared && alternative.is_admin) && self.is_taken(place.claim, alternative.is_admin, device) {
            return Ok(false);
        }
        let Some(counted) = self.take_counters(at, device, is_shared) else { return Ok(false) };
        if self.untolerated_taint(alternative, at).is_some() || !self.join_constraints(place, alternative, device)? {
            if counted && !self.quirks.has(Quirk::RefusedKeepsCounters) {
                self.counters.give_back(device);
            }
            return Ok(false);
        }
        let chosen =
            Chosen { claim: place.claim, request: place.request, alternative: place.alternative, device, counted };
        self.hold(chosen, is_shared);
        if !self.still_fits(place, alternative, at, device)? {
            if !self.quirks.has(Quirk::LateRefusalKeeps) {
                self.release(chosen);
            }
            return Ok(false);
        }
        if is_shared {
            self.capacity.take(alternative.capacity, device);
        }
        self.chosen.push(chosen);
        self.in_claim += 1;
        Ok(true)
    }

    /// Takes the counters of a device. Returns true if it took any, and `None` if they cannot be taken.
    fn take_counters(&mut self, at: &NodeDevice<'_>, device: usize, is_shared: bool) -> Option<bool> {
        if at.device.consumes_counters.is_empty() {
            return Some(false);
        }
        if !self.knows_counters() {
            return None;
        }
        if is_shared && !self.quirks.has(Quirk::SharedRecounts) && self.capacity.is_in_use(device) {
            return Some(false);
        }
        let state = self.state;
        self.counters.take(device, |driver, pool| state.pool(driver, pool)).then_some(true)
    }

    /// Finds a taint that matters and is not tolerated.
    pub(super) fn untolerated_taint(
        &self,
        alternative: &Alternative<'_>,
        at: &NodeDevice<'a>,
    ) -> Option<&'a DeviceTaint> {
        let any_effect = self.quirks.has(Quirk::AnyTaintEffect);
        let matters = |taint: &DeviceTaint| any_effect || taint.prevents_allocation();
        let is_tolerated = |taint| alternative.tolerations.iter().any(|toleration| toleration.tolerates(taint));
        let taints = at.device.taints.iter().filter(|_| self.features.has(Feature::DeviceTaints));
        taints.into_iter().find(|taint| matters(taint) && !is_tolerated(taint))
    }

    /// True if counters are known.
    pub(super) fn knows_counters(&self) -> bool {
        self.features.has(Feature::PartitionableDevices)
    }

    /// Adds the device to all constraints that are about the request, or to none.
    fn join_constraints(&mut self, place: Place, alternative: &Alternative<'_>, device: usize) -> Result<bool, Fatal> {
        for (joined, constraint) in alternative.constraints.iter().enumerate() {
            if self.constraints.add(*constraint, place.request, device) {
                continue;
            }
            if alternative.count.is_none() {
                return Err(self.all_against(place, *constraint, device));
            }
            for earlier in &alternative.constraints[..joined] {
                self.constraints.remove(*earlier, place.request);
            }
            return Ok(false);
        }
        Ok(true)
    }

    fn all_against(&self, place: Place, constraint: usize, device: usize) -> Fatal {
        Fatal::AllAgainstConstraint {
            claim: self.compiled.claims[place.claim].full_name(),
            request: self.compiled.alternatives[place.alternative].name.clone().into_owned(),
            constraint: self.compiled.constraints[constraint].to_string(),
            device: self.pools.devices[device].full_name(),
        }
    }

    /// Looks at the capacity once more: others may have taken it since, if the request asks for all devices.
    fn still_fits(
        &mut self,
        place: Place,
        alternative: &Alternative<'_>,
        at: &NodeDevice<'_>,
        device: usize,
    ) -> Result<bool, Fatal> {
        if !self.has_parts() || !self.quirks.has(Quirk::LateCheckOfAnother) {
            return Ok(self.fits_capacity(alternative, device));
        }
        let number = usize::try_from(place.number).unwrap_or(usize::MAX);
        match at.siblings.clone().nth(number) {
            Some(another) => Ok(self.fits_capacity(alternative, another)),
            None => Err(Fatal::NoSuchDevice { device: at.full_name(), at: number }),
        }
    }

    fn hold(&mut self, chosen: Chosen, is_shared: bool) {
        if !is_shared {
            self.held.insert(chosen.device);
            self.held_by.insert(self.place_of(chosen.claim, chosen.device));
        }
    }

    /// Gives back the device that was chosen last.
    pub(super) fn give_back(&mut self) {
        let Some(chosen) = self.chosen.pop() else { return };
        self.in_claim -= 1;
        if self.is_shared(chosen.device) {
            let is_held = self.chosen.iter().any(|other| other.device == chosen.device);
            let request = self.compiled.alternatives[chosen.alternative].capacity;
            self.capacity.give_back(request, chosen.device, is_held);
        }
        self.release(chosen);
    }

    /// Releases a device for others, except its capacities.
    fn release(&mut self, chosen: Chosen) {
        let Chosen { claim, request, alternative, device, counted } = chosen;
        for constraint in &self.compiled.alternatives[alternative].constraints {
            self.constraints.remove(*constraint, request);
        }
        let is_shared = self.is_shared(device);
        if !is_shared {
            self.held_by.remove(self.place_of(claim, device));
            if !(0..self.compiled.claims.len()).any(|claim| self.held_by.has(self.place_of(claim, device))) {
                self.held.remove(device);
            }
        }
        if counted && !(is_shared && self.quirks.has(Quirk::SharedKeepsCounters)) {
            self.counters.give_back(device);
        }
    }
}

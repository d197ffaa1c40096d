//! Works out why a node does not fit. The search notes no reasons: for a caller that asks for one, it runs once more, up
//! to the request that it never got beyond.

use std::collections::BTreeMap;

use super::{Alternative, Chosen, NodePools, Place, Pool, Search, Stop};
use crate::structured::{
    reason::{AlternativeNoFit, Conflict, NoFit, Refusal, Rejection},
    selection::NotSelected,
};

/// The request to explain, and the reasons that were found.
#[derive(Debug)]
pub(super) struct Explaining {
    claim: usize,
    request: usize,
    /// The attempt that got furthest, by alternative.
    attempts: BTreeMap<usize, AlternativeNoFit>,
    /// By constraint, the conflict of devices that have its attribute: the same for all of them in one attempt.
    pub(super) conflicts: BTreeMap<usize, Conflict>,
}

impl Explaining {
    pub(super) fn is_about(&self, claim: usize, request: usize) -> bool {
        (self.claim, self.request) == (claim, request)
    }
}

impl Search<'_, '_> {
    /// Runs the search up to the request where an earlier one ended, and returns the reason, if there is time for that.
    pub(in super::super) fn explain(mut self, furthest: (usize, usize)) -> Refusal {
        let (claim, request) = furthest;
        self.explaining = Some(Explaining { claim, request, attempts: BTreeMap::new(), conflicts: BTreeMap::new() });
        // The earlier search ended, and this one ends the same way or earlier.
        if matches!(self.run(), Err(Stop::OutOfBudget)) {
            return Refusal::OutOfBudget { steps: self.steps() };
        }
        let attempts = self.explaining.map(|it| it.attempts).unwrap_or_default();
        Refusal::NoFit(NoFit {
            claim: self.compiled.claims.get(claim).map(|it| it.full_name()).unwrap_or_default(),
            alternatives: attempts.into_values().collect(),
            pools: bad_pools(self.pools),
        })
    }

    /// Notes why no device could be taken here, if the reason is asked for.
    pub(super) fn explain_failure(&mut self, place: Place) {
        if self.is_news(place) {
            let mut attempt = self.attempt(place);
            let found = self.found_earlier(place);
            for device in (0..self.pools.devices.len()).filter(|device| !found.contains(device)) {
                let rejection = self.rejection(place, device);
                *attempt.rejections.entry(rejection).or_default() += 1;
            }
            self.note(place, attempt);
        }
    }

    /// Returns the devices that the same alternative has already.
    fn found_earlier(&self, place: Place) -> Vec<usize> {
        let is_same = |it: &&Chosen| (it.claim, it.alternative) == (place.claim, place.alternative);
        self.chosen.iter().filter(is_same).map(|it| it.device).collect()
    }

    /// Notes that the claim cannot hold so many devices, if the reason is asked for.
    pub(super) fn explain_limit(&mut self, place: Place, count: i64) {
        if self.is_news(place) {
            let mut attempt = self.attempt(place);
            attempt.rejections.insert(Rejection::Limit, usize::try_from(count).unwrap_or_default());
            self.note(place, attempt);
        }
    }

    fn is_news(&self, place: Place) -> bool {
        self.explaining.as_ref().is_some_and(|it| {
            let known = it.attempts.get(&place.alternative);
            it.is_about(place.claim, place.request) && known.is_none_or(|known| known.found < place.number)
        })
    }

    fn note(&mut self, place: Place, attempt: AlternativeNoFit) {
        if let Some(explaining) = &mut self.explaining {
            explaining.attempts.insert(place.alternative, attempt);
            explaining.conflicts.clear();
        }
    }

    fn attempt(&self, place: Place) -> AlternativeNoFit {
        let alternative = &self.compiled.alternatives[place.alternative];
        AlternativeNoFit {
            request: alternative.name.clone().into_owned(),
            wanted: alternative.count,
            found: place.number,
            devices: self.pools.devices.len(),
            rejections: BTreeMap::new(),
        }
    }

    /// Returns the reason why the request cannot have the device. Selectors come first: a device that does not match
    /// would not help if it were free.
    fn rejection(&mut self, place: Place, device: usize) -> Rejection {
        let alternative = &self.compiled.alternatives[place.alternative];
        match self.selection.judgement(alternative.selection, device) {
            Ok(Some(NotSelected::Selector(at))) => {
                let selection = &self.compiled.selections[alternative.selection];
                let owner = selection.owner(at);
                return match selection.refusal_in_words(at) {
                    Some(has) => Rejection::Property { has: has.to_owned(), owner },
                    None => Rejection::Selector(format!("{owner} ({})", selection.quoted(at))),
                };
            }
            Ok(Some(NotSelected::BindingConditions)) => return Rejection::BindingConditions,
            Ok(Some(NotSelected::Node)) => return Rejection::Node,
            Ok(None) => {}
            Err(error) => return Rejection::Selector(error.to_string()),
        }
        if !alternative.is_admin && self.state.whole.has(device) {
            return Rejection::Allocated;
        }
        if self.is_taken(place.claim, alternative.is_admin, device) {
            return Rejection::Chosen;
        }
        self.shortage(alternative, device)
            .or_else(|| self.taint(alternative, device))
            .or_else(|| self.broken_constraint(place, alternative, device))
            .unwrap_or(Rejection::Rest)
    }

    fn shortage(&mut self, alternative: &Alternative<'_>, device: usize) -> Option<Rejection> {
        if !self.fits_capacity(alternative, device) {
            let wanted = self.compiled.capacities[alternative.capacity];
            return self.capacity.shortage(wanted, device).map(Rejection::Capacity);
        }
        if self.pools.devices[device].device.consumes_counters.is_empty() {
            return None;
        }
        if !self.knows_counters() {
            return Some(Rejection::CountersOff);
        }
        let state = self.state;
        let is_free = self.is_shared(device) && self.capacity.is_in_use(device);
        let fits = is_free || self.counters.has_room(device, |driver, pool| state.pool(driver, pool));
        (!fits).then_some(Rejection::Counters)
    }

    /// Returns true if the device, were it not held by others, has the requested capacities.
    pub(super) fn is_offered(&mut self, alternative: &Alternative<'_>, device: usize) -> bool {
        let wanted = self.compiled.capacities[alternative.capacity];
        !self.has_parts() || self.capacity.is_offered(alternative.capacity, wanted, device)
    }

    fn taint(&self, alternative: &Alternative<'_>, device: usize) -> Option<Rejection> {
        let taint = self.untolerated_taint(alternative, &self.pools.devices[device])?;
        let value = taint.value.as_deref().map(|value| format!("={value}")).unwrap_or_default();
        Some(Rejection::Taint(format!("{}{value}:{}", taint.key, taint.effect)))
    }

    fn broken_constraint(&mut self, place: Place, alternative: &Alternative<'_>, device: usize) -> Option<Rejection> {
        let broken = alternative.constraints.iter().find(|constraint| !self.constraints.accepts(**constraint, device));
        let broken = *broken?;
        let conflict = self.conflict(place, broken, device);
        let constraint = self.compiled.constraints[broken].to_string();
        Some(Rejection::Constraint { constraint, conflict })
    }
}

fn bad_pools(pools: &NodePools<'_>) -> Vec<String> {
    let bad = |pool: &Pool<'_>| Some(format!("pool {} is {}", pool.full_name(), pool.state.problem()?));
    pools.pools.iter().filter_map(bad).collect()
}

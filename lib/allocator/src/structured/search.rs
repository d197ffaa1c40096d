//! The search: claim after claim, request after request, device after device; the first solution is the answer.
//!
//! Every step is one call of [`Search::step`]: upstream's tests count the same steps. Nothing is allocated on the way.

use std::time::Instant;

use super::{
    bits::DeviceBits,
    capacity::CapacityUse,
    claims::{Alternative, CompiledClaims, Failure, MOST_DEVICES},
    constraints::ConstraintUse,
    counters::CounterUse,
    fatal::Fatal,
    node::NodeDevice,
    node_state::NodeState,
    pools::{NodePools, Pool},
    quirks::{Quirk, Quirks},
    selection::SelectionUse,
    version::{Feature, Features},
};

mod conflict;
mod explain;
mod take;

use explain::Explaining;

/// Number of looks for one reading of the clock: a reading costs as much as a look, and a look at a device with the
/// most expensive selectors that the API server accepts takes milliseconds.
const LOOKS_PER_CLOCK: u64 = 8;

/// Limits of a search: steps, devices looked at, and time.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    left: u64,
    used: u64,
    most_looks: u64,
    looks: u64,
    ends: Option<Instant>,
}

impl Budget {
    /// Limits a search to this number of steps. A step looks at all devices of a node at most once.
    pub fn steps(steps: u64) -> Self {
        Self { left: steps, used: 0, most_looks: u64::MAX, looks: 0, ends: None }
    }

    /// Limits the number of looks at devices, too, and their time: all of them before `ends`.
    #[must_use]
    pub fn within(self, looks: u64, ends: Option<Instant>) -> Self {
        Self { most_looks: looks, ends, ..self }
    }

    /// Sets no limit. A search can take longer than any caller waits.
    pub fn unlimited() -> Self {
        Self::steps(u64::MAX)
    }

    /// Number of steps that were taken.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Number of looks at devices; a second look at a device counts again.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Returns a budget for a second run of the search: unlimited steps, the same number of looks, and the same end
    /// of time.
    pub(super) fn again(&self) -> Self {
        Self { left: u64::MAX, used: 0, looks: 0, ..*self }
    }

    fn look(&mut self) -> Result<(), Stop> {
        self.looks += 1;
        let is_late = || self.ends.is_some_and(|ends| Instant::now() >= ends);
        if self.looks > self.most_looks || (self.looks.is_multiple_of(LOOKS_PER_CLOCK) && is_late()) {
            return Err(Stop::OutOfBudget);
        }
        Ok(())
    }
}

/// The reason why a search ended early.
#[derive(Debug)]
pub(super) enum Stop {
    Fatal(Fatal),
    OutOfBudget,
    /// The reason that [`Search::explain`] looks for has been found.
    Explained,
}

impl From<Fatal> for Stop {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

/// The result of a part of the search.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SearchVerdict {
    Fit,
    NoFit,
    /// With every further choice, the claim gets more devices than it can hold.
    TooMany,
}

/// A device that was chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
    pub(super) device: usize,
    /// True if the device took its counters.
    counted: bool,
}

/// The place of the search: the number of the device within an alternative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
    pub(super) number: i64,
}

/// The end of a search that found nothing.
pub(super) struct DeadEnd<'p, 'a> {
    /// Claim and request that the search got to.
    pub(super) furthest: (usize, usize),
    /// Judgements of devices that the search made on the way.
    pub(super) selection: SelectionUse<'p, 'a>,
}

/// One search on one node.
pub(super) struct Search<'p, 'a> {
    pub(super) features: Features,
    pub(super) quirks: Quirks,
    pub(super) compiled: &'p CompiledClaims<'a>,
    pub(super) pools: &'p NodePools<'a>,
    pub(super) state: &'p NodeState<'p>,
    budget: &'p mut Budget,
    pub(super) selection: SelectionUse<'p, 'a>,
    pub(super) capacity: CapacityUse<'p, 'a>,
    pub(super) counters: CounterUse<'p, 'a>,
    pub(super) constraints: ConstraintUse<'p, 'a>,
    /// Devices of alternatives that ask for all, by alternative.
    pub(super) all: Vec<Vec<usize>>,
    /// Devices that this search holds, for any claim.
    held: DeviceBits,
    /// Held devices by claim, one claim behind the other.
    held_by: DeviceBits,
    pub(super) chosen: Vec<Chosen>,
    /// Number of chosen devices for the present claim.
    in_claim: i64,
    /// The furthest claim and request that the search got to.
    furthest: (usize, usize),
    /// The request to explain, if any, and the reasons found.
    explaining: Option<Explaining>,
}

impl<'p, 'a> Search<'p, 'a> {
    pub(super) fn new(
        features: Features,
        quirks: Quirks,
        compiled: &'p CompiledClaims<'a>,
        pools: &'p NodePools<'a>,
        state: &'p NodeState<'p>,
        selection: SelectionUse<'p, 'a>,
        budget: &'p mut Budget,
    ) -> Self {
        let devices = pools.devices.len();
        let has_parts = features.has(Feature::ConsumableCapacity) && !quirks.has(Quirk::NoConsumableCapacity);
        let requests = if has_parts { compiled.capacities.len() } else { 0 };
        Self {
            features,
            quirks,
            compiled,
            pools,
            state,
            budget,
            selection,
            capacity: CapacityUse::new(pools, state, requests, quirks.has(Quirk::UseSeenByAmounts)),
            counters: CounterUse::new(&pools.counters),
            constraints: ConstraintUse::new(compiled, pools, quirks, features.has(Feature::ListTypeAttributes)),
            all: vec![Vec::new(); compiled.alternatives.len()],
            held: DeviceBits::none(devices),
            held_by: DeviceBits::none(devices * compiled.claims.len()),
            chosen: Vec::with_capacity(compiled.claims.len() + compiled.alternatives.len()),
            in_claim: 0,
            furthest: (0, 0),
            explaining: None,
        }
    }

    /// Looks for devices for all claims.
    pub(super) fn run(&mut self) -> Result<SearchVerdict, Stop> {
        self.find_all_devices()?;
        let verdict = self.at_request(0, 0)?;
        if verdict == SearchVerdict::TooMany {
            return Err(Fatal::LimitExceeded { limit: MOST_DEVICES }.into());
        }
        Ok(verdict)
    }

    /// Number of steps that the search took.
    pub(super) fn steps(&self) -> u64 {
        self.budget.used()
    }

    /// Ends the search, and returns how far it came, for a caller that asks for the reason.
    pub(super) fn into_dead_end(self) -> DeadEnd<'p, 'a> {
        DeadEnd { furthest: self.furthest, selection: self.selection }
    }

    /// True if parts of capacities are known.
    pub(super) fn has_parts(&self) -> bool {
        self.features.has(Feature::ConsumableCapacity) && !self.quirks.has(Quirk::NoConsumableCapacity)
    }

    /// Finds the devices of requests for all devices, and checks that no claim asks for too many.
    fn find_all_devices(&mut self) -> Result<(), Stop> {
        for claim in 0..self.compiled.claims.len() {
            let failure = self.compiled.failure.as_ref().filter(|_| claim + 1 == self.compiled.claims.len());
            let devices = self.count_devices(claim)?;
            if let Some(Failure::Request(fatal)) = failure {
                return Err(fatal.clone().into());
            }
            // Upstream fails on a negative number.
            if !(0..=MOST_DEVICES).contains(&devices) {
                let devices = if devices < 0 { i64::MAX } else { devices };
                let claim = self.compiled.claims[claim].full_name();
                return Err(Fatal::TooManyDevices { claim, devices, limit: MOST_DEVICES }.into());
            }
            if let Some(Failure::Constraint(fatal)) = failure {
                return Err(fatal.clone().into());
            }
        }
        Ok(())
    }

    /// Returns the least number of devices that a claim asks for.
    fn count_devices(&mut self, claim: usize) -> Result<i64, Stop> {
        let mut devices = 0_i64;
        for (request, compiled) in self.compiled.claims[claim].requests.iter().enumerate() {
            let mut fewest = i64::MAX;
            for alternative in compiled.alternatives.clone() {
                let place = Place { claim, request, alternative, number: 0 };
                let count = match self.compiled.alternatives[alternative].count {
                    Some(count) => count,
                    None => self.find_all(place, alternative == compiled.alternatives.start + 1)?,
                };
                fewest = fewest.min(count);
            }
            devices = devices.wrapping_add(fewest);
        }
        Ok(devices)
    }

    fn find_all(&mut self, place: Place, is_second: bool) -> Result<i64, Stop> {
        let first = place.alternative - usize::from(is_second);
        // The first alternative's matches are known only if it asks for all devices, too.
        let inherits = is_second
            && self.quirks.has(Quirk::SecondInheritsMatches)
            && self.compiled.alternatives[first].count.is_none();
        let judged = if inherits { first } else { place.alternative };
        let (compiled, pools) = (self.compiled, self.pools);
        let selection = compiled.alternatives[judged].selection;
        let mut found = Vec::new();
        for pool in &pools.pools {
            self.check_pool(place, pool)?;
            for device in pool.devices.clone() {
                self.budget.look()?;
                if self.selection.matches(selection, device)?
                    && self.fits_capacity(&compiled.alternatives[place.alternative], device)
                {
                    found.push(device);
                }
            }
        }
        let count = i64::try_from(found.len()).unwrap_or(i64::MAX);
        self.all[place.alternative] = found;
        Ok(count)
    }

    /// Fails for a pool that is incomplete or contradicts itself: all devices are not known then.
    fn check_pool(&self, place: Place, pool: &Pool<'_>) -> Result<(), Fatal> {
        let Some(problem) = pool.state.problem() else { return Ok(()) };
        Err(Fatal::AllOfBadPool {
            claim: self.compiled.claims[place.claim].full_name(),
            request: self.compiled.alternatives[place.alternative].name.clone().into_owned(),
            pool: pool.full_name(),
            problem,
        })
    }

    fn step(&mut self) -> Result<(), Stop> {
        self.budget.left = self.budget.left.checked_sub(1).ok_or(Stop::OutOfBudget)?;
        self.budget.used += 1;
        Ok(())
    }

    /// Goes on with a request, or with the next claim behind the last request.
    fn at_request(&mut self, claim: usize, request: usize) -> Result<SearchVerdict, Stop> {
        self.step()?;
        let Some(compiled) = self.compiled.claims.get(claim) else { return Ok(SearchVerdict::Fit) };
        let Some(compiled) = compiled.requests.get(request) else { return self.at_next_claim(claim) };
        self.furthest = self.furthest.max((claim, request));
        let verdict = if compiled.has_list {
            self.first_available(claim, request, compiled.alternatives.clone())?
        } else {
            self.at_device(Place { claim, request, alternative: compiled.alternatives.start, number: 0 }, 0)?
        };
        if verdict != SearchVerdict::Fit && self.explaining.as_ref().is_some_and(|it| it.is_about(claim, request)) {
            return Err(Stop::Explained);
        }
        Ok(verdict)
    }

    fn at_next_claim(&mut self, claim: usize) -> Result<SearchVerdict, Stop> {
        let in_claim = std::mem::take(&mut self.in_claim);
        let verdict = self.at_request(claim + 1, 0)?;
        self.in_claim = in_claim;
        // Another choice in an earlier claim may leave this one with fewer devices.
        Ok(if verdict == SearchVerdict::TooMany { SearchVerdict::NoFit } else { verdict })
    }

    fn first_available(
        &mut self,
        claim: usize,
        request: usize,
        alternatives: std::ops::Range<usize>,
    ) -> Result<SearchVerdict, Stop> {
        let mut verdict = SearchVerdict::TooMany;
        for alternative in alternatives {
            self.step()?;
            match self.at_device(Place { claim, request, alternative, number: 0 }, 0)? {
                SearchVerdict::Fit => return Ok(SearchVerdict::Fit),
                SearchVerdict::NoFit => verdict = SearchVerdict::NoFit,
                SearchVerdict::TooMany => {}
            }
        }
        Ok(verdict)
    }

    /// Looks for one device of an alternative, beginning at `start`, and for all devices that follow.
    fn at_device(&mut self, place: Place, start: usize) -> Result<SearchVerdict, Stop> {
        let alternative = &self.compiled.alternatives[place.alternative];
        let all = &self.all[place.alternative];
        if alternative.count.is_none() && all.is_empty() {
            self.explain_failure(place);
            return Ok(SearchVerdict::NoFit);
        }
        let count = alternative.count.unwrap_or(i64::try_from(all.len()).unwrap_or(i64::MAX));
        if place.number >= count {
            return self.at_request(place.claim, place.request + 1);
        }
        // As in Go, a count that overflows is negative.
        if self.in_claim.wrapping_add(count).wrapping_sub(place.number) > MOST_DEVICES {
            self.explain_limit(place, count);
            let simple = self.quirks.has(Quirk::LimitIsNoFit);
            return Ok(if simple { SearchVerdict::NoFit } else { SearchVerdict::TooMany });
        }
        match alternative.count {
            None => self.take_all(place),
            Some(_) => self.take_one(place, alternative, start),
        }
    }

    /// Takes the next device of an alternative that asks for all; there is no other choice.
    fn take_all(&mut self, place: Place) -> Result<SearchVerdict, Stop> {
        let at = usize::try_from(place.number).unwrap_or(usize::MAX);
        let device = self.all[place.alternative][at];
        if !self.take(place, device)? {
            self.explain_failure(place);
            return Ok(SearchVerdict::NoFit);
        }
        let mut alternative = place.alternative;
        if self.quirks.has(Quirk::AllLosesAlternative) {
            alternative = self.compiled.claims[place.claim].requests[place.request].alternatives.start;
        }
        self.go_on(Place { alternative, number: place.number + 1, ..place }, 0)
    }

    /// Tries one device after the other, until the rest of the search succeeds.
    fn take_one(&mut self, place: Place, alternative: &Alternative<'_>, start: usize) -> Result<SearchVerdict, Stop> {
        let end = self.pools.fails_at.unwrap_or(self.pools.devices.len());
        for device in start..end {
            self.budget.look()?;
            if !self.is_candidate(place, alternative, device)? || !self.take(place, device)? {
                continue;
            }
            let next = if self.quirks.has(Quirk::PermutationsWithinRequest) { 0 } else { device + 1 };
            let verdict = self.go_on(Place { number: place.number + 1, ..place }, next)?;
            if verdict != SearchVerdict::NoFit {
                return Ok(verdict);
            }
        }
        if self.pools.fails_at.is_some() {
            return Err(self.invalid_pool().into());
        }
        self.explain_failure(place);
        Ok(SearchVerdict::NoFit)
    }

    /// Goes on behind the device that was taken last, and gives the device back if the rest of the search fails.
    fn go_on(&mut self, next: Place, start: usize) -> Result<SearchVerdict, Stop> {
        self.step()?;
        let verdict = self.at_device(next, start)?;
        if verdict != SearchVerdict::Fit {
            self.give_back();
        }
        Ok(verdict)
    }

    fn invalid_pool(&self) -> Fatal {
        let invalid = |pool: &Pool<'_>| Some((pool.full_name(), pool.state.contradiction.clone()?));
        let (pool, problem) = self.pools.pools.iter().find_map(invalid).unwrap_or_default();
        Fatal::InvalidPool { pool, problem }
    }

    /// Returns true if the device is free, matches, and has the requested capacities.
    fn is_candidate(&mut self, place: Place, alternative: &Alternative<'_>, device: usize) -> Result<bool, Stop> {
        Ok(!self.is_taken(place.claim, alternative.is_admin, device)
            && self.selection.matches(alternative.selection, device)?
            && self.fits_capacity(alternative, device))
    }

    /// Returns true if the device is held in a way that keeps this claim from it.
    pub(super) fn is_taken(&self, claim: usize, is_admin: bool, device: usize) -> bool {
        match is_admin {
            true => self.held_by.has(self.place_of(claim, device)),
            false => self.state.whole.has(device) || self.held.has(device),
        }
    }

    /// Index in [`held_by`](Self::held_by) of a claim and a device.
    fn place_of(&self, claim: usize, device: usize) -> usize {
        claim * self.pools.devices.len() + device
    }

    pub(super) fn fits_capacity(&mut self, alternative: &Alternative<'_>, device: usize) -> bool {
        let wanted = self.compiled.capacities[alternative.capacity];
        !self.has_parts() || self.capacity.fits(alternative.capacity, wanted, device)
    }

    /// Returns true if several claims can hold the device.
    pub(super) fn is_shared(&self, device: usize) -> bool {
        self.has_parts() && self.pools.devices[device].device.allow_multiple_allocations
    }
}

//! The search: claim after claim, request after request, device after device; the first solution is the answer.
//!
//! Every step is one call of [`Search::step`]: upstream's tests count the same steps. Nothing is allocated on the way.

use std::time::Instant;

use super::{
    bits::DeviceBits,
    capacity::CapacityUse,
    claims::{Alternative, CompiledClaims, Failure},
    constraints::ConstraintUse,
    counters::CounterUse,
    fatal::Fatal,
    pools::{NodeDevice, NodePools, Pool},
    quirks::{Quirk, Quirks},
    selection::SelectionUse,
    state::NodeState,
    version::{Feature, Features},
};

mod take;

/// The most devices that a claim can hold.
pub(super) const MOST_DEVICES: i64 = 32;

/// The clock is read once in so many looks: reading it costs as much as a look, and a look at a device whose selectors are as
/// expensive as the API server lets them be takes milliseconds.
const LOOKS_PER_CLOCK: u64 = 8;

/// How much a search may take: steps, devices looked at, and time.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    left: u64,
    used: u64,
    most_looks: u64,
    looks: u64,
    ends: Option<Instant>,
}

impl Budget {
    /// So many steps and no more. A step looks at all devices of a node at most once.
    pub fn steps(steps: u64) -> Self {
        Self { left: steps, used: 0, most_looks: u64::MAX, looks: 0, ends: None }
    }

    /// The same, and no more than so many looks at devices, all of them before `ends`.
    #[must_use]
    pub fn within(self, looks: u64, ends: Option<Instant>) -> Self {
        Self { most_looks: looks, ends, ..self }
    }

    /// As many as it takes, which can be more than anybody waits for.
    pub fn unlimited() -> Self {
        Self::steps(u64::MAX)
    }

    /// How many were taken.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// How many devices were looked at; one that was looked at twice counts twice.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// As much as there was at the beginning of the search, for a second run of it; the time is not given twice.
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

/// Why a search ended before its end.
#[derive(Debug)]
pub(super) enum Stop {
    Fatal(Fatal),
    OutOfBudget,
    /// What [`explain`](super::reason) wanted to know has been found out.
    Explained,
}

impl From<Fatal> for Stop {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

/// How a part of the search ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Fit,
    NoFit,
    /// Whatever is chosen from here on, the claim gets more devices than it can hold.
    TooMany,
}

/// A device that was chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
    pub(super) device: usize,
    /// Whether it took its counters.
    counted: bool,
}

/// Where the search is: at the device with this number, of an alternative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
    pub(super) number: i64,
}

/// How far a search came that found nothing.
pub(super) struct DeadEnd<'p, 'a> {
    /// Claim and request.
    pub(super) furthest: (usize, usize),
    /// What it found out about devices on the way.
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
    /// By alternative: the devices, where all are wanted.
    pub(super) all: Vec<Vec<usize>>,
    /// Devices that this search holds, for any claim.
    held: DeviceBits,
    /// The same by claim, one claim behind the other.
    held_by: DeviceBits,
    pub(super) chosen: Vec<Chosen>,
    /// How many of them are for the claim at hand.
    in_claim: i64,
    /// Where the search got to: claim and request.
    furthest: (usize, usize),
    /// What is to be explained, and what was found out.
    pub(super) explaining: Option<super::reason::Explaining>,
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
    pub(super) fn run(&mut self) -> Result<Verdict, Stop> {
        self.find_all_devices()?;
        let verdict = self.at_request(0, 0)?;
        if verdict == Verdict::TooMany {
            return Err(Fatal::LimitExceeded { limit: MOST_DEVICES }.into());
        }
        Ok(verdict)
    }

    /// How many steps it took.
    pub(super) fn steps(&self) -> u64 {
        self.budget.used()
    }

    /// Where it got to, for those who want to know why no further.
    pub(super) fn into_dead_end(self) -> DeadEnd<'p, 'a> {
        DeadEnd { furthest: self.furthest, selection: self.selection }
    }

    /// Whether parts of capacities are known.
    pub(super) fn has_parts(&self) -> bool {
        self.features.has(Feature::ConsumableCapacity) && !self.quirks.has(Quirk::NoConsumableCapacity)
    }

    /// Finds the devices of requests that want all, and checks that no claim wants too many.
    fn find_all_devices(&mut self) -> Result<(), Stop> {
        for claim in 0..self.compiled.claims.len() {
            let failure = self.compiled.failure.as_ref().filter(|_| claim + 1 == self.compiled.claims.len());
            let devices = self.count_devices(claim)?;
            if let Some(Failure::Request(fatal)) = failure {
                return Err(fatal.clone().into());
            }
            // Upstream falls over what comes to less than nothing.
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

    /// How many devices a claim wants at least.
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
        // The first one's matches are known only where it wanted all, too.
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

    /// Nobody knows what "all" is while a pool changes or contradicts itself.
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

    /// Goes on with a request, or with the next claim behind the last one.
    fn at_request(&mut self, claim: usize, request: usize) -> Result<Verdict, Stop> {
        self.step()?;
        let Some(compiled) = self.compiled.claims.get(claim) else { return Ok(Verdict::Fit) };
        let Some(compiled) = compiled.requests.get(request) else { return self.at_next_claim(claim) };
        self.furthest = self.furthest.max((claim, request));
        let verdict = if compiled.has_list {
            self.first_available(claim, request, compiled.alternatives.clone())?
        } else {
            self.at_device(Place { claim, request, alternative: compiled.alternatives.start, number: 0 }, 0)?
        };
        if verdict != Verdict::Fit && self.explaining.as_ref().is_some_and(|it| it.is_about(claim, request)) {
            return Err(Stop::Explained);
        }
        Ok(verdict)
    }

    fn at_next_claim(&mut self, claim: usize) -> Result<Verdict, Stop> {
        let in_claim = std::mem::take(&mut self.in_claim);
        let verdict = self.at_request(claim + 1, 0)?;
        self.in_claim = in_claim;
        // Another choice in an earlier claim may leave this one with fewer devices.
        Ok(if verdict == Verdict::TooMany { Verdict::NoFit } else { verdict })
    }

    fn first_available(
        &mut self,
        claim: usize,
        request: usize,
        alternatives: std::ops::Range<usize>,
    ) -> Result<Verdict, Stop> {
        let mut verdict = Verdict::TooMany;
        for alternative in alternatives {
            self.step()?;
            match self.at_device(Place { claim, request, alternative, number: 0 }, 0)? {
                Verdict::Fit => return Ok(Verdict::Fit),
                Verdict::NoFit => verdict = Verdict::NoFit,
                Verdict::TooMany => {}
            }
        }
        Ok(verdict)
    }

    /// Looks for one device of an alternative, beginning at `start`, and for all that follow.
    fn at_device(&mut self, place: Place, start: usize) -> Result<Verdict, Stop> {
        let alternative = &self.compiled.alternatives[place.alternative];
        let all = &self.all[place.alternative];
        if alternative.count.is_none() && all.is_empty() {
            self.explain_failure(place);
            return Ok(Verdict::NoFit);
        }
        let count = alternative.count.unwrap_or(i64::try_from(all.len()).unwrap_or(i64::MAX));
        if place.number >= count {
            return self.at_request(place.claim, place.request + 1);
        }
        // As in Go, a count that comes to more than a number holds is less than nothing.
        if self.in_claim.wrapping_add(count).wrapping_sub(place.number) > MOST_DEVICES {
            self.explain_limit(place, count);
            let simple = self.quirks.has(Quirk::LimitIsNoFit);
            return Ok(if simple { Verdict::NoFit } else { Verdict::TooMany });
        }
        match alternative.count {
            None => self.take_all(place),
            Some(_) => self.take_one(place, alternative, start),
        }
    }

    /// Takes the next one of all devices; there is no other choice.
    fn take_all(&mut self, place: Place) -> Result<Verdict, Stop> {
        let at = usize::try_from(place.number).unwrap_or(usize::MAX);
        let device = self.all[place.alternative][at];
        if !self.take(place, device)? {
            self.explain_failure(place);
            return Ok(Verdict::NoFit);
        }
        let mut alternative = place.alternative;
        if self.quirks.has(Quirk::AllLosesAlternative) {
            alternative = self.compiled.claims[place.claim].requests[place.request].alternatives.start;
        }
        self.go_on(Place { alternative, number: place.number + 1, ..place }, 0)
    }

    /// Takes one device after the other, until all that follows works out.
    fn take_one(&mut self, place: Place, alternative: &Alternative<'_>, start: usize) -> Result<Verdict, Stop> {
        let end = self.pools.fails_at.unwrap_or(self.pools.devices.len());
        for device in start..end {
            self.budget.look()?;
            if !self.is_candidate(place, alternative, device)? || !self.take(place, device)? {
                continue;
            }
            let next = if self.quirks.has(Quirk::PermutationsWithinRequest) { 0 } else { device + 1 };
            let verdict = self.go_on(Place { number: place.number + 1, ..place }, next)?;
            if verdict != Verdict::NoFit {
                return Ok(verdict);
            }
        }
        if self.pools.fails_at.is_some() {
            return Err(self.invalid_pool().into());
        }
        self.explain_failure(place);
        Ok(Verdict::NoFit)
    }

    /// Goes on behind the device that was taken last, and gives it back where that does not work out.
    fn go_on(&mut self, next: Place, start: usize) -> Result<Verdict, Stop> {
        self.step()?;
        let verdict = self.at_device(next, start)?;
        if verdict != Verdict::Fit {
            self.give_back();
        }
        Ok(verdict)
    }

    fn invalid_pool(&self) -> Fatal {
        let invalid = |pool: &Pool<'_>| Some((pool.full_name(), pool.state.contradiction.clone()?));
        let (pool, problem) = self.pools.pools.iter().find_map(invalid).unwrap_or_default();
        Fatal::InvalidPool { pool, problem }
    }

    /// Whether the device is free, matches, and has the capacities that are wanted.
    fn is_candidate(&mut self, place: Place, alternative: &Alternative<'_>, device: usize) -> Result<bool, Stop> {
        Ok(!self.is_taken(place.claim, alternative.is_admin, device)
            && self.selection.matches(alternative.selection, device)?
            && self.fits_capacity(alternative, device))
    }

    /// Whether somebody has it who keeps this claim from getting it.
    pub(super) fn is_taken(&self, claim: usize, is_admin: bool, device: usize) -> bool {
        match is_admin {
            true => self.held_by.has(self.place_of(claim, device)),
            false => self.state.whole.has(device) || self.held.has(device),
        }
    }

    /// Where [`held_by`](Self::held_by) says whether a claim holds a device.
    fn place_of(&self, claim: usize, device: usize) -> usize {
        claim * self.pools.devices.len() + device
    }

    pub(super) fn fits_capacity(&mut self, alternative: &Alternative<'_>, device: usize) -> bool {
        let wanted = self.compiled.capacities[alternative.capacity];
        !self.has_parts() || self.capacity.fits(alternative.capacity, wanted, device)
    }

    /// Whether several claims can hold the device.
    pub(super) fn is_shared(&self, device: usize) -> bool {
        self.has_parts() && self.pools.devices[device].device.allow_multiple_allocations
    }
}

//! Reasons why a node does not fit, in words. The search notes no reasons: for a caller that asks for one, it runs once
//! more, up to the request that it never got beyond.

use std::{collections::BTreeMap, fmt};

use super::{
    claims::{Alternative, CompiledConstraint, ConstraintKind},
    fatal::Fatal,
    pools::{NodePools, Pool},
    search::{Chosen, MOST_DEVICES, Place, Search, Stop},
    selection::NotSelected,
    shortage::CapacityShortage,
};

mod conflict;

pub use conflict::{Conflict, RequestValues};

/// The reason why claims got no devices.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The node cannot satisfy the claims; another may.
    #[error(transparent)]
    NoFit(NoFit),
    /// No node makes a difference.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The search took more steps than its limit.
    #[error("the search was given up after {steps} steps")]
    OutOfBudget {
        /// Number of steps that it took.
        steps: u64,
    },
}

/// The first reason why a node does not fit: that of the request that no earlier choice of devices could satisfy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("claim {claim}, {}", list(.alternatives))]
pub struct NoFit {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// Reasons why each way to satisfy the request failed.
    pub alternatives: Vec<AlternativeNoFit>,
    /// Pools of the node whose devices cannot be used, and the reasons.
    pub pools: Vec<String>,
}

fn list(alternatives: &[AlternativeNoFit]) -> String {
    alternatives.iter().map(AlternativeNoFit::to_string).collect::<Vec<_>>().join("; ")
}

/// The reason why one way to satisfy a request failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AlternativeNoFit {
    /// `request` or `request/subrequest`.
    pub request: String,
    /// Number of requested devices; `None`: all.
    pub wanted: Option<i64>,
    /// Number of devices that the search could take together.
    pub found: i64,
    /// Number of devices of the node.
    pub devices: usize,
    /// Number of devices for each reason.
    pub rejections: BTreeMap<Rejection, usize>,
}

/// The reason why a request cannot have a device.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Rejection {
    /// The limit of a claim would be exceeded.
    Limit,
    /// A selector does not match.
    Selector(String),
    /// A selector does not match, and it is simple enough to name the property in words.
    Property {
        /// The property of the device.
        has: String,
        /// The claim or class of the selector.
        owner: String,
    },
    /// The device is for other nodes.
    Node,
    /// The device has binding conditions, and the feature is off.
    BindingConditions,
    /// Another claim has the device.
    Allocated,
    /// Another request of the pod has the device.
    Chosen,
    /// The device lacks a capacity.
    Capacity(CapacityShortage),
    /// The device consumes counters, and the feature is off.
    CountersOff,
    /// Others took too much of the device's counters.
    Counters,
    /// The device has a taint.
    Taint(String),
    /// A constraint does not allow it.
    Constraint {
        /// The constraint, in words.
        constraint: String,
        /// The conflict of the device.
        conflict: Conflict,
    },
    /// With the device, the following requests cannot be satisfied.
    Rest,
}

/// The request to explain, and the reasons that were found.
#[derive(Debug)]
pub(super) struct Explaining {
    claim: usize,
    request: usize,
    /// The attempt that got furthest, by alternative.
    attempts: BTreeMap<usize, AlternativeNoFit>,
    /// By constraint, the conflict of devices that have its attribute: the same for all of them in one attempt.
    conflicts: BTreeMap<usize, Conflict>,
}

impl Explaining {
    pub(super) fn is_about(&self, claim: usize, request: usize) -> bool {
        (self.claim, self.request) == (claim, request)
    }
}

impl Search<'_, '_> {
    /// Runs the search up to the request where an earlier one ended, and returns the reason, if there is time for that.
    pub(super) fn explain(mut self, furthest: (usize, usize)) -> Refusal {
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
    fn is_offered(&mut self, alternative: &Alternative<'_>, device: usize) -> bool {
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

impl fmt::Display for CompiledConstraint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self.kind {
            ConstraintKind::Match => ("matchAttribute", &self.constraint.match_attribute),
            ConstraintKind::Distinct => ("distinctAttribute", &self.constraint.distinct_attribute),
        };
        write!(f, "constraint {kind} {:?}", name.as_deref().unwrap_or_default())?;
        match &self.constraint.requests[..] {
            [] => Ok(()),
            requests => write!(f, " of requests {}", requests.join(", ")),
        }
    }
}

impl fmt::Display for AlternativeNoFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {:?}: ", self.request)?;
        if self.rejections.contains_key(&Rejection::Limit) {
            return write!(f, "with it the claim would hold more than {MOST_DEVICES} devices");
        }
        let matching = self.devices - self.unselected();
        match self.wanted {
            _ if self.devices == 0 => return f.write_str("the node has no devices"),
            _ if matching == 0 => write!(f, "none of the node's {} matches", devices(self.devices))?,
            Some(_) if let Some(shortage) = self.only_shortage() => {
                return match matching {
                    1 => write!(f, "the only matching device has {shortage}"),
                    _ => write!(f, "each of the {matching} matching devices has {shortage}"),
                };
            }
            None => write!(f, "it wants all of {} that match", devices(matching))?,
            Some(wanted) => {
                let found = self.found;
                write!(f, "it wants {wanted} of {} that match, and {found} can be had", devices(matching))?;
            }
        }
        let mut separator = ": ";
        for (rejection, count) in &self.rejections {
            // Reasons why devices do not match are of interest only if none matches.
            if matching == 0 || !rejection.is_unselected() {
                write!(f, "{separator}{count} {rejection}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

fn devices(count: usize) -> String {
    if count == 1 { "1 device".to_owned() } else { format!("{count} devices") }
}

impl AlternativeNoFit {
    /// Returns the capacity that every matching device lacks, if nothing else keeps any of them from the request.
    pub fn only_shortage(&self) -> Option<&CapacityShortage> {
        let mut near = self.rejections.keys().filter(|rejection| !rejection.is_unselected());
        match (near.next(), near.next()) {
            (Some(Rejection::Capacity(shortage)), None) if self.found == 0 && self.wanted.is_some() => Some(shortage),
            _ => None,
        }
    }

    fn unselected(&self) -> usize {
        self.rejections.iter().filter(|(rejection, _)| rejection.is_unselected()).map(|(_, count)| count).sum()
    }
}

impl Rejection {
    /// Returns the reason in words, without values, which differ from node to node.
    pub fn in_general(&self) -> String {
        match self {
            Self::Constraint { constraint, conflict } => format!("against {constraint} ({})", conflict.in_general()),
            other => other.to_string(),
        }
    }

    /// True if the device is not one of those that the request selects.
    pub fn is_unselected(&self) -> bool {
        matches!(self, Self::Selector(_) | Self::Property { .. } | Self::Node | Self::BindingConditions)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit => f.write_str("too many"),
            Self::Selector(selector) => write!(f, "not selected by {selector}"),
            Self::Property { has, owner } => write!(f, "with {has} ({owner})"),
            Self::Node => f.write_str("for other nodes"),
            Self::BindingConditions => f.write_str("with binding conditions, which are off"),
            Self::Allocated => f.write_str("allocated"),
            Self::Chosen => f.write_str("taken by this pod"),
            Self::Capacity(shortage) => write!(f, "with {shortage}"),
            Self::CountersOff => f.write_str("with counters, which are off"),
            Self::Counters => f.write_str("without enough counters left"),
            Self::Taint(taint) => write!(f, "with taint {taint}"),
            Self::Constraint { constraint, conflict } => write!(f, "against {constraint} ({conflict})"),
            Self::Rest => f.write_str("with which the rest of the claims cannot be satisfied"),
        }
    }
}

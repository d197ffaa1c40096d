//! State of claims and of negotiations in the core.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{Doubling, ObjectKey, resource::DeviceRequestAllocationResult as Device};

use super::{
    event::NewAllocation,
    model::{ClassicClaim, PodFacts, SchedulingContext, UnsuitableNodes},
};

/// The first pause after the server refused an allocation; it doubles up to the longest.
const REFUSALS: Doubling = Doubling::new(Duration::from_secs(30), Duration::from_secs(3600));
/// Pauses between two tries of claims whose search takes too many steps: each is twice the last.
const CUT_PAUSES: Doubling = Doubling::new(Duration::from_secs(10), Duration::from_secs(600));
/// Shortest time between two Events that say why a claim waits.
const BETWEEN_WAITING_EVENTS: Duration = Duration::from_secs(60);
/// Number of different messages about a claim that are remembered, so that none is repeated.
const MOST_MESSAGES: usize = 32;

/// All claims, by name and by UID.
#[derive(Debug, Default)]
pub(super) struct Claims {
    states: BTreeMap<ObjectKey, ClaimState>,
    uids: BTreeMap<String, ObjectKey>,
}

/// A claim, and the work in progress on it.
#[derive(Debug)]
pub(super) struct ClaimState {
    pub(super) claim: ClassicClaim,
    /// True if the claim has our finalizer.
    pub(super) is_kept: bool,
    pub(super) pending: Option<PendingAllocation>,
    /// True if an allocation was written and came out without our driver's name.
    pub(super) has_vanished: bool,
    pub(super) refusals: Refusals,
    /// The pause after a search that was cut short, and its end.
    pub(super) cut_short: Option<(Duration, Duration)>,
    told: BTreeSet<String>,
    /// The time of the last Event that says why the claim waits.
    told_waiting: Option<Duration>,
}

/// An allocation on its way into the claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingAllocation {
    pub(super) new: NewAllocation,
    /// The negotiation that the allocation is for.
    pub(super) negotiation: Option<ObjectKey>,
}

/// Nodes for which the server refused an allocation.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    count: u32,
    nodes: BTreeMap<String, (String, Duration)>,
}

/// A negotiation (PodSchedulingContext), and the pod that it is about.
#[derive(Debug)]
pub(super) struct NegotiationState {
    pub(super) context: SchedulingContext,
    pub(super) pod: PodKnowledge,
    /// The unsuitable nodes of our claims.
    pub(super) answer: Option<UnsuitableNodes>,
    /// The time since which nodes with fewer optional devices are reported as unsuitable.
    pub(super) preferred_since: Option<Duration>,
}

/// A claim that is not known although a source has a grant for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stranger {
    /// The server is being asked for the claim.
    Sought,
    /// There is no such claim, and never will be.
    Gone,
}

/// The state of a pod, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodKnowledge {
    Unknown,
    Asked,
    Known { facts: Option<PodFacts>, is_fresh: bool },
}

impl Claims {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&ClaimState> {
        self.states.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut ClaimState> {
        self.states.get_mut(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ClaimState> {
        self.states.values()
    }

    /// Returns the claim with this UID.
    pub(super) fn with_uid(&self, uid: &str) -> Option<&ClaimState> {
        self.get(self.uids.get(uid)?)
    }

    /// Returns the names of claims that are concerned.
    pub(super) fn keys(&self, is_concerned: impl Fn(&ClaimState) -> bool) -> Vec<ObjectKey> {
        self.iter().filter(|state| is_concerned(state)).map(|state| state.claim.key.clone()).collect()
    }

    /// Stores a claim, and returns its state.
    pub(super) fn insert(&mut self, claim: ClassicClaim, is_kept: bool) -> &mut ClaimState {
        self.uids.insert(claim.uid.clone(), claim.key.clone());
        let state = self.states.entry(claim.key.clone()).or_insert_with(|| ClaimState::new(claim.clone()));
        (state.claim, state.is_kept) = (claim, is_kept);
        state
    }

    /// Removes the claim with this UID. Returns true if there was one.
    pub(super) fn remove(&mut self, key: &ObjectKey, uid: &str) -> bool {
        let is_it = self.get(key).is_some_and(|state| state.claim.uid == uid);
        if is_it {
            self.states.remove(key);
            self.uids.remove(uid);
        }
        is_it
    }
}

impl ClaimState {
    fn new(claim: ClassicClaim) -> Self {
        let (pending, refusals, told) = (None, Refusals::default(), BTreeSet::new());
        let (is_kept, has_vanished, cut_short) = (false, false, None);
        Self { claim, is_kept, pending, has_vanished, refusals, cut_short, told, told_waiting: None }
    }

    /// Returns true if the claim could be allocated: it has no allocation, and is not being deleted or released.
    pub(super) fn is_waiting(&self) -> bool {
        self.claim.allocation.is_none() && !self.claim.is_over() && !self.has_vanished
    }

    /// Returns true if the claim is being allocated or cleaned up.
    pub(super) fn is_busy(&self) -> bool {
        self.pending.is_some() || self.is_kept
    }

    /// Returns the devices that were chosen for the claim and are not written yet.
    pub(super) fn chosen(&self) -> &[Device] {
        self.pending.as_ref().map_or(&[], |pending| &pending.new.result.devices.results)
    }

    /// Returns the devices that the claim holds, and the devices that sources should have granted to it. A claim holds
    /// its own devices, chosen or allocated, and those that sources have granted earlier: no other claim gets these
    /// before the sources have dropped the grants.
    pub(super) fn devices(&self, driver: &str, granted: Vec<Device>) -> (Vec<Device>, Vec<Device>) {
        let (has, is_wanted) = match &self.claim.allocation {
            Some(allocation) => {
                let devices = allocation.devices.clone().unwrap_or_else(|_| granted.clone());
                (devices, allocation.by == driver)
            }
            None => (self.chosen().to_vec(), self.is_kept),
        };
        let is_same = |one: &Device, other: &Device| {
            (&one.driver, &one.pool, &one.device, &one.share_id)
                == (&other.driver, &other.pool, &other.device, &other.share_id)
        };
        let earlier = granted.into_iter().filter(|it| !has.iter().any(|has| is_same(has, it)));
        let holds = has.iter().cloned().chain(earlier).collect();
        (holds, if is_wanted { has } else { Vec::new() })
    }

    /// Notes a search for devices of the claim. Returns the pause until the next one if the search was cut short: the
    /// pause doubles each time.
    pub(super) fn searched(&mut self, now: Duration, is_cut_short: bool) -> Option<Duration> {
        let pause = CUT_PAUSES.next(self.cut_short.map(|(pause, _)| pause));
        self.cut_short = is_cut_short.then(|| (pause, now + pause));
        is_cut_short.then_some(pause)
    }

    /// Returns true if this message was not recorded before.
    pub(super) fn is_first(&mut self, message: &str) -> bool {
        self.told.len() < MOST_MESSAGES && self.told.insert(message.to_owned())
    }

    /// Limits Events that say why a claim waits: their numbers change with every other claim.
    pub(super) fn may_tell_waiting(&mut self, now: Duration) -> bool {
        let may = self.told_waiting.is_none_or(|last| now.saturating_sub(last) >= BETWEEN_WAITING_EVENTS);
        if may {
            self.told_waiting = Some(now);
        }
        may
    }

    /// Forgets earlier messages and refusals, since the claim is well: the same failure is reported if it comes again.
    pub(super) fn is_well(&mut self) {
        self.told.clear();
        self.told_waiting = None;
        self.refusals = Refusals::default();
    }
}

impl NegotiationState {
    pub(super) fn new(context: SchedulingContext) -> Self {
        Self { context, pod: PodKnowledge::Unknown, answer: None, preferred_since: None }
    }
}

impl Refusals {
    /// Notes that the server refused an allocation for this node. Returns for how long that counts.
    pub(super) fn add(&mut self, now: Duration, node: &str, message: &str) -> Duration {
        let pause = REFUSALS.after(self.count);
        self.count = self.count.saturating_add(1);
        self.nodes.insert(node.to_owned(), (message.to_owned(), now + pause));
        pause
    }

    /// Returns the nodes for which a refusal counts.
    pub(super) fn nodes(&self, now: Duration) -> impl Iterator<Item = (&String, &String)> {
        self.nodes.iter().filter(move |(_, (_, until))| *until > now).map(|(node, (message, _))| (node, message))
    }
}

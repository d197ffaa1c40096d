//! State of claims and of negotiations in the core.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_api::{Doubling, ObjectKey};

use super::{
    event::NewAllocation,
    model::{ClassicClaim, PodFacts, SchedulingContext, UnsuitableNodes},
};

/// The first pause after the server refused an allocation; it doubles up to the longest.
const REFUSALS: Doubling = Doubling::new(Duration::from_secs(30), Duration::from_secs(3600));
/// Shortest time between two Events that say why a claim waits.
const WAITING_TOLD_EVERY: Duration = Duration::from_secs(60);
/// Number of different messages about a claim that are remembered, so that none is repeated.
const MOST_WORDS: usize = 32;

/// A claim, and the work in progress on it.
#[derive(Debug)]
pub(super) struct ClaimState {
    pub(super) claim: ClassicClaim,
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
    pub(super) context: Option<ObjectKey>,
}

/// Nodes for which the server refused an allocation.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    count: u32,
    nodes: BTreeMap<String, (String, Duration)>,
}

/// A negotiation, and the pod that it is about.
#[derive(Debug)]
pub(super) struct ContextState {
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

impl ClaimState {
    pub(super) fn new(claim: ClassicClaim) -> Self {
        let (pending, refusals, told) = (None, Refusals::default(), BTreeSet::new());
        Self { claim, pending, has_vanished: false, refusals, cut_short: None, told, told_waiting: None }
    }

    /// Returns true if this message was not recorded before.
    pub(super) fn is_first_word(&mut self, message: &str) -> bool {
        self.told.len() < MOST_WORDS && self.told.insert(message.to_owned())
    }

    /// Limits Events that say why a claim waits: their numbers change with every other claim.
    pub(super) fn may_tell_waiting(&mut self, now: Duration) -> bool {
        let may = self.told_waiting.is_none_or(|last| now.saturating_sub(last) >= WAITING_TOLD_EVERY);
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

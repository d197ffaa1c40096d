//! What the core remembers of a claim and of a negotiation.

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
/// How often it is said at most why a claim waits.
const WAITING_TOLD_EVERY: Duration = Duration::from_secs(60);
/// Different words about one claim that are remembered, so that none is said twice.
const MOST_WORDS: usize = 32;

/// A claim, and what is being done with it.
#[derive(Debug)]
pub(super) struct ClaimState {
    pub(super) claim: ClassicClaim,
    pub(super) pending: Option<PendingAllocation>,
    /// An allocation was written and came out without what makes it ours.
    pub(super) has_vanished: bool,
    pub(super) refusals: Refusals,
    /// The pause after looking at it took too much work, and until when.
    pub(super) cut_short: Option<(Duration, Duration)>,
    told: BTreeSet<String>,
    /// When it was last said that it waits.
    told_waiting: Option<Duration>,
}

/// An allocation on its way into the claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingAllocation {
    pub(super) new: NewAllocation,
    /// The negotiation that it is for.
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
    /// What it shall say of our claims.
    pub(super) answer: Option<UnsuitableNodes>,
    /// Since when nodes are told to be unsuitable that have less of what is optional than others.
    pub(super) preferred_since: Option<Duration>,
}

/// A claim that is not known, though a source says that it was given something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stranger {
    /// It is being looked for.
    Sought,
    /// There is none, and never will be.
    Gone,
}

/// What is known of a pod.
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

    /// Whether this has not been said before.
    pub(super) fn is_first_word(&mut self, message: &str) -> bool {
        self.told.len() < MOST_WORDS && self.told.insert(message.to_owned())
    }

    /// Why a claim waits has numbers in it, and changes with every other claim: that is not said all the time.
    pub(super) fn may_tell_waiting(&mut self, now: Duration) -> bool {
        let may = self.told_waiting.is_none_or(|last| now.saturating_sub(last) >= WAITING_TOLD_EVERY);
        if may {
            self.told_waiting = Some(now);
        }
        may
    }

    /// What was wrong is mended: it is said again if it happens again.
    pub(super) fn is_well(&mut self) {
        self.told.clear();
        self.told_waiting = None;
        self.refusals = Refusals::default();
    }
}

impl Refusals {
    /// The server refused an allocation for this node. Says for how long that counts.
    pub(super) fn add(&mut self, now: Duration, node: &str, message: &str) -> Duration {
        let pause = REFUSALS.after(self.count);
        self.count = self.count.saturating_add(1);
        self.nodes.insert(node.to_owned(), (message.to_owned(), now + pause));
        pause
    }

    /// Nodes for which it counts.
    pub(super) fn nodes(&self, now: Duration) -> impl Iterator<Item = (&String, &String)> {
        self.nodes.iter().filter(move |(_, (_, until))| *until > now).map(|(node, (message, _))| (node, message))
    }
}

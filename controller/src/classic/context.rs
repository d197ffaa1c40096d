//! The state that decisions read, and the effects that they ask for. A decision is a function of a [`ClassicContext`]: it
//! changes nothing but the list of its effects, which the core carries out.

use std::{collections::BTreeMap, time::Duration};

use hostler_api::ObjectKey;

use super::{
    catalogue::Catalogue,
    event::EventReason,
    inventory::Inventory,
    model::UnsuitableNodes,
    settings::ClassicSettings,
    state::{Claims, NegotiationState, PendingAllocation, Stranger},
    topic::Topic,
};

/// An effect that a decision asks for.
#[derive(Debug)]
pub(super) enum ClassicEffect {
    /// Decide about a topic in this step.
    Decide(Topic),
    /// Decide about a topic later.
    DecideAfter(Duration, Topic),
    /// Read the pod of a negotiation.
    ReadPod(ObjectKey),
    /// The pod of a negotiation was used for an allocation: the next one reads the pod anew.
    UsePod(ObjectKey),
    /// Ask the server for the claim of a grant, by its UID.
    FindClaim(ObjectKey, String),
    /// Record an Event on a claim.
    Record(ObjectKey, EventReason, String),
    /// Devices were searched for a claim.
    Searched { claim: ObjectKey, is_cut_short: bool },
    /// Write these devices into a claim.
    Allocate(ObjectKey, PendingAllocation),
    /// Leave a node out for a claim for a while.
    Refuse { claim: ObjectKey, node: String, message: String },
    /// Nodes with more optional devices are preferred in a negotiation since this time.
    Prefer(ObjectKey, Duration),
    /// These are the unsuitable nodes of our claims in a negotiation.
    Answer(ObjectKey, UnsuitableNodes),
}

/// The state that a decision reads, and its effects.
pub(super) struct ClassicContext<'a> {
    pub(super) settings: &'a ClassicSettings,
    pub(super) claims: &'a Claims,
    /// Claims that are not known although a source has a grant for them, by UID.
    pub(super) strangers: &'a BTreeMap<String, Stranger>,
    pub(super) negotiations: &'a BTreeMap<ObjectKey, NegotiationState>,
    pub(super) catalogue: &'a Catalogue,
    pub(super) inventory: &'a Inventory,
    pub(super) now: Duration,
    /// Effects of the decision, in order.
    pub(super) effects: Vec<ClassicEffect>,
}

impl ClassicContext<'_> {
    pub(super) fn push(&mut self, effect: ClassicEffect) {
        self.effects.push(effect);
    }

    /// Records an Event on a claim that a user has to mend.
    pub(super) fn fail(&mut self, claim: &ObjectKey, message: &impl ToString) {
        self.push(ClassicEffect::Record(claim.clone(), EventReason::Failed, message.to_string()));
    }

    /// Records an Event on a claim for which there is no device now.
    pub(super) fn wait(&mut self, claim: &ObjectKey, message: &str) {
        self.push(ClassicEffect::Record(claim.clone(), EventReason::Waiting, message.to_owned()));
    }
}

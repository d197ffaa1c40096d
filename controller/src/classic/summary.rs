//! Counts of claims and negotiations by what they wait for.

use super::{
    core::ClassicCore,
    state::{ClaimState, NegotiationState, PodKnowledge},
};

/// Counts of claims and negotiations by what they wait for. Few numbers, however many claims there are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ClassicSummary {
    /// Claims that are this driver's to allocate.
    pub(crate) claims: ClaimCounts,
    /// Negotiations about pods.
    pub(crate) contexts: ContextCounts,
}

/// Claims by state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ClaimCounts {
    /// Claims for which no devices on a certain node were requested yet.
    pub(crate) waiting: usize,
    /// Claims whose devices are chosen, and are being written.
    pub(crate) allocating: usize,
    pub(crate) allocated: usize,
    /// Claims that are still to be cleaned up.
    pub(crate) releasing: usize,
}

/// Negotiations by what they wait for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ContextCounts {
    /// Negotiations that wait for the scheduler to select a node, or to ask about others.
    pub(crate) scheduler: usize,
    /// Negotiations that wait for devices: no node that the scheduler asks about has them.
    pub(crate) devices: usize,
    /// Negotiations that wait for a user to mend parameters, a class or a claim, or for other drivers to answer.
    pub(crate) others: usize,
    /// Negotiations that wait for the API server's answer.
    pub(crate) api_server: usize,
}

impl ClaimCounts {
    /// Returns the counts by name.
    pub(crate) fn named(&self) -> [(&'static str, usize); 4] {
        let Self { waiting, allocating, allocated, releasing } = *self;
        [("waiting", waiting), ("allocating", allocating), ("allocated", allocated), ("releasing", releasing)]
    }
}

impl ContextCounts {
    /// Returns the counts by name.
    pub(crate) fn named(&self) -> [(&'static str, usize); 4] {
        let Self { scheduler, devices, others, api_server } = *self;
        [("scheduler", scheduler), ("devices", devices), ("others", others), ("api_server", api_server)]
    }
}

impl ClassicCore {
    /// Returns the counts of this moment.
    pub(crate) fn summary(&self) -> ClassicSummary {
        let mut summary = ClassicSummary::default();
        for state in self.claims.iter() {
            if let Some(count) = self.count_of(state, &mut summary.claims) {
                *count += 1;
            }
        }
        for state in self.negotiations.values() {
            *waits_for(state, &mut summary.contexts) += 1;
        }
        summary
    }

    fn count_of<'c>(&self, state: &ClaimState, counts: &'c mut ClaimCounts) -> Option<&'c mut usize> {
        let claim = &state.claim;
        if state.pending.is_some() {
            Some(&mut counts.allocating)
        } else if claim.is_allocated_by(&self.settings.driver) && !claim.is_over() {
            Some(&mut counts.allocated)
        } else if state.is_kept {
            Some(&mut counts.releasing)
        } else {
            (state.is_waiting() && self.catalogue.is_ours(claim)).then_some(&mut counts.waiting)
        }
    }
}

fn waits_for<'c>(state: &NegotiationState, counts: &'c mut ContextCounts) -> &'c mut usize {
    let NegotiationState { context, pod, answer, .. } = state;
    if *pod == PodKnowledge::Asked {
        return &mut counts.api_server;
    }
    let Some(answer) = answer else { return &mut counts.others };
    let mut asked = context.potential.iter().chain(&context.selected).peekable();
    let is_somewhere = asked.peek().is_none() || asked.any(|node| !answer.values().any(|nodes| nodes.contains(node)));
    if is_somewhere { &mut counts.scheduler } else { &mut counts.devices }
}

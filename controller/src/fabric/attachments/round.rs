//! A round of steps that follow from one reading. Pure.
//!
//! Each write names the version that it was decided on, and the next one is decided on the object that the answer
//! returned. Nothing guards a call of the manager in this way: it is decided on what was just read, and after it, which
//! may take minutes, everything is read anew before anything else is done, but for a write over the version that was read. What two devices owe each other depends on
//! that too: each writes that it is being attached before it reads whether the other one is.

use std::time::Duration;

use super::{
    context::{AnsweredWrite, AttachmentContext, AttachmentStep, AttachmentWrite, ManagerCall, place_of},
    decide::decide,
};

/// Writes that follow from one reading: none is known to take more than three.
const MOST_WRITES: usize = 4;

/// A round of steps.
pub(super) struct AttachmentRound {
    pub(super) cx: AttachmentContext,
    writes: usize,
    has_called: bool,
}

/// The next step of a round.
#[derive(Debug, PartialEq)]
pub(super) enum RoundStep {
    /// Nothing until something changes.
    Rest,
    /// Nothing before this time since 1970, if nothing changes.
    Until(Duration),
    /// A call is to be made: everything is read anew before.
    ReadAnew,
    /// There is more to do, by the latest view.
    Later,
    Write(AttachmentWrite),
    Call(ManagerCall),
}

impl AttachmentRound {
    /// Begins a round with a reading.
    pub(super) fn new(cx: AttachmentContext) -> Self {
        Self { cx, writes: 0, has_called: false }
    }

    /// Decides the next step.
    pub(super) fn next(&self) -> RoundStep {
        match decide(&self.cx) {
            AttachmentStep::Rest => RoundStep::Rest,
            AttachmentStep::Until(at) => RoundStep::Until(at),
            _ if self.has_called || self.writes >= MOST_WRITES => RoundStep::Later,
            AttachmentStep::Write(write) => RoundStep::Write(write),
            AttachmentStep::Call(_) if self.writes > 0 => RoundStep::ReadAnew,
            AttachmentStep::Call(call) => RoundStep::Call(call),
        }
    }

    /// Notes that the manager has answered a call.
    pub(super) fn called(&mut self) {
        self.has_called = true;
    }

    /// Takes the answer to a write. False: what was read beside the object is not about the object as it is now.
    pub(super) fn take(&mut self, written: AnsweredWrite) -> bool {
        let place = |cx: &AttachmentContext| place_of(cx.seen.as_ref(), &cx.claims, cx.kept.as_ref());
        let before = place(&self.cx);
        self.writes += 1;
        match written {
            AnsweredWrite::Gone | AnsweredWrite::Claim(None) => false,
            AnsweredWrite::Claim(Some(claim)) => {
                let known = self.cx.claims.iter_mut().find(|known| known.uid == claim.uid);
                known.map(|known| *known = *claim).is_some()
            }
            AnsweredWrite::Attachment(seen) => {
                let node = &seen.spec().node_name;
                let is_node_known = node.is_empty() || self.cx.nodes.contains_key(node);
                self.cx.seen = Some(*seen);
                is_node_known && place(&self.cx) == before
            }
        }
    }
}

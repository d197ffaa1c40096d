//! Attaching devices to nodes for requests of the class that gives all or nothing. Whoever can do that, a fabric of switches for
//! one, implements [`Attach`]; what is attached, in which order, and when it is detached again is decided here.
//!
//! The plan stands in the request before its first step, and each step has a token that follows from the request. So whoever goes
//! on after a crash asks what is attached, and knows of each device for which request and which step that is.

mod decide;
mod journal;
mod keeper;
mod search;

use std::fmt;

use hostler_allocator::plan::PodSet;
use hostler_api::resource::ResourceSlice;
use serde::{Deserialize, Serialize};

pub(super) use self::{
    decide::{StepDecision, is_held},
    journal::{ATTACH, AttachJournal, live},
    keeper::{AttachKeeper, AttachSettings},
    search::{AttachPlan, AttachSearch},
};
use crate::hold::DeviceKey;

/// Attaches devices to nodes, and detaches them.
///
/// Calls are made on threads that may wait, each ends by itself within minutes, and one that fails may have been carried out
/// nevertheless: what counts is what [`list`](Self::list) says afterwards.
pub(crate) trait Attach: fmt::Debug + Send + Sync {
    /// What could be attached for pods that have no room, the best first: each offer a step, with the slice that it would give.
    /// Its pool is one of its own. Nothing is promised by that.
    fn offers(&self, lacking: &[PodSet]) -> Vec<AttachOffer>;

    /// Carries out a step. Where that was done under this token before, it does nothing; where the token was used for another
    /// step, or the device is attached under another token, it fails.
    fn attach(&self, order: &AttachOrder) -> Result<(), AttachFailure>;

    /// Takes back what was attached under a token; where nothing is, it does nothing. Pods must be kept from the devices first:
    /// where a claim was given one of them all the same, or a Reservation keeps it, it fails and leaves them.
    fn detach(&self, token: &AttachToken) -> Result<(), AttachFailure>;

    /// Everything that is attached under tokens, also what is still being attached or detached.
    fn list(&self) -> Result<Vec<AttachedDevice>, AttachFailure>;
}

/// A device that is attached to a node.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct AttachStep {
    /// The node.
    pub(crate) node: String,
    /// What whoever attaches it calls the device.
    pub(crate) device: String,
}

/// By which a step is known again: no other step ever has the same.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct AttachToken {
    /// UID of the request.
    pub(crate) request: String,
    /// Which of all steps that were ever planned for it.
    pub(crate) index: u32,
}

/// A step that is to be carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AttachOrder {
    /// By which it is known again.
    pub(crate) token: AttachToken,
    /// What is attached where.
    pub(crate) step: AttachStep,
}

/// A step that could be carried out, and what would come of it.
#[derive(Clone, Debug)]
pub(crate) struct AttachOffer {
    /// What would be attached where.
    pub(crate) step: AttachStep,
    /// What would be published then.
    pub(crate) slice: ResourceSlice,
}

/// Something that is attached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AttachedDevice {
    /// Under which token.
    pub(crate) token: AttachToken,
    /// What is attached where.
    pub(crate) step: AttachStep,
    /// As what it is published.
    pub(crate) devices: Vec<DeviceKey>,
}

/// Why a call did not succeed, for people.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct AttachFailure(pub(crate) String);

/// Something to ask of whoever attaches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum AttachCall {
    /// What is attached.
    List,
    /// Carry out a step.
    Attach(AttachOrder),
    /// Take one back.
    Detach(AttachToken),
}

impl fmt::Display for AttachStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to node {}", self.device, self.node)
    }
}

impl fmt::Display for AttachToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.request, self.index)
    }
}

//! Attaching devices to nodes for requests of the all-or-nothing class. A system that can do that, such as a fabric of
//! switches, implements [`Attach`]; which devices are attached, in which order, and when they are detached is decided
//! here.
//!
//! The plan is written into the request before its first step, and each step has a token that follows from the request.
//! A controller that continues after a crash lists what is attached, and knows the request and step of each device.

mod journal;
mod keeper;
mod search;

use std::fmt;

use hostler_allocator::plan::PodSet;
use hostler_api::resource::ResourceSlice;
use serde::{Deserialize, Serialize};

pub(super) use self::{
    journal::{ATTACH, AttachJournal, live},
    keeper::{AttachKeeper, AttachSettings},
    search::{AttachPlan, AttachSearch},
};
use crate::hold::DeviceKey;

/// Attaches devices to nodes, and detaches them.
///
/// Calls are made on threads that may wait. Each call ends by itself within minutes, and a call that fails may have
/// been carried out nevertheless: only a later [`list`](Self::list) tells.
pub(crate) trait Attach: fmt::Debug + Send + Sync {
    /// Returns devices that could be attached for pods without room, the best first: each offer is a step with the
    /// slice that would be published, in a pool of its own. An offer is no promise.
    fn offers(&self, lacking: &[PodSet]) -> Vec<AttachOffer>;

    /// Carries out a step. A step that was carried out under this token before is success. The call fails if the token
    /// was used for another step, or if the device is attached under another token.
    fn attach(&self, order: &AttachOrder) -> Result<(), AttachFailure>;

    /// Detaches the device that was attached under a token; where none is, the call succeeds. Pods must be kept from
    /// the device first: if a claim was given the device all the same, or a Reservation keeps it, the call fails and
    /// the device stays.
    fn detach(&self, token: &AttachToken) -> Result<(), AttachFailure>;

    /// Returns every device that is attached under a token, or is being attached or detached.
    fn list(&self) -> Result<Vec<AttachedDevice>, AttachFailure>;
}

/// A device, and the node that it is attached to.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct AttachStep {
    /// The node.
    pub(crate) node: String,
    /// The name by which the implementation knows the device.
    pub(crate) device: String,
}

/// The identity of a step: no other step ever has the same.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct AttachToken {
    /// UID of the request.
    pub(crate) request: String,
    /// Index among all steps that were ever planned for the request.
    pub(crate) index: u32,
}

/// A step that is to be carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AttachOrder {
    /// The identity of the step.
    pub(crate) token: AttachToken,
    /// The device and the node.
    pub(crate) step: AttachStep,
}

/// A step that could be carried out, and its result.
#[derive(Clone, Debug)]
pub(crate) struct AttachOffer {
    /// The device and the node.
    pub(crate) step: AttachStep,
    /// The slice that would be published then.
    pub(crate) slice: ResourceSlice,
}

/// A device that is attached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AttachedDevice {
    /// The token of the step that attached it.
    pub(crate) token: AttachToken,
    /// The device and the node.
    pub(crate) step: AttachStep,
    /// The names under which it is published.
    pub(crate) devices: Vec<DeviceKey>,
}

/// The reason why a call failed, for messages.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct AttachFailure(pub(crate) String);

/// A call of the implementation of [`Attach`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum AttachCall {
    /// Lists what is attached.
    List,
    /// Carries out a step.
    Attach(AttachOrder),
    /// Takes a step back.
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

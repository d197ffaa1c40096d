//! The one reason that an answer names, and its fix.

use std::fmt;

use serde::Serialize;

/// The reason why a pod is in its state.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PodCause {
    /// The reason in one word, for programs.
    pub(super) cause: CauseKind,
    /// The reason, as a continuation of `the pod waits: `.
    pub(super) reason: String,
    /// A step that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

/// The kind of a reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CauseKind {
    /// The pod runs.
    Running,
    /// The pod has ended.
    Ended,
    /// The pod is being deleted.
    Deleting,
    /// The pod is on its node, and being started.
    Starting,
    /// The node failed to prepare the pod's devices.
    PrepareFailed,
    /// The node's kubelet is silent.
    NodeSilent,
    /// A container does not start, or ends again and again.
    ContainerWaits,
    /// Scheduling gates hold the pod back.
    Gated,
    /// The server serves no claims of today.
    NoClaimApi,
    /// The pod names a claim that does not exist.
    NoClaim,
    /// The pod names a template that does not exist.
    NoTemplate,
    /// A claim was not made from its template yet.
    ClaimNotMade,
    /// A claim is being deleted.
    ClaimDeleting,
    /// A claim has as many pods as a claim can have.
    ClaimFull,
    /// A request names a class that does not exist.
    NoClass,
    /// No device is of the class.
    ClassEmpty,
    /// No device matches the selectors.
    NoMatch,
    /// The cluster, or each node, has fewer devices than a request wants.
    TooFew,
    /// A claim has a device behind a switch that is not attached yet.
    NotAttached,
    /// Other claims have the devices.
    Allocated,
    /// Reservations keep the devices for others.
    Kept,
    /// A Reservation keeps the devices for the pod, and its claim does not tolerate the taint.
    NotTolerated,
    /// The devices are out of service.
    Drained,
    /// The devices do not work.
    Unhealthy,
    /// Nothing is known of the devices.
    Unknown,
    /// Devices cannot be had for several reasons, or for what others have of the same card.
    Unavailable,
    /// The ProvisioningRequest that the pod names was not told yes.
    NoCapacityYet,
    /// The nodes with the devices refuse the pod for another reason.
    NodeRefuses,
    /// Another scheduler places the pod.
    OtherScheduler,
    /// The pod fits now.
    Fits,
    /// The objects that tell may not be read; the scheduler's own words are all that is known.
    NotReadable,
}

impl PodCause {
    /// Makes a reason without a fix.
    pub(super) fn new(cause: CauseKind, reason: impl Into<String>) -> Self {
        Self { cause, reason: reason.into(), fix: None }
    }

    /// Adds the fix.
    pub(super) fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

impl fmt::Display for CauseKind {
    /// Writes the word that programs get.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

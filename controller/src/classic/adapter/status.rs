//! Status of allocation: for conditions, figures, and messages.

use std::collections::BTreeMap;

use hostler_api::{Chain, classic::ClassicVersion};
use hostler_cluster::ApiFailure;

use crate::classic::summary::ClassicSummary;

/// The phase that allocation is in.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum ClassicPhase {
    /// Another controller allocates, or this one is about to.
    #[default]
    NotLeading,
    /// The cluster's scheduler allocates.
    NotNeeded,
    /// Claims and NodeHardware from before the upgrade to 1.32 are still to be handed over, and the obstacle, if any.
    Migrating { claims: usize, sources: usize, trouble: Option<String> },
    /// The server does not have this API, or not all of it.
    NotServed(String),
    /// Unknown, since the server does not answer.
    Unknown(String),
    /// Kinds of which no complete list was seen yet.
    Listing(Vec<&'static str>),
    /// Claims are allocated.
    Allocating(ClassicVersion),
    /// The server drops these fields.
    Dropped(String),
}

/// Status of allocation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ClassicStatus {
    pub(crate) phase: ClassicPhase,
    /// Claims and negotiations, counted by what they wait for.
    pub(crate) summary: ClassicSummary,
    /// Writes of this term, by kind of the write and by outcome.
    pub(crate) writes: BTreeMap<(&'static str, &'static str), u64>,
    /// Commands that wait until fewer calls are under way.
    pub(crate) queued: usize,
    /// Objects that cannot be understood.
    pub(crate) unreadable: usize,
}

impl ClassicPhase {
    /// Returns the phase after a call that failed.
    pub(super) fn of_failure(failure: &ApiFailure) -> Self {
        match failure {
            ApiFailure::NoResourceApi => Self::NotServed("resource.k8s.io".to_owned()),
            failure => Self::Unknown(Chain(failure).to_string()),
        }
    }
}

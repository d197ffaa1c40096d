//! How allocating goes: for conditions, figures, and people.

use std::collections::BTreeMap;

use hostler_api::{Chain, classic::ClassicVersion};
use hostler_cluster::ApiFailure;

use crate::classic::summary::ClassicSummary;

/// How far it has come.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum ClassicPhase {
    /// Another controller allocates, or this one is about to.
    #[default]
    NotLeading,
    /// The cluster's scheduler allocates.
    NotNeeded,
    /// Claims and NodeHardware of before the upgrade to 1.32 that are still to be handed over, and what is in the way.
    Migrating { claims: usize, sources: usize, trouble: Option<String> },
    /// The server has no such API, or not all of it.
    NotServed(String),
    /// Nobody knows, since the server does not answer.
    Unknown(String),
    /// Kinds of which no complete list was seen yet.
    Listing(Vec<&'static str>),
    /// Claims are allocated.
    Allocating(ClassicVersion),
    /// The server lets fields fall.
    Dropped(String),
}

/// How allocating goes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ClassicStatus {
    pub(crate) phase: ClassicPhase,
    /// What waits for whom.
    pub(crate) summary: ClassicSummary,
    /// Writes of this term, by what was written and what came of it.
    pub(crate) writes: BTreeMap<(&'static str, &'static str), u64>,
    /// Commands that wait until fewer calls are under way.
    pub(crate) queued: usize,
    /// Objects that cannot be understood.
    pub(crate) unreadable: usize,
}

impl ClassicPhase {
    /// As a call's failure leaves it.
    pub(super) fn of_failure(failure: &ApiFailure) -> Self {
        match failure {
            ApiFailure::NoResourceApi => Self::NotServed("resource.k8s.io".to_owned()),
            failure => Self::Unknown(Chain(failure).to_string()),
        }
    }
}

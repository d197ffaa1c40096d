//! Intended binding of a container: the union of its shares of claims, as the hooks noted them and the records still
//! say. Pure.

use std::collections::BTreeMap;

use hostler_api::{ClaimRef, ClaimUid};
use hostler_linux::IdSet;

use crate::{
    claims::{
        ClaimTable, ClaimView,
        store::{ClaimRecord, RecordState},
    },
    containers::ContainerNote,
    pinning::{Pins, union},
};

/// A container with the claims that it was made with.
#[derive(Clone, Debug)]
pub(super) struct NotedContainer {
    pub(super) id: String,
    pub(super) note: ContainerNote,
    /// Share of each claim that the container has; `None` where that was not noted.
    pub(super) shares: BTreeMap<ClaimUid, Option<Pins>>,
    /// Why these may not be all of its claims, if that is so. The container must not lose what it has of the others.
    pub(super) doubt: Option<String>,
}

/// Intended binding of a container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum BindingIntent {
    /// Bound to these. Nodes that programs need besides are not in it.
    Bound(Pins),
    /// Not known now: a claim of the container is worked on, so its record is no measure for the container.
    Later,
    /// Not known; the value is the reason.
    Unknown(String),
}

/// Returns the claims that bind anything, or may: a container is bound to all of its claims together, so none of them
/// is left out, whatever its state.
pub(super) fn binding_claims(table: &ClaimTable) -> impl Iterator<Item = &ClaimUid> {
    let binds = |view: &ClaimView| match view {
        ClaimView::Recorded { record, .. } => record.devices.iter().any(|held| held.plan.pinning.binds()),
        ClaimView::Quarantined(_) => true,
    };
    table.claims.iter().filter_map(move |(uid, view)| binds(view).then_some(uid))
}

/// Returns the names of the claims of a container that are on record.
pub(super) fn claims_of(container: &NotedContainer, table: &ClaimTable) -> Vec<ClaimRef> {
    container.shares.keys().filter_map(|uid| table.claims.get(uid)?.claim().cloned()).collect()
}

/// Returns the intended binding of a container.
pub(super) fn intent(container: &NotedContainer, table: &ClaimTable) -> BindingIntent {
    if let Some(doubt) = &container.doubt {
        return BindingIntent::Unknown(doubt.clone());
    }
    let mut shares = Vec::new();
    for (uid, noted) in &container.shares {
        let record = match table.claims.get(uid) {
            Some(ClaimView::Recorded { record, busy: None, .. }) if record.state == RecordState::Prepared => record,
            Some(ClaimView::Recorded { .. }) => return BindingIntent::Later,
            Some(ClaimView::Quarantined(_)) => {
                return BindingIntent::Unknown(format!("its claim {uid} is quarantined"));
            }
            None => return BindingIntent::Unknown(format!("its claim {uid} is not on record")),
        };
        match share(record, noted.as_ref()) {
            Ok(pins) => shares.push(pins),
            Err(reason) => return BindingIntent::Unknown(reason),
        }
    }
    BindingIntent::Bound(union(&shares))
}

/// Returns a container's share of a claim. The record is what was promised; the note only says which part of it.
fn share(record: &ClaimRecord, noted: Option<&Pins>) -> Result<Pins, String> {
    let whole = whole(record);
    let name = record.claim.full_name();
    match noted {
        Some(noted) if noted.cpus.is_subset(&whole.cpus) && noted.mems.is_subset(&whole.mems) => Ok(noted.clone()),
        Some(noted) => Err(format!("it was bound to {}, which claim {name} does not have", noted.in_words())),
        None if requests(record) == 1 => Ok(whole),
        None => Err(format!("which requests of claim {name} it has was not noted when it was made")),
    }
}

fn whole(record: &ClaimRecord) -> Pins {
    let pins = |held: &crate::claims::store::RecordDevice| {
        let pinning = &held.plan.pinning;
        Pins { cpus: IdSet::from(pinning.cpus.clone()), mems: IdSet::from(pinning.mems.clone()) }
    };
    union(&record.devices.iter().map(pins).collect::<Vec<Pins>>())
}

fn requests(record: &ClaimRecord) -> usize {
    let binding = record.devices.iter().filter(|held| held.plan.pinning.binds());
    let mut requests: Vec<&str> =
        binding.map(|held| held.grant.request.split('/').next().unwrap_or_default()).collect();
    requests.sort_unstable();
    requests.dedup();
    requests.len()
}

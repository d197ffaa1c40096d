//! What a start makes of what the last run left: records, CDI files and the boot id become a plan, the plan is logged
//! and applied before any socket opens. The plan is pure.
//!
//! | record | boot | CDI file | action |
//! |---|---|---|---|
//! | prepared | this | there | keep, after a check |
//! | prepared | this | missing | restore: make the hardware ready again, check, write the file |
//! | prepared | earlier | any | await: hardware state is gone; same devices, ready again at the next prepare |
//! | preparing | this | any | roll back |
//! | preparing | earlier | any | forget: the reboot undid it |
//! | not understood | | any | quarantine: devices stay taken, nothing is touched |
//! | none | | there | quarantine, with what the file says it holds |

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use hostler_api::{Chain, ClaimRef, ClaimUid};
use hostler_cdi::{DirError, SpecDir};
use tracing::{info, warn};

use super::{
    ClaimError, ClaimView,
    spec::{HOLDINGS_ANNOTATION, Naming},
    store::{Holdings, Loaded, Record, RecordDevice, RecordState, salvage},
    work::{Job, Prepared, Workshop},
};
use crate::metrics::Metrics;

/// A claim that was found in a state that nobody can be sure of.
#[derive(Clone, Debug, PartialEq)]
pub struct Quarantined {
    /// From the file's name.
    pub uid: ClaimUid,
    /// The file at fault.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
    /// Namespace and name, where something still says them.
    pub claim: Option<ClaimRef>,
    /// What it holds, as far as something still says so. These devices stay taken.
    pub devices: Vec<RecordDevice>,
}

impl Quarantined {
    /// The answer to whoever asks for this claim.
    pub fn error(&self) -> ClaimError {
        ClaimError::Quarantined { uid: self.uid.clone(), path: self.path.clone(), reason: self.reason.clone() }
    }
}

/// What happens to one claim at start.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ready, CDI file in place.
    Keep(Record),
    /// Ready as far as the record says, CDI file lost.
    Restore(Record),
    /// Ready in an earlier boot.
    AwaitPrepare(Record),
    /// Half done in this boot.
    RollBack(Record),
    /// Half done in an earlier boot.
    Forget(Record),
    /// Not understood.
    Quarantine(Quarantined),
}

impl Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Keep(_) => "keep",
            Self::Restore(_) => "restore",
            Self::AwaitPrepare(_) => "await prepare",
            Self::RollBack(_) => "roll back",
            Self::Forget(_) => "forget",
            Self::Quarantine(_) => "quarantine",
        }
    }
}

/// A CDI file of a claim, as found.
#[derive(Clone, Debug)]
pub struct FoundCdi {
    /// The file.
    pub path: PathBuf,
    /// What its annotation says that the claim holds, if it can be read.
    pub holdings: Option<Holdings>,
}

/// The CDI files of claims in a folder, and what they say their claims hold.
///
/// # Errors
/// When the folder cannot be read.
pub fn found_cdi(cdi: &SpecDir, naming: &Naming) -> Result<BTreeMap<ClaimUid, FoundCdi>, DirError> {
    let files = cdi.list(&naming.driver)?.into_iter();
    Ok(files
        .filter_map(|file| {
            let uid = naming.claim_of_stem(file.stem()?)?;
            let annotation = file.spec.ok().and_then(|mut spec| spec.annotations.remove(HOLDINGS_ANNOTATION));
            let holdings = annotation.and_then(|text| serde_json::from_str(&text).ok());
            Some((uid, FoundCdi { path: file.path, holdings }))
        })
        .collect())
}

/// Decides for every claim that left a trace.
pub fn plan(records: Vec<Loaded>, mut cdi: BTreeMap<ClaimUid, FoundCdi>, boot_id: &str) -> BTreeMap<ClaimUid, Action> {
    let mut actions = BTreeMap::new();
    for loaded in records {
        let found = cdi.remove(&loaded.uid);
        let action = match loaded.record {
            Err(reason) => {
                Action::Quarantine(quarantine(loaded.uid.clone(), loaded.path, reason, &loaded.bytes, found))
            }
            Ok(record) => decide(record, found.is_some(), boot_id),
        };
        actions.insert(loaded.uid, action);
    }
    for (uid, found) in cdi {
        let reason = "it has a CDI file but no record".to_owned();
        let path = found.path.clone();
        actions.insert(uid.clone(), Action::Quarantine(quarantine(uid, path, reason, &[], Some(found))));
    }
    actions
}

fn decide(record: Record, has_cdi: bool, boot_id: &str) -> Action {
    match (record.state, record.boot_id == boot_id, has_cdi) {
        (RecordState::Prepared, true, true) => Action::Keep(record),
        (RecordState::Prepared, true, false) => Action::Restore(record),
        (RecordState::Prepared, false, _) => Action::AwaitPrepare(record),
        (RecordState::Preparing, true, _) => Action::RollBack(record),
        (RecordState::Preparing, false, _) => Action::Forget(record),
    }
}

/// A damaged record may name another device than it did, so what it still says is held beside what the CDI file says.
fn quarantine(uid: ClaimUid, path: PathBuf, reason: String, bytes: &[u8], found: Option<FoundCdi>) -> Quarantined {
    let held: Vec<Holdings> = [salvage(bytes), found.and_then(|found| found.holdings)].into_iter().flatten().collect();
    let claim = held.iter().map(|held| &held.claim).find(|claim| claim.uid == uid);
    let claim = claim.or_else(|| held.first().map(|held| &held.claim)).cloned();
    let mut devices: Vec<RecordDevice> = Vec::new();
    for device in held.into_iter().flat_map(|held| held.devices) {
        if !devices.iter().any(|known| known.grant == device.grant && known.plan == device.plan) {
            devices.push(device);
        }
    }
    Quarantined { uid, path, reason, claim, devices }
}

/// Applies the plan; what is left is the claim table that the daemon starts with.
pub(super) fn apply(
    workshop: &Workshop,
    actions: BTreeMap<ClaimUid, Action>,
    metrics: &Metrics,
) -> BTreeMap<ClaimUid, ClaimView> {
    let mut table = BTreeMap::new();
    for (uid, action) in actions {
        metrics.recovered(action.name());
        info!(claim.uid = %uid, action = action.name(), "recovering claim");
        if let Some(view) = apply_one(workshop, &uid, action) {
            if let ClaimView::Recorded { problem: Some(problem), .. } = &view {
                warn!(claim.uid = %uid, error = problem, "claim has a problem");
            }
            table.insert(uid, view);
        }
    }
    table
}

fn apply_one(workshop: &Workshop, uid: &ClaimUid, action: Action) -> Option<ClaimView> {
    match action {
        Action::Quarantine(quarantined) => {
            warn!(claim.uid = %uid, path = %quarantined.path.display(), error = quarantined.reason, "claim quarantined");
            Some(ClaimView::Quarantined(Arc::new(quarantined)))
        }
        // Without its CDI file it is made ready again from the start: an unprepare may have been under way.
        Action::Keep(record) | Action::Restore(record) => ready(workshop, record),
        Action::AwaitPrepare(record) => {
            let stale = workshop.remove_cdi(uid).err().map(|error| Chain(&error).to_string());
            let problem = stale.unwrap_or_else(|| "the host was rebooted; ready again at the next prepare".to_owned());
            Some(ClaimView::Recorded { record: Arc::new(record), problem: Some(problem) })
        }
        Action::RollBack(record) | Action::Forget(record) => {
            let record = Arc::new(record);
            let (_, result) = workshop.unprepare(std::slice::from_ref(&record)).pop()?;
            let problem = Some(Chain(&result.err()?).to_string());
            Some(ClaimView::Recorded { record, problem })
        }
    }
}

/// Keeps or restores a claim. Whatever fails, its record and its devices stay.
fn ready(workshop: &Workshop, record: Record) -> Option<ClaimView> {
    let (_, prepared) = workshop.prepare(vec![Job::Again(Arc::new(record))]).pop()?;
    match prepared {
        Prepared::Ready(record) => Some(ClaimView::Recorded { record, problem: None }),
        Prepared::Left(record, error) => {
            Some(ClaimView::Recorded { record, problem: Some(Chain(&*error).to_string()) })
        }
        Prepared::Undone(_) => None,
    }
}

#[cfg(test)]
mod tests;

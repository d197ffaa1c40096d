//! Recovery at start: a plan made from the records, the CDI files and the boot id of the last run. The plan is pure.
//! It is logged; the owner of the claims has backends do their part of it, side by side for backends that do not meet
//! in a claim, and before any socket opens, unless a backend does not answer.
//!
//! | record | boot | CDI file | action |
//! |---|---|---|---|
//! | prepared | this | there | keep, after a check |
//! | prepared | this | missing | restore: make the hardware ready again, check, write the file |
//! | prepared | earlier | any | await: hardware state is gone; same devices, ready again at the next prepare |
//! | restoring | any | any | await: as before, and half of it may be ready again |
//! | preparing | this | any | roll back |
//! | preparing | earlier | any | forget: the reboot undid it |
//! | not understood | | any | quarantine: devices stay taken, nothing is touched |
//! | gives, together with others, what cannot be given twice | | any | quarantine all of them |
//! | none | | there | quarantine, with what the file says it holds |

mod contradictions;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use hostler_api::{Chain, ClaimRef, ClaimUid};
use hostler_backend::VerifyWork;
use hostler_cdi::{DirError, SpecDir, SpecFile};
use tracing::{debug, info, warn};

pub(super) use self::contradictions::refuse_contradictions;
use super::{
    ClaimError, ClaimView,
    executor::{ClaimExecutor, ClaimOutcome},
    naming::CdiNaming,
    spec::HOLDINGS_ANNOTATION,
    store::{ClaimHoldings, ClaimRecord, LoadedRecord, RecordDevice, RecordState, salvage},
};
use crate::{metrics::Metrics, registry::BackendRegistry};

/// A claim that was found in an uncertain state.
#[derive(Clone, Debug, PartialEq)]
pub struct QuarantinedClaim {
    /// UID in the file's name.
    pub uid: ClaimUid,
    /// The file at fault.
    pub path: PathBuf,
    /// Fault of the record or the file.
    pub reason: String,
    /// Namespace and name, where something still says them.
    pub claim: Option<ClaimRef>,
    /// Devices that the claim holds, as far as something still says so. They stay taken.
    pub devices: Vec<RecordDevice>,
}

impl QuarantinedClaim {
    /// The answer to callers that ask for this claim.
    pub fn error(&self) -> ClaimError {
        ClaimError::Quarantined { uid: self.uid.clone(), path: self.path.clone(), reason: self.reason.clone() }
    }
}

/// Action on one claim at start.
#[derive(Clone, Debug, PartialEq)]
pub enum RecoveryAction {
    /// The claim is ready, and its CDI file is in place.
    Keep(ClaimRecord),
    /// The claim is ready according to its record; its CDI file is lost.
    Restore(ClaimRecord),
    /// The claim was ready in an earlier boot, and is not yet in this one.
    AwaitPrepare(ClaimRecord),
    /// Preparing or taking back the claim was interrupted in this boot.
    RollBack(ClaimRecord),
    /// Preparing or taking back the claim was interrupted in an earlier boot.
    Forget(ClaimRecord),
    /// The record is not understood.
    Quarantine(QuarantinedClaim),
}

impl RecoveryAction {
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
    /// Holdings that the file's annotation states, if it was read and is understood.
    pub holdings: Option<ClaimHoldings>,
}

/// Returns the CDI files of claims in a folder, and what those of claims without a sound record say that they hold.
/// The content of the others is compared with the record anyway, when the claim has its turn.
///
/// # Errors
/// When the folder cannot be read.
pub fn found_cdi(
    cdi: &SpecDir,
    naming: &CdiNaming,
    records: &[LoadedRecord],
) -> Result<BTreeMap<ClaimUid, FoundCdi>, DirError> {
    let sound: BTreeSet<&ClaimUid> = records.iter().filter(|it| it.record.is_ok()).map(|it| &it.uid).collect();
    let found = |path: PathBuf| {
        let uid = naming.claim_of_stem(path.file_stem()?.to_str()?)?;
        let found = if sound.contains(&uid) { FoundCdi { path, holdings: None } } else { read_cdi(path, naming)? };
        Some((uid, found))
    };
    Ok(cdi.named(&naming.driver)?.into_iter().filter_map(found).collect())
}

fn read_cdi(path: PathBuf, naming: &CdiNaming) -> Option<FoundCdi> {
    let file = SpecFile::of_vendor(path, &naming.driver)?;
    let annotation = file.spec.ok().and_then(|mut spec| spec.annotations.remove(HOLDINGS_ANNOTATION));
    Some(FoundCdi { path: file.path, holdings: annotation.and_then(|text| serde_json::from_str(&text).ok()) })
}

/// Checks that a record's backends can have given its content, and that its names can be parts of paths. The checksum
/// of a record finds accidents; a process that can write a record can write the checksum too. Devices of a backend that
/// is not enabled are not checked, nor those of an earlier boot: they are prepared anew, since names of devices change
/// with every boot.
pub(super) fn hold_to_backends(loaded: LoadedRecord, backends: &BackendRegistry, boot_id: &str) -> LoadedRecord {
    let held = |record: ClaimRecord| match foreign(&record, backends, boot_id) {
        None => Ok(record),
        Some(reason) => Err(reason),
    };
    LoadedRecord { record: loaded.record.and_then(held), ..loaded }
}

fn foreign(record: &ClaimRecord, backends: &BackendRegistry, boot_id: &str) -> Option<String> {
    if let Some(name) = names(record).find(|name| !is_name(name)) {
        return Some(format!("{name:?} is no name"));
    }
    if record.awaits_prepare(boot_id) {
        return None;
    }
    record.devices.iter().find_map(|device| {
        let work = VerifyWork { claim: &record.claim.uid, grant: &device.grant, plan: &device.plan };
        let checked = backends.get(&device.backend)?.check_edits(&work, &device.edits);
        checked.err().map(|foreign| format!("device {} cannot be what is on record: {foreign}", device.grant.device))
    })
}

/// Names that become part of a path.
fn names(record: &ClaimRecord) -> impl Iterator<Item = &str> {
    let claim = [&*record.claim.namespace, &*record.claim.name];
    let in_pod = record.metadata.as_ref().and_then(|metadata| metadata.pod_claim_name.as_deref());
    let requests = record.devices.iter().flat_map(|device| device.grant.request.splitn(2, '/'));
    claim.into_iter().chain(in_pod).chain(requests)
}

/// True if the text may be part of a path: every name that the API server takes is one, and none leads elsewhere.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && text.chars().all(|letter| letter != '/' && !letter.is_control())
}

/// Decides for every claim that left a trace.
pub fn plan(
    records: Vec<LoadedRecord>,
    mut cdi: BTreeMap<ClaimUid, FoundCdi>,
    boot_id: &str,
) -> BTreeMap<ClaimUid, RecoveryAction> {
    let mut actions = BTreeMap::new();
    for loaded in records {
        let found = cdi.remove(&loaded.uid);
        let action = match loaded.record {
            Err(reason) => {
                RecoveryAction::Quarantine(quarantine(loaded.uid.clone(), loaded.path, reason, &loaded.bytes, found))
            }
            Ok(record) => decide(record, found.is_some(), boot_id),
        };
        actions.insert(loaded.uid, action);
    }
    for (uid, found) in cdi {
        let reason = "it has a CDI file but no record".to_owned();
        let path = found.path.clone();
        actions.insert(uid.clone(), RecoveryAction::Quarantine(quarantine(uid, path, reason, &[], Some(found))));
    }
    actions
}

fn decide(record: ClaimRecord, has_cdi: bool, boot_id: &str) -> RecoveryAction {
    match (record.state, record.boot_id == boot_id, has_cdi) {
        (RecordState::Prepared, true, true) => RecoveryAction::Keep(record),
        (RecordState::Prepared, true, false) => RecoveryAction::Restore(record),
        (RecordState::Prepared, false, _) | (RecordState::Restoring, ..) => RecoveryAction::AwaitPrepare(record),
        (RecordState::Preparing, true, _) => RecoveryAction::RollBack(record),
        (RecordState::Preparing, false, _) => RecoveryAction::Forget(record),
    }
}

/// Holds what a damaged record still says and what the CDI file says: the record may name another device than it did.
fn quarantine(uid: ClaimUid, path: PathBuf, reason: String, bytes: &[u8], found: Option<FoundCdi>) -> QuarantinedClaim {
    let held: Vec<ClaimHoldings> =
        [salvage(bytes), found.and_then(|found| found.holdings)].into_iter().flatten().collect();
    let claim = held.iter().map(|held| &held.claim).find(|claim| claim.uid == uid);
    let claim = claim.or_else(|| held.first().map(|held| &held.claim)).cloned();
    let mut devices: Vec<RecordDevice> = Vec::new();
    for device in held.into_iter().flat_map(|held| held.devices) {
        if !devices.iter().any(|known| known.grant == device.grant && known.plan == device.plan) {
            devices.push(device);
        }
    }
    QuarantinedClaim { uid, path, reason, claim, devices }
}

/// The claim table that a plan leads to at once, and the steps that backends have to do before a claim is right again.
#[derive(Debug, Default)]
pub(super) struct RecoveryStart {
    pub(super) table: BTreeMap<ClaimUid, ClaimView>,
    pub(super) steps: Vec<RecoveryStep>,
}

/// Step of a backend for one claim.
#[derive(Debug)]
pub(super) enum RecoveryStep {
    /// Check the claim, or make it ready again: without its CDI file an unprepare may have been under way.
    Prepare(Arc<ClaimRecord>),
    /// Take the claim back.
    Unprepare(Arc<ClaimRecord>),
}

impl RecoveryStep {
    pub(super) fn record(&self) -> &Arc<ClaimRecord> {
        match self {
            Self::Prepare(record) | Self::Unprepare(record) => record,
        }
    }

    /// Runs the step. Whatever fails, a record that is on disk keeps its devices.
    pub(super) fn run(self, executor: &ClaimExecutor) -> Vec<ClaimOutcome> {
        match self {
            Self::Prepare(record) => executor.prepare(vec![record]),
            Self::Unprepare(record) => executor.unprepare(vec![record]),
        }
    }
}

/// Begins with the plan: does what needs no backend, and returns the steps that do.
pub(super) fn begin(
    executor: &ClaimExecutor,
    actions: BTreeMap<ClaimUid, RecoveryAction>,
    metrics: &Metrics,
) -> RecoveryStart {
    let mut start = RecoveryStart::default();
    let kept = actions.values().filter(|action| matches!(action, RecoveryAction::Keep(_))).count();
    if !actions.is_empty() {
        info!(claims = actions.len(), kept, "recovering claims");
    }
    for (uid, action) in actions {
        metrics.recovered(action.name());
        match action {
            // All claims of a host whose daemon was started again; the log has no room for thousands of lines at once.
            RecoveryAction::Keep(_) => debug!(claim.uid = %uid, action = action.name(), "recovering claim"),
            _ => info!(claim.uid = %uid, action = action.name(), "recovering claim"),
        }
        match action {
            RecoveryAction::Quarantine(found) => {
                warn!(claim.uid = %uid, path = %found.path.display(), error = found.reason, "claim quarantined");
                start.table.insert(uid, ClaimView::Quarantined(Arc::new(found)));
            }
            RecoveryAction::AwaitPrepare(record) => {
                start.table.insert(uid, awaiting(executor, record));
            }
            RecoveryAction::Keep(record) | RecoveryAction::Restore(record) => {
                start.steps.push(RecoveryStep::Prepare(Arc::new(record)));
            }
            RecoveryAction::RollBack(record) | RecoveryAction::Forget(record) => {
                start.steps.push(RecoveryStep::Unprepare(Arc::new(record)));
            }
        }
    }
    start
}

fn awaiting(executor: &ClaimExecutor, record: ClaimRecord) -> ClaimView {
    let uid = &record.claim.uid;
    let stale = executor.remove_cdi(uid).err().map(|error| Chain(&error).to_string());
    let problem = stale.unwrap_or_else(|| "the host was rebooted; ready again at the next prepare".to_owned());
    warn!(claim.uid = %uid, error = problem, "claim has a problem");
    ClaimView::Recorded { record: Arc::new(record), problem: Some(problem), busy: None }
}

#[cfg(test)]
mod tests;

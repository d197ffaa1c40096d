//! The steps of preparing and taking back, in the order that a crash between any two of them can be mended:
//! record, hardware, check, record, CDI file. The first record is for hardware that would have to be undone. Runs on
//! blocking threads; decides nothing.

use std::sync::Arc;

use hostler_api::{BackendName, Chain, ClaimUid};
use hostler_backend::{
    Backend, BackendError, Device, DeviceOperation, ForeignEdits, HeldDevice, OperateWork, OperationOutcome,
    PrepareWork, UnprepareWork, VerifyWork,
};
use hostler_cdi::SpecDir;
use hostler_files::InstanceLock;
use tracing::{debug, error, warn};

use super::{
    ClaimError, absent,
    held::OwnedHeldGrant,
    metadata,
    naming::CdiNaming,
    spec::cdi_spec,
    store::{ClaimRecord, DeviceMetadata, RecordDevice, RecordDir, RecordState},
};
use crate::{containers::ContainerDir, inventory::InventoryReader, registry::BackendRegistry};

/// Carries out the decisions of the claims' owner.
#[derive(Debug)]
pub(super) struct ClaimExecutor {
    pub(super) backends: BackendRegistry,
    pub(super) inventory: InventoryReader,
    pub(super) records: RecordDir,
    pub(super) cdi: SpecDir,
    pub(super) naming: CdiNaming,
    pub(super) containers: ContainerDir,
    pub(super) boot_id: String,
    pub(super) lock: Arc<InstanceLock>,
}

/// Outcome of work on a claim.
#[derive(Debug)]
pub(super) struct ClaimOutcome {
    pub(super) uid: ClaimUid,
    /// The record that is on disk now, and keeps the claim's devices taken; `None`: nothing is left of the claim.
    pub(super) left: Option<Arc<ClaimRecord>>,
    pub(super) result: Result<(), Arc<ClaimError>>,
}

/// A claim on its way through [`ClaimExecutor::prepare`].
struct PreparingClaim {
    record: ClaimRecord,
    /// True if the record says that the claim is ready in this boot. Containers may be running with it: an error
    /// undoes nothing.
    ready: bool,
    /// True if the hardware has to be made ready, and the record written: a claim without a CDI file was never
    /// promised, and what is known of it need not have got to the disk.
    redo: bool,
    /// True if making it ready changes something that has to be undone. Then the record says so before.
    changes_hardware: bool,
    /// The record on disk, where it says that the claim was ready in an earlier boot. Its choice outlives a failure,
    /// and every crash: what is not ready yet after a reboot must not cost the claim its devices.
    earlier: Option<Arc<ClaimRecord>>,
    failed: Option<ClaimError>,
}

/// Runs `work` on every claim that nothing has gone wrong with, and keeps what goes wrong.
fn for_each_sound(claims: &mut [PreparingClaim], mut work: impl FnMut(&mut PreparingClaim) -> Result<(), ClaimError>) {
    for claim in claims.iter_mut().filter(|claim| claim.failed.is_none()) {
        claim.failed = work(claim).err();
    }
}

/// A ready claim whose devices have other attributes now than its containers can read.
#[derive(Debug)]
pub(super) struct RedescribedClaim {
    pub(super) before: Arc<ClaimRecord>,
    pub(super) metadata: DeviceMetadata,
}

/// Facts that a backend needs to carry an order out.
#[derive(Debug)]
pub(super) struct OperateJob {
    pub(super) backend: BackendName,
    pub(super) device: Device,
    pub(super) operation: DeviceOperation,
    pub(super) held: Vec<OwnedHeldGrant>,
}

impl ClaimExecutor {
    /// Prepares claims, those that are new and those on disk in any state, from this boot or an earlier one. They share
    /// their durable writes, not their fate.
    pub(super) fn prepare(&self, batch: Vec<Arc<ClaimRecord>>) -> Vec<ClaimOutcome> {
        let mut claims: Vec<PreparingClaim> = batch.into_iter().map(|record| self.begin(record)).collect();
        for_each_sound(&mut claims, |_| self.may_act());
        self.write_records(&mut claims, |claim| claim.changes_hardware);
        for_each_sound(&mut claims, |claim| self.hardware(&mut claim.record, claim.redo));
        // Hardware can take minutes.
        for_each_sound(&mut claims, |_| self.may_act());
        for_each_sound(&mut claims, |claim| self.write_metadata(&claim.record));
        for_each_sound(&mut claims, |claim| {
            claim.record.state = RecordState::Prepared;
            Ok(())
        });
        self.write_records(&mut claims, |_| true);
        for_each_sound(&mut claims, |claim| self.write_cdi(&claim.record));
        claims.into_iter().map(|claim| self.conclude(claim)).collect()
    }

    /// Has a backend carry out an operator's order.
    pub(super) fn operate(&self, job: &OperateJob) -> Result<OperationOutcome, ClaimError> {
        self.order(job, |backend, work| backend.operate(work))
    }

    /// True if a backend carries out orders of any kind.
    pub(super) fn takes_orders(&self, backend: &BackendName) -> bool {
        self.backends.get(backend).is_some_and(|backend| backend.takes_orders())
    }

    /// Returns what an order would do.
    pub(super) fn rehearse(&self, job: &OperateJob) -> Result<OperationOutcome, ClaimError> {
        self.order(job, |backend, work| backend.rehearse(work))
    }

    fn order(
        &self,
        job: &OperateJob,
        give: impl FnOnce(&dyn Backend, &OperateWork<'_>) -> Result<OperationOutcome, BackendError>,
    ) -> Result<OperationOutcome, ClaimError> {
        self.may_act()?;
        let backend = self.backends.get(&job.backend).ok_or_else(|| ClaimError::NoBackend {
            backend: job.backend.to_string(),
            device: job.device.name.clone(),
        })?;
        let held: Vec<HeldDevice<'_>> = job.held.iter().map(|held| held.as_held()).collect();
        let work = OperateWork { device: &job.device, operation: job.operation, held: &held };
        give(backend.as_ref(), &work).map_err(|source| ClaimError::Backend {
            step: job.operation.word(),
            device: job.device.name.clone(),
            source,
        })
    }

    /// Takes claims back: CDI file, hardware, record.
    pub(super) fn unprepare(&self, batch: Vec<Arc<ClaimRecord>>) -> Vec<ClaimOutcome> {
        let mut results: Vec<Result<(), Arc<ClaimError>>> =
            batch.iter().map(|record| self.unprepare_hardware(record).map_err(Arc::new)).collect();
        let undone =
            batch.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(record, _)| &record.claim.uid);
        if let Err(source) = self.records.remove(undone) {
            for (record, result) in batch.iter().zip(&mut results).filter(|(_, result)| result.is_ok()) {
                let (uid, source) = (record.claim.uid.clone(), source.clone());
                *result = Err(Arc::new(ClaimError::Store { uid, source }));
            }
        }
        let conclude = |(record, result): (Arc<ClaimRecord>, Result<(), Arc<ClaimError>>)| {
            if result.is_ok() {
                self.tidy(&record);
            }
            ClaimOutcome { uid: record.claim.uid.clone(), left: result.is_err().then_some(record), result }
        };
        batch.into_iter().zip(results).map(conclude).collect()
    }

    fn unprepare_hardware(&self, record: &ClaimRecord) -> Result<(), ClaimError> {
        self.may_act()?;
        self.remove_cdi(&record.claim.uid)?;
        self.undo_hardware(record)?;
        self.may_act()
    }

    /// Checks that this daemon is still the only one that works on its folders.
    pub(super) fn may_act(&self) -> Result<(), ClaimError> {
        Ok(self.lock.check()?)
    }

    /// Removes what only describes a claim that is taken back. Files that stay do no harm.
    fn tidy(&self, record: &ClaimRecord) {
        let uid = &record.claim.uid;
        if let Err(error) = self.containers.forget(uid) {
            warn!(claim.uid = %uid, error = %error, "notes of the claim's containers stay");
        }
        if let Err(error) = metadata::remove(record, &self.naming) {
            warn!(claim.uid = %uid, error = %error, "metadata of the claim's devices stays");
        }
    }

    /// Flushes the records that are due, while no caller waits for it.
    pub(super) fn tidy_records(&self) {
        // Another daemon may have the journal by now.
        if !self.records.are_due() || self.may_act().is_err() {
            return;
        }
        if let Err(error) = self.records.tidy() {
            warn!(error = %Chain(&error), "records are not flushed; their journal goes on");
        }
    }

    /// Flushes the records, whose files are then all that a start needs, also that of another version.
    pub(super) fn flush_records(&self) {
        if self.may_act().is_err() {
            return;
        }
        if let Err(error) = self.records.checkpoint() {
            warn!(error = %Chain(&error), "records are not flushed; the next start reads their journal");
        }
    }

    /// True if a record says that the claim is ready in this boot.
    pub(super) fn is_ready(&self, record: &ClaimRecord) -> bool {
        record.state == RecordState::Prepared && record.boot_id == self.boot_id
    }

    fn begin(&self, record: Arc<ClaimRecord>) -> PreparingClaim {
        let mut record = Arc::unwrap_or_clone(record);
        let ready = self.is_ready(&record);
        // The CDI file is the first thing that an unprepare takes away. Where it is missing the hardware may be half
        // undone.
        let redo = !ready || !self.has_cdi(&record.claim.uid);
        let earlier = record.awaits_prepare(&self.boot_id).then(|| Arc::new(record.clone()));
        if !ready {
            record.state = if earlier.is_some() { RecordState::Restoring } else { RecordState::Preparing };
            record.boot_id.clone_from(&self.boot_id);
        }
        // A backend that is not there any more fails before anything is changed.
        let changes =
            |device: &RecordDevice| self.backend(device).is_ok_and(|backend| backend.changes_hardware(&device.plan));
        let changes_hardware = record.devices.iter().any(changes);
        PreparingClaim { record, ready, redo, changes_hardware, earlier, failed: None }
    }

    fn write_records(&self, claims: &mut [PreparingClaim], which: impl Fn(&PreparingClaim) -> bool) {
        let mut written: Vec<&mut PreparingClaim> =
            claims.iter_mut().filter(|claim| claim.failed.is_none() && claim.redo && which(claim)).collect();
        if written.is_empty() {
            return;
        }
        let records: Vec<&ClaimRecord> = written.iter().map(|claim| &claim.record).collect();
        let Err(source) = self.records.write(&records) else { return };
        for claim in &mut written {
            claim.failed = Some(ClaimError::Store { uid: claim.record.claim.uid.clone(), source: source.clone() });
        }
    }

    /// Makes every device of the claim ready, where that has to be done, and checks each.
    fn hardware(&self, record: &mut ClaimRecord, redo: bool) -> Result<(), ClaimError> {
        let claim = record.claim.uid.clone();
        let inventory = self.inventory.latest();
        for held in &mut record.devices {
            if redo {
                let (pool, name) = (&held.grant.pool, &held.grant.device);
                let (_, device) = inventory.find(pool, name.as_str()).ok_or_else(|| absent(&inventory, pool, name))?;
                let work = PrepareWork { claim: &claim, grant: &held.grant, device, plan: &held.plan };
                debug!(claim.uid = %claim, device = %name, "preparing device");
                let prepared = self.backend(held)?.prepare(&work).map_err(|source| failed("prepare", held, source))?;
                held.edits = prepared.edits;
                held.unmet = prepared.unmet;
                if let Some(pinning) = prepared.pinning {
                    held.plan.pinning = pinning;
                }
            }
            let work = VerifyWork { claim: &claim, grant: &held.grant, plan: &held.plan };
            let backend = self.backend(held)?;
            backend.verify(&work).map_err(|source| failed("verify", held, source))?;
            backend.check_edits(&work, &held.edits).map_err(|source| foreign(held, source))?;
        }
        Ok(())
    }

    /// Undoes every device, the last first. All are tried; the first error is reported.
    fn undo_hardware(&self, record: &ClaimRecord) -> Result<(), ClaimError> {
        let undo = |device: &RecordDevice| {
            let work = UnprepareWork { claim: &record.claim.uid, grant: &device.grant, plan: &device.plan };
            self.backend(device)?.unprepare(&work).map_err(|source| failed("unprepare", device, source))
        };
        record.devices.iter().rev().map(undo).fold(Ok(()), Result::and)
    }

    fn backend(&self, device: &RecordDevice) -> Result<&dyn Backend, ClaimError> {
        self.backends.get(&device.backend).map(AsRef::as_ref).ok_or_else(|| ClaimError::NoBackend {
            backend: device.backend.to_string(),
            device: device.grant.device.clone(),
        })
    }

    fn write_metadata(&self, record: &ClaimRecord) -> Result<(), ClaimError> {
        let failed = |source| ClaimError::Metadata { uid: record.claim.uid.clone(), source };
        metadata::write(record, &self.naming).map_err(failed)
    }

    /// Tells containers of ready claims what has become of their devices' attributes: record, file.
    pub(super) fn describe(&self, batch: Vec<RedescribedClaim>) -> Vec<ClaimOutcome> {
        let describe = |RedescribedClaim { before, metadata }: RedescribedClaim| {
            let uid = before.claim.uid.clone();
            let record = ClaimRecord { metadata: Some(metadata), ..(*before).clone() };
            let write = || {
                let failed = |source| ClaimError::Store { uid: uid.clone(), source };
                self.records.write(&[&record]).map_err(failed)
            };
            match self.may_act().and_then(|()| write()).and_then(|()| self.write_metadata(&record)) {
                Ok(()) => ClaimOutcome { uid, left: Some(Arc::new(record)), result: Ok(()) },
                Err(error) => ClaimOutcome { uid, left: Some(before), result: Err(Arc::new(error)) },
            }
        };
        batch.into_iter().map(describe).collect()
    }

    /// Writes the claim's CDI file unless it is there already, byte for byte.
    pub(super) fn write_cdi(&self, record: &ClaimRecord) -> Result<(), ClaimError> {
        let uid = &record.claim.uid;
        let written = self.cdi.write(&self.naming.stem(uid), &cdi_spec(record, &self.naming));
        written.map(drop).map_err(|source| ClaimError::Cdi { uid: uid.clone(), source: source.into() })
    }

    fn has_cdi(&self, uid: &ClaimUid) -> bool {
        self.cdi.file(&self.naming.stem(uid)).is_ok_and(|path| path.exists())
    }

    /// Moves the record of a claim that is not understood out of the way, and removes its CDI file.
    pub(super) fn set_aside(&self, uid: &ClaimUid) -> Result<(), ClaimError> {
        self.may_act()?;
        let failed = |source| ClaimError::Store { uid: uid.clone(), source };
        self.records.set_aside(uid).map_err(failed)?;
        self.remove_cdi(uid)
    }

    pub(super) fn remove_cdi(&self, uid: &ClaimUid) -> Result<(), ClaimError> {
        let removed = self.cdi.remove(&self.naming.stem(uid));
        removed.map(drop).map_err(|source| ClaimError::Cdi { uid: uid.clone(), source: source.into() })
    }

    fn conclude(&self, claim: PreparingClaim) -> ClaimOutcome {
        let PreparingClaim { record, ready, earlier, failed, .. } = claim;
        let uid = record.claim.uid.clone();
        let (left, result) = match failed {
            None => (Some(Arc::new(record)), Ok(())),
            Some(cause) if ready => (Some(Arc::new(record)), Err(cause)),
            // The claim is another daemon's now, which finds it on record.
            Some(cause @ ClaimError::Lock(_)) => (Some(Arc::new(record)), Err(cause)),
            Some(cause) => match self.undo(&record, earlier.as_deref()) {
                Ok(()) => (earlier, Err(cause)),
                Err(source) => {
                    let error = ClaimError::RollBack { cause: Chain(&cause).to_string(), source: Arc::new(source) };
                    error!(claim.uid = %uid, error = %Chain(&error), "roll back failed");
                    (Some(Arc::new(record)), Err(error))
                }
            },
        };
        ClaimOutcome { uid, left, result: result.map_err(Arc::new) }
    }

    /// Takes back what was done; on disk is then the record of an earlier boot, or none.
    fn undo(&self, record: &ClaimRecord, earlier: Option<&ClaimRecord>) -> Result<(), ClaimError> {
        let uid = &record.claim.uid;
        self.unprepare_hardware(record)?;
        self.tidy(record);
        let kept = match earlier {
            Some(earlier) => self.records.write(&[earlier]),
            None => self.records.remove([uid]),
        };
        kept.map_err(|source| ClaimError::Store { uid: uid.clone(), source })
    }
}

fn foreign(device: &RecordDevice, source: ForeignEdits) -> ClaimError {
    ClaimError::Edits { device: device.grant.device.clone(), source }
}

fn failed(step: &'static str, device: &RecordDevice, source: BackendError) -> ClaimError {
    ClaimError::Backend { step, device: device.grant.device.clone(), source }
}

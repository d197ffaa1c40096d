//! The steps of preparing and taking back, in the order that a crash between any two of them can be mended:
//! record, hardware, check, CDI file, record. Runs on blocking threads; decides nothing.

use std::sync::Arc;

use hostler_api::{Chain, ClaimUid};
use hostler_backend::{HeldDevice, OperateWork, PrepareWork, UnprepareWork, VerifyWork};
use hostler_cdi::SpecDir;
use tracing::{debug, error, warn};

use super::{
    ClaimError, ClaimResult, metadata,
    spec::{CdiNaming, cdi_spec},
    store::{ClaimRecord, RecordDevice, RecordDir, RecordState},
    task::OrderJob,
};
use crate::{containers::ContainerDir, inventory::InventoryReader, registry::BackendRegistry};

/// What the steps work with.
#[derive(Debug)]
pub(super) struct ClaimExecutor {
    pub(super) backends: BackendRegistry,
    pub(super) inventory: InventoryReader,
    pub(super) records: RecordDir,
    pub(super) cdi: SpecDir,
    pub(super) naming: CdiNaming,
    pub(super) containers: ContainerDir,
    pub(super) boot_id: String,
}

/// How preparing a claim ended.
#[derive(Debug)]
pub(super) enum Prepared {
    /// Ready: this is on disk, and so is the CDI file.
    Ready(Arc<ClaimRecord>),
    /// Not ready, and nothing of it is left.
    Undone(Arc<ClaimError>),
    /// Not ready, and this record is still on disk: its devices stay taken.
    Left(Arc<ClaimRecord>, Arc<ClaimError>),
}

/// A claim on its way through [`ClaimExecutor::prepare`].
struct Step {
    record: ClaimRecord,
    /// Whether the record on disk says that the claim is ready in this boot. Containers may be running with it: the
    /// record is not written again, and an error undoes nothing.
    ready: bool,
    /// Whether the hardware has to be made ready.
    redo: bool,
    /// The record on disk, where it says that the claim was ready in an earlier boot. Its choice outlives a failure: what
    /// is not ready yet after a reboot must not cost the claim its devices.
    earlier: Option<Arc<ClaimRecord>>,
    failed: Option<ClaimError>,
}

/// Runs `work` on every claim that nothing has gone wrong with, and keeps what goes wrong.
fn for_each_sound(steps: &mut [Step], mut work: impl FnMut(&mut Step) -> Result<(), ClaimError>) {
    for step in steps.iter_mut().filter(|step| step.failed.is_none()) {
        step.failed = work(step).err();
    }
}

/// A claim to prepare.
#[derive(Debug)]
pub(super) enum Job {
    /// Chosen, not on disk yet.
    New(ClaimRecord),
    /// On disk already, in any state, from this boot or an earlier one.
    Again(Arc<ClaimRecord>),
}

impl ClaimExecutor {
    /// Prepares a batch: the answers are in its order. Claims share their durable writes, not their fate.
    pub(super) fn prepare(&self, batch: Vec<Job>) -> Vec<(ClaimUid, Prepared)> {
        let mut steps: Vec<Step> = batch.into_iter().map(|job| self.begin(job)).collect();
        self.write_records(&mut steps);
        for_each_sound(&mut steps, |step| self.hardware(&mut step.record, step.redo));
        for_each_sound(&mut steps, |step| self.write_metadata(&step.record));
        for_each_sound(&mut steps, |step| self.write_cdi(&step.record));
        for_each_sound(&mut steps, |step| {
            step.record.state = RecordState::Prepared;
            Ok(())
        });
        self.write_records(&mut steps);
        steps.into_iter().map(|step| (step.record.claim.uid.clone(), self.conclude(step))).collect()
    }

    /// Carries out an operator's order, and gives the backend's words.
    pub(super) fn operate(&self, job: &OrderJob) -> Result<String, ClaimError> {
        let backend = self.backends.get(&job.backend).ok_or_else(|| ClaimError::NoBackend {
            backend: job.backend.to_string(),
            device: job.device.name.clone(),
        })?;
        let held: Vec<HeldDevice<'_>> = job
            .held
            .iter()
            .map(|(claim, claim_name, device)| HeldDevice {
                claim,
                claim_name,
                grant: &device.grant,
                plan: &device.plan,
            })
            .collect();
        let work = OperateWork { device: &job.device, operation: job.operation, held: &held };
        backend.operate(&work).map_err(|source| ClaimError::Backend {
            step: job.operation.word(),
            device: job.device.name.clone(),
            source,
        })
    }

    /// Takes claims back: CDI file, hardware, record. The answers are in the order of the batch.
    pub(super) fn unprepare(&self, batch: &[Arc<ClaimRecord>]) -> Vec<(ClaimUid, ClaimResult<()>)> {
        let mut results: Vec<Result<(), ClaimError>> = batch
            .iter()
            .map(|record| self.remove_cdi(&record.claim.uid).and_then(|()| self.undo_hardware(record)))
            .collect();
        let undone =
            batch.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(record, _)| &record.claim.uid);
        if let Err(source) = self.records.remove(undone).map_err(Arc::new) {
            for (record, result) in batch.iter().zip(&mut results).filter(|(_, result)| result.is_ok()) {
                *result = Err(ClaimError::Store { uid: record.claim.uid.clone(), source: source.clone() });
            }
        }
        for (record, _) in batch.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
            self.tidy(record);
        }
        let uids = batch.iter().map(|record| record.claim.uid.clone());
        uids.zip(results.into_iter().map(|result| result.map_err(Arc::new))).collect()
    }

    /// Removes what only describes a claim that is taken back. What stays harms nobody.
    fn tidy(&self, record: &ClaimRecord) {
        let uid = &record.claim.uid;
        if let Err(error) = self.containers.forget(uid) {
            warn!(claim.uid = %uid, error = %error, "notes of the claim's containers stay");
        }
        if let Err(error) = metadata::remove(record, &self.naming) {
            warn!(claim.uid = %uid, error = %error, "metadata of the claim's devices stays");
        }
    }

    /// Whether a record says that the claim is ready in this boot.
    pub(super) fn is_ready(&self, record: &ClaimRecord) -> bool {
        record.state == RecordState::Prepared && record.boot_id == self.boot_id
    }

    fn begin(&self, job: Job) -> Step {
        let mut record = match job {
            Job::New(record) => record,
            Job::Again(record) => (*record).clone(),
        };
        let ready = self.is_ready(&record);
        // The CDI file is the first thing that an unprepare takes away. Where it is missing the hardware may be half undone.
        let redo = !ready || !self.has_cdi(&record.claim.uid);
        let earlier = (!ready && record.state == RecordState::Prepared).then(|| Arc::new(record.clone()));
        if !ready {
            record.state = RecordState::Preparing;
            record.boot_id.clone_from(&self.boot_id);
        }
        Step { record, ready, redo, earlier, failed: None }
    }

    fn write_records(&self, steps: &mut [Step]) {
        let mut chosen: Vec<&mut Step> = steps.iter_mut().filter(|step| step.failed.is_none() && !step.ready).collect();
        if chosen.is_empty() {
            return;
        }
        let records: Vec<&ClaimRecord> = chosen.iter().map(|step| &step.record).collect();
        let Err(source) = self.records.write(&records).map_err(Arc::new) else { return };
        for step in &mut chosen {
            step.failed = Some(ClaimError::Store { uid: step.record.claim.uid.clone(), source: source.clone() });
        }
    }

    /// Makes every device of the claim ready, where that has to be done, and checks each.
    fn hardware(&self, record: &mut ClaimRecord, redo: bool) -> Result<(), ClaimError> {
        let claim = record.claim.uid.clone();
        for device in &mut record.devices {
            if redo {
                let prepared = self.prepare_device(&claim, device)?;
                device.edits = prepared.edits;
                if let Some(pinning) = prepared.pinning {
                    device.plan.pinning = pinning;
                }
            }
            let work = VerifyWork { claim: &claim, grant: &device.grant, plan: &device.plan };
            self.backend(device)?.verify(&work).map_err(|source| failed("verify", device, source))?;
        }
        Ok(())
    }

    fn prepare_device(
        &self,
        claim: &ClaimUid,
        device: &RecordDevice,
    ) -> Result<hostler_backend::PrepareOutcome, ClaimError> {
        let (grant, plan) = (&device.grant, &device.plan);
        let inventory = self.inventory.latest();
        let (_, found) = inventory
            .find(&grant.pool, grant.device.as_str())
            .ok_or_else(|| ClaimError::NoSuchDevice { pool: grant.pool.clone(), device: grant.device.clone() })?;
        let work = PrepareWork { claim, grant, device: found, plan };
        debug!(claim.uid = %claim, device = %grant.device, "preparing device");
        self.backend(device)?.prepare(&work).map_err(|source| failed("prepare", device, source))
    }

    /// Undoes every device, the last first. All are tried; the first error is reported.
    fn undo_hardware(&self, record: &ClaimRecord) -> Result<(), ClaimError> {
        let undo = |device: &RecordDevice| {
            let work = UnprepareWork { claim: &record.claim.uid, grant: &device.grant, plan: &device.plan };
            self.backend(device)?.unprepare(&work).map_err(|source| failed("unprepare", device, source))
        };
        record.devices.iter().rev().map(undo).fold(Ok(()), Result::and)
    }

    fn backend(&self, device: &RecordDevice) -> Result<&dyn hostler_backend::Backend, ClaimError> {
        self.backends.get(&device.backend).map(AsRef::as_ref).ok_or_else(|| ClaimError::NoBackend {
            backend: device.backend.to_string(),
            device: device.grant.device.clone(),
        })
    }

    fn write_metadata(&self, record: &ClaimRecord) -> Result<(), ClaimError> {
        let failed = |source| ClaimError::Metadata { uid: record.claim.uid.clone(), source };
        metadata::write(record, &self.naming).map_err(failed)
    }

    /// Tells containers of ready claims what has become of their devices' attributes: record, file. The answers are in
    /// the order of the batch.
    pub(super) fn describe(&self, batch: Vec<ClaimRecord>) -> Vec<(ClaimUid, ClaimResult<Arc<ClaimRecord>>)> {
        let describe = |record: ClaimRecord| {
            let uid = record.claim.uid.clone();
            let written = self.records.write(&[&record]);
            let written = written.map_err(|source| ClaimError::Store { uid: uid.clone(), source: Arc::new(source) });
            let described = written.and_then(|()| self.write_metadata(&record));
            (uid, described.map(|()| Arc::new(record)).map_err(Arc::new))
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

    pub(super) fn remove_cdi(&self, uid: &ClaimUid) -> Result<(), ClaimError> {
        let removed = self.cdi.remove(&self.naming.stem(uid));
        removed.map(drop).map_err(|source| ClaimError::Cdi { uid: uid.clone(), source: source.into() })
    }

    fn conclude(&self, step: Step) -> Prepared {
        let record = step.record;
        let Some(cause) = step.failed else { return Prepared::Ready(Arc::new(record)) };
        if step.ready {
            return Prepared::Left(Arc::new(record), Arc::new(cause));
        }
        match (self.undo(&record, step.earlier.as_deref()), step.earlier) {
            (Ok(()), None) => Prepared::Undone(Arc::new(cause)),
            (Ok(()), Some(earlier)) => Prepared::Left(earlier, Arc::new(cause)),
            (Err(source), _) => {
                let error = ClaimError::RollBack { cause: Chain(&cause).to_string(), source: Arc::new(source) };
                error!(claim.uid = %record.claim.uid, error = %Chain(&error), "roll back failed");
                Prepared::Left(Arc::new(record), Arc::new(error))
            }
        }
    }

    /// Takes back what was done; on disk is then the record of an earlier boot, or none.
    fn undo(&self, record: &ClaimRecord, earlier: Option<&ClaimRecord>) -> Result<(), ClaimError> {
        let uid = &record.claim.uid;
        self.remove_cdi(uid)?;
        self.undo_hardware(record)?;
        self.tidy(record);
        let kept = match earlier {
            Some(earlier) => self.records.write(&[earlier]),
            None => self.records.remove([uid]),
        };
        kept.map_err(|source| ClaimError::Store { uid: uid.clone(), source: Arc::new(source) })
    }
}

fn failed(step: &'static str, device: &RecordDevice, source: hostler_backend::BackendError) -> ClaimError {
    ClaimError::Backend { step, device: device.grant.device.clone(), source }
}

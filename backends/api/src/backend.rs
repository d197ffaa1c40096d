//! The [`Backend`] trait and what its methods take and give.

use std::{collections::BTreeSet, time::Duration};

use hostler_api::{BackendName, ClaimUid, ConfigProblem, Grant, listed, opaque::MemoryMode};
use serde::{Deserialize, Serialize};

use crate::{
    AttributeValue, ContainerEdits, CounterSet, Device, EditScope, ForeignEdits, OperateWork, OperationObstacle,
    OperationOutcome, OperationRefusal,
};

/// One kind of hardware.
///
/// Methods are called from blocking threads, several at once, for different claims. No method may assume that an
/// earlier one has run in the same process: everything that must outlive a crash is in the arguments.
pub trait Backend: Send + Sync + 'static {
    /// The backend's name: lower case, unique in the daemon.
    fn name(&self) -> BackendName;

    /// The kernel subsystems whose uevents ask for a new [`enumerate`](Self::enumerate). `platform/dfl-` are those of
    /// `platform` about devices whose names begin with `dfl-`.
    fn subsystems(&self) -> &[&'static str];

    /// Time after a scan at which to [`enumerate`](Self::enumerate) again although nothing has asked for it: for
    /// hardware whose state changes without an event. The daemon waits at least a second, and at most as long as for
    /// backends without a wish (`None`) or without devices.
    fn poll(&self) -> Option<Duration> {
        None
    }

    /// Reads what is there now. No side effects.
    ///
    /// # Errors
    /// When nothing can be said about the hardware. A single broken device is a device with
    /// [`Health::Unhealthy`](crate::Health) or a [`BackendWarning`], not an error.
    fn enumerate(&self) -> Result<Enumeration, BackendError>;

    /// Reads what is left after these devices went, paths below `/sys` as uevents have them. What they cannot have touched
    /// may be as the last look has found it: a look at the whole follows when no more devices go.
    ///
    /// # Errors
    /// As those of [`enumerate`](Self::enumerate).
    fn enumerate_after_removal(&self, removed: &BTreeSet<String>) -> Result<Enumeration, BackendError> {
        let _ = removed;
        self.enumerate()
    }

    /// Chooses what exactly a grant gets. Pure: no side effects, same answer for the same work. The answer is recorded
    /// before anything is changed, and every later step sees it.
    ///
    /// # Errors
    /// When the grant cannot be met; the message names what is missing and who holds it.
    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        let _ = work;
        Ok(DevicePlan::default())
    }

    /// The NUMA nodes that a grant of `device` can come from; empty where nothing is known. Pure. A device of several
    /// nodes (all CPUs of a machine, say) is narrowed to one by [`PlanWork::within`].
    fn nodes(&self, device: &Device) -> BTreeSet<u32> {
        const NUMA_NODE: &str = "resource.kubernetes.io/numaNode";
        match device.attributes.get(NUMA_NODE) {
            Some(AttributeValue::Int(node)) => u32::try_from(*node).into_iter().collect(),
            Some(AttributeValue::Ints(nodes)) => nodes.iter().filter_map(|node| u32::try_from(*node).ok()).collect(),
            _ => BTreeSet::new(),
        }
    }

    /// The CPUs that `device` offers, kernel numbers; empty for what is no CPUs. Pure.
    fn cpus(&self, device: &Device) -> BTreeSet<u32> {
        let _ = device;
        BTreeSet::new()
    }

    /// Amount that is free of what the grant asks for on the node of [`PlanWork::within`], in any unit, to compare
    /// nodes by; `None` where that is not known. Pure.
    fn free(&self, work: &PlanWork<'_>) -> Option<u64> {
        let _ = work;
        None
    }

    /// True if [`prepare`](Self::prepare) of this plan changes anything that [`unprepare`](Self::unprepare) has to
    /// undo. Where containers are only told what they get, it does not, and the claim costs one durable write less: a
    /// crash in the middle leaves nothing. Pure.
    fn changes_hardware(&self, plan: &DevicePlan) -> bool {
        let _ = plan;
        true
    }

    /// Makes the hardware ready. Idempotent: called again after a crash, a reboot or a timeout with the same plan, the
    /// call gives the same answer to the byte.
    ///
    /// # Errors
    /// When the hardware could not be changed; the caller then calls [`unprepare`](Self::unprepare).
    fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        Ok(PrepareOutcome::giving(work.device.edits.clone()))
    }

    /// Undoes what [`prepare`](Self::prepare) did, or any part of it. Undoing what is already undone succeeds. The
    /// device itself may be gone.
    ///
    /// # Errors
    /// When the hardware is not clean; the device stays taken and the call is repeated.
    fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        let _ = work;
        Ok(())
    }

    /// Checks that what was prepared is really usable now.
    ///
    /// # Errors
    /// When the device is not usable; the message says what was seen.
    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        let _ = work;
        Ok(())
    }

    /// Checks that [`prepare`](Self::prepare) can have given these edits for such work. Claim records are checked
    /// against this, since they lie on a disk; whatever is not a claim's own goes by what the edits look like, or by
    /// what the hardware is now. No side effects. By default a backend gives nothing.
    ///
    /// # Errors
    /// When `prepare` cannot have given them; the error says what is foreign.
    fn check_edits(&self, work: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
        let _ = work;
        EditScope::default().check(edits)
    }

    /// True if [`operate`](Self::operate) carries out orders, of any kind, for devices of this backend.
    fn takes_orders(&self) -> bool {
        false
    }

    /// Does what an operator orders for a device, outside of any claim. No claim of this backend is admitted, prepared
    /// or taken back meanwhile. Gives what was done. Repeating what is done already succeeds.
    ///
    /// # Errors
    /// When the device cannot be operated in this way, or is in use: the refusal says who uses it. Nothing has been
    /// changed then, or the refusal says what has.
    fn operate(&self, work: &OperateWork<'_>) -> Result<OperationOutcome, BackendError> {
        Err(work.refused(OperationObstacle::AlwaysThere).into())
    }

    /// Reports what [`operate`](Self::operate) would do, as far as can be told without a write.
    ///
    /// # Errors
    /// When the order would be refused for what can be read.
    fn rehearse(&self, work: &OperateWork<'_>) -> Result<OperationOutcome, BackendError> {
        Err(work.refused(OperationObstacle::AlwaysThere).into())
    }
}

/// The answer of [`Backend::enumerate`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enumeration {
    /// The devices, in the order of preference.
    pub devices: Vec<Device>,
    /// Counters that devices share; see [`Device::consumes`].
    pub counter_sets: Vec<CounterSet>,
    /// Parts of the machine that could not be understood.
    pub warnings: Vec<BackendWarning>,
}

/// Something about the machine that makes no sense or could not be read, and what was done about it.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct BackendWarning {
    /// The file or folder that is at fault.
    pub path: String,
    /// The fault and what follows from it, for people.
    pub reason: String,
}

/// Input of [`Backend::plan`].
#[derive(Clone, Copy, Debug)]
pub struct PlanWork<'a> {
    /// The claim that asks.
    pub claim: &'a ClaimUid,
    /// Name of the claim for people: `namespace/name`.
    pub claim_name: &'a str,
    /// The grant to choose for.
    pub grant: &'a Grant,
    /// The device, as last enumerated.
    pub device: &'a Device,
    /// Everything that all claims, earlier grants of this one included, hold of this backend.
    pub held: &'a [HeldDevice<'a>],
    /// The only NUMA node to choose from, where the claim wants everything on one.
    pub within: Option<u32>,
}

/// A part of the hardware that a claim holds.
#[derive(Clone, Copy, Debug)]
pub struct HeldDevice<'a> {
    /// The holder.
    pub claim: &'a ClaimUid,
    /// Name of the holder for people: `namespace/name`.
    pub claim_name: &'a str,
    /// The grant by which the claim holds the device.
    pub grant: &'a Grant,
    /// The choice that was made for the grant.
    pub plan: &'a DevicePlan,
}

impl HeldDevice<'_> {
    /// True if the holder is the claim of `work` or another of its namespace. A holder whose name is lost counts as
    /// foreign.
    pub fn is_of_namespace(&self, work: &PlanWork<'_>) -> bool {
        let namespace = |name: &str| name.split_once('/').map(|(namespace, _)| namespace.to_owned());
        let (ours, theirs) = (namespace(work.claim_name), namespace(self.claim_name));
        self.claim == work.claim || ours.is_some() && ours == theirs
    }
}

/// The choice for a grant. Stands in the claim's record.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DevicePlan {
    /// CPUs and memory nodes to bind containers to.
    #[serde(default, skip_serializing_if = "Pinning::is_empty")]
    pub pinning: Pinning,
    /// Whatever else the backend must know to prepare, verify and undo.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub data: serde_json::Value,
}

/// The CPUs and NUMA nodes that a container is bound to. An empty set binds nothing.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pinning {
    /// Logical CPUs, kernel numbers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub cpus: BTreeSet<u32>,
    /// NUMA nodes, kernel numbers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub mems: BTreeSet<u32>,
    /// Use of memory by programs, where the claim names one. Programs are only told: the daemon cannot set it for
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<MemoryPolicy>,
}

/// Memory policy that a program is told.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct MemoryPolicy {
    /// How to use the nodes.
    pub mode: MemoryMode,
    /// NUMA nodes, kernel numbers.
    pub nodes: BTreeSet<u32>,
}

impl Pinning {
    /// True if nothing is bound and nothing is told.
    pub fn is_empty(&self) -> bool {
        !self.binds() && self.policy.is_none()
    }

    /// True if a container is bound to anything.
    pub fn binds(&self) -> bool {
        !self.cpus.is_empty() || !self.mems.is_empty()
    }
}

/// Input of [`Backend::prepare`].
#[derive(Clone, Copy, Debug)]
pub struct PrepareWork<'a> {
    /// The claim.
    pub claim: &'a ClaimUid,
    /// The grant to prepare.
    pub grant: &'a Grant,
    /// The device, as last enumerated.
    pub device: &'a Device,
    /// The choice, as recorded.
    pub plan: &'a DevicePlan,
}

/// The answer of [`Backend::prepare`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrepareOutcome {
    /// Edits that a container needs in order to use the device. Binding to CPUs and nodes is added by the daemon.
    pub edits: ContainerEdits,
    /// CPUs and nodes to bind containers to, where only preparing could tell them: they take the place of
    /// [`DevicePlan::pinning`] in the claim's record.
    pub pinning: Option<Pinning>,
    /// Wishes that cannot be met, where that is no reason to refuse the claim: a sentence each, with the reason.
    pub unmet: Vec<String>,
}

impl PrepareOutcome {
    /// These edits, and nothing else to say.
    pub fn giving(edits: ContainerEdits) -> Self {
        Self { edits, ..Self::default() }
    }
}

/// Input of [`Backend::unprepare`].
#[derive(Clone, Copy, Debug)]
pub struct UnprepareWork<'a> {
    /// The claim.
    pub claim: &'a ClaimUid,
    /// The grant to undo.
    pub grant: &'a Grant,
    /// The choice that was made for the grant.
    pub plan: &'a DevicePlan,
}

/// Input of [`Backend::verify`].
#[derive(Clone, Copy, Debug)]
pub struct VerifyWork<'a> {
    /// The claim.
    pub claim: &'a ClaimUid,
    /// The grant to check.
    pub grant: &'a Grant,
    /// The choice that was made for the grant.
    pub plan: &'a DevicePlan,
}

/// Why a backend could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The hardware cannot be described at all.
    #[error("failed to enumerate: {reason}")]
    Enumerate {
        /// Reason, from what was seen.
        reason: String,
        /// The cause, where there is one below.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The grant asks for something that cannot be given.
    #[error("{reason}")]
    Refused {
        /// Everything that is missing, and who holds it.
        reason: String,
    },
    /// An operator's order cannot be carried out.
    #[error(transparent)]
    Operation(#[from] Box<OperationRefusal>),
    /// The grant's configuration is wrong.
    #[error("configuration is not valid: {}", first(problems))]
    Config {
        /// Every mistake.
        problems: Vec<ConfigProblem>,
    },
    /// A step on the hardware failed.
    #[error("failed to {step}")]
    Step {
        /// The step, for example "open /dev/dfl-port.0".
        step: String,
        /// The kernel's answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The device was prepared but is not usable.
    #[error("device is not usable: {reason}")]
    NotUsable {
        /// Reason, from what was seen.
        reason: String,
    },
}

/// Lists the first mistakes of a configuration, which may have a thousand; `hostler validate` lists them all.
fn first(problems: &[ConfigProblem]) -> String {
    const MOST: usize = 10;
    listed(MOST, "; ", problems)
}

impl BackendError {
    /// A refusal.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into() }
    }

    /// Failure to look at the hardware, whatever was asked for: nothing is known of the hardware then, least of all
    /// that it has gone.
    pub fn unread(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::step("look at the hardware", source)
    }

    /// A failed step with its cause.
    pub fn step(step: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Step { step: step.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plan_with_any_number_survives_being_recorded(number in any::<f64>()) {
            let plan = DevicePlan { data: serde_json::json!({ "rate": number }), ..DevicePlan::default() };
            let recorded = serde_json::to_string(&plan).unwrap();
            prop_assert_eq!(serde_json::from_str::<DevicePlan>(&recorded).unwrap(), plan);
        }
    }
}

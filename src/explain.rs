//! Says in words why a claim failed, what it waits for, or what it holds. Pure: from facts to sentences.

mod sentences;

use std::fmt;

use hostler_api::{
    Access, ClaimState, few,
    resource::{AllocationError, ResourceClaim},
};
use hostler_backend::Health;
use serde::{Deserialize, Serialize};

/// Facts about a claim.
#[derive(Clone, Debug)]
pub struct ClaimFacts {
    /// The claim as the caller named it: `namespace/name`, or a UID.
    pub asked: String,
    /// Name of the driver.
    pub driver: String,
    /// Name of the node.
    pub node: String,
    /// Source of claims.
    pub origin: ClaimOrigin,
    /// This daemon's record.
    pub record: Option<RecordFact>,
    /// The claim itself.
    pub object: ClaimObject,
    /// The last failure since the daemon started.
    pub failure: Option<FailureFact>,
    /// The devices of the record, else those of the allocation.
    pub devices: Vec<DeviceFact>,
    /// Sentence on what this node would give to a claim without an allocation.
    pub offer: Option<String>,
}

/// Source of claims.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClaimOrigin {
    /// The API server.
    Cluster,
    /// Manifests on disk.
    Manifests,
}

impl ClaimOrigin {
    fn place(self) -> &'static str {
        match self {
            Self::Cluster => "the API server",
            Self::Manifests => "the folder of manifests",
        }
    }
}

/// This daemon's record of a claim.
#[derive(Clone, Debug)]
pub struct RecordFact {
    /// Identity.
    pub uid: String,
    /// State of the record.
    pub state: ClaimState,
    /// Problem of the record.
    pub problem: Option<String>,
}

/// Result of the search for the claim itself.
#[derive(Clone, Debug)]
pub enum ClaimObject {
    /// The claim exists.
    Found(Box<ResourceClaim>),
    /// The claim does not exist.
    Missing,
    /// The claim could not be searched for, for this reason.
    Unknown(String),
}

/// A failure, as its caller was told.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FailureFact {
    /// Identity of the claim that failed.
    pub uid: String,
    /// `prepare` or `unprepare`.
    pub operation: String,
    /// The whole chain of causes.
    pub error: String,
    /// Age of the failure in seconds.
    pub seconds_ago: u64,
}

/// A device of the claim, and its state now.
#[derive(Clone, Debug)]
pub struct DeviceFact {
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Kind of access: use or administration.
    pub access: Access,
    /// Health of the device; `None` if the device is not on this host.
    pub health: Option<Health>,
    /// Reason why the backend's facts are old, if they are.
    pub stale: Option<String>,
    /// Reason why nothing is known of the backend's devices, if nothing is.
    pub unknown: Option<String>,
    /// Reason for which an operator drains the device, if one does.
    pub drained: Option<String>,
    /// Other claims that hold the device or parts of it.
    pub others: Vec<String>,
    /// CPUs, NUMA nodes and amounts that the claim has of the device, in words.
    pub bound: String,
}

impl DeviceFact {
    fn name(&self) -> String {
        format!("{}/{}", self.pool, self.device)
    }

    fn is_of(&self, node: &str) -> bool {
        self.pool.strip_prefix(node).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Problem of the device itself.
    fn fault(&self) -> Option<String> {
        if let Some(reason) = &self.unknown {
            return Some(format!("nothing is known of device {}: {reason}", self.name()));
        }
        match &self.health {
            None => Some(format!("device {} is not on this host", self.name())),
            Some(Health::Unhealthy { reason }) => Some(format!("device {} is unhealthy: {reason}", self.name())),
            Some(_) => None,
        }
    }
}

/// State of a claim, as far as it can be concluded.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExplainedState {
    /// Preparing was tried, and failed.
    Failed,
    /// The claim is allocated on this node, and no kubelet has asked for it.
    Allocated,
    /// The claim has no allocation.
    Pending,
    /// The claim is allocated by another driver or on another node.
    Elsewhere,
    /// The claim does not exist.
    Missing,
    /// The facts allow no conclusion.
    Unknown,
    /// The state in this node's record.
    #[serde(untagged)]
    OnRecord(ClaimState),
}

impl From<ClaimState> for ExplainedState {
    fn from(state: ClaimState) -> Self {
        Self::OnRecord(state)
    }
}

impl fmt::Display for ExplainedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed",
            Self::Allocated => "allocated",
            Self::Pending => "pending",
            Self::Elsewhere => "elsewhere",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::OnRecord(state) => state.as_str(),
        })
    }
}

/// An explanation of a claim's state.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Explanation {
    /// `namespace/name`, or the name that the caller gave.
    pub claim: String,
    /// Identity, if known.
    pub uid: Option<String>,
    /// State of the claim.
    pub state: ExplainedState,
    /// State of the claim in one sentence.
    pub summary: String,
    /// Facts behind the summary.
    pub facts: Vec<String>,
    /// Steps to take next.
    pub next: Vec<String>,
    /// The last failure since the daemon started.
    pub failure: Option<FailureFact>,
}

/// A conclusion from the facts.
struct Conclusion {
    state: ExplainedState,
    summary: String,
    next: Vec<String>,
}

impl Conclusion {
    fn new(state: ExplainedState, summary: String, next: Vec<String>) -> Self {
        Self { state, summary, next }
    }
}

/// Explains a claim's state from the facts.
pub fn explain(facts: &ClaimFacts) -> Explanation {
    let Conclusion { state, summary, next } = match &facts.record {
        Some(record) => of_record(facts, record),
        None => of_object(facts),
    };
    let found = found(facts);
    let uid = facts.record.as_ref().map(|record| record.uid.clone());
    Explanation {
        claim: found.map_or_else(
            || facts.asked.clone(),
            |claim| format!("{}/{}", claim.metadata.namespace, claim.metadata.name),
        ),
        uid: uid.or_else(|| found?.metadata.uid.clone()),
        state,
        summary,
        facts: sentences::sentences(facts),
        next,
        failure: facts.failure.clone(),
    }
}

fn found(facts: &ClaimFacts) -> Option<&ResourceClaim> {
    match &facts.object {
        ClaimObject::Found(claim) => Some(claim),
        ClaimObject::Missing | ClaimObject::Unknown(_) => None,
    }
}

/// True if the object is of another claim than the record.
fn is_other(facts: &ClaimFacts, record: &RecordFact) -> bool {
    found(facts).is_some_and(|claim| claim.metadata.uid.as_deref() != Some(&record.uid))
}

fn of_record(facts: &ClaimFacts, record: &RecordFact) -> Conclusion {
    let uid = &record.uid;
    match (record.state, &record.problem) {
        (ClaimState::Quarantined, problem) => Conclusion::new(
            ClaimState::Quarantined.into(),
            format!("its record cannot be trusted: {}", problem.as_deref().unwrap_or("it is not understood")),
            vec![
                format!("make sure that no container uses the devices, then run: hostler claim forget {uid}"),
                "until then the devices stay taken".to_owned(),
            ],
        ),
        (ClaimState::Prepared, None) => of_prepared(facts, record),
        (_, problem) => {
            let failed = facts.failure.as_ref().map(|failure| failure.error.as_str());
            let why = problem.as_deref().or(failed).unwrap_or("it is being worked on");
            let mut next = remedies(facts);
            next.push(again(facts.origin).to_owned());
            Conclusion::new(ClaimState::Preparing.into(), format!("it is not ready: {why}"), next)
        }
    }
}

fn of_prepared(facts: &ClaimFacts, record: &RecordFact) -> Conclusion {
    let place = facts.origin.place();
    if is_other(facts, record) {
        let summary = format!("it is prepared, but in {place} stands a newer claim of the same name");
        return Conclusion::new(ClaimState::Prepared.into(), summary, vec![old_claim(facts.origin).to_owned()]);
    }
    if matches!(facts.object, ClaimObject::Missing) {
        let summary = format!("it is prepared, but no longer in {place}");
        return Conclusion::new(ClaimState::Prepared.into(), summary, vec![old_claim(facts.origin).to_owned()]);
    }
    let faults: Vec<String> = facts.devices.iter().filter_map(DeviceFact::fault).collect();
    if faults.is_empty() {
        return Conclusion::new(
            ClaimState::Prepared.into(),
            format!("it is prepared and holds {}", count(facts.devices.len())),
            Vec::new(),
        );
    }
    let next = if facts.devices.iter().any(|device| device.unknown.is_some()) {
        remedies(facts)
    } else {
        vec!["mend the device, or delete the pod and let it start with another device".to_owned()]
    };
    Conclusion::new(ClaimState::Prepared.into(), format!("it is prepared, but {}", faults.join("; ")), next)
}

fn of_object(facts: &ClaimFacts) -> Conclusion {
    let place = facts.origin.place();
    let claim = match &facts.object {
        ClaimObject::Found(claim) => claim,
        ClaimObject::Missing => {
            let next = vec!["check name and namespace; a claim made for a pod goes with its pod".to_owned()];
            return Conclusion::new(
                ExplainedState::Missing,
                format!("there is no such claim, neither on record nor in {place}"),
                next,
            );
        }
        ClaimObject::Unknown(why) => return of_unknown(facts, why),
    };
    match claim.allocation(&facts.driver) {
        Err(AllocationError::NotAllocated) => {
            let next = vec!["the scheduler's reason stands in the events of the pod: kubectl describe pod".to_owned()];
            let offer = facts.offer.as_ref().map(|offer| format!("; {offer}")).unwrap_or_default();
            let summary =
                format!("nothing has been given to it: the scheduler found no node yet, or no pod asks{offer}");
            Conclusion::new(ExplainedState::Pending, summary, next)
        }
        Err(AllocationError::NotOurs { driver }) => {
            let next = vec!["ask the driver that stands in status.allocation.devices.results".to_owned()];
            Conclusion::new(ExplainedState::Elsewhere, format!("driver {driver} has no part in it"), next)
        }
        Err(error) => {
            let next = vec!["correct the field; a claim that the scheduler allocated has to be made anew".to_owned()];
            Conclusion::new(ExplainedState::Failed, format!("its allocation cannot be used: {error}"), next)
        }
        Ok(_) => of_allocated(facts, claim),
    }
}

fn of_unknown(facts: &ClaimFacts, why: &str) -> Conclusion {
    let place = facts.origin.place();
    match &facts.failure {
        Some(failure) => {
            Conclusion::new(ExplainedState::Failed, format!("it failed: {}", failure.error), remedies(facts))
        }
        None => {
            let next = vec![format!("mend the way to {place} first: {why}")];
            Conclusion::new(
                ExplainedState::Unknown,
                format!("it is not on record, and {place} could not be asked"),
                next,
            )
        }
    }
}

fn of_allocated(facts: &ClaimFacts, claim: &ResourceClaim) -> Conclusion {
    if let Some(device) = facts.devices.iter().find(|_| facts.devices.iter().all(|device| !device.is_of(&facts.node))) {
        let next = vec![format!("ask there: its devices are in pool {}", device.pool)];
        return Conclusion::new(
            ExplainedState::Elsewhere,
            format!("it is allocated on another node than {}", facts.node),
            next,
        );
    }
    let uid = claim.metadata.uid.as_deref();
    if let Some(failure) = facts.failure.as_ref().filter(|failure| Some(failure.uid.as_str()) == uid) {
        let mut next = remedies(facts);
        next.push(again(facts.origin).to_owned());
        return Conclusion::new(ExplainedState::Failed, format!("it could not be prepared: {}", failure.error), next);
    }
    let next = match facts.origin {
        ClaimOrigin::Manifests => format!("run: hostler claim prepare -n {} {}", claim.metadata.namespace, claim.metadata.name),
        ClaimOrigin::Cluster if claim.status.reserved_for.is_empty() => "start a pod that uses it".to_owned(),
        ClaimOrigin::Cluster => {
            "the kubelet asks when it starts the pod; if that takes long, look at kubectl describe pod, and at hostler status for the registration".to_owned()
        }
    };
    Conclusion::new(
        ExplainedState::Allocated,
        "it is allocated, and nobody has asked this node to prepare it yet".to_owned(),
        vec![next],
    )
}

/// Steps that mend or free devices that are missing, unhealthy or held by other claims.
fn remedies(facts: &ClaimFacts) -> Vec<String> {
    let mut next = Vec::new();
    for device in &facts.devices {
        let name = device.name();
        match &device.health {
            None if device.unknown.is_some() => next.extend(device.unknown.as_ref().map(|reason| {
                format!("find out why the backend of device {name} does not tell what it has: {reason}")
            })),
            None if device.is_of(&facts.node) => {
                next.push(format!(
                    "plug device {name} in again, or delete the pod and let it start with another device"
                ));
            }
            Some(Health::Unhealthy { reason }) => {
                next.push(format!(
                    "mend device {name} ({reason}), or delete the pod and let it start with another device"
                ));
            }
            _ => {}
        }
        if !device.others.is_empty() && device.access == Access::Use {
            next.push(format!(
                "device {name} is also given to {}: end what uses it, if that is not meant",
                few(&device.others)
            ));
        }
    }
    next
}

fn again(origin: ClaimOrigin) -> &'static str {
    match origin {
        ClaimOrigin::Cluster => "the kubelet tries again by itself, within two minutes or so",
        ClaimOrigin::Manifests => "then run: hostler claim prepare",
    }
}

fn old_claim(origin: ClaimOrigin) -> &'static str {
    match origin {
        ClaimOrigin::Cluster => {
            "it is taken back when its last container has ended, and some minutes later even if the kubelet forgot it"
        }
        ClaimOrigin::Manifests => "take it back when no container uses it: hostler claim delete",
    }
}

fn count(devices: usize) -> String {
    if devices == 1 { "1 device".to_owned() } else { format!("{devices} devices") }
}

#[cfg(test)]
mod tests;

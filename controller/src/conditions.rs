//! Findings on what the controller can do in this cluster, and of what it cannot, what is missing and how to mend it.
//! Pure.
//!
//! A cluster without a kind or a gate gets everything else; only what is switched on by configuration, and cannot be
//! done, keeps the controller from being ready.

mod fabric;
mod keeping;
mod webhook;

use std::{collections::BTreeMap, iter, time::SystemTime};

use hostler_api::hardware::{CLUSTER_HARDWARE, Condition, ConditionStatus, GROUP};
use hostler_cluster::rfc3339;

pub(crate) use self::fabric::fabric_finding;
use self::{
    keeping::keeping,
    webhook::{gates_finding, webhook_finding},
};
use crate::{
    classic::adapter::{ClassicPhase, ClassicStatus},
    config::{CapabilitiesConfig, CapabilityMode},
    hold::adapter::HoldStatus,
    observed::{KindStatus, ObservedKind},
    pod_gates::GatesPhase,
    provision::adapter::ProvisionStatus,
    webhook_status::WebhookPhase,
};

/// The message about work that is switched off.
const OFF: &str = "switched off by configuration";

/// The outcome of writing ClusterHardware.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum SumsOutcome {
    /// Nothing was tried yet: another controller leads, or this one is about to.
    #[default]
    Waiting,
    /// The sums are written.
    Written,
    /// The server does not know the kind.
    NotServed,
    /// Writing has failed; holds the reason.
    Failed(String),
}

/// A finding: a statement that is so, or is not so, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClusterFinding {
    /// The subject of the finding.
    pub(crate) kind: FindingKind,
    /// True, false or unknown.
    pub(crate) status: ConditionStatus,
    /// The reason, in one word for programs.
    pub(crate) reason: &'static str,
    /// The reason for people, and what to do about it.
    pub(crate) message: String,
    /// True if the finding keeps the controller from being ready.
    pub(crate) is_needed: bool,
}

/// The subject of a finding.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum FindingKind {
    /// Everything that is needed was listed, and is heard of.
    Synced,
    /// Every object can be understood.
    ObjectsReadable,
    /// The reports of daemons are read.
    NodeReports,
    /// DeviceTaintRules are heeded.
    DeviceTaintRules,
    /// The sums are written.
    ClusterHardware,
    /// Claims are allocated, in clusters where the scheduler does not.
    ClassicAllocation,
    /// ProvisioningRequests are answered.
    ProvisioningRequests,
    /// Devices are kept for their promised owners.
    Reservations,
    /// Reservations of Koordinator are served.
    KoordinatorReservations,
    /// Managers of devices behind switches are read, and their devices offered.
    FabricManagers,
    /// Pods are led to these devices.
    Webhook,
    /// Pods wait by the gate `hostler.dev/reservation`.
    PodGates,
}

impl FindingKind {
    /// Returns the type of the condition.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "Synced",
            Self::ObjectsReadable => "ObjectsReadable",
            Self::NodeReports => "NodeReports",
            Self::DeviceTaintRules => "DeviceTaintRules",
            Self::ClusterHardware => "ClusterHardware",
            Self::ClassicAllocation => "ClassicAllocation",
            Self::Reservations => "Reservations",
            Self::ProvisioningRequests => "ProvisioningRequests",
            Self::KoordinatorReservations => "KoordinatorReservations",
            Self::FabricManagers => "FabricManagers",
            Self::Webhook => "Webhook",
            Self::PodGates => "PodGates",
        }
    }
}

impl ClusterFinding {
    fn new(kind: FindingKind, status: ConditionStatus, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, status, reason, message: message.into(), is_needed: false }
    }

    /// Returns the finding as a condition that has just become so.
    pub(crate) fn condition(&self) -> Condition {
        Condition {
            kind: self.kind.as_str().to_owned(),
            status: self.status,
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            last_transition_time: rfc3339(SystemTime::now()),
        }
    }

    /// Returns a line for people who ask whether the controller is ready.
    pub(crate) fn line(&self) -> String {
        let Self { kind, status, reason, message, .. } = self;
        format!("{}={} ({reason}): {message}", kind.as_str(), status.as_str())
    }
}

/// Returns all findings.
pub(crate) fn findings(
    modes: CapabilitiesConfig,
    kinds: &BTreeMap<ObservedKind, KindStatus>,
    sums: &SumsOutcome,
    classic: &ClassicStatus,
    provision: &ProvisionStatus,
    holds: &HoldStatus,
    webhook: Option<(&WebhookPhase, GatesPhase)>,
) -> Vec<ClusterFinding> {
    let mut all = vec![
        synced(modes, kinds),
        readable(kinds),
        of_kind(FindingKind::NodeReports, modes.node_reports, kinds.get(&ObservedKind::NodeHardware)),
        of_kind(FindingKind::DeviceTaintRules, modes.device_taint_rules, kinds.get(&ObservedKind::DeviceTaintRule)),
        written(modes, sums),
        allocating(modes, classic),
        answering(modes.provisioning, kinds.get(&ObservedKind::ProvisioningRequest), provision),
        keeping(modes.reservations, holds),
    ];
    let koordinators = kinds.get(&ObservedKind::KoordinatorReservation);
    let is_there = koordinators.is_some_and(|kind| kind.is_synced && !kind.is_absent);
    // Most clusters have no Koordinator: that is nothing to be told of.
    if modes.koordinator == CapabilityMode::On || modes.koordinator.is_wanted() && is_there {
        all.push(of_kind(FindingKind::KoordinatorReservations, modes.koordinator, koordinators));
    }
    all.extend(webhook.map(|(phase, _)| webhook_finding(phase)));
    all.extend(webhook.and_then(|(_, gates)| gates_finding(gates)));
    all
}

fn synced(modes: CapabilitiesConfig, kinds: &BTreeMap<ObservedKind, KindStatus>) -> ClusterFinding {
    let watched = || ObservedKind::ALL.into_iter().filter(|kind| modes.watches(*kind));
    let is_missing = |kind: &ObservedKind| kinds.get(kind).is_none_or(|status| !status.is_synced);
    let missing: Vec<&str> = watched().filter(is_missing).map(ObservedKind::plural).collect();
    let silent: Vec<String> = watched().filter_map(|kind| silence(kind, kinds.get(&kind)?)).collect();
    let (no, message) = (ConditionStatus::False, silent.join("; "));
    let finding = |status, reason, message: String| ClusterFinding::new(FindingKind::Synced, status, reason, message);
    if !missing.is_empty() {
        let not_listed = format!("not listed yet: {}", missing.join(", "));
        let all: Vec<String> = iter::once(not_listed).chain(silent).collect();
        return ClusterFinding { is_needed: true, ..finding(no, "NotListed", all.join("; ")) };
    }
    match silent.is_empty() {
        // Views show what was last heard: that is still an answer.
        false => finding(no, "Silent", message),
        true => finding(ConditionStatus::True, "Watching", "everything that is needed is watched".to_owned()),
    }
}

fn silence(kind: ObservedKind, status: &KindStatus) -> Option<String> {
    let (_, why) = status.silent.as_ref()?;
    Some(format!("{}: {why}", kind.plural()))
}

fn readable(kinds: &BTreeMap<ObservedKind, KindStatus>) -> ClusterFinding {
    let kind = FindingKind::ObjectsReadable;
    let count: usize = kinds.values().map(|status| status.poisoned).sum();
    let example = kinds.values().find_map(|status| status.example.as_deref());
    match example {
        None => ClusterFinding::new(kind, ConditionStatus::True, "AllRead", "every object can be understood"),
        Some(example) => {
            let left_out = if count == 1 { "1 object is" } else { &format!("{count} objects are") };
            let message = format!("{left_out} left out, since it cannot be understood what they say: {example}");
            ClusterFinding::new(kind, ConditionStatus::False, "Unreadable", message)
        }
    }
}

/// Makes a finding of a kind that the server may not have.
fn of_kind(kind: FindingKind, mode: CapabilityMode, status: Option<&KindStatus>) -> ClusterFinding {
    let finding = |status, reason, message: &str| ClusterFinding::new(kind, status, reason, message);
    let is_needed = mode == CapabilityMode::On;
    match status {
        _ if mode == CapabilityMode::Off => finding(ConditionStatus::False, "Off", OFF),
        Some(status) if status.is_absent => {
            ClusterFinding { is_needed, ..finding(ConditionStatus::False, "NotServed", mend(kind)) }
        }
        Some(status) if status.is_synced => finding(ConditionStatus::True, "Watching", "watched"),
        _ => ClusterFinding { is_needed, ..finding(ConditionStatus::Unknown, "NotListed", "not listed yet") },
    }
}

fn mend(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::DeviceTaintRules => {
            "the API server has no DeviceTaintRules; where there should be any, switch on its feature gates \
             DRADeviceTaints and DRADeviceTaintRules, and the API version that its release serves them in"
        }
        FindingKind::ProvisioningRequests => {
            "the API server has no ProvisioningRequests, or shows the controller none; install the kind as Cluster Autoscaler has it \
             (autoscaling.x-k8s.io), and apply deploy/provisioning"
        }
        FindingKind::KoordinatorReservations => {
            "the API server has no Reservations of scheduling.koordinator.sh, or shows the controller none; install \
             Koordinator's kind, and apply deploy/holds/koordinator"
        }
        _ => "the API server does not know the kind; install the CRDs: kubectl apply -k deploy/crds",
    }
}

/// Explains switched-off work of a leader. Where this controller leads for the sake of something else, no other does
/// that work.
fn off_for_a_leader(modes: CapabilitiesConfig) -> String {
    if !modes.leads() {
        return OFF.to_owned();
    }
    format!("{OFF}; while this controller leads nobody does it: give one that shall do it a lease.name of its own")
}

fn written(modes: CapabilitiesConfig, sums: &SumsOutcome) -> ClusterFinding {
    let kind = FindingKind::ClusterHardware;
    let finding = |status, reason, message: String| ClusterFinding::new(kind, status, reason, message);
    let mode = modes.cluster_hardware;
    if mode == CapabilityMode::Off {
        return finding(ConditionStatus::False, "Off", off_for_a_leader(modes));
    }
    let is_needed = mode == CapabilityMode::On;
    match sums {
        SumsOutcome::Written => finding(ConditionStatus::True, "Written", "the sums are written".to_owned()),
        SumsOutcome::Waiting => {
            finding(ConditionStatus::Unknown, "NotLeading", "the controller that leads writes the sums".to_owned())
        }
        SumsOutcome::NotServed => {
            ClusterFinding { is_needed, ..finding(ConditionStatus::False, "NotServed", mend(kind).to_owned()) }
        }
        SumsOutcome::Failed(why) => {
            let message =
                format!("{why}; the controller needs the verbs get, create and update on {CLUSTER_HARDWARE}.{GROUP}");
            ClusterFinding { is_needed, ..finding(ConditionStatus::False, "Failed", message) }
        }
    }
}

fn allocating(modes: CapabilitiesConfig, classic: &ClassicStatus) -> ClusterFinding {
    let kind = FindingKind::ClassicAllocation;
    let finding = |status, reason, message: String| ClusterFinding::new(kind, status, reason, message);
    let mode = modes.classic_dra;
    if mode == CapabilityMode::Off {
        return finding(ConditionStatus::False, "Off", off_for_a_leader(modes));
    }
    let is_needed = mode == CapabilityMode::On;
    let missing = |status, reason, message: String| ClusterFinding { is_needed, ..finding(status, reason, message) };
    match &classic.phase {
        ClassicPhase::NotLeading => {
            finding(ConditionStatus::Unknown, "NotLeading", "the controller that leads allocates".to_owned())
        }
        ClassicPhase::NotNeeded => {
            finding(ConditionStatus::False, "NotNeeded", "the cluster's scheduler allocates claims itself".to_owned())
        }
        ClassicPhase::Migrating { claims, sources, trouble } => {
            let mut message = format!(
                "{claims} claims and {sources} NodeHardware of before the upgrade to 1.32 are still to be handed over to Kubernetes"
            );
            if let Some(why) = trouble {
                message += &format!(": {why}; the controller needs the roles of deploy/classic");
            }
            finding(ConditionStatus::False, "Migrating", message)
        }
        ClassicPhase::NotServed(what) => missing(ConditionStatus::False, "NotServed", not_served(what)),
        ClassicPhase::Unknown(why) => finding(ConditionStatus::Unknown, "NoAnswer", why.clone()),
        ClassicPhase::Listing(kinds) => {
            missing(ConditionStatus::Unknown, "NotListed", format!("not listed yet: {}", kinds.join(", ")))
        }
        ClassicPhase::Dropped(fields) => missing(
            ConditionStatus::False,
            "FieldsDropped",
            format!(
                "the API server lets {fields} fall, so that nobody asks this controller; switch on the feature gate DRAControlPlaneController of API server, \
                 controller manager and scheduler"
            ),
        ),
        ClassicPhase::Allocating(version) => {
            let message = format!("claims of resource.k8s.io/{} are allocated", version.as_str());
            match classic.unreadable {
                0 => finding(ConditionStatus::True, "Allocating", message),
                count => {
                    let message = format!("{message}; {count} objects cannot be understood, and the log names them");
                    finding(ConditionStatus::True, "Allocating", message)
                }
            }
        }
    }
}

fn answering(mode: CapabilityMode, status: Option<&KindStatus>, provision: &ProvisionStatus) -> ClusterFinding {
    let kind = FindingKind::ProvisioningRequests;
    let watched = of_kind(kind, mode, status);
    match &provision.trouble {
        _ if watched.status != ConditionStatus::True => watched,
        Some(why) => {
            let message = format!(
                "{why}; the controller needs the verb patch on provisioningrequests/status: deploy/provisioning"
            );
            let is_needed = mode == CapabilityMode::On;
            ClusterFinding { is_needed, ..ClusterFinding::new(kind, ConditionStatus::False, "Failed", message) }
        }
        None => ClusterFinding::new(
            kind,
            ConditionStatus::True,
            "Watching",
            "requests are answered by the controller that leads",
        ),
    }
}

fn not_served(what: &str) -> String {
    match what {
        hostler_api::hardware::NODE_HARDWARE => mend(FindingKind::NodeReports).to_owned(),
        what => format!(
            "the API server has no {what}; switch on the feature gate DynamicResourceAllocation (in 1.31 \
             DRAControlPlaneController too) and serve the API version, or upgrade to Kubernetes 1.34"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(modes: CapabilitiesConfig) -> [String; 2] {
        let (sums, classic) = (SumsOutcome::default(), ClassicStatus::default());
        let (provision, holds) = (ProvisionStatus::default(), HoldStatus::default());
        let findings = findings(modes, &BTreeMap::new(), &sums, &classic, &provision, &holds, None);
        let of = |kind| findings.iter().find(|finding| finding.kind == kind).unwrap().line();
        [of(FindingKind::ClusterHardware), of(FindingKind::ClassicAllocation)]
    }

    #[test]
    fn what_nobody_does_while_this_one_leads_is_told() {
        let (on, off) = (CapabilityMode::Auto, CapabilityMode::Off);
        let modes = |cluster_hardware, classic_dra| CapabilitiesConfig {
            cluster_hardware,
            classic_dra,
            reservations: CapabilityMode::Off,
            provisioning: CapabilityMode::Off,
            ..CapabilitiesConfig::default()
        };
        let nobody = "nobody does it: give one that shall do it a lease.name of its own";
        let [sums, classic] = said(modes(off, on));
        assert!(sums.contains("ClusterHardware=False (Off)") && sums.ends_with(nobody), "{sums}");
        assert!(classic.contains("NotLeading"), "{classic}");
        let [sums, classic] = said(modes(on, off));
        assert!(sums.contains("NotLeading") && classic.ends_with(nobody), "{sums} {classic}");
        // Who never leads leaves it to others.
        assert!(said(modes(off, off)).iter().all(|line| line.ends_with(OFF)));
    }
}

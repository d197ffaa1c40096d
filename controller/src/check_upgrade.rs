//! `hostler-controller check-upgrade`: what stands in the way of this version in a cluster, or in manifests. Changes nothing.
//!
//! ```text
//!   files, standard input ──┐
//!   a live cluster ─────────┴─► deployed ─┬─► definitions ─┐
//!                               expected ─┼─► roles ───────┼─► findings ─► table, JSON, YAML
//!                                         ├─► objects ─────┤
//!                                         └─► programs ────┘
//! ```

mod command;
mod configuration;
mod definitions;
mod objects;
mod programs;
mod read;
mod roles;
mod schema;
mod table;

use hostler_cli::output::API_VERSION;
use serde::Serialize;

pub(crate) use self::{
    command::{CheckUpgradeArgs, run},
    definitions::findings as definition_findings,
    programs::kubernetes as kubernetes_finding,
};

use crate::deployed::DeployedObjects;

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpgradeAnswer {
    /// `output.hostler.dev/v1`.
    api_version: &'static str,
    /// `UpgradeCheck`.
    kind: &'static str,
    /// The version of this program, which the cluster is checked for.
    version: &'static str,
    /// Release of the API server; `None` for manifests.
    kubernetes: Option<String>,
    /// Findings; those that have to be mended first come first.
    findings: Vec<UpgradeFinding>,
}

/// A difference between a cluster and what this version expects.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpgradeFinding {
    /// The moment for it.
    pub(crate) urgency: FindingUrgency,
    /// The object: `CustomResourceDefinition reservations.hostler.dev`.
    pub(crate) object: String,
    /// The difference, in words.
    pub(crate) message: String,
    /// The command that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
}

/// The moment at which a finding has to be mended.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FindingUrgency {
    /// Before the programs are replaced.
    First,
    /// Any time, or by itself.
    Note,
}

impl UpgradeAnswer {
    /// Compares what is deployed with what this version expects.
    fn of(deployed: &DeployedObjects) -> Self {
        let mut findings = programs::findings(deployed);
        findings.extend(definitions::findings(deployed));
        findings.extend(roles::findings(deployed));
        findings.extend(configuration::findings(deployed));
        findings.extend(objects::findings(deployed));
        // The order of the checks is the order of the work; the sort is stable.
        findings.sort_by_key(|finding| finding.urgency);
        Self {
            api_version: API_VERSION,
            kind: "UpgradeCheck",
            version: env!("CARGO_PKG_VERSION"),
            kubernetes: deployed.minor.map(|minor| format!("1.{minor}")),
            findings,
        }
    }

    fn count(&self, urgency: FindingUrgency) -> usize {
        self.findings.iter().filter(|finding| finding.urgency == urgency).count()
    }
}

impl UpgradeFinding {
    fn first(object: impl Into<String>, message: impl Into<String>) -> Self {
        Self { urgency: FindingUrgency::First, object: object.into(), message: message.into(), command: None }
    }

    fn note(object: impl Into<String>, message: impl Into<String>) -> Self {
        Self { urgency: FindingUrgency::Note, ..Self::first(object, message) }
    }

    fn mended_by(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }
}

//! Facts about a cluster that the checks are made from.

use std::time::SystemTime;

use hostler_cli::doctor::DoctorFinding;
use hostler_process::config::ConfigMistake;

use crate::{config::ControllerConfig, deployed::DeployedObjects};

/// Facts about a cluster.
#[derive(Debug)]
pub(super) struct DoctorFacts {
    /// The time of the question, by the clock of this machine.
    pub(super) now: SystemTime,
    /// Release of the API server, in its words.
    pub(super) release: String,
    /// Versions of `resource.k8s.io` that the API server serves.
    pub(super) claim_versions: Vec<String>,
    /// True if the API server serves DeviceTaintRules.
    pub(super) has_taint_rules: bool,
    /// Objects that the user may read.
    pub(super) deployed: DeployedObjects,
    /// Reads that the user lacks the right for.
    pub(super) refused: Vec<RefusedRead>,
    /// Configuration of the controller.
    pub(super) config: DoctorConfig,
    /// Rights of the controller, by bundle; an error says why the API server was not asked.
    pub(super) rights: Result<Vec<BundleRights>, String>,
    /// The user whose rights they are.
    pub(super) rights_of: String,
}

/// A read that the user lacks the right for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RefusedRead {
    /// The verb.
    pub(super) verb: &'static str,
    /// The kind.
    pub(super) plural: String,
}

/// Configuration of the controller, and its place.
#[derive(Clone, Debug)]
pub(super) struct DoctorConfig {
    /// A file, a ConfigMap, or `defaults`.
    pub(super) place: String,
    /// The configuration; the default one where it is wrong.
    pub(super) config: ControllerConfig,
    /// Mistakes in it.
    pub(super) mistakes: Vec<ConfigMistake>,
}

/// The need for the rights of a bundle.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BundleNeed {
    /// The controller cannot do without: it is a part of every controller, or switched on by name.
    Needed,
    /// The controller does without the work if the bundle is not installed.
    Optional,
}

/// A bundle with the answer of the API server.
#[derive(Clone, Debug)]
pub(super) struct BundleRights {
    pub(super) folder: &'static str,
    pub(super) need: BundleNeed,
    /// True if the controller has any right that no other bundle gives.
    pub(super) is_installed: bool,
    /// Number of rights that the bundle gives.
    pub(super) all: usize,
    /// Rights that the controller lacks, in words.
    pub(super) lacking: Vec<String>,
}

impl DoctorFacts {
    /// Returns the finding that a check could not be made, if one of its kinds may not be read.
    pub(super) fn unread(&self, check: &'static str, plurals: &[&str]) -> Option<DoctorFinding> {
        let refused = self.refused.iter().find(|refused| plurals.contains(&&*refused.plural))?;
        let found = format!("not checked: you may not {} {}", refused.verb, refused.plural);
        Some(DoctorFinding::warn(check, found, "ask as an administrator: kubectl hostler doctor"))
    }
}

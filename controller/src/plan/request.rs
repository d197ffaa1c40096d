//! The question that `plan --controller` sends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A question.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct PlanRequest {
    /// Manifests, with what they are called in messages. What they say goes before what the cluster says.
    pub(crate) files: Vec<PlanFile>,
    /// Changes that are made before anything is asked, in their order.
    pub(crate) what_if: Vec<String>,
    /// The version of Kubernetes whose scheduler is meant; that of the cluster where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubernetes: Option<String>,
    /// Gates that are not as that version has them.
    pub(crate) feature_gates: BTreeMap<String, bool>,
}

/// A text with manifests.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PlanFile {
    /// The file's name.
    pub(crate) name: String,
    /// YAML or JSON.
    pub(crate) text: String,
}

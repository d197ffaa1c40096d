//! Templates of claims: each pod that names one gets a claim of its own.

use serde::{Deserialize, Serialize};

use crate::{core::ObjectMeta, resource::ResourceClaimSpec};

/// A ResourceClaimTemplate.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    /// Name.
    pub metadata: ObjectMeta,
    /// The claims.
    pub spec: ResourceClaimTemplateSpec,
}

/// What claims of a template look like.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimTemplateSpec {
    /// Labels of the claims.
    pub metadata: ObjectMeta,
    /// What they ask for.
    pub spec: ResourceClaimSpec,
}

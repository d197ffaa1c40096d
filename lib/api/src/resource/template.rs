//! Templates of claims: each pod that names one gets a claim of its own.

use serde::{Deserialize, Serialize};

use crate::{core::ObjectMeta, resource::ResourceClaimSpec};

/// A ResourceClaimTemplate.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    /// Name.
    pub metadata: ObjectMeta,
    /// Template of the claims.
    pub spec: ResourceClaimTemplateSpec,
}

/// Template of claims.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimTemplateSpec {
    /// Labels of the claims.
    pub metadata: ObjectMeta,
    /// Requests of the claims.
    pub spec: ResourceClaimSpec,
}

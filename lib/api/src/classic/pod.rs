//! Pods, as far as a controller that allocates needs them: the claims that they name. Until 1.30 there is a `source`
//! between a pod's claim and the claim or template that it names.

use serde::{Deserialize, Serialize};

use super::ClassicMeta;
use crate::{core::PodStatus, resource::or_empty};

/// A pod with claims.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClassicPod {
    /// Name and identity.
    pub metadata: ClassicMeta,
    /// Claims that the pod names.
    pub spec: ClassicPodSpec,
    /// Claims that were made for the pod.
    pub status: PodStatus,
}

/// Spec of a pod: its claims.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassicPodSpec {
    /// Claims, and templates of claims.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_claims: Vec<ClassicPodClaim>,
}

/// A claim of a pod: one that exists, or a template of which each pod gets one.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "WrittenPodClaim", rename_all = "camelCase")]
pub struct ClassicPodClaim {
    /// Name of the claim in the pod.
    pub name: String,
    /// Name of an existing claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// Name of a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenPodClaim {
    name: String,
    source: Option<PodClaimSource>,
    #[serde(flatten)]
    flat: PodClaimSource,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodClaimSource {
    resource_claim_name: Option<String>,
    resource_claim_template_name: Option<String>,
}

impl From<WrittenPodClaim> for ClassicPodClaim {
    fn from(written: WrittenPodClaim) -> Self {
        let source = written.source.unwrap_or(written.flat);
        Self {
            name: written.name,
            resource_claim_name: source.resource_claim_name,
            resource_claim_template_name: source.resource_claim_template_name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_name_a_claim_are_read() {
        let flat = r#"{"name": "c", "resourceClaimName": "x"}"#;
        let nested = r#"{"name": "c", "source": {"resourceClaimName": "x"}}"#;
        for written in [flat, nested] {
            let claim: ClassicPodClaim = serde_json::from_str(written).unwrap();
            assert_eq!(claim.resource_claim_name.as_deref(), Some("x"));
        }
    }
}

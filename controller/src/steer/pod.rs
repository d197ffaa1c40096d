//! The pod that a claim is made for, asked of the API server: what watches know is a moment old, and the pod is younger.

use std::collections::BTreeMap;

use hostler_api::{core::PodResourceClaim, reservation::OwnerController};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use serde::Deserialize;

use super::review::GeneratedClaim;
use crate::hold::OwnerPod;

/// A pod, as far as it decides where it is led.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SteeredPod {
    /// Who it is.
    pub(super) owner: OwnerPod,
    /// What it asks for.
    pub(super) claims: Vec<PodResourceClaim>,
}

#[derive(Deserialize)]
struct SeenPod {
    metadata: SeenMeta,
    #[serde(default)]
    spec: SeenSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenMeta {
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<SeenOwner>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenOwner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenSpec {
    resource_claims: Vec<PodResourceClaim>,
}

impl From<SeenPod> for SteeredPod {
    fn from(SeenPod { metadata, spec }: SeenPod) -> Self {
        let SeenMeta { uid, labels, annotations, owner_references } = metadata;
        let controller = owner_references.into_iter().find(|it| it.controller).map(|it| OwnerController {
            api_version: it.api_version,
            kind: it.kind,
            namespace: String::new(),
            name: it.name,
            uid: it.uid,
        });
        let named = OwnerPod { uid, labels, annotations, ..OwnerPod::default() };
        Self { owner: OwnerPod { controller, ..named }, claims: spec.resource_claims }
    }
}

/// The pod of a claim, if it is still the one that the claim is made for.
pub(super) async fn pod_of(client: &ApiClient, claim: &GeneratedClaim) -> Result<Option<SteeredPod>, ApiFailure> {
    let pods = Collection::core("Pod", "pods").of(&claim.namespace);
    match client.get::<SeenPod>(&pods, &claim.pod.name).await {
        Ok(pod) => Ok(Some(SteeredPod::from(pod)).filter(|pod| pod.owner.uid == claim.pod.uid)),
        Err(failure) if failure.code() == Some(404) => Ok(None),
        Err(failure) => Err(failure),
    }
}

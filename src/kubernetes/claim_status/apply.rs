//! The calls: what the API server has of a claim's devices, and what it shall have.

use hostler_api::ClaimRef;
use hostler_cluster::ApiFailure;
use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use serde::Deserialize;
use serde_json::json;

use super::devices::{StoredDevices, is_same};
use crate::kubernetes::{ClusterNode, claims_of};

/// How a write ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum StatusWriteOutcome {
    /// The API server has it.
    Kept,
    /// The API server took it and kept nothing.
    Dropped,
    /// The claim is gone, or it is another one of the same name.
    Gone,
}

/// The part of a claim that matters here.
#[derive(Deserialize)]
struct StoredClaim {
    metadata: StoredMetadata,
    #[serde(default)]
    status: StoredStatus,
}

#[derive(Deserialize)]
struct StoredMetadata {
    uid: String,
    generation: Option<i64>,
}

#[derive(Default, Deserialize)]
struct StoredStatus {
    #[serde(default)]
    devices: Vec<AllocatedDeviceStatus>,
}

/// What the API server has of `claim`.
pub(super) async fn read(cluster: &ClusterNode, claim: &ClaimRef) -> Result<StoredDevices, ApiFailure> {
    let client = cluster.client();
    let claims = claims_of(client.version().await?, &claim.namespace);
    match client.get::<StoredClaim>(&claims, &claim.name).await {
        Ok(found) if found.metadata.uid != claim.uid.as_str() => Ok(StoredDevices::gone()),
        Ok(found) => Ok(StoredDevices::new(found.status.devices, found.metadata.generation, cluster.driver())),
        Err(failure) if is_gone(&failure) => Ok(StoredDevices::gone()),
        Err(failure) => Err(failure),
    }
}

/// Has the API server keep exactly `devices` of what this driver says about `claim`.
pub(super) async fn apply(
    cluster: &ClusterNode,
    claim: &ClaimRef,
    devices: &[AllocatedDeviceStatus],
) -> Result<StatusWriteOutcome, ApiFailure> {
    let client = cluster.client();
    let claims = claims_of(client.version().await?, &claim.namespace);
    let body = json!({
        "apiVersion": claims.api_version(),
        "kind": claims.kind(),
        // With the UID the API server refuses to write to a later claim of the same name.
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
        "status": {"devices": devices},
    });
    // Nobody else has anything to say about these fields, so a conflict can only be with an earlier name of this driver.
    match client.apply_status::<StoredClaim>(&claims, &claim.name, cluster.driver(), &body).await {
        Ok(kept) => {
            let has = |wanted: &AllocatedDeviceStatus| kept.status.devices.iter().any(|known| is_same(known, wanted));
            Ok(if devices.iter().all(has) { StatusWriteOutcome::Kept } else { StatusWriteOutcome::Dropped })
        }
        Err(failure) if is_gone(&failure) => Ok(StatusWriteOutcome::Gone),
        Err(failure) => Err(failure),
    }
}

/// Not found, or a conflict: the only thing that this driver's writes can conflict with is another UID.
fn is_gone(failure: &ApiFailure) -> bool {
    match failure.code() {
        Some(404) => !failure.is_unknown_resource(),
        code => code == Some(409),
    }
}

//! The calls: what the API server has of a claim's devices, and what it shall have.

use hostler_api::ClaimRef;
use hostler_cluster::ApiFailure;
use hostler_reconcile::WriteOutcome;

use super::message::{DeviceStatus, StoredClaim, is_same};
use crate::kubernetes::{ClusterNode, claims_of};

/// The field that servers drop whose feature gate is off.
const FIELD: &str = "status.devices";

/// Reads `claim` from the API server; nothing, if the claim is gone.
pub(super) async fn read(cluster: &ClusterNode, claim: &ClaimRef) -> Result<Option<StoredClaim>, ApiFailure> {
    let client = cluster.client();
    let claims = claims_of(client.version().await?, &claim.namespace);
    let found = match client.get_protobuf(&claims, &claim.name).await {
        Err(failure) if is_gone(&failure) => return Ok(None),
        found => StoredClaim::decode(found?).map_err(|error| unreadable(claim, error))?,
    };
    Ok((found.uid == claim.uid.as_str()).then_some(found))
}

/// Has the API server keep exactly `devices` of what this driver says about the claim that was just read. A claim that
/// was changed since is not written to: that is a conflict.
pub(super) async fn write(
    cluster: &ClusterNode,
    claim: &ClaimRef,
    stored: &StoredClaim,
    devices: &[DeviceStatus],
) -> Result<WriteOutcome, ApiFailure> {
    let client = cluster.client();
    let claims = claims_of(client.version().await?, &claim.namespace);
    let changed = stored.with_devices(cluster.driver(), devices).map_err(|error| unreadable(claim, error))?;
    match client.replace_status(&claims, &claim.name, cluster.driver(), &changed).await {
        Ok(kept) => {
            let kept = StoredClaim::decode(kept).map_err(|error| unreadable(claim, error))?;
            let has = |wanted: &DeviceStatus| kept.devices.iter().any(|known| is_same(known, wanted));
            Ok(if devices.iter().all(has) { WriteOutcome::Done } else { WriteOutcome::Dropped(FIELD.to_owned()) })
        }
        Err(failure) if is_gone(&failure) => Ok(WriteOutcome::Gone),
        Err(failure) => Err(failure),
    }
}

fn unreadable(claim: &ClaimRef, error: impl std::fmt::Display) -> ApiFailure {
    ApiFailure::unusable(format!("read ResourceClaim {}", claim.full_name()), error)
}

fn is_gone(failure: &ApiFailure) -> bool {
    WriteOutcome::of_failure(failure) == WriteOutcome::Gone
}

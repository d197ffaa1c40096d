//! Claims, as far as it matters who has which device.

use hostler_allocator::plan::ObjectKey;
use hostler_api::resource::ResourceClaimStatus;
use serde::Deserialize;

use crate::hold::{AllocatedClaim, DeviceKey, PodRef};

/// A claim, as the server tells it in any version.
#[derive(Deserialize)]
pub(super) struct SeenClaim {
    metadata: SeenClaimMeta,
    #[serde(default)]
    status: ResourceClaimStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenClaimMeta {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    owner_references: Vec<ClaimOwner>,
}

/// Somebody that a claim belongs to.
#[derive(Deserialize)]
struct ClaimOwner {
    kind: String,
    name: String,
    uid: String,
}

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct ClaimPage {
    pub(super) items: Vec<SeenClaim>,
}

impl SeenClaim {
    /// What it has, and whose it is.
    pub(super) fn allocated(self) -> AllocatedClaim {
        let Self { metadata, status } = self;
        let results = status.allocation.map(|allocation| allocation.devices.results).unwrap_or_default();
        let given = results.iter().filter(|result| result.admin_access != Some(true));
        let devices = given.map(|result| DeviceKey::new(&result.driver, &result.pool, &result.device)).collect();
        let owners = metadata.owner_references.into_iter().filter(|owner| owner.kind == "Pod");
        let owners = owners.map(|owner| PodRef { name: owner.name, uid: owner.uid });
        let consumers = status.reserved_for.into_iter().filter(|consumer| consumer.is_pod());
        let consumers = consumers.map(|consumer| PodRef { name: consumer.name, uid: consumer.uid });
        let mut pods: Vec<PodRef> = owners.chain(consumers).collect();
        pods.sort();
        pods.dedup();
        AllocatedClaim {
            key: ObjectKey { namespace: metadata.namespace, name: metadata.name },
            uid: metadata.uid,
            version: metadata.resource_version,
            devices,
            pods,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_has_what_it_was_given_but_what_it_only_looks_after_and_is_its_pods() {
        let claim: SeenClaim = serde_json::from_value(json!({
            "metadata": {
                "name": "c", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pu"}],
            },
            "status": {
                "allocation": {"devices": {"results": [
                    {"request": "r", "driver": "d", "pool": "p", "device": "a"},
                    {"request": "s", "driver": "d", "pool": "p", "device": "b", "adminAccess": true},
                ]}},
                "reservedFor": [
                    {"resource": "pods", "name": "p", "uid": "pu"}, {"resource": "pods", "name": "q", "uid": "qu"},
                    {"apiGroup": "g", "resource": "others", "name": "o", "uid": "ou"},
                ],
            },
        }))
        .unwrap();
        let claim = claim.allocated();
        assert_eq!(claim.devices, [DeviceKey::new("d", "p", "a")]);
        assert_eq!(claim.pods.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["p", "q"]);
        assert_eq!((claim.key.to_string().as_str(), claim.uid.as_str(), claim.version.as_str()), ("n/c", "u", "7"));
    }
}

//! ResourceClaims, with the fields that decide which claim has which device.

use std::collections::BTreeMap;

use hostler_api::{
    ExactQuantity, ObjectKey, Quantity,
    reservation::RESERVATION_UID,
    resource::{DeviceRequestAllocationResult, DeviceToleration, ResourceClaimSpec, ResourceClaimStatus},
    well_known::HELD_TAINT,
};
use hostler_cluster::{ApiFailure, RawObject};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::hold::{AllocatedClaim, Amounts, ClaimPart, DeviceKey, PlaceholderMark, PodRef};

/// A claim, as the API server returns it in any version.
#[derive(Deserialize)]
pub(super) struct SeenClaim {
    metadata: SeenClaimMeta,
    #[serde(default)]
    spec: ResourceClaimSpec,
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
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

/// An owner of a claim.
#[derive(Deserialize)]
struct ClaimOwner {
    kind: String,
    name: String,
    uid: String,
}

/// A page of a list.
#[derive(Deserialize)]
struct ClaimPage {
    items: Vec<Box<RawValue>>,
}

/// Reads the claims of a page with their devices; the error names a claim that cannot be understood.
pub(super) fn claims_of(page: &[u8], namespace: &str) -> Result<Vec<AllocatedClaim>, ApiFailure> {
    let page: ClaimPage = serde_json::from_slice(page)
        .map_err(|error| ApiFailure::unusable("read the list of all ResourceClaims", error))?;
    let read = |text: &RawValue| match serde_json::from_str::<SeenClaim>(text.get()) {
        Ok(claim) => Ok(claim.allocated(namespace)),
        Err(error) => Err(ApiFailure::unusable(format!("read {}", title(text)), error)),
    };
    page.items.iter().map(|text| read(text)).collect()
}

fn title(text: &RawValue) -> String {
    let claim = RawObject::from_text(text.get());
    claim.map_or_else(|_| "a ResourceClaim".to_owned(), |it| format!("ResourceClaim {}/{}", it.namespace(), it.name()))
}

impl SeenClaim {
    /// The claim's devices and owners. Only claims in `namespace` stand for parts that Reservations keep.
    pub(super) fn allocated(self, namespace: &str) -> AllocatedClaim {
        let Self { metadata, spec, status } = self;
        let results = status.allocation.map(|allocation| allocation.devices.results).unwrap_or_default();
        let given = || results.iter().filter(|result| result.admin_access != Some(true));
        let devices = given().map(device).collect();
        let parts = given().filter_map(part).collect();
        let uid = metadata.labels.get(RESERVATION_UID).filter(|_| metadata.namespace == namespace);
        let placeholder = uid.map(|uid| PlaceholderMark {
            reservation_uid: uid.clone(),
            finalizers: metadata.finalizers.clone(),
            is_deleting: metadata.deletion_timestamp.is_some(),
        });
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
            parts,
            pods,
            tolerates: tolerated(&spec),
            placeholder,
        }
    }
}

fn device(result: &DeviceRequestAllocationResult) -> DeviceKey {
    DeviceKey::new(&result.driver, &result.pool, &result.device)
}

/// The part of a device that the claim has; `None` if the device is not shared.
fn part(result: &DeviceRequestAllocationResult) -> Option<ClaimPart> {
    let amount = |(name, amount): (&String, &serde_json::Value)| {
        let amount = ExactQuantity::deserialize(amount).ok()?;
        Some((name.clone(), Quantity::try_from(amount).ok()?))
    };
    let amounts = result.consumed_capacity.iter().filter_map(amount).collect::<Amounts>();
    Some(ClaimPart { device: device(result), share_id: result.share_id.clone()?, amounts })
}

/// Values of the taint `hostler.dev/held` that the claim tolerates by name.
fn tolerated(spec: &ResourceClaimSpec) -> Vec<String> {
    let of_request = spec.devices.requests.iter().flat_map(|request| {
        let exactly = request.exactly.iter().flat_map(|it| &it.tolerations);
        exactly.chain(request.first_available.iter().flat_map(|it| &it.tolerations))
    });
    let named = of_request.filter(|it: &&DeviceToleration| it.key == HELD_TAINT && it.operator != "Exists");
    let mut values: Vec<String> = named.map(|it| it.value.clone()).collect();
    values.sort();
    values.dedup();
    values
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
        let claim = claim.allocated("hostler-controller");
        assert_eq!(claim.devices, [DeviceKey::new("d", "p", "a")]);
        assert_eq!(claim.pods.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["p", "q"]);
        assert_eq!((claim.key.to_string().as_str(), claim.uid.as_str(), claim.version.as_str()), ("n/c", "u", "7"));
    }

    #[test]
    fn a_claim_that_cannot_be_understood_is_named() {
        let claim = |name: &str, devices: serde_json::Value| {
            json!({
                "metadata": {"name": name, "namespace": "n", "uid": "u", "resourceVersion": "7"},
                "status": {"allocation": {"devices": devices}},
            })
        };
        let page = |claims: &[serde_json::Value]| claims_of(json!({"items": claims}).to_string().as_bytes(), "h");
        let fine = claim("fine", json!({"results": []}));
        assert_eq!(page(std::slice::from_ref(&fine)).unwrap().len(), 1);
        let failure = page(&[fine, claim("wrong", json!({"results": 7}))]).unwrap_err();
        assert!(failure.to_string().contains("read ResourceClaim n/wrong"), "{failure}");
    }

    #[test]
    fn a_claim_tells_its_parts_what_it_tolerates_by_name_and_what_it_stands_for_in_our_namespace_only() {
        let text = json!({
            "metadata": {
                "name": "hold-s", "namespace": "n", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"hostler.dev/reservation-uid": "r"}, "finalizers": ["f"],
            },
            "spec": {"devices": {"requests": [
                {"name": "a", "exactly": {"deviceClassName": "c", "tolerations": [
                    {"key": "hostler.dev/held", "operator": "Equal", "value": "v"}, {"operator": "Exists"},
                    {"key": "other", "operator": "Equal", "value": "w"},
                ]}},
                {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "c", "tolerations": [
                    {"key": "hostler.dev/held", "value": "x"},
                ]}]},
            ]}},
            "status": {"allocation": {"devices": {"results": [
                {"request": "a", "driver": "d", "pool": "p", "device": "a", "shareID": "s", "consumedCapacity": {"cpus": "2", "memory": "1Ki"}},
                {"request": "b", "driver": "d", "pool": "p", "device": "b"},
            ]}}},
        });
        let read = |namespace| SeenClaim::deserialize(&text).unwrap().allocated(namespace);
        let claim = read("n");
        assert_eq!(claim.tolerates, ["v", "x"]);
        let amounts = [("cpus".to_owned(), Quantity::whole(2)), ("memory".to_owned(), Quantity::whole(1024))].into();
        assert_eq!(
            claim.parts,
            [ClaimPart { device: DeviceKey::new("d", "p", "a"), share_id: "s".to_owned(), amounts }]
        );
        let mark =
            PlaceholderMark { reservation_uid: "r".to_owned(), finalizers: vec!["f".to_owned()], is_deleting: true };
        assert_eq!(claim.placeholder, Some(mark));
        assert_eq!(read("hostler-controller").placeholder, None, "anybody can write a label elsewhere");
    }
}

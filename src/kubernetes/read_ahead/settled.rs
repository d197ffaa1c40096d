//! Proof that a claim stays as it is for as long as the pod lives that it was made for: a pure function.
//!
//! All of this has to be seen in one answer of the server:
//!
//! - The pod owns the claim, so no other object's end takes it away; the name and the UID are those of this object.
//! - The claim is reserved for the pod alone. While a claim is reserved the API server refuses to take the allocation
//!   away, and an allocation is never changed in place. Only the end of the pod takes the reservation away, and the pod
//!   has not ended: the watch of pods sees to that.
//! - The claim has the finalizer that the allocation comes with, and is not being deleted: the object outlives the
//!   reservation.

use hostler_api::{Allocation, ClaimUid, resource::ResourceClaim};
use serde::Deserialize;
use serde_json::Value;

/// The cluster's own, which is removed after the allocation.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Ties of a claim to its pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimTies {
    metadata: ClaimTiesMetadata,
    status: ClaimTiesStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimTiesMetadata {
    owner_references: Vec<ClaimOwner>,
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimOwner {
    api_version: String,
    kind: String,
    uid: String,
    controller: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimTiesStatus {
    reserved_for: Vec<ClaimConsumer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimConsumer {
    api_group: String,
    resource: String,
    uid: String,
}

/// Returns the allocation of a claim that cannot change while the pod with the UID `pod` lives; nothing if it may.
pub(super) fn settled(found: Value, pod: &str, driver: &str) -> Option<(ClaimUid, Allocation)> {
    if !is_tied(&ClaimTies::deserialize(&found).ok()?, pod) {
        return None;
    }
    let claim: ResourceClaim = serde_json::from_value(found).ok()?;
    Some((claim.claim().ok()?.uid, claim.allocation(driver).ok()?))
}

fn is_tied(ties: &ClaimTies, pod: &str) -> bool {
    let ClaimTies { metadata, status } = ties;
    let is_pod = |owner: &ClaimOwner| owner.controller && owner.api_version == "v1" && owner.kind == "Pod";
    let is_owner = metadata.owner_references.iter().any(|owner| is_pod(owner) && owner.uid == pod);
    let [consumer] = &*status.reserved_for else { return false };
    let is_consumer = consumer.api_group.is_empty() && consumer.resource == "pods" && consumer.uid == pod;
    let stays = metadata.deletion_timestamp.is_none() && metadata.finalizers.iter().any(|it| it == FINALIZER);
    !pod.is_empty() && is_owner && is_consumer && stays
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim() -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {
                "name": "train-cpus-x7", "namespace": "ml", "uid": "c1",
                "finalizers": [FINALIZER],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "p1", "controller": true}],
            },
            "status": {
                "allocation": {"devices": {"results": [
                    {"request": "r", "driver": "hostler.dev", "pool": "n/fake", "device": "card-0"}]}},
                "reservedFor": [{"resource": "pods", "name": "train", "uid": "p1"}],
            },
        })
    }

    #[test]
    fn a_claim_that_is_owned_allocated_and_reserved_stays_as_it_is() {
        let (uid, allocation) = settled(claim(), "p1", "hostler.dev").unwrap();
        assert_eq!((uid.to_string().as_str(), allocation.grants.len()), ("c1", 1));
    }

    #[test]
    fn whatever_is_missing_leaves_the_claim_to_be_read_when_it_is_asked_for() {
        let other = json!({"resource": "pods", "name": "other", "uid": "p2"});
        let own = claim()["status"]["reservedFor"][0].clone();
        let group = json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "p1"}]);
        for (why, pointer, value) in [
            ("nobody owns it", "/metadata/ownerReferences", json!([])),
            ("another pod owns it", "/metadata/ownerReferences/0/uid", json!("p2")),
            ("its owner does not control it", "/metadata/ownerReferences/0/controller", json!(false)),
            ("its owner is no pod", "/metadata/ownerReferences/0/kind", json!("Job")),
            ("its owner is somebody else's pod", "/metadata/ownerReferences/0/apiVersion", json!("example.com/v1")),
            ("it is not reserved", "/status/reservedFor", json!([])),
            ("it is reserved for another pod", "/status/reservedFor/0", other.clone()),
            ("it is reserved for others too", "/status/reservedFor", json!([own, other])),
            ("it is reserved for something else", "/status/reservedFor", group),
            ("nothing is allocated", "/status/allocation", json!(null)),
            ("nothing of ours is allocated", "/status/allocation/devices/results/0/driver", json!("gpu.example.com")),
            ("it can vanish at once", "/metadata/finalizers", json!(["example.com/mine"])),
            ("it has no identity", "/metadata/uid", json!(null)),
        ] {
            let mut claim = claim();
            *claim.pointer_mut(pointer).unwrap() = value;
            assert!(settled(claim, "p1", "hostler.dev").is_none(), "{why}");
        }
        let mut going = claim();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        assert!(settled(going, "p1", "hostler.dev").is_none(), "it is being deleted");
        assert!(settled(claim(), "", "hostler.dev").is_none(), "a pod without a uid is none");
    }
}

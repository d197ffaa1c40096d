//! Comparison of recorded claims with the API server: claims that are gone, and claims that have nothing of what is on
//! record.

use std::sync::Arc;

use hostler_api::{Grant, resource::ResourceClaim};
use tokio::runtime::Handle;

use super::claim_reader::{ClaimReadError, ClaimReader};
use crate::claims::{
    janitor::{ClaimObservation, ObserveClaims, ObserveError},
    store::ClaimRecord,
};

/// Looks at claims one after the other. Each is asked for by name and without a version, so that the API server answers
/// from its store and not from a cache.
#[derive(Clone, Debug)]
pub struct ClaimObserver {
    reader: ClaimReader,
    driver: String,
    runtime: Handle,
}

impl ClaimObserver {
    /// Reads claims with `reader`. Must be made on the daemon's runtime.
    pub fn new(reader: ClaimReader, driver: &str) -> Self {
        Self { reader, driver: driver.to_owned(), runtime: Handle::current() }
    }

    async fn look(&self, record: &ClaimRecord) -> Result<ClaimObservation, ClaimReadError> {
        let found = self.reader.find(&record.claim.namespace, &record.claim.name).await;
        observation(record, found, &self.driver)
    }
}

impl ObserveClaims for ClaimObserver {
    fn observe(&self, claims: &[Arc<ClaimRecord>]) -> Vec<Result<ClaimObservation, ObserveError>> {
        let mut unavailable = false;
        let mut look = |record: &Arc<ClaimRecord>| {
            if unavailable {
                return Err("the API server gave no answer for another claim".into());
            }
            let seen = self.runtime.block_on(self.look(record));
            // Waiting in vain for each of a hundred claims would take longer than the time between two looks.
            unavailable = matches!(seen, Err(ClaimReadError::Unavailable(_)));
            seen.map_err(Into::into)
        };
        claims.iter().map(&mut look).collect()
    }
}

/// Judges a claim by the object of its name. Nothing but the server's word that there is no such claim is proof of
/// that: the reader tells it from a server that does not know the kind any more.
fn observation(
    record: &ClaimRecord,
    found: Result<ResourceClaim, ClaimReadError>,
    driver: &str,
) -> Result<ClaimObservation, ClaimReadError> {
    let found = match found {
        Err(ClaimReadError::Missing { .. }) => return Ok(ClaimObservation::Gone),
        found => found?,
    };
    if found.metadata.uid.as_deref() != Some(record.claim.uid.as_str()) {
        return Ok(ClaimObservation::OtherUid);
    }
    let results = found.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
    let mut ours = results.filter(|result| result.driver == driver);
    // It may have been given something else of this node since: that is not what is on record.
    let has_any = ours.any(|result| {
        let is_it = |grant: &Grant| grant.pool == result.pool && grant.device.as_str() == result.device;
        record.devices.iter().any(|device| is_it(&device.grant))
    });
    Ok(if has_any { ClaimObservation::Allocated } else { ClaimObservation::Deallocated })
}

#[cfg(test)]
mod tests {
    use hostler_api::{ClaimRef, ClaimUid};
    use serde_json::{Value, json};

    use super::*;
    use crate::claims::store::RecordState;

    fn seen(found: Result<ResourceClaim, ClaimReadError>) -> Result<ClaimObservation, ClaimReadError> {
        let claim =
            ClaimRef { namespace: "default".to_owned(), name: "train".to_owned(), uid: ClaimUid::new("u1").unwrap() };
        let device = json!({
            "backend": "cpu", "plan": {},
            "grant": {"request": "r", "pool": "n1/cpu", "device": "d", "access": "Use", "consumed": {}, "config": []},
        });
        let devices = vec![serde_json::from_value(device).unwrap()];
        let (state, boot_id) = (RecordState::Prepared, "boot".to_owned());
        let (metadata, since, reserved_for) = (None, None, Vec::new());
        let record = ClaimRecord { claim, state, boot_id, devices, metadata, since, reserved_for };
        observation(&record, found, "hostler.dev")
    }

    #[test]
    fn a_claim_counts_as_long_as_it_has_something_of_what_is_on_record() {
        let result = |driver: &str, pool: &str| json!({"request": "r", "driver": driver, "pool": pool, "device": "d"});
        let with = |results: Value| json!({"allocation": {"devices": {"results": results}}});
        let (ours, elsewhere, foreign) =
            (result("hostler.dev", "n1/cpu"), result("hostler.dev", "n10/cpu"), result("other.dev", "n1/cpu"));
        let other = json!({"request": "r", "driver": "hostler.dev", "pool": "n1/cpu", "device": "e"});
        for (name, uid, status, expected) in [
            ("ours", "u1", with(json!([foreign, ours])), ClaimObservation::Allocated),
            ("made anew", "u2", with(json!([ours])), ClaimObservation::OtherUid),
            ("another device", "u1", with(json!([other])), ClaimObservation::Deallocated),
            ("one more", "u1", with(json!([other, ours])), ClaimObservation::Allocated),
            ("another node's", "u1", with(json!([elsewhere, foreign])), ClaimObservation::Deallocated),
            ("never allocated", "u1", json!({}), ClaimObservation::Deallocated),
            ("deallocated", "u1", json!({"reservedFor": []}), ClaimObservation::Deallocated),
        ] {
            let found = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "train", "namespace": "default", "uid": uid}, "status": status,
            });
            assert_eq!(seen(Ok(serde_json::from_value(found).unwrap())).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn only_the_servers_word_that_there_is_none_is_proof() {
        let missing = ClaimReadError::Missing { name: "default/train".to_owned() };
        assert_eq!(seen(Err(missing)).unwrap(), ClaimObservation::Gone);
        seen(Err(ClaimReadError::Stopping)).unwrap_err();
    }
}

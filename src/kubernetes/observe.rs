//! Whether recorded claims are still in the API server and still have something of this node.

use hostler_api::{ClaimRef, resource::ResourceClaim};
use tokio::runtime::Handle;

use super::claim_reader::{ClaimReadError, ClaimReader};
use crate::claims::janitor::{ClaimObservation, ObserveClaims, ObserveError};

/// Looks at claims one after the other: nobody waits for it.
#[derive(Clone, Debug)]
pub struct ClaimObserver {
    reader: ClaimReader,
    driver: String,
    node: String,
    runtime: Handle,
}

impl ClaimObserver {
    /// Reads claims with `reader`. Must be made on the daemon's runtime.
    pub fn new(reader: ClaimReader, driver: &str, node: &str) -> Self {
        Self { reader, driver: driver.to_owned(), node: node.to_owned(), runtime: Handle::current() }
    }

    async fn look(&self, claim: &ClaimRef) -> Result<ClaimObservation, ClaimReadError> {
        let found = self.reader.find(&claim.namespace, &claim.name).await;
        observation(claim, found, &self.driver, &self.node)
    }
}

impl ObserveClaims for ClaimObserver {
    fn observe(&self, claims: &[ClaimRef]) -> Vec<Result<ClaimObservation, ObserveError>> {
        let mut unavailable = false;
        let mut look = |claim: &ClaimRef| {
            if unavailable {
                return Err("the API server gave no answer for another claim".into());
            }
            let seen = self.runtime.block_on(self.look(claim));
            // Waiting in vain for each of a hundred claims would take longer than the time between two looks.
            unavailable = matches!(seen, Err(ClaimReadError::Unavailable(_)));
            seen.map_err(Into::into)
        };
        claims.iter().map(&mut look).collect()
    }
}

/// What was found under a claim's name means for the claim. Nothing but the server's word that there is no such claim is
/// proof of that: the reader tells it from a server that does not know the kind any more.
fn observation(
    claim: &ClaimRef,
    found: Result<ResourceClaim, ClaimReadError>,
    driver: &str,
    node: &str,
) -> Result<ClaimObservation, ClaimReadError> {
    let found = match found {
        Err(ClaimReadError::Missing { .. }) => return Ok(ClaimObservation::Gone),
        found => found?,
    };
    if found.metadata.uid.as_deref() != Some(claim.uid.as_str()) {
        return Ok(ClaimObservation::OtherUid);
    }
    let results = found.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
    let mut pools = results.filter(|result| result.driver == driver).map(|result| result.pool.split_once('/'));
    let has_ours = pools.any(|pool| pool.is_some_and(|(first, _)| first == node));
    Ok(if has_ours { ClaimObservation::Allocated } else { ClaimObservation::Deallocated })
}

#[cfg(test)]
mod tests {
    use hostler_api::ClaimUid;
    use serde_json::{Value, json};

    use super::*;

    fn seen(found: Result<ResourceClaim, ClaimReadError>) -> Result<ClaimObservation, ClaimReadError> {
        let claim =
            ClaimRef { namespace: "default".to_owned(), name: "train".to_owned(), uid: ClaimUid::new("u1").unwrap() };
        observation(&claim, found, "hostler.dev", "n1")
    }

    #[test]
    fn a_claim_counts_as_long_as_it_has_something_of_this_driver_and_node() {
        let result = |driver: &str, pool: &str| json!({"request": "r", "driver": driver, "pool": pool, "device": "d"});
        let with = |results: Value| json!({"allocation": {"devices": {"results": results}}});
        let (ours, elsewhere, foreign) =
            (result("hostler.dev", "n1/cpu"), result("hostler.dev", "n10/cpu"), result("other.dev", "n1/cpu"));
        for (name, uid, status, expected) in [
            ("ours", "u1", with(json!([foreign, ours])), ClaimObservation::Allocated),
            ("made anew", "u2", with(json!([ours])), ClaimObservation::OtherUid),
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

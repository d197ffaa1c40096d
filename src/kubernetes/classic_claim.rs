//! Claims of Kubernetes 1.26 to 1.31 as claims of today: a pure function.

use hostler_api::{
    classic::{
        AllocationResultV1Alpha3, ClassicVersion, HandleData, HandleError, ResourceClaimStatusV1Alpha1,
        ResourceClaimStatusV1Alpha2, ResourceHandle,
    },
    resource::{AllocationResult, ResourceClaim},
};
use serde::Deserialize;
use serde_json::Value;

/// Why a claim means nothing today.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClassicClaimError {
    /// The object is no claim of its version.
    #[error("it is no ResourceClaim")]
    Shape(#[source] serde_json::Error),
    /// The handle that the controller wrote for this driver makes no sense.
    #[error("field status.allocation: the handle for driver {driver} cannot be used")]
    Handle {
        /// This driver.
        driver: String,
        /// The mistake.
        #[source]
        source: HandleError,
    },
}

/// The claim with what `driver` gave, if it gave something; others' handles only they can read.
pub(super) fn modern(
    version: ClassicVersion,
    mut found: Value,
    driver: &str,
) -> Result<ResourceClaim, ClassicClaimError> {
    let allocation = allocation(version, found["status"].clone(), driver)?;
    if let Some(status) = found["status"].as_object_mut() {
        status.remove("allocation");
    } else {
        // What is no object came of looking for one.
        found["status"] = Value::Object(serde_json::Map::new());
    }
    let mut claim = ResourceClaim::deserialize(found).map_err(ClassicClaimError::Shape)?;
    claim.status.allocation = allocation;
    Ok(claim)
}

fn allocation(
    version: ClassicVersion,
    status: Value,
    driver: &str,
) -> Result<Option<AllocationResult>, ClassicClaimError> {
    if status["allocation"].is_null() {
        return Ok(None);
    }
    let allocation = match version {
        ClassicVersion::V1Alpha1 => handle_of_1_26(status, driver),
        ClassicVersion::V1Alpha2 => handle_for(status, driver),
        ClassicVersion::V1Alpha3 => {
            let written = shaped::<AllocationResultV1Alpha3>(status["allocation"].clone())?;
            return written.modern(driver).map(Some).map_err(|source| unusable(driver, source));
        }
    };
    // Who has no handle got nothing.
    let Some(handle) = allocation? else { return Ok(Some(AllocationResult::default())) };
    HandleData::from_text(&handle).map(|handle| Some(handle.allocation())).map_err(|source| unusable(driver, source))
}

fn handle_of_1_26(status: Value, driver: &str) -> Result<Option<String>, ClassicClaimError> {
    let status: ResourceClaimStatusV1Alpha1 = shaped(status)?;
    let is_ours = status.driver_name == driver;
    Ok(status.allocation.filter(|_| is_ours).map(|allocation| allocation.resource_handle))
}

fn handle_for(status: Value, driver: &str) -> Result<Option<String>, ClassicClaimError> {
    let ResourceClaimStatusV1Alpha2 { driver_name, allocation, .. } = shaped(status)?;
    let is_ours = |handle: &ResourceHandle| match handle.driver_name.as_str() {
        "" => driver_name == driver,
        name => name == driver,
    };
    Ok(allocation.unwrap_or_default().resource_handles.into_iter().find(is_ours).map(|handle| handle.data))
}

fn shaped<T: for<'de> Deserialize<'de>>(value: Value) -> Result<T, ClassicClaimError> {
    T::deserialize(value).map_err(ClassicClaimError::Shape)
}

fn unusable(driver: &str, source: HandleError) -> ClassicClaimError {
    ClassicClaimError::Handle { driver: driver.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DRIVER: &str = "hostler.dev";

    fn result() -> Value {
        json!({"request": "r", "driver": DRIVER, "pool": "n1/cpu", "device": "d", "shareID": "s",
            "consumedCapacity": {"cpus": "2"}})
    }

    fn handle() -> Value {
        json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "ResourceHandle", "node": "n1", "results": [result()]})
    }

    fn read(version: ClassicVersion, status: &Value) -> Result<ResourceClaim, ClassicClaimError> {
        let claim = json!({
            "apiVersion": version.group_version(), "kind": "ResourceClaim",
            "metadata": {"name": "train", "namespace": "ml", "uid": "u1"},
            "spec": {"resourceClassName": "hostler"}, "status": status,
        });
        modern(version, claim, DRIVER)
    }

    #[test]
    fn every_version_means_the_same() {
        let plain = json!({"request": "r", "driver": DRIVER, "pool": "n1/cpu", "device": "d"});
        let opaque = json!({"driver": DRIVER, "parameters": handle()});
        let config = json!([{"source": "FromClaim", "opaque": opaque}]);
        let reserved = json!([{"resource": "pods", "name": "p", "uid": "p1"}]);
        let text = handle().to_string();
        for (version, mut status) in [
            (ClassicVersion::V1Alpha1, json!({"driverName": DRIVER, "allocation": {"resourceHandle": text}})),
            (
                ClassicVersion::V1Alpha2,
                json!({"driverName": DRIVER, "allocation": {"resourceHandles": [{"data": text}]}}),
            ),
            (
                ClassicVersion::V1Alpha2,
                json!({"driverName": "other.dev", "allocation": {"resourceHandles": [
                    {"driverName": "other.dev", "data": "gpu-0"}, {"driverName": DRIVER, "data": text}]}}),
            ),
            (
                ClassicVersion::V1Alpha3,
                json!({"allocation": {"controller": DRIVER, "devices": {"results": [plain], "config": config}}}),
            ),
        ] {
            status["reservedFor"] = reserved.clone();
            let claim = read(version, &status).unwrap();
            let allocation = claim.allocation(DRIVER).unwrap();
            let [grant] = &*allocation.grants else { panic!("{version:?}: {allocation:?}") };
            assert_eq!((grant.device.as_str(), grant.consumed.len(), grant.config.len()), ("d", 1, 0), "{version:?}");
            assert_eq!(allocation.reserved_for[0].uid, "p1", "{version:?}");
        }
    }

    #[test]
    fn what_others_got_is_nothing_of_ours() {
        for (version, status) in [
            (ClassicVersion::V1Alpha1, json!({"driverName": "other.dev", "allocation": {"resourceHandle": "gpu-0"}})),
            (
                ClassicVersion::V1Alpha2,
                json!({"driverName": "other.dev", "allocation": {"resourceHandles": [{"data": "gpu-0"}]}}),
            ),
            (ClassicVersion::V1Alpha3, json!({"allocation": {"controller": "other.dev"}})),
        ] {
            let claim = read(version, &status).unwrap();
            assert!(claim.status.allocation.is_some() && claim.allocation(DRIVER).is_err(), "{version:?}");
        }
    }

    #[test]
    fn a_claim_without_allocation_has_none_in_any_version() {
        for version in ClassicVersion::ALL {
            for status in [json!({}), json!(null), json!({"allocation": null, "deallocationRequested": true})] {
                assert_eq!(read(version, &status).unwrap().status.allocation, None, "{version:?}");
            }
        }
    }

    #[test]
    fn a_handle_that_cannot_be_read_is_no_proof_of_anything() {
        let status = json!({"driverName": DRIVER, "allocation": {"resourceHandles": [{"data": "numa0"}]}});
        assert!(matches!(read(ClassicVersion::V1Alpha2, &status), Err(ClassicClaimError::Handle { .. })));
    }
}

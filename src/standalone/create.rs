//! Makes an allocation from an operator's request, by the rules of the scheduler. Pure.

use std::collections::BTreeMap;

use hostler_api::{
    AskedQuantity, ConfigProblem, Quantity, listed,
    opaque::OpaqueConfig,
    resource::{
        AllocationConfigSource, AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
        DeviceRequestAllocationResult, OpaqueDeviceConfiguration, ResourceClaim, ResourceClaimMetadata,
        ResourceClaimSpec, ResourceClaimStatus,
    },
};
use hostler_backend::{Capacity, Device, Sharing};
use serde::{Deserialize, Serialize};

use crate::inventory::{Inventory, Pool, UnknownPool};

/// Name of the request of devices for which none is named: a container made by hand gets the whole claim.
const WHOLE: &str = "all";

/// A claim as an operator requests it: the body of `POST /v1/claims`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CreateClaim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Devices that the claim gets, in order.
    pub devices: Vec<CreateDevice>,
}

/// A device of a [`CreateClaim`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CreateDevice {
    /// Pool, or the name of a backend.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Name of the request; where absent `all`, or one of its own for a device with configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Amounts of capacities; the whole device if there are none. A capacity that is not named beside others gets the
    /// default of the device's policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, AskedQuantity>,
    /// Configuration of the device: opaque parameters, of one kind each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<serde_json::Value>,
}

impl CreateDevice {
    /// Name of the device's request. A device with configuration has a request of its own, or its configuration would
    /// be for all devices.
    fn request_name(&self, index: usize) -> String {
        let own = (!self.config.is_empty()).then(|| format!("device-{index}"));
        self.request.clone().or(own).unwrap_or_else(|| WHOLE.to_owned())
    }
}

/// Reason why an allocation cannot be made from a request.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The request names no device.
    #[error("no device is asked for: name at least one")]
    Empty,
    /// There is no such pool.
    #[error("there is no pool {pool:?} on this host; there are {known}")]
    NoPool {
        /// Pool of the request.
        pool: String,
        /// Pools that exist.
        known: String,
    },
    /// The pool's devices are not known.
    #[error("nothing is known of the devices in pool {pool}: {reason}; try again")]
    UnknownPool {
        /// The pool.
        pool: String,
        /// Reason why they are not known.
        reason: String,
    },
    /// There is no such device.
    #[error("there is no device {device:?} in pool {pool}; there are {known}")]
    NoDevice {
        /// Device of the request.
        device: String,
        /// The pool.
        pool: String,
        /// Devices that exist.
        known: String,
    },
    /// The device has no such capacity, or it cannot be split.
    #[error("device {device} has no capacity {capacity:?} that can be split; it has {known}")]
    NoCapacity {
        /// The device.
        device: String,
        /// Capacity of the request.
        capacity: String,
        /// Capacities that can be split.
        known: String,
    },
    /// The configuration of a device is wrong.
    #[error("{}", joined(.problems))]
    Config {
        /// Every mistake.
        problems: Vec<ConfigProblem>,
    },
    /// The request exceeds the device.
    #[error("device {device} has {value} {capacity} in all, {wanted} wanted")]
    TooMuch {
        /// The device.
        device: String,
        /// The capacity.
        capacity: String,
        /// Requested amount, rounded to one that can be given.
        wanted: String,
        /// Amount that the device has.
        value: String,
    },
}

/// Makes the manifest of a new claim.
///
/// # Errors
/// When a part of the request does not exist, or exceeds what exists. This function does not check that it is free.
pub fn allocate(
    request: &CreateClaim,
    uid: &str,
    driver: &str,
    inventory: &Inventory,
) -> Result<ResourceClaim, CreateError> {
    if request.devices.is_empty() {
        return Err(CreateError::Empty);
    }
    let config = request.devices.iter().enumerate().map(|(index, device)| config_of(index, device, driver));
    let config = config.collect::<Result<Vec<_>, CreateError>>()?.concat();
    let results: Result<Vec<DeviceRequestAllocationResult>, CreateError> = request
        .devices
        .iter()
        .enumerate()
        .map(|(index, wanted)| allocate_device(index, wanted, uid, driver, inventory))
        .collect();
    Ok(ResourceClaim {
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: "ResourceClaim".to_owned(),
        metadata: ResourceClaimMetadata {
            name: request.name.clone(),
            namespace: request.namespace.clone(),
            uid: Some(uid.to_owned()),
            ..ResourceClaimMetadata::default()
        },
        spec: ResourceClaimSpec::default(),
        status: ResourceClaimStatus {
            allocation: Some(AllocationResult {
                devices: DeviceAllocationResult { results: results?, config },
                ..AllocationResult::default()
            }),
            ..ResourceClaimStatus::default()
        },
    })
}

fn allocate_device(
    index: usize,
    wanted: &CreateDevice,
    uid: &str,
    driver: &str,
    inventory: &Inventory,
) -> Result<DeviceRequestAllocationResult, CreateError> {
    let pool = find_pool(&wanted.pool, inventory)?;
    let device = pool.devices.iter().find(|device| device.name.as_str() == wanted.device).ok_or_else(|| {
        let known = list(pool.devices.iter().map(|device| device.name.as_str()));
        CreateError::NoDevice { device: wanted.device.clone(), pool: pool.name.clone(), known }
    })?;
    let shared = device.sharing == Sharing::Shared;
    Ok(DeviceRequestAllocationResult {
        request: wanted.request_name(index),
        driver: driver.to_owned(),
        pool: pool.name.clone(),
        device: wanted.device.clone(),
        // Tells apart two parts of one device in one claim.
        share_id: shared.then(|| format!("{uid}-{index}")),
        consumed_capacity: consume(wanted, device)?,
        ..DeviceRequestAllocationResult::default()
    })
}

/// The configuration of a device in the form of an allocation.
fn config_of(
    index: usize,
    wanted: &CreateDevice,
    driver: &str,
) -> Result<Vec<DeviceAllocationConfiguration>, CreateError> {
    let path = format!("{}/{}", wanted.pool, wanted.device);
    let problems: Vec<ConfigProblem> =
        wanted.config.iter().filter_map(|parameters| OpaqueConfig::parse(parameters, &path).err()).flatten().collect();
    if !problems.is_empty() {
        return Err(CreateError::Config { problems });
    }
    let entry = |parameters: &serde_json::Value| DeviceAllocationConfiguration {
        source: AllocationConfigSource::FromClaim,
        requests: vec![wanted.request_name(index)],
        opaque: Some(OpaqueDeviceConfiguration { driver: driver.to_owned(), parameters: parameters.clone() }),
    };
    Ok(wanted.config.iter().map(entry).collect())
}

fn joined(problems: &[ConfigProblem]) -> String {
    listed(usize::MAX, "; ", problems)
}

/// Finds a pool by its name, or by its backend's.
fn find_pool<'a>(name: &str, inventory: &'a Inventory) -> Result<&'a Pool, CreateError> {
    let by_backend = inventory.pools.get(name);
    let found = by_backend.or_else(|| inventory.pools.values().find(|pool| pool.name == name));
    found.map(AsRef::as_ref).ok_or_else(|| {
        let unknown = inventory.unknown.iter().find(|(backend, pool)| backend.as_str() == name || pool.name == name);
        if let Some((_, UnknownPool { name, reason })) = unknown {
            return CreateError::UnknownPool { pool: name.clone(), reason: reason.clone() };
        }
        let known = list(inventory.pools.values().map(|pool| pool.name.as_str()));
        CreateError::NoPool { pool: name.to_owned(), known }
    })
}

fn consume(wanted: &CreateDevice, device: &Device) -> Result<BTreeMap<String, serde_json::Value>, CreateError> {
    let splittable = || device.capacity.iter().filter_map(|(name, capacity)| Some((name, capacity, capacity.policy?)));
    if let Some(unknown) = wanted.capacity.keys().find(|name| splittable().all(|(own, ..)| own != *name)) {
        let known = list(splittable().map(|(name, ..)| name));
        let (device, capacity) = (device.name.to_string(), unknown.clone());
        return Err(CreateError::NoCapacity { device, capacity, known });
    }
    splittable()
        .map(|(name, capacity, policy)| {
            let rest = if wanted.capacity.is_empty() { capacity.value } else { policy.default };
            let asked = wanted.capacity.get(name).map_or(rest, |asked| asked.get());
            let given = policy.round_up(asked);
            check_amount(device, name, capacity, given)?;
            Ok((name.to_string(), given.to_string().into()))
        })
        .collect()
}

fn check_amount(device: &Device, name: &str, capacity: &Capacity, given: Quantity) -> Result<(), CreateError> {
    if given <= capacity.value {
        return Ok(());
    }
    Err(CreateError::TooMuch {
        device: device.name.to_string(),
        capacity: name.to_string(),
        wanted: given.human(),
        value: capacity.value.human(),
    })
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    /// Limit for lists in messages. Pools and capacities are never so many; devices may be.
    const MOST: usize = 10;
    let names = listed(MOST, ", ", names);
    if names.is_empty() { "none".to_owned() } else { names }
}

#[cfg(test)]
mod tests {
    use hostler_api::{BackendName, DeviceName, QualifiedName};
    use hostler_backend::RequestPolicy;

    use super::*;

    fn inventory() -> Inventory {
        let mut device = Device::new(DeviceName::new("numa0").unwrap());
        device.sharing = Sharing::Shared;
        let two = Quantity::whole(2);
        let policy = Some(RequestPolicy { default: two, min: two, step: two });
        device.capacity.insert(QualifiedName::new("cpus").unwrap(), Capacity { value: Quantity::whole(8), policy });
        let pool = Pool { name: "n/cpu".to_owned(), devices: vec![device], stale: None, ..Pool::default() };
        Inventory { pools: [(BackendName::new("cpu").unwrap(), pool.into())].into(), ..Inventory::default() }
    }

    fn create(pool: &str, device: &str, capacity: &[(&str, &str)]) -> Result<DeviceRequestAllocationResult, String> {
        let capacity = capacity.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect();
        let device = CreateDevice {
            pool: pool.to_owned(),
            device: device.to_owned(),
            request: None,
            capacity,
            config: Vec::new(),
        };
        let request = CreateClaim { namespace: "default".to_owned(), name: "a".to_owned(), devices: vec![device] };
        let manifest = allocate(&request, "u1", "hostler.dev", &inventory()).map_err(|error| error.to_string())?;
        Ok(manifest.status.allocation.unwrap().devices.results.remove(0))
    }

    #[test]
    fn amounts_are_rounded_as_the_scheduler_does() {
        assert_eq!(create("cpu", "numa0", &[("cpus", "3")]).unwrap().consumed_capacity["cpus"], "4");
    }

    #[test]
    fn a_bare_device_is_all_of_it() {
        assert_eq!(create("n/cpu", "numa0", &[]).unwrap().consumed_capacity["cpus"], "8");
    }

    #[test]
    fn less_than_nothing_and_nothing_are_refused_whoever_sends_them() {
        for amount in ["-3", "0", "-9223372036854775809", "9223372036854775808"] {
            let body = format!(r#"{{"pool": "cpu", "device": "numa0", "capacity": {{"cpus": "{amount}"}}}}"#);
            let error = serde_json::from_str::<CreateDevice>(&body).unwrap_err().to_string();
            assert!(error.starts_with(amount), "{error}");
        }
    }

    #[test]
    fn configuration_is_for_its_own_device_alone() {
        let device = |config| CreateDevice {
            pool: "cpu".to_owned(),
            device: "numa0".to_owned(),
            request: None,
            capacity: BTreeMap::new(),
            config,
        };
        let made = |smt: &str| {
            let parameters = serde_json::json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CpuConfig", "smt": smt});
            let devices = vec![device(Vec::new()), device(vec![parameters])];
            let request = CreateClaim { namespace: "default".to_owned(), name: "a".to_owned(), devices };
            allocate(&request, "u1", "mine.example", &inventory())
        };
        let devices = made("isolated").unwrap().status.allocation.unwrap().devices;
        let requests: Vec<&str> = devices.results.iter().map(|result| &*result.request).collect();
        assert_eq!(requests, ["all", "device-1"]);
        assert_eq!(devices.config[0].requests, ["device-1"]);
        assert_eq!(devices.config[0].opaque.as_ref().unwrap().driver, "mine.example");
        assert_eq!(made("off").unwrap_err().to_string(), "cpu/numa0.smt: \"off\" is not one of shared, isolated");
    }

    #[test]
    fn what_does_not_exist_is_refused_with_what_does() {
        assert_eq!(create("gpu", "x", &[]).unwrap_err(), "there is no pool \"gpu\" on this host; there are n/cpu");
        assert_eq!(
            create("cpu", "numa7", &[]).unwrap_err(),
            "there is no device \"numa7\" in pool n/cpu; there are numa0"
        );
        let error = create("cpu", "numa0", &[("cores", "1")]).unwrap_err();
        assert_eq!(error, "device numa0 has no capacity \"cores\" that can be split; it has cpus");
        let error = create("cpu", "numa0", &[("cpus", "9")]).unwrap_err();
        assert_eq!(error, "device numa0 has 8 cpus in all, 10 wanted");
    }
}

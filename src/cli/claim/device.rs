//! A device as it is written on the command line: `cpu/numa0,cpus=4`.

use std::collections::BTreeMap;

use hostler_api::{AskedQuantity, ParseQuantityError};
use serde::{Deserialize, de::IgnoredAny};

use crate::{admin::types::CreateDevice, cli::CliFailure};

/// What `--device` takes, for the help text.
pub(super) const HELP: &str = "\
A device is written POOL/DEVICE, as `hostler inventory` shows it; instead of the pool its backend will do. That alone \
asks for all of it. A part of a device is asked for by naming amounts of its capacities, or with capacity=AMOUNT where it has only one; request=NAME \
names the request that the device answers.

  hostler claim create training --device cpu/numa0,cpus=4 --device memory/node0,memory=1Gi
  podman run $(hostler claim prepare training -o podman) …";

/// Why a text is no device.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeviceArgError {
    /// No pool in front.
    #[error("write POOL/DEVICE, such as cpu/numa0")]
    NoPool,
    /// A part is no assignment.
    #[error("{0:?} is not CAPACITY=AMOUNT, such as cpus=4")]
    Part(String),
    /// One capacity has two amounts.
    #[error("{0} is given twice")]
    Twice(String),
    /// The amount is none.
    #[error(transparent)]
    Quantity(#[from] ParseQuantityError),
}

/// Reads the text of one `--device`.
pub(super) fn parse(text: &str) -> Result<CreateDevice, DeviceArgError> {
    let mut parts = text.split(',');
    // A pool is itself `node/backend`: the device is what follows the last slash.
    let (pool, device) = parts.next().and_then(|path| path.rsplit_once('/')).ok_or(DeviceArgError::NoPool)?;
    if pool.is_empty() || device.is_empty() {
        return Err(DeviceArgError::NoPool);
    }
    let mut request = None;
    let mut capacity = BTreeMap::new();
    for part in parts {
        let (name, value) = part.split_once('=').ok_or_else(|| DeviceArgError::Part(part.to_owned()))?;
        let known = match name {
            "request" => request.replace(value.to_owned()).is_some(),
            _ => capacity.insert(name.to_owned(), value.parse::<AskedQuantity>()?).is_some(),
        };
        if known {
            return Err(DeviceArgError::Twice(name.to_owned()));
        }
    }
    Ok(CreateDevice { pool: pool.to_owned(), device: device.to_owned(), request, capacity })
}

/// Stands for the name of a device's only capacity.
const OPEN: &str = "capacity";

/// The part of the daemon's inventory that is needed.
#[derive(Debug, Deserialize)]
pub(super) struct DaemonInventory {
    devices: Vec<DaemonDevice>,
}

#[derive(Debug, Deserialize)]
struct DaemonDevice {
    backend: String,
    pool: String,
    name: String,
    capacity: BTreeMap<String, IgnoredAny>,
}

/// Whether an amount was given without saying of what.
pub(super) fn leaves_capacity_open(device: &CreateDevice) -> bool {
    device.capacity.contains_key(OPEN)
}

/// Puts the name of the device's only capacity in place of `capacity`.
pub(super) fn name_capacity(device: &mut CreateDevice, inventory: &DaemonInventory) -> Result<(), CliFailure> {
    let is_meant = |listed: &&DaemonDevice| {
        listed.name == device.device && (listed.pool == device.pool || listed.backend == device.pool)
    };
    // A device that is not there, or really has a capacity of this name, is for the daemon to judge.
    let Some(listed) = inventory.devices.iter().find(is_meant).filter(|listed| !listed.capacity.contains_key(OPEN))
    else {
        return Ok(());
    };
    let names: Vec<&String> = listed.capacity.keys().collect();
    let [name] = names[..] else {
        let path = format!("{}/{}", device.pool, device.device);
        let names = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(CliFailure::Said(format!("{path} does not have exactly one capacity; name one of: {names}")));
    };
    let known = device.capacity.remove(OPEN).and_then(|amount| device.capacity.insert(name.clone(), amount));
    known.map_or(Ok(()), |_| Err(CliFailure::Said(format!("{name} is given twice, once as `capacity`"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_device_request_and_parts_are_told_apart() {
        let device = parse("node-1/cpu/numa0,cpus=4,request=workers").unwrap();
        assert_eq!((&*device.pool, &*device.device), ("node-1/cpu", "numa0"));
        assert_eq!(device.request.as_deref(), Some("workers"));
        assert_eq!(device.capacity, BTreeMap::from([("cpus".to_owned(), "4".parse().unwrap())]));
        let whole = parse("fake/gpu0").unwrap();
        assert!(whole.capacity.is_empty() && whole.request.is_none());
    }

    #[test]
    fn what_is_no_device_gets_the_fix() {
        for (text, fix) in [
            ("numa0", "write POOL/DEVICE"),
            ("/numa0", "write POOL/DEVICE"),
            ("cpu/", "write POOL/DEVICE"),
            ("cpu/numa0,4", "\"4\" is not CAPACITY=AMOUNT"),
            ("cpu/numa0,cpus=four", "\"four\" is not a quantity"),
            ("cpu/numa0,cpus=-3", "-3 is negative; write 0 or more"),
            ("cpu/numa0,cpus=0", "0 asks for nothing; write more than 0"),
            ("cpu/numa0,cpus=9223372036854775808", "9223372036854775808 is more than 2^63 - 1"),
            ("cpu/numa0,cpus=1,cpus=2", "cpus is given twice"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(fix), "{text}: {error}");
        }
    }

    #[test]
    fn an_amount_without_a_name_is_of_the_only_capacity() {
        let inventory: DaemonInventory = serde_json::from_str(
            r#"{"devices": [
                {"backend": "cpu", "pool": "n1/cpu", "name": "numa0", "capacity": {"cpus": {"value": "8"}}, "health": "Healthy"},
                {"backend": "fake", "pool": "n1/fake", "name": "gpu0", "capacity": {"memory": {}, "slices": {}}}
            ], "warnings": []}"#,
        )
        .unwrap();
        for pool in ["cpu", "n1/cpu"] {
            let mut device = parse(&format!("{pool}/numa0,capacity=4")).unwrap();
            assert!(leaves_capacity_open(&device));
            name_capacity(&mut device, &inventory).unwrap();
            assert_eq!(device.capacity, BTreeMap::from([("cpus".to_owned(), "4".parse().unwrap())]));
        }
        let error = name_capacity(&mut parse("cpu/numa0,capacity=4,cpus=2").unwrap(), &inventory).unwrap_err();
        assert_eq!(error.to_string(), "cpus is given twice, once as `capacity`");
        let error = name_capacity(&mut parse("fake/gpu0,capacity=1").unwrap(), &inventory).unwrap_err().to_string();
        assert!(error.ends_with("name one of: memory, slices"), "{error}");
    }
}

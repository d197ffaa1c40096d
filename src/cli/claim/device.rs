//! A device as it is written on the command line: `cpu/numa0,cpus=4`.

use std::collections::BTreeMap;

use hostler_backend::{ParseQuantityError, Quantity};

use crate::admin::types::CreateDevice;

/// What `--device` takes, for the help text.
pub(super) const HELP: &str = "\
A device is written POOL/DEVICE, as `hostler inventory` shows it; instead of the pool its backend will do. A part of a \
device is asked for by naming amounts of its capacities; request=NAME names the request that the device answers.

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
            _ => capacity.insert(name.to_owned(), value.parse::<Quantity>()?).is_some(),
        };
        if known {
            return Err(DeviceArgError::Twice(name.to_owned()));
        }
    }
    Ok(CreateDevice { pool: pool.to_owned(), device: device.to_owned(), request, capacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_device_request_and_parts_are_told_apart() {
        let device = parse("node-1/cpu/numa0,cpus=4,request=workers").unwrap();
        assert_eq!((&*device.pool, &*device.device), ("node-1/cpu", "numa0"));
        assert_eq!(device.request.as_deref(), Some("workers"));
        assert_eq!(device.capacity, BTreeMap::from([("cpus".to_owned(), Quantity::whole(4))]));
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
            ("cpu/numa0,cpus=1,cpus=2", "cpus is given twice"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(fix), "{text}: {error}");
        }
    }
}

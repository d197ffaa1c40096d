//! A device as it is written on the command line: `cpu/numa0,cpus=4`.

use std::collections::BTreeMap;

use hostler_api::{
    AskedQuantity, ConfigProblem, ParseQuantityError, did_you_mean, listed,
    opaque::{FieldValues, OpaqueConfig, schema},
    well_known::HOSTLER_API_VERSION,
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

use crate::{admin::types::CreateDevice, cli::CliFailure};

/// The language of `--device`, for the help text.
pub(super) const HELP: &str = "\
A device is written POOL/DEVICE, as `hostler inventory` shows it; instead of the pool its backend will do. That alone \
asks for all of it. A part of a device is asked for by naming amounts of its capacities, or with capacity=AMOUNT where it has only one; request=NAME \
names the request that the device answers.

What a claim may ask beyond amounts stands beside them, by the name of its field: fullCores, spread, l3Exclusive, coreType, \
smt, isolation and irqs of CPUs; policy of memory; bitstream and afuID of FPGAs; useAs and sanitize of CXL memory; sameNumaNode of each \
device that has to lie on the node of the others. docs/claim-configuration.md explains them.

  hostler claim create training --device cpu/numa0,cpus=4 --device memory/node0,memory=1Gi
  hostler claim create quiet --device cpu/numa0,cpus=8,smt=isolated,sameNumaNode=required --device memory/node0,sameNumaNode=required
  hostler claim create fft --device fpga/0000-b1-00-0-region0,bitstream=fft-v3
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
    #[error("{name}: {source}{near}")]
    Quantity {
        /// The capacity that was given an amount.
        name: String,
        /// The field of a configuration that may have been meant, with the words in front; empty where none is near.
        near: String,
        /// The mistake in the amount.
        source: ParseQuantityError,
    },
    /// The configuration, which is asked for beyond amounts, is wrong.
    #[error("{}", listed(usize::MAX, "; ", .0))]
    Config(Vec<ConfigProblem>),
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
    let mut config = WrittenConfig::default();
    for part in parts {
        let (name, value) = part.split_once('=').ok_or_else(|| DeviceArgError::Part(part.to_owned()))?;
        let known = match name {
            "request" => request.replace(value.to_owned()).is_some(),
            _ => match field(name) {
                Some(field) => config.set(&field, value),
                None => capacity.insert(name.to_owned(), amount(name, value)?).is_some(),
            },
        };
        if known {
            return Err(DeviceArgError::Twice(name.to_owned()));
        }
    }
    let config = config.parameters(&format!("{pool}/{device}"))?;
    Ok(CreateDevice { pool: pool.to_owned(), device: device.to_owned(), request, capacity, config })
}

fn amount(name: &str, value: &str) -> Result<AskedQuantity, DeviceArgError> {
    value.parse().map_err(|source| {
        let fields = schema().into_iter().flat_map(|kind| kind.fields.unwrap_or_default());
        let near = did_you_mean(name, fields.map(|field| field.name.to_owned()));
        let near = if near.is_empty() {
            near
        } else {
            format!("; {name} is a capacity here, since no configuration has such a field{near}")
        };
        DeviceArgError::Quantity { name: name.to_owned(), near, source }
    })
}

/// A field of a configuration.
struct ConfigField {
    kind: &'static str,
    name: &'static str,
    values: FieldValues,
}

/// The field of that name; no two kinds share one.
fn field(name: &str) -> Option<ConfigField> {
    schema().into_iter().find_map(|kind| {
        let field = kind.fields?.into_iter().find(|field| field.name == name)?;
        Some(ConfigField { kind: kind.name, name: field.name, values: field.values })
    })
}

/// The fields of configurations that were written, by kind.
#[derive(Default)]
struct WrittenConfig(BTreeMap<&'static str, Map<String, Value>>);

impl WrittenConfig {
    /// Notes a field; whether it was there already.
    fn set(&mut self, field: &ConfigField, value: &str) -> bool {
        let value = match (field.values, value) {
            (FieldValues::Truth, "true") => Value::Bool(true),
            (FieldValues::Truth, "false") => Value::Bool(false),
            // The reader of configurations tells what is wrong.
            (_, text) => Value::String(text.to_owned()),
        };
        self.0.entry(field.kind).or_default().insert(field.name.to_owned(), value).is_some()
    }

    /// The objects that a manifest would have, checked as there.
    fn parameters(self, path: &str) -> Result<Vec<Value>, DeviceArgError> {
        let object = |(kind, mut fields): (&str, Map<String, Value>)| {
            fields.insert("apiVersion".to_owned(), HOSTLER_API_VERSION.into());
            fields.insert("kind".to_owned(), kind.into());
            Value::Object(fields)
        };
        let objects: Vec<Value> = self.0.into_iter().map(object).collect();
        let problems = objects.iter().filter_map(|object| OpaqueConfig::parse(object, path).err()).flatten();
        let problems: Vec<ConfigProblem> = problems.collect();
        if problems.is_empty() { Ok(objects) } else { Err(DeviceArgError::Config(problems)) }
    }
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

/// True if an amount was given without saying of what.
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
    use serde_json::json;

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
    fn what_is_asked_beyond_amounts_is_a_configuration_of_its_kind() {
        let device = parse("cpu/numa0,cpus=8,smt=isolated,fullCores=true,sameNumaNode=required").unwrap();
        let expected = [
            json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CpuConfig", "smt": "isolated", "fullCores": true}),
            json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "PlacementConfig", "sameNumaNode": "required"}),
        ];
        assert_eq!((&device.config[..], device.capacity.len()), (&expected[..], 1));
        for (text, kind) in [
            ("memory/node0,policy=interleave", "MemoryConfig"),
            ("fpga/region,bitstream=fft-v3", "FpgaConfig"),
            ("cxl/memory-1,useAs=systemRam,sanitize=true", "CxlConfig"),
        ] {
            assert_eq!(parse(text).unwrap().config[0]["kind"], kind);
        }
    }

    #[test]
    fn no_two_kinds_share_a_field_and_none_is_called_as_what_else_may_stand_there() {
        let fields: Vec<&str> =
            schema().into_iter().flat_map(|kind| kind.fields.unwrap_or_default()).map(|field| field.name).collect();
        let distinct: std::collections::BTreeSet<&str> = fields.iter().copied().collect();
        assert_eq!(distinct.len(), fields.len(), "{fields:?}");
        for other in ["request", OPEN, "cpus", "memory"] {
            assert!(!distinct.contains(other), "{other}");
        }
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
            ("cpu/numa0,smt=off", "cpu/numa0.smt: \"off\" is not one of shared, isolated"),
            ("cpu/numa0,fullCores=yes", "cpu/numa0.fullCores: \"yes\" is neither true nor false"),
            ("cpu/numa0,smt=shared,smt=isolated", "smt is given twice"),
            ("cpu/numa0,fulCores=true", "did you mean fullCores?"),
            ("cpu/numa0,smt=off,fullCores=yes", "; cpu/numa0.smt: \"off\" is not one of"),
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

//! Finds the device that a user means. Pure.

use std::collections::BTreeSet;

use hostler_api::{BackendName, DeviceName, did_you_mean, listed};

/// Backend and name of a device.
pub type DeviceKey = (BackendName, DeviceName);

/// Error of a name that does not mean one device.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LookupError {
    /// There is no such device.
    #[error("{}", listed(2, "; ", [format!("there is no device {name:?}{near}"), "`hostler device list` has all".to_owned()]))]
    Unknown {
        /// Name of the request.
        name: String,
        /// Names that may have been meant, with the words in front; empty if nothing is near.
        near: String,
    },
    /// There are several such devices.
    #[error("{name:?} could be {candidates}: write the backend in front")]
    Ambiguous {
        /// Name of the request.
        name: String,
        /// All devices of that name.
        candidates: String,
    },
}

/// Finds the device of `known` that `name` means: `backend/device`, or a device's name that only one backend has.
///
/// # Errors
/// When there is none, or more than one.
pub fn lookup(name: &str, known: &BTreeSet<DeviceKey>) -> Result<DeviceKey, LookupError> {
    let found: Vec<&DeviceKey> = match name.split_once('/') {
        Some((backend, device)) => {
            known.iter().filter(|key| key.0.as_str() == backend && key.1.as_str() == device).collect()
        }
        None => known.iter().filter(|key| key.1.as_str() == name).collect(),
    };
    match found[..] {
        [key] => Ok(key.clone()),
        [] => Err(LookupError::Unknown { name: name.to_owned(), near: did_you_mean(name, known.iter().map(full)) }),
        _ => {
            let candidates = found.iter().map(|key| full(key)).collect::<Vec<_>>().join(" or ");
            Err(LookupError::Ambiguous { name: name.to_owned(), candidates })
        }
    }
}

/// Returns `backend/device`.
fn full((backend, device): &DeviceKey) -> String {
    format!("{backend}/{device}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Result<String, String> {
        let key = |(backend, device)| (BackendName::new(backend).unwrap(), DeviceName::new(device).unwrap());
        let known = [("cpu", "numa0"), ("fake", "card-0"), ("fake", "card-1"), ("fake", "node0"), ("memory", "node0")];
        lookup(name, &known.map(key).into()).map(|key| full(&key)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_may_stand_alone_where_it_is_the_only_one() {
        assert_eq!(found("numa0").unwrap(), "cpu/numa0");
        assert_eq!(found("memory/node0").unwrap(), "memory/node0");
        assert_eq!(
            found("node0").unwrap_err(),
            "\"node0\" could be fake/node0 or memory/node0: write the backend in front"
        );
    }

    #[test]
    fn a_name_that_is_not_there_comes_with_those_that_are_near() {
        for (name, near) in [
            ("cards-1", "; did you mean fake/card-1 or fake/card-0? `hostler"),
            ("fake/card-2", "; did you mean fake/card-0 or fake/card-1? `hostler"),
            ("cpu/numa1", "; did you mean cpu/numa0? `hostler"),
            ("quite-another", "there is no device \"quite-another\"; `hostler device list`"),
            ("", "there is no device \"\"; `hostler"),
        ] {
            let error = found(name).unwrap_err();
            assert!(error.contains(near), "{name}: {error}");
        }
    }
}

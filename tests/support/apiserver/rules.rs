//! Which rules hold in this server: the release, its feature gates, and what they make of an object.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    gates,
    refusal::{FieldError, Refusal},
    resources::{Release, Resource},
    schema,
    store::meta,
    verbs::Call,
};

/// The release and its gates.
#[derive(Clone, Debug)]
pub struct Settings {
    pub release: Release,
    gates: BTreeMap<String, bool>,
}

impl Settings {
    /// The release with its defaults, but for the gates that are named.
    pub fn new(release: Release, gates: &BTreeMap<String, bool>) -> Self {
        for name in gates.keys() {
            assert!(gates::default(release, name).is_some(), "{release:?} has no feature gate {name}");
        }
        Self { release, gates: gates.clone() }
    }

    /// Whether a feature is there. One that the release does not know is not.
    pub fn is_on(&self, gate: &str) -> bool {
        let default = gates::default(self.release, gate);
        default.is_some_and(|default| self.gates.get(gate).copied().unwrap_or(default))
    }
}

/// What the server reads of an object.
pub fn decode(_settings: &Settings, resource: &Resource, object: &Value) -> Result<Value, Refusal> {
    schema::decode(resource, object)
}

/// Takes out the fields of disabled gates, unless the object had them before.
pub fn drop_disabled(_settings: &Settings, _resource: &Resource, _old: Option<&Value>, _object: &mut Value) {}

/// What no update may change.
pub fn check_metadata(call: &Call, old: &Value, new: &Value) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    for field in ["uid", "creationTimestamp"] {
        let (is, given) = (meta(old, field), meta(new, field));
        if !given.is_empty() && given != is {
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                &new["metadata"][field],
                "field is immutable",
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(call.target.resource, call.target.api.group, meta(old, "name"), &errors))
}

/// Refuses what is not valid.
pub fn check(_settings: &Settings, _call: &Call, _old: Option<&Value>, _object: &Value) -> Result<(), Refusal> {
    Ok(())
}

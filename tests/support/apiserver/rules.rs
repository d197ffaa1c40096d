//! Which rules hold in this server: the release, its feature gates, and what they make of an object.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    claims, events, features, gates,
    refusal::{FieldError, Refusal},
    resources::{Kind, Release, Resource},
    schema, slices,
    store::meta,
    syntax::is_subdomain,
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
pub fn decode(settings: &Settings, resource: &Resource, object: &Value) -> Result<Value, Refusal> {
    let mut decoded = schema::decode(resource, object)?;
    features::keep_names(settings, resource, object, &mut decoded);
    if resource.kind == Kind::ResourceClaim && decoded["status"].is_null() {
        decoded["status"] = json!({});
    }
    Ok(decoded)
}

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

/// Refuses what is not valid, and what the user may not say.
pub fn check(settings: &Settings, call: &Call, old: Option<&Value>, object: &Value) -> Result<(), Refusal> {
    let target = &call.target;
    let mut errors = match target.resource.kind {
        Kind::ResourceSlice => slices::check(settings, old, object),
        Kind::ResourceClaim => claims::check(settings, old, object),
        Kind::Event if old.is_none() => events::check(target.api.group == "events.k8s.io", object),
        _ => Vec::new(),
    };
    let name = meta(object, "name");
    if old.is_none() && !is_subdomain(name) {
        errors.push(FieldError::invalid("metadata.name", &object["metadata"]["name"], "must be a DNS subdomain"));
    }
    if !errors.is_empty() {
        return Err(Refusal::invalid(target.resource, target.api.group, name, &errors));
    }
    match old {
        Some(old) if target.resource.kind == Kind::ResourceClaim => claims::authorize(settings, call, old, object),
        _ => Ok(()),
    }
}

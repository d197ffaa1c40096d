//! Rules of this server: the release, its feature gates, and their effects on an object.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    claims, classic, custom, events, features, gates,
    refusal::{FieldError, StatusError},
    resources::{ApiServerRelease, ObjectKind, ServedResource},
    schema, slices,
    store::meta,
    syntax::is_subdomain,
    verbs::ApiRequest,
};

/// The release and its gates.
#[derive(Clone, Debug)]
pub(crate) struct ServerSettings {
    pub release: ApiServerRelease,
    /// True if the CRD of NodeResourceTopology is installed.
    pub topology: bool,
    gates: BTreeMap<String, bool>,
}

impl ServerSettings {
    /// The release with its defaults, but for the gates that are named.
    pub(crate) fn new(release: ApiServerRelease, gates: &BTreeMap<String, bool>) -> Self {
        for name in gates.keys() {
            assert!(gates::default(release, name).is_some(), "{release:?} has no feature gate {name}");
        }
        Self { release, topology: false, gates: gates.clone() }
    }

    /// Returns true if a feature is on. A feature that the release does not know is off.
    pub(crate) fn is_on(&self, gate: &str) -> bool {
        let default = gates::default(self.release, gate);
        default.is_some_and(|default| self.gates.get(gate).copied().unwrap_or(default))
    }
}

/// Reads an object as the server does.
pub(crate) fn decode(
    settings: &ServerSettings,
    resource: &ServedResource,
    object: &Value,
) -> Result<Value, StatusError> {
    let mut decoded = schema::decode(resource, object)?;
    features::keep_names(settings, resource, object, &mut decoded);
    let has_status = matches!(resource.kind, ObjectKind::ResourceClaim | ObjectKind::ClassicClaim);
    if has_status && decoded["status"].is_null() {
        decoded["status"] = json!({});
    }
    Ok(decoded)
}

/// Checks that an update does not change immutable metadata.
pub(crate) fn check_metadata(call: &ApiRequest, old: &Value, new: &Value) -> Result<(), StatusError> {
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
    let finalizers = |object: &Value| slices::items(&object["metadata"]["finalizers"]).to_vec();
    let known = finalizers(old);
    let added: Vec<Value> = finalizers(new).into_iter().filter(|one| !known.contains(one)).collect();
    if !meta(old, "deletionTimestamp").is_empty() && !added.is_empty() {
        let why =
            format!("no new finalizers can be added if the object is being deleted, found new finalizers {added:?}");
        errors.push(FieldError::forbidden("metadata.finalizers", &why));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(call.target.resource, call.target.api.group, meta(old, "name"), &errors))
}

/// Refuses what is not valid, and what the user may not say.
pub(crate) fn check(
    settings: &ServerSettings,
    call: &ApiRequest,
    old: Option<&Value>,
    object: &Value,
) -> Result<(), StatusError> {
    let target = &call.target;
    let mut errors = match target.resource.kind {
        ObjectKind::ResourceSlice => slices::check(settings, old, object),
        ObjectKind::ResourceClaim => claims::check(settings, old, object),
        ObjectKind::CustomResourceDefinition => custom::check(object),
        ObjectKind::Custom(_) => target.resource.custom.expect("of a defined kind").check(old, object),
        ObjectKind::Event if old.is_none() => events::check(target.api.group == "events.k8s.io", object),
        kind => classic::check(settings.release, kind, old, object),
    };
    let name = meta(object, "name");
    if old.is_none() && !is_subdomain(name) {
        errors.push(FieldError::invalid("metadata.name", &object["metadata"]["name"], "must be a DNS subdomain"));
    }
    if let Some(old) = old.filter(|_| target.resource.kind == ObjectKind::ResourceClaim) {
        errors.extend(claims::authorize(settings, call, old, object));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(target.resource, target.api.group, name, &errors))
}

//! Custom kinds: the CustomResourceDefinitions that the server accepts, and the resources that it then serves. A
//! definition is established at once; its objects are deleted with it.

mod convey;
mod rules;
mod structure;
mod validation;

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::{
    refusal::FieldError,
    resources::{ObjectKind, ServedResource},
    schema::now,
    slices::items,
    state::ServerState,
    store::meta,
};

/// One version of a custom kind. Versions differ in their schemas only: nothing is converted.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    pub version: &'static str,
    /// The version in which objects are stored.
    pub storage: &'static str,
    /// Fields of field selectors, without the first dot.
    pub selectable: Vec<String>,
    pub categories: Vec<String>,
    pub schema: Value,
}

impl CustomVersion {
    /// Removes fields that the schema does not know, below the metadata too if the schema describes it.
    pub(crate) fn prune(&self, object: &mut Value) {
        convey::prune_root(&self.schema, object);
    }

    /// Fills in the defaults.
    pub(crate) fn fill_in(&self, object: &mut Value) {
        convey::fill_in(&self.schema, object);
    }

    /// Fields that the schema does not know, as paths.
    pub(crate) fn unknown_fields(&self, object: &Value) -> Vec<String> {
        convey::unknown_fields(&self.schema, object)
    }

    /// Returns the mistakes of an object, by its schema and its rules.
    pub(crate) fn check(&self, old: Option<&Value>, object: &Value) -> Vec<FieldError> {
        let mut errors = validation::check(&self.schema, object);
        if !rules::has_any(&self.schema) {
            return errors;
        }
        if errors.iter().any(FieldError::keeps_rules_away) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors \
                       to complete validation";
            errors.push(FieldError::invalid("<nil>", &Value::Null, why));
        } else {
            errors.extend(rules::check(&self.schema, old, object));
        }
        errors
    }
}

/// Returns the mistakes of a definition.
pub(crate) fn check(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &definition["spec"];
    let wanted = qualified_name(spec);
    if meta(definition, "name") != wanted {
        let why = format!("must be spec.names.plural+\".\"+spec.group: {wanted}");
        errors.push(FieldError::invalid("metadata.name", &definition["metadata"]["name"], &why));
    }
    let versions = items(&spec["versions"]);
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &spec["versions"], why));
    }
    if !matches!(spec["scope"].as_str(), Some("Cluster" | "Namespaced")) {
        errors.push(FieldError::unsupported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"]));
    }
    for (at, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.is_null() {
            errors.push(FieldError::required(&path, "schemas are required"));
            continue;
        }
        structure::check(&mut errors, &path, schema);
    }
    errors
}

/// The status that the controllers of a real server would write.
pub(crate) fn established(definition: &Value) -> Value {
    let spec = &definition["spec"];
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now(),
        })
    };
    let before = &definition["status"];
    let conditions = match &before["conditions"] {
        Value::Null => json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]),
        conditions => conditions.clone(),
    };
    let mut names = spec["names"].clone();
    let kind = spec["names"]["kind"].as_str().unwrap_or_default();
    for (field, default) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if names[field].is_null() {
            names[field] = json!(default);
        }
    }
    let mut stored: Vec<Value> = items(&before["storedVersions"]).to_vec();
    let storage = storage(spec);
    if !stored.iter().any(|version| version == storage) {
        stored.push(json!(storage));
    }
    json!({ "acceptedNames": names, "conditions": conditions, "storedVersions": stored })
}

/// Serves what the definitions say now, and removes the objects of those that are gone.
pub(crate) fn redefine(state: &mut ServerState) {
    let definitions = state.list("customresourcedefinitions");
    let served: Vec<_> = definitions.iter().flat_map(served).collect();
    let is_served = |kind: ObjectKind| served.iter().any(|resource| resource.kind == kind);
    let orphans: Vec<_> =
        state.store.objects().keys().filter(|key| matches!(key.kind, ObjectKind::Custom(_))).cloned().collect();
    state.catalog.define(served.clone());
    for orphan in orphans.iter().filter(|key| !is_served(key.kind)) {
        state.store.remove(orphan);
    }
}

/// Lives as long as the process, as what is built in does: tests define few kinds.
fn for_ever(text: &str) -> &'static str {
    String::leak(text.to_owned())
}

/// The versions of a definition, the preferred one first.
fn served(definition: &Value) -> Vec<&'static ServedResource> {
    let spec = &definition["spec"];
    let mut versions: Vec<&Value> =
        items(&spec["versions"]).iter().filter(|version| version["served"] == true).collect();
    versions.sort_by_key(|version| Reverse(priority(version["name"].as_str().unwrap_or_default())));
    versions.into_iter().map(|version| served_version(definition, version)).collect()
}

fn served_version(definition: &Value, version: &Value) -> &'static ServedResource {
    let spec = &definition["spec"];
    let text = |value: &Value| for_ever(value.as_str().unwrap_or_default());
    let texts =
        |value: &Value| items(value).iter().filter_map(|one| one.as_str().map(str::to_owned)).collect::<Vec<_>>();
    let fields = items(&version["selectableFields"]).iter().filter_map(|field| field["jsonPath"].as_str());
    let custom = CustomVersion {
        version: text(&version["name"]),
        storage: for_ever(storage(spec)),
        selectable: fields.map(|path| path.trim_start_matches('.').to_owned()).collect(),
        categories: texts(&spec["names"]["categories"]),
        schema: version["schema"]["openAPIV3Schema"].clone(),
    };
    let short: Vec<&'static str> = texts(&spec["names"]["shortNames"]).iter().map(|name| for_ever(name)).collect();
    Box::leak(Box::new(ServedResource {
        kind: ObjectKind::Custom(for_ever(&qualified_name(spec))),
        kind_name: text(&spec["names"]["kind"]),
        plural: text(&spec["names"]["plural"]),
        short: short.leak(),
        namespaced: spec["scope"] == "Namespaced",
        has_status: !version["subresources"]["status"].is_null(),
        group: text(&spec["group"]),
        custom: Some(Box::leak(Box::new(custom))),
    }))
}

fn storage(spec: &Value) -> &str {
    let stored = items(&spec["versions"]).iter().find(|version| version["storage"] == true);
    stored.and_then(|version| version["name"].as_str()).unwrap_or_default()
}

fn qualified_name(spec: &Value) -> String {
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]))
}

/// Returns the priority of a version of an API: `v2`, `v1`, `v2beta1`, `v1beta2`, `v1alpha1`.
fn priority(version: &str) -> (u8, u32, u32) {
    let rest = version.strip_prefix('v').unwrap_or_default();
    let number = |text: &str| text.parse().unwrap_or_default();
    for (stability, word) in [(1, "beta"), (0, "alpha")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return (stability, number(major), number(minor));
        }
    }
    (2, number(rest), 0)
}

#[cfg(test)]
mod tests;

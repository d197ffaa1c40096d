//! The CRDs in `deploy/crds` say what the types of this crate say: they are made of the types' own source, so names and
//! words cannot differ. `UPDATE_GOLDEN=1 cargo test -p hostler-api --test crds` writes them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod kinds;
mod opaque;
mod schema;
mod source;

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use hostler_api::{
    classic::{ClaimParameters, ClassParameters},
    fabric::FabricAttachment,
    hardware::{ClusterHardware, NodeHardware},
    reservation::Reservation,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{kinds::CustomKind, schema::Schemas, source::Types};

const HEADER: &str = "\
# Made of the types in lib/api/src. Change them, and write this anew:
# UPDATE_GOLDEN=1 cargo test -p hostler-api --test crds
";

fn path_of(kind: &CustomKind) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/crds")
        .join(kind.folder)
        .join(format!("{}.yaml", kind.plural))
}

fn types() -> Types {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let folder = fs::read_dir(source.join("hardware")).unwrap().map(|entry| entry.unwrap().path());
    let others = [
        "classic/parameters.rs",
        "core/label_selector.rs",
        "core/toleration.rs",
        "fabric/attachment.rs",
        "reservation.rs",
        "reservation/eviction.rs",
        "reservation/mode.rs",
        "reservation/owner.rs",
        "reservation/place.rs",
        "reservation/spec.rs",
        "reservation/status.rs",
        "resource/claim.rs",
        "resource/request.rs",
        "resource/taint.rs",
    ];
    Types::read(folder.chain(others.map(|file| source.join(file))))
}

fn crds() -> Vec<(CustomKind, Value)> {
    let types = types();
    let mut schemas = Schemas::new(&types);
    let all = kinds::all().into_iter().map(|kind| (schemas.of_kind(kind.kind), kind)).collect::<Vec<_>>();
    assert_eq!(schemas.unused(), Vec::<String>::new(), "limits of fields that no kind has");
    all.into_iter()
        .map(|(schema, kind)| {
            let crd = kind.crd(schema);
            (kind, crd)
        })
        .collect()
}

#[test]
fn the_crds_in_deploy_are_those_of_the_types() {
    for (kind, crd) in crds() {
        let path = path_of(&kind);
        let expected = format!("{HEADER}{}", serde_saphyr::to_string(&crd).unwrap());
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &expected).unwrap();
        }
        let is = fs::read_to_string(&path).unwrap_or_default();
        assert!(is == expected, "{} is not what the types say; UPDATE_GOLDEN=1 writes it", path.display());
        let read: Value = serde_saphyr::from_str(&is).unwrap();
        assert_eq!(read, crd, "{} is read otherwise than it was written", path.display());
    }
}

/// Calls `each` with every schema of a tree, and where it is.
fn walk(path: &str, schema: &Value, each: &mut dyn FnMut(&str, &Value)) {
    each(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, each);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&format!("{path}[]"), &schema[inner], each);
        }
    }
}

fn schema_of(crd: &Value) -> &Value {
    &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

#[test]
fn everything_that_could_grow_has_a_limit_and_every_field_is_explained() {
    for (kind, crd) in crds() {
        walk(kind.kind, schema_of(&crd), &mut |path, schema| {
            let limit = match schema["type"].as_str().unwrap() {
                "string" if schema.get("enum").is_some() => None,
                "string" => Some("maxLength"),
                "array" => Some("maxItems"),
                "object" if schema.get("additionalProperties").is_some() => Some("maxProperties"),
                "integer" => Some("minimum"),
                _ => None,
            };
            assert!(limit.is_none_or(|limit| schema[limit].is_u64()), "{path} has no {limit:?}");
            let is_named = !path.ends_with("[]");
            assert!(
                !is_named || schema["description"].is_string() || path.ends_with("metadata"),
                "{path} is not explained"
            );
        });
    }
}

/// The fields that a value of a type has when it was read from what has every field of the schema.
fn kept<T: DeserializeOwned + Serialize>(full: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(full.clone()).unwrap()).unwrap()
}

fn paths(schema: &Value) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    walk("", schema, &mut |path, _| paths.extend([path.to_owned()]));
    paths.retain(|path| !path.starts_with(".metadata"));
    paths
}

fn value_paths(path: &str, value: &Value, all: &mut BTreeSet<String>) {
    all.insert(path.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                // The key of a map is no field.
                let name = if name == "any" { "[]".to_owned() } else { format!(".{name}") };
                value_paths(&format!("{path}{name}"), value, all);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| value_paths(&format!("{path}[]"), item, all)),
        _ => {}
    }
}

#[test]
fn types_read_and_write_exactly_the_fields_of_their_schema() {
    for (kind, crd) in crds() {
        let mut full = schema::example("", schema_of(&crd));
        full["metadata"] = serde_json::json!({"name": "a"});
        let kept = match kind.kind {
            "NodeHardware" => kept::<NodeHardware>(&full),
            "ClusterHardware" => kept::<ClusterHardware>(&full),
            "ClaimParameters" => kept::<ClaimParameters>(&full),
            "ClassParameters" => kept::<ClassParameters>(&full),
            "Reservation" => kept::<Reservation>(&full),
            "FabricAttachment" => kept::<FabricAttachment>(&full),
            other => panic!("{other} is compared with no type"),
        };
        let mut written = BTreeSet::new();
        value_paths("", &kept, &mut written);
        written.retain(|path| !path.starts_with(".metadata"));
        assert_eq!(written, paths(schema_of(&crd)), "{}", kind.kind);
    }
}

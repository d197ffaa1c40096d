//! What Helm renders of the chart, compared with what kustomize builds of the folders. `HOSTLER_HELM` names a helm, or any
//! program with its `lint` and `template`.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};

use super::{
    super::{
        deploy,
        kustomize::{ObjectId, built, id, installations, plain},
    },
    chart,
};

/// Folders, and the values with which the chart is the same as all of them together.
const BUNDLES: &[(&[&str], &[&str])] = &[
    (&["", "controller"], &[]),
    (&["", "base"], &["controller.enabled=false"]),
    (&["hardware"], &["controller.enabled=false", "daemon.hardware=true"]),
    (&["cluster"], &["controller.enabled=false", "daemon.enabled=false", "daemon.onHosts=true"]),
    (&["crds"], &["controller.enabled=false", "daemon.enabled=false"]),
    (&["controller"], &["daemon.enabled=false"]),
    (&["controller/base"], &["daemon.enabled=false", "crds=false"]),
    (&["fabric"], &["daemon.enabled=false", "controller.fabric=true"]),
    (&["cluster", "fabric", "fabric/node"], &["daemon.enabled=false", "daemon.onHosts=true", "controller.fabric=true"]),
    (&["provisioning"], &["daemon.enabled=false", "controller.provisioning=true"]),
    (&["holds", "holds/base"], &["daemon.enabled=false", "controller.holds.base=true"]),
    (&["holds/annotations"], &["daemon.enabled=false", "controller.holds.annotations=true"]),
    (&["holds/claims"], &["daemon.enabled=false", "controller.holds.claims=true"]),
    (&["holds/direct"], &["daemon.enabled=false", "controller.holds.direct=true"]),
    (&["holds/evictions"], &["daemon.enabled=false", "controller.holds.evictions=true"]),
    (&["holds/gates"], &["daemon.enabled=false", "controller.holds.gates=true"]),
    (&["holds/koordinator"], &["daemon.enabled=false", "controller.holds.koordinator=true"]),
    (&["holds/places"], &["daemon.enabled=false", "controller.holds.places=true"]),
    (&["holds/repair"], &["daemon.enabled=false", "controller.holds.repair=true"]),
    (&["holds/rules"], &["daemon.enabled=false", "controller.holds.rules=true"]),
    (&["holds/webhook"], &["daemon.enabled=false", "controller.holds.webhook=true"]),
    (&["classic"], &["controller.classic=true"]),
    (&["classic-1.26"], &["controller.classic=true", "admissionPolicies=false"]),
    (
        &["examples/controller"],
        &["daemon.enabled=false", "prometheus.podMonitors=true", "prometheus.alerts=true", "prometheus.dashboard=true"],
    ),
    (
        &["examples/overlay"],
        &[
            "controller.enabled=false",
            "daemon.image.repository=registry.example.org/hostler",
            "daemon.hardware=true",
            "daemon.nri=true",
            "daemon.pods=true",
            "daemon.topology=true",
            "prometheus.podMonitors=true",
            "prometheus.alerts=true",
            "prometheus.dashboard=true",
        ],
    ),
];

/// Runs helm with the chart in a folder.
pub(super) fn helm(action: &[&str], chart: &Path, arguments: &[String]) -> Output {
    let helm = env::var_os("HOSTLER_HELM").expect("HOSTLER_HELM names a helm");
    Command::new(helm).args(action).arg(chart).args(arguments).output().unwrap()
}

pub(super) fn settings(values: &[&str]) -> Vec<String> {
    values.iter().flat_map(|value| ["--set".to_owned(), (*value).to_owned()]).collect()
}

/// Returns arguments that name a file with values, in a folder.
pub(super) fn in_file(folder: &Path, values: &Value) -> [String; 2] {
    let file = folder.join("values.yaml");
    fs::write(&file, values.to_string()).unwrap();
    ["-f".to_owned(), file.to_str().unwrap().to_owned()]
}

/// Returns the objects that the chart renders, by their ids.
pub(super) fn rendered(arguments: &[String]) -> BTreeMap<ObjectId, Value> {
    let output = helm(&["template", "hostler"], &chart(), arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let objects: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let objects: Vec<Value> = objects.into_iter().filter(|object| !object.is_null()).collect();
    let number = objects.len();
    let by_id: BTreeMap<ObjectId, Value> = objects.into_iter().map(|object| (id(&object), object)).collect();
    assert_eq!(by_id.len(), number, "{arguments:?}: an object is there twice");
    by_id
}

/// Returns what the chart has to say of its own in an object, and takes it out.
fn take_annotation(object: &mut Value, metadata: &str, name: &str) -> Value {
    let Some(annotations) = object.pointer_mut(&format!("{metadata}/annotations")) else { return Value::Null };
    let taken = annotations.as_object_mut().unwrap().remove(name).unwrap_or_default();
    if annotations.as_object().unwrap().is_empty() {
        object.pointer_mut(metadata).unwrap().as_object_mut().unwrap().remove("annotations");
    }
    taken
}

/// Writes CEL in one line: kustomize doubles line breaks of folded text.
fn in_one_line(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(text) if key == "expression" => {
                        *value = text.split_whitespace().collect::<Vec<_>>().join(" ").into()
                    }
                    _ => in_one_line(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(in_one_line),
        _ => {}
    }
}

/// Sorts what has no order, volumes and mounts, and takes out what does not count.
fn comparable(mut object: Value) -> Value {
    in_one_line(&mut object);
    for path in ["/spec/template/spec/volumes", "/spec/template/spec/containers/0/volumeMounts"] {
        if let Some(Value::Array(items)) = object.pointer_mut(path) {
            items.sort_by_key(|item| item["name"].to_string());
        }
    }
    object
}

/// Returns an object of kustomize with the names that the chart has: hashes are none of them.
fn without_hashes(mut object: Value) -> (ObjectId, Value) {
    let id = plain(id(&object));
    object["metadata"]["name"] = id.2.clone().into();
    for volume in object.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut).into_iter().flatten()
    {
        if let Some(name) = volume.pointer_mut("/configMap/name") {
            *name = name.as_str().unwrap().rsplit_once('-').unwrap().0.into();
        }
    }
    (id, comparable(object))
}

fn without_own_annotations(id: &ObjectId, mut object: Value) -> Value {
    let policy = take_annotation(&mut object, "/metadata", "helm.sh/resource-policy");
    assert_eq!(policy == "keep", id.0 == "CustomResourceDefinition", "{id:?}");
    let sum = take_annotation(&mut object, "/spec/template/metadata", "checksum/config");
    assert_eq!(sum.is_string(), ["DaemonSet", "Deployment"].contains(&id.0.as_str()), "{id:?}");
    comparable(object)
}

#[test]
fn every_folder_that_can_be_installed_is_compared_with_the_chart() {
    let compared: Vec<&str> = BUNDLES.iter().flat_map(|(folders, _)| *folders).copied().collect();
    for folder in installations() {
        let folder = folder.strip_prefix(deploy()).unwrap().to_str().unwrap();
        // Kinds of one capability are of no use alone, and an overlay may bring what is its own.
        let is_left_out = folder.starts_with("crds/") || folder.starts_with("examples/");
        assert!(is_left_out || compared.contains(&folder), "{folder}: BUNDLES has no values for it");
    }
}

#[test]
#[ignore = "needs helm, by HOSTLER_HELM"]
fn helm_renders_what_kustomize_builds() {
    let temporary = tempfile::tempdir().unwrap();
    for (folders, values) in BUNDLES {
        let paths: Vec<PathBuf> = folders.iter().map(|folder| deploy().join(folder)).collect();
        let built = built(&paths).expect("a kustomize is there where helm is");
        let expected: BTreeMap<ObjectId, Value> = built.into_iter().flatten().map(without_hashes).collect();
        let mut arguments = settings(values);
        if folders.contains(&"examples/overlay") {
            let config = fs::read_to_string(deploy().join("examples/overlay/hostler.toml")).unwrap();
            arguments.extend(in_file(temporary.path(), &json!({ "daemon": { "config": config } })));
        }
        let rendered = rendered(&arguments);
        let names = |objects: &BTreeMap<ObjectId, Value>| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&rendered), names(&expected), "{folders:?} and {values:?}");
        for (id, object) in rendered {
            assert_eq!(without_own_annotations(&id, object), expected[&id], "{folders:?}: {id:?}");
        }
    }
}

//! The manifests in `deploy/`: the API's own types take them without losing a word, and they fit the daemon and each other.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: what cannot be read fails it")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use hostler::{
    admin::{MetricsSnapshot, render_metrics},
    claims::ClaimTable,
    config::DaemonConfig,
    inventory::{Inventory, Pool},
    metrics::{CountedOperation, Metrics},
};
use hostler_api::{BackendName, DeviceName};
use hostler_backend::Device;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        apps::v1::DaemonSet,
        core::v1::{ConfigMap, Namespace, Pod, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
        resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate},
    },
    serde::{Serialize, de::DeserializeOwned},
};
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every object of a kind, with the file that it is in.
fn objects(kind: &str) -> Vec<(PathBuf, Value)> {
    let all = yaml_files(&deploy()).into_iter().flat_map(|path| {
        documents(&path).into_iter().map(move |document| (path.clone(), document)).collect::<Vec<_>>()
    });
    all.filter(|(_, object)| object["kind"] == kind).collect()
}

/// The object after it went through the API's type: what the type does not know is gone.
fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, String> {
    let typed: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    serde_json::to_value(typed).map_err(|error| error.to_string())
}

/// `None` for kinds that the API server has no type for.
fn round_trip(object: &Value) -> Option<Result<Value, String>> {
    let kind = format!("{}/{}", object["apiVersion"].as_str()?, object["kind"].as_str()?);
    Some(match kind.as_str() {
        "v1/Namespace" => through::<Namespace>(object),
        "v1/ServiceAccount" => through::<ServiceAccount>(object),
        "v1/ConfigMap" => through::<ConfigMap>(object),
        "v1/Pod" => through::<Pod>(object),
        "apps/v1/DaemonSet" => through::<DaemonSet>(object),
        "rbac.authorization.k8s.io/v1/ClusterRole" => through::<ClusterRole>(object),
        "rbac.authorization.k8s.io/v1/ClusterRoleBinding" => through::<ClusterRoleBinding>(object),
        "resource.k8s.io/v1/DeviceClass" => through::<DeviceClass>(object),
        "resource.k8s.io/v1/ResourceClaim" => through::<ResourceClaim>(object),
        "resource.k8s.io/v1/ResourceClaimTemplate" => through::<ResourceClaimTemplate>(object),
        "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" => through::<ValidatingAdmissionPolicy>(object),
        "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding" => {
            through::<ValidatingAdmissionPolicyBinding>(object)
        }
        _ => return None,
    })
}

/// What `kept` has lost of `written`, as paths.
fn lost(path: &str, written: &Value, kept: &Value) -> Vec<String> {
    match (written, kept) {
        (Value::Object(written), Value::Object(kept)) => {
            let absent = Value::Null;
            let below = |(key, value): (&String, &Value)| {
                lost(&format!("{path}.{key}"), value, kept.get(key).unwrap_or(&absent))
            };
            written.iter().flat_map(below).collect()
        }
        (Value::Array(written), Value::Array(kept)) if written.len() == kept.len() => {
            let pairs = written.iter().zip(kept).enumerate();
            pairs.flat_map(|(index, (written, kept))| lost(&format!("{path}[{index}]"), written, kept)).collect()
        }
        // An empty object or list means the same as none.
        (Value::Object(written), Value::Null) if written.is_empty() => Vec::new(),
        (Value::Array(written), Value::Null) if written.is_empty() => Vec::new(),
        _ if written == kept => Vec::new(),
        _ => vec![format!("{path}: {written} became {kept}")],
    }
}

#[test]
fn the_types_of_the_api_take_every_object_without_losing_a_word() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for path in yaml_files(&deploy()) {
        for object in documents(&path) {
            match round_trip(&object) {
                Some(Ok(kept)) => {
                    let kind = object["kind"].as_str().unwrap();
                    wrong.extend(lost(kind, &object, &kept).iter().map(|lost| format!("{}: {lost}", path.display())));
                    seen += 1;
                }
                Some(Err(error)) => wrong.push(format!("{}: {error}", path.display())),
                None => {
                    let kind = object["kind"].as_str().unwrap_or("nothing");
                    let is_known = matches!(kind, "Kustomization" | "PrometheusRule");
                    wrong.extend((!is_known).then(|| format!("{}: {kind} is not checked", path.display())));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 30, "only {seen} objects were found");
}

#[test]
fn a_word_that_the_api_does_not_know_is_noticed() {
    let object = serde_json::json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "x"},
        "spec": {"selectors": [{"cel": {"expresion": "true", "expression": "true"}}]}
    });
    let kept = round_trip(&object).unwrap().unwrap();
    assert_eq!(lost("", &object, &kept), [".spec.selectors[0].cel.expresion: \"true\" became null"]);
}

#[test]
fn kustomize_applies_every_file_beside_it() {
    let kustomization = documents(&deploy().join("kustomization.yaml")).remove(0);
    let names = kustomization["resources"].as_array().unwrap();
    let listed: BTreeSet<&str> = names.iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names.len(), listed.len(), "kustomize refuses a file that is named twice");
    let here = fs::read_dir(deploy()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let here: BTreeSet<String> = here.filter(|name| name.ends_with(".yaml") && name != "kustomization.yaml").collect();
    assert_eq!(listed, here.iter().map(String::as_str).collect());
}

/// A strategic merge patch finds containers by name, mounts by path and volumes by name: what it does not find it adds.
#[test]
fn the_patch_for_hardware_changes_the_daemon_and_nothing_else() {
    let kustomization = documents(&deploy().join("hardware/kustomization.yaml")).remove(0);
    let patch: Value = serde_saphyr::from_str(kustomization["patches"][0]["patch"].as_str().unwrap()).unwrap();
    let (_, daemon) = objects("DaemonSet").remove(0);
    for path in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"] {
        assert_eq!(patch.pointer(path), daemon.pointer(path), "{path}");
    }
    let container = |object: &Value| object["spec"]["template"]["spec"]["containers"][0].clone();
    let (patched, own) = (container(&patch), container(&daemon));
    assert_eq!(patched["name"], own["name"]);
    let paths = |container: &Value| -> BTreeSet<String> {
        let mounts = container["volumeMounts"].as_array().unwrap().iter();
        mounts.map(|mount| mount["mountPath"].as_str().unwrap().to_owned()).collect()
    };
    let added: Vec<String> = paths(&patched).difference(&paths(&own)).cloned().collect();
    assert_eq!(added, ["/dev"]);
    assert_eq!(patch["spec"]["template"]["spec"]["volumes"][0]["name"], "dev");
    // Either alone is refused by the API server.
    let context = &patched["securityContext"];
    assert_eq!((&context["privileged"], &context["allowPrivilegeEscalation"]), (&true.into(), &true.into()));
}

/// The configuration that the ConfigMap brings.
#[test]
fn every_page_that_a_manifest_sends_its_reader_to_is_there() {
    let root = deploy().join("..");
    for path in yaml_files(&deploy()) {
        let text = fs::read_to_string(&path).unwrap();
        let words = text.split(|c: char| c.is_whitespace() || ",;:()`\"".contains(c));
        for page in words.filter(|word| word.starts_with("docs/")) {
            let page = page.trim_end_matches('.');
            assert!(root.join(page).is_file(), "{}: there is no {page}", path.display());
        }
    }
}

fn configuration() -> DaemonConfig {
    let (_, map) = objects("ConfigMap").remove(0);
    let text = map["data"]["hostler.toml"].as_str().unwrap();
    DaemonConfig::parse(text).unwrap_or_else(|problems| panic!("{problems:?}"))
}

#[test]
fn the_daemon_finds_every_folder_of_its_configuration_mounted_under_the_same_path() {
    let config = configuration();
    let (_, set) = objects("DaemonSet").remove(0);
    let pod = &set["spec"]["template"]["spec"];
    let host_path = |name: &str| {
        let volumes = pod["volumes"].as_array().unwrap();
        volumes.iter().find(|volume| volume["name"] == name).unwrap()["hostPath"]["path"].as_str().map(str::to_owned)
    };
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mounted: BTreeSet<PathBuf> = mounts
        .iter()
        .filter(|mount| host_path(mount["name"].as_str().unwrap()).as_deref() == mount["mountPath"].as_str())
        .map(|mount| mount["mountPath"].as_str().unwrap().into())
        .collect();
    let paths = &config.paths;
    for shared in [
        paths.state.clone(),
        paths.cdi.clone(),
        paths.kubelet.join("plugins"),
        paths.kubelet.join("plugins_registry"),
        config.hook_dir.unwrap(),
    ] {
        assert!(mounted.contains(&shared), "{} is not a folder of the host in the pod", shared.display());
    }
    // Each daemon has sockets of its own for probes and the command line while one replaces the other.
    assert!(!mounted.contains(&paths.run), "{} is shared by two daemons", paths.run.display());
}

#[test]
fn role_policies_and_classes_name_the_driver_of_the_configuration() {
    let driver = configuration().driver;
    let (_, role) = objects("ClusterRole").remove(0);
    let named = role["rules"].as_array().unwrap().iter().find(|rule| rule["resources"][0] == "resourceclaims/driver");
    assert_eq!(named.unwrap()["resourceNames"][0], driver.as_str());
    let classes = objects("DeviceClass");
    assert!(classes.len() >= 6);
    for (path, class) in classes {
        let expression = class["spec"]["selectors"][0]["cel"]["expression"].as_str().unwrap();
        assert!(expression.contains(&format!("device.driver == \"{driver}\"")), "{}", path.display());
    }
    for (path, policy) in objects("ValidatingAdmissionPolicy") {
        assert!(policy.to_string().contains(&driver), "{} names another driver", path.display());
    }
}

#[test]
fn examples_ask_for_classes_that_are_there() {
    let classes: BTreeSet<String> = objects("DeviceClass")
        .iter()
        .map(|(_, class)| class["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    let mut asked = 0;
    for (path, object) in objects("ResourceClaimTemplate").into_iter().chain(objects("ResourceClaim")) {
        let text = object.to_string();
        for found in text.split("\"deviceClassName\":\"").skip(1) {
            let class = found.split('"').next().unwrap();
            assert!(classes.contains(class), "{}: there is no class {class}", path.display());
            asked += 1;
        }
    }
    assert!(asked > 10);
}

/// The figures of a daemon to which everything has happened once.
fn figures() -> BTreeSet<String> {
    let metrics = Metrics::default();
    metrics.observe(CountedOperation::Prepare, false, Duration::from_millis(1));
    metrics.slice_written("create");
    metrics.api_retried("slices");
    metrics.recovered("keep");
    metrics.released("gone");
    metrics.event_written("DeviceHeld");
    let devices = vec![Device::new(DeviceName::new("a").unwrap())];
    let pool = Pool { name: "n/fake".to_owned(), devices, ..Pool::default() };
    let inventory = Inventory { pools: [(BackendName::new("fake").unwrap(), pool)].into(), ..Inventory::default() };
    let now = MetricsSnapshot { inventory: &inventory, claims: &ClaimTable::default(), ready: true, rss_bytes: 1 };
    let text = render_metrics(&metrics, &now).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
}

#[test]
fn alerts_are_about_figures_that_the_daemon_gives() {
    let (_, rules) = objects("PrometheusRule").remove(0);
    let given = figures();
    let mut expressions = 0;
    for rule in rules["spec"]["groups"][0]["rules"].as_array().unwrap() {
        let expression = rule["expr"].as_str().unwrap();
        let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for word in words.filter(|word| word.starts_with("hostler_")) {
            assert!(given.contains(word), "{word} is no figure of the daemon: {given:?}");
            expressions += 1;
        }
    }
    assert!(expressions >= 7);
}

//! The manifests in `deploy/`: the API's own types take them without losing a word, and they fit the daemon and each
//! other.

mod chart;
mod controller;
mod kustomize;
mod monitoring;
mod pod;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use hostler::config::DaemonConfig;
use hostler_testing::{
    binary::binary,
    host::{Host, wait_for},
};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        },
        apps::v1::{DaemonSet, Deployment},
        core::v1::{ConfigMap, Namespace, Pod, PodTemplate, Secret, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
        resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate},
        scheduling::v1::PriorityClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
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
        // What Helm reads is no YAML before it is rendered; `chart` compares it.
        if path == deploy().join("chart") {
            continue;
        }
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

/// Returns every object of a kind, with the file that has it.
fn objects(kind: &str) -> Vec<(PathBuf, Value)> {
    let all = yaml_files(&deploy()).into_iter().flat_map(|path| {
        documents(&path).into_iter().map(move |document| (path.clone(), document)).collect::<Vec<_>>()
    });
    all.filter(|(_, object)| object["kind"] == kind).collect()
}

/// Returns the object after it went through the API's type: fields that the type does not know are gone.
fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, String> {
    let typed: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    serde_json::to_value(typed).map_err(|error| error.to_string())
}

/// Returns an object of a kind of ours after it went through its type, which is without its own name.
fn through_ours<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, String> {
    let mut kept = through::<T>(object)?;
    for field in ["apiVersion", "kind"] {
        kept[field] = object[field].clone();
    }
    Ok(kept)
}

/// Returns the object after it went through its type; `None` for kinds without a type.
fn round_trip(object: &Value) -> Option<Result<Value, String>> {
    let kind = format!("{}/{}", object["apiVersion"].as_str()?, object["kind"].as_str()?);
    Some(match kind.as_str() {
        "v1/Namespace" => through::<Namespace>(object),
        "v1/ServiceAccount" => through::<ServiceAccount>(object),
        "v1/ConfigMap" => through::<ConfigMap>(object),
        "v1/Secret" => through::<Secret>(object),
        "v1/Service" => through::<Service>(object),
        "v1/Pod" => through::<Pod>(object),
        "apps/v1/DaemonSet" => through::<DaemonSet>(object),
        "apps/v1/Deployment" => through::<Deployment>(object),
        "networking.k8s.io/v1/NetworkPolicy" => through::<NetworkPolicy>(object),
        "policy/v1/PodDisruptionBudget" => through::<PodDisruptionBudget>(object),
        "rbac.authorization.k8s.io/v1/Role" => through::<Role>(object),
        "rbac.authorization.k8s.io/v1/RoleBinding" => through::<RoleBinding>(object),
        "scheduling.k8s.io/v1/PriorityClass" => through::<PriorityClass>(object),
        "rbac.authorization.k8s.io/v1/ClusterRole" => through::<ClusterRole>(object),
        "rbac.authorization.k8s.io/v1/ClusterRoleBinding" => through::<ClusterRoleBinding>(object),
        "apiextensions.k8s.io/v1/CustomResourceDefinition" => through::<CustomResourceDefinition>(object),
        "v1/PodTemplate" => through::<PodTemplate>(object),
        "autoscaling.x-k8s.io/v1/ProvisioningRequest" => {
            through_ours::<hostler_api::provisioning::ProvisioningRequest>(object)
        }
        "hostler.dev/v1alpha1/Reservation" => through_ours::<hostler_api::reservation::Reservation>(object),
        "resource.k8s.io/v1/DeviceClass" => through::<DeviceClass>(object),
        "resource.k8s.io/v1/ResourceClaim" => through::<ResourceClaim>(object),
        "resource.k8s.io/v1/ResourceClaimTemplate" => through::<ResourceClaimTemplate>(object),
        "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration" => {
            through::<MutatingWebhookConfiguration>(object)
        }
        "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" => through::<ValidatingAdmissionPolicy>(object),
        "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding" => {
            through::<ValidatingAdmissionPolicyBinding>(object)
        }
        _ => return None,
    })
}

/// Returns the fields of `written` that `kept` has lost, as paths.
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
        // The API has limits of numbers as floats.
        (Value::Number(written), Value::Number(kept)) if written.as_f64() == kept.as_f64() => Vec::new(),
        _ if written == kept => Vec::new(),
        _ => vec![format!("{path}: {written} became {kept}")],
    }
}

#[test]
fn the_types_of_the_api_take_every_object_without_losing_a_word() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    // Objects of old releases are checked against servers of these, by the tests of the controller.
    let is_old = |path: &PathBuf| path.starts_with(deploy().join("classic/examples"));
    for path in yaml_files(&deploy()).into_iter().filter(|path| !is_old(path)) {
        // The tests of `convert` read objects of Koordinator.
        let is_ours = |object: &Value| object["apiVersion"] != "scheduling.koordinator.sh/v1alpha1";
        for object in documents(&path).into_iter().filter(is_ours) {
            match round_trip(&object) {
                Some(Ok(kept)) => {
                    let kind = object["kind"].as_str().unwrap();
                    wrong.extend(lost(kind, &object, &kept).iter().map(|lost| format!("{}: {lost}", path.display())));
                    seen += 1;
                }
                Some(Err(error)) => wrong.push(format!("{}: {error}", path.display())),
                None => {
                    let kind = object["kind"].as_str().unwrap_or("nothing");
                    let is_known = matches!(
                        kind,
                        "Kustomization"
                            | "Component"
                            | "PodMonitor"
                            | "PrometheusRule"
                            | "KubeSchedulerConfiguration"
                            // The controller's own tests compare the text of these with its answers.
                            | "AdmissionCheck"
                            | "ProvisioningRequestConfig"
                            // The manifest of krew, which tests of the plugin read.
                            | "Plugin"
                    );
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
fn a_daemon_whose_hardware_takes_its_time_is_alive() {
    let mut host = Host::bare("latency_ms = { prepare = 3600000 }\n[[device]]\nname = \"card\"\n");
    host.start();
    host.manifest("slow", "u1", &[("all", "fake", "card", Value::Null)]);
    // The caller is not waited for.
    let mut caller = Command::new(binary())
        .args(["claim", "prepare", "slow", "--config"])
        .arg(host.path("hostler.toml"))
        .spawn()
        .unwrap();
    wait_for("the hardware to be at work", || {
        host.metrics("/metrics").1.contains("hostler_claims{state=\"preparing\"} 1\n").then_some(())
    });
    assert_eq!(host.run_ok(&["ready", "--alive"]), "ok\n");
    host.kill();
    caller.wait().unwrap();
}

/// The kubelet does not start with a word that is none of its own, and it spells the two in two ways.
#[test]
fn pages_spell_the_policies_of_the_kubelet_as_the_kubelet_does() {
    let root = deploy().join("..");
    let mut found = 0;
    for page in ["docs/kubernetes.md", "docs/operations.md", "src/cli/doctor/services.rs"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        for (key, word) in [("cpuManagerPolicy", "none"), ("memoryManagerPolicy", "None")] {
            for (at, _) in text.match_indices(key) {
                let said = text[at + key.len()..].strip_prefix(": ").unwrap_or_default();
                assert!(said.starts_with(word), "{page}: {key} is not said to be {word}");
                found += 1;
            }
        }
    }
    assert!(found >= 6);
}

/// A strategic merge patch finds containers by name, mounts by path and volumes by name: an entry that it does not find
/// is added.
#[test]
fn the_patch_for_hardware_changes_the_daemon_and_nothing_else() {
    let patch = documents(&deploy().join("components/hardware/daemonset.yaml")).remove(0);
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

/// The configuration that the ConfigMap brings.
fn configuration() -> DaemonConfig {
    DaemonConfig::load(&deploy().join("base/hostler.toml")).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn the_configuration_of_the_example_differs_from_the_shipped_one_in_what_it_says() {
    let example = DaemonConfig::load(&deploy().join("examples/overlay/hostler.toml")).unwrap();
    let mut shipped = configuration();
    assert_ne!(example, shipped);
    shipped.backends.cpu.config.reserved = example.backends.cpu.config.reserved.clone();
    shipped.topology_export.enabled = true;
    assert_eq!(example, shipped);
}

/// The Service and the PodMonitor lead their readers to the figures, with the token that is made for them.
#[test]
fn service_and_pod_monitor_lead_to_the_port_of_the_configuration() {
    let port = configuration().metrics.scrape.unwrap().0.port();
    let (_, service) = objects("Service").remove(0);
    assert_eq!(
        (&service["spec"]["ports"][0]["port"], &service["spec"]["ports"][0]["targetPort"]),
        (&port.into(), &port.into())
    );
    let (_, set) = objects("DaemonSet").remove(0);
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    let (_, monitor) = objects("PodMonitor").remove(0);
    for selector in [&service["spec"]["selector"], &monitor["spec"]["selector"]["matchLabels"]] {
        assert!(selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value), "{selector}");
    }
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    let addresses =
        endpoint["relabelings"].as_array().unwrap().iter().filter(|rule| rule["targetLabel"] == "__address__");
    let ends: Vec<bool> =
        addresses.map(|rule| rule["replacement"].as_str().unwrap().ends_with(&format!(":{port}"))).collect();
    assert_eq!(ends, [true, true]);
    // A declared port would be taken on the node, and keep away the successor that is started beside the daemon.
    assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["ports"], Value::Null);
    let (_, secret) = objects("Secret").remove(0);
    assert_eq!(endpoint["authorization"]["credentials"]["name"], secret["metadata"]["name"]);
    let account = &secret["metadata"]["annotations"]["kubernetes.io/service-account.name"];
    assert!(objects("ServiceAccount").iter().any(|(_, object)| object["metadata"]["name"] == *account));
    assert!(objects("ClusterRoleBinding").iter().any(|(_, object)| object["subjects"][0]["name"] == *account));
}

/// A probe that asks for more than life would kill a daemon that waits for its turn, or for hardware.
#[test]
fn the_daemon_is_killed_only_when_it_does_not_live() {
    let (_, set) = objects("DaemonSet").remove(0);
    let probe = |name: &str| set["spec"]["template"]["spec"]["containers"][0][name].clone();
    for name in ["startupProbe", "livenessProbe"] {
        assert_eq!(probe(name)["exec"]["command"], serde_json::json!(["hostler", "ready", "--alive"]), "{name}");
    }
    assert_eq!(probe("readinessProbe")["exec"]["command"], serde_json::json!(["hostler", "ready"]));
    let number = |field: &str| probe("livenessProbe")[field].as_u64().unwrap();
    assert!(number("periodSeconds") * number("failureThreshold") >= 120);
    // Longer than the daemon itself takes to find out that it is stuck.
    assert!(number("timeoutSeconds") > 10);
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
    let roles = objects("ClusterRole");
    let rules = roles.iter().flat_map(|(_, role)| role["rules"].as_array().unwrap());
    let named: Vec<&Value> = rules.filter(|rule| rule["resources"][0] == "resourceclaims/driver").collect();
    assert!(!named.is_empty());
    assert!(named.iter().all(|rule| rule["resourceNames"] == serde_json::json!([driver])), "{named:?}");
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

/// `kubectl get reservation` and `kubectl describe reservation` are what people type.
#[test]
fn the_singular_of_every_definition_is_its_kind() {
    let definitions: Vec<Value> = yaml_files(&deploy().join("crds"))
        .iter()
        .flat_map(|path| documents(path))
        .filter(|object| object["kind"] == "CustomResourceDefinition")
        .collect();
    assert!(definitions.len() > 4, "{}", definitions.len());
    for definition in definitions {
        let names = &definition["spec"]["names"];
        let [kind, singular, plural] = ["kind", "singular", "plural"].map(|name| names[name].as_str().unwrap());
        assert_eq!(singular, kind.to_lowercase());
        // Hardware is not counted, and parameters are many already.
        let has_one_form = ["hardware", "parameters"].iter().any(|end| singular.ends_with(end));
        assert_eq!(singular == plural, has_one_form, "{kind}");
    }
}

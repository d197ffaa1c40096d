//! The manifests of the controller: they fit each other, its configuration, and its unit.

use std::fs;

use serde_json::Value;

use super::{deploy, documents, objects, yaml_files};

fn of_controller(kind: &str) -> Value {
    let all = objects(kind).into_iter().filter(|(path, _)| path.starts_with(deploy().join("controller")));
    let mut all: Vec<Value> = all.map(|(_, object)| object).collect();
    assert_eq!(all.len(), 1, "{kind}");
    all.remove(0)
}

/// Returns the keys that a configuration file of the controller sets, without its comments.
fn keys(path: &str) -> toml::Table {
    fs::read_to_string(deploy().join("..").join(path)).unwrap().parse().unwrap()
}

#[test]
fn everything_finds_the_pods_of_the_controller_and_no_others() {
    let deployment = of_controller("Deployment");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let selectors = [
        of_controller("Service")["spec"]["selector"].clone(),
        of_controller("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].clone(),
        of_controller("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].clone(),
        deployment["spec"]["selector"]["matchLabels"].clone(),
    ];
    for selector in selectors {
        let pairs = selector.as_object().unwrap();
        assert!(!pairs.is_empty() && pairs.iter().all(|(key, value)| labels[key] == *value), "{selector}");
    }
    // The daemon's Service must not lead to a controller.
    let (_, daemons) =
        objects("Service").into_iter().find(|(path, _)| path.starts_with(deploy().join("base"))).unwrap();
    let pairs = daemons["spec"]["selector"].as_object().unwrap();
    assert!(pairs.iter().any(|(key, value)| labels[key] != *value));
}

#[test]
fn the_port_of_the_configuration_is_that_of_service_and_policy() {
    let listen = keys("deploy/controller/base/controller.toml")["listen"].as_str().unwrap().to_owned();
    let port: u16 = listen.rsplit(':').next().unwrap().parse().unwrap();
    let container = of_controller("Deployment")["spec"]["template"]["spec"]["containers"][0].clone();
    assert_eq!(container["ports"][0]["containerPort"], port);
    assert_eq!(of_controller("Service")["spec"]["ports"][0]["targetPort"], port);
    assert_eq!(of_controller("NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"], port);
}

/// A process of the network namespace can take every place on the port.
#[test]
fn probes_ask_a_socket_that_only_the_pod_has() {
    let pod = of_controller("Deployment")["spec"]["template"]["spec"].clone();
    let container = &pod["containers"][0];
    let command = |probe: &str| container[probe]["exec"]["command"].clone();
    assert_eq!(command("livenessProbe"), serde_json::json!(["hostler-controller", "ready", "--alive"]));
    assert_eq!(command("readinessProbe"), serde_json::json!(["hostler-controller", "ready"]));
    let mounts = container["volumeMounts"].as_array().unwrap();
    let run = mounts.iter().find(|mount| mount["name"] == "run").unwrap()["mountPath"].as_str().unwrap();
    let is_own = |volume: &&Value| volume["name"] == "run" && volume["emptyDir"]["medium"] == "Memory";
    assert!(pod["volumes"].as_array().unwrap().iter().any(|volume| is_own(&volume)));
    let installed = fs::read_to_string(deploy().join("../systemd/controller.toml")).unwrap();
    assert!(installed.contains(&format!("#probe_socket = \"{run}/probe.sock\"")), "{installed}");
}

#[test]
fn the_controller_has_no_power_over_its_host() {
    let pod = of_controller("Deployment")["spec"]["template"]["spec"].clone();
    for power in ["hostNetwork", "hostPID", "hostIPC"] {
        assert_eq!(pod[power], Value::Null, "{power}");
    }
    assert_eq!(
        (&pod["securityContext"]["runAsNonRoot"], &pod["securityContext"]["seccompProfile"]["type"]),
        (&true.into(), &"RuntimeDefault".into())
    );
    let context = &pod["containers"][0]["securityContext"];
    assert_eq!(
        (&context["allowPrivilegeEscalation"], &context["readOnlyRootFilesystem"], &context["capabilities"]["drop"]),
        (&false.into(), &true.into(), &serde_json::json!(["ALL"]))
    );
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().all(|volume| volume["hostPath"].is_null()), "{volumes:?}");
    let namespace = of_controller("Namespace");
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
}

/// The role may write the Lease and the sums, make reviews, and change nothing else in the cluster.
#[test]
fn the_role_of_the_controller_changes_nothing_of_others() {
    let documents = documents(&deploy().join("controller/base/rbac.yaml"));
    let rules = documents.iter().flat_map(|object| object["rules"].as_array().cloned().unwrap_or_default());
    let own = ["leases", "clusterhardware", "clusterhardware/status", "tokenreviews", "subjectaccessreviews"];
    let mut writes = 0;
    for rule in rules {
        let words = |field: &str| -> Vec<String> { serde_json::from_value(rule[field].clone()).unwrap() };
        assert!(!words("verbs").contains(&"*".to_owned()) && !words("resources").contains(&"*".to_owned()), "{rule}");
        if words("verbs").iter().any(|verb| !["get", "list", "watch"].contains(&verb.as_str())) {
            writes += 1;
            assert!(words("resources").iter().all(|resource| own.contains(&resource.as_str())), "{rule}");
        }
    }
    assert_eq!(writes, 6);
}

/// The file that `make install` installs has the values that are in force without it, except those that only a host
/// has.
#[test]
fn the_installed_configuration_names_every_key() {
    let installed = keys("systemd/controller.toml");
    for section in ["capabilities", "fabric", "provisioning", "reservations", "webhook", "lease", "log"] {
        assert!(installed[section].is_table(), "{section}");
    }
    let unit = fs::read_to_string(deploy().join("../systemd/hostler-controller.service")).unwrap();
    let kubeconfig = installed["kubeconfig"].as_str().unwrap();
    assert_eq!(kubeconfig, "/run/credentials/hostler-controller.service/kubeconfig");
    assert!(unit.contains("LoadCredential=kubeconfig:"), "{unit}");
}

/// The API server finds the webhook, and no claim ever waits for it.
#[test]
fn the_webhook_is_where_the_configuration_says_and_nobody_depends_on_it() {
    let all = yaml_files(&deploy().join("holds/webhook")).into_iter().flat_map(|path| documents(&path));
    let all: Vec<Value> = all.collect();
    let of = |kind: &str| all.iter().find(|object| object["kind"] == kind).unwrap();
    let configuration = of("MutatingWebhookConfiguration");
    let webhook = &configuration["webhooks"][0];
    assert_eq!((&webhook["failurePolicy"], &webhook["timeoutSeconds"]), (&"Ignore".into(), &1.into()));
    let (service, named) = (of("Service"), &webhook["clientConfig"]["service"]);
    for field in ["name", "namespace"] {
        assert_eq!(named[field], service["metadata"][field], "{field}");
    }
    assert_eq!(named["port"], service["spec"]["ports"][0]["port"]);
    let deployment = of_controller("Deployment");
    assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);
    let listen = keys("deploy/controller/base/controller.toml")["webhook"]["listen"].as_str().unwrap().to_owned();
    let port: u16 = listen.rsplit(':').next().unwrap().parse().unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], port);
    assert_eq!(of("NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"], port);
    let default = keys("systemd/controller.toml");
    for (key, object) in [("configuration", configuration), ("service", service)] {
        assert_eq!(default["webhook"][key].as_str(), object["metadata"]["name"].as_str(), "{key}");
    }
}

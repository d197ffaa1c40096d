//! What the tests of the running controller have in common.

use std::{
    fs,
    path::{Path, PathBuf},
};

use hostler_testing::{
    apiserver::{ApiServer, ApiServerRelease},
    controller::ControllerOptions,
};
use serde_json::{Value, json};

/// As whom the controller runs in a cluster.
pub(crate) const USER: &str = "system:serviceaccount:hostler-controller:hostler-controller";

/// The source tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A controller for a server, with the defaults.
pub(crate) fn options(server: &ApiServer) -> ControllerOptions {
    ControllerOptions {
        binary: env!("CARGO_BIN_EXE_hostler-controller").into(),
        kubeconfig: server.kubeconfig(USER),
        config: String::new(),
        ..ControllerOptions::default()
    }
}

/// Installs our kinds, and the controller's namespace.
pub(crate) fn install(server: &ApiServer) {
    server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostler-controller" } }));
    for file in ["nodehardware.yaml", "clusterhardware.yaml"] {
        let text = fs::read_to_string(root().join("deploy/crds").join(file)).unwrap();
        for definition in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            server.create(definition);
        }
    }
}

/// Installs taints for devices of others, which a server of these tests has not by itself.
pub(crate) fn install_rules_for_devices(server: &ApiServer) {
    let version = json!({
        "name": "v1alpha3", "served": true, "storage": true,
        "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
    });
    server.create(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "devicetaintrules.resource.k8s.io" },
        "spec": {
            "group": "resource.k8s.io", "scope": "Cluster", "versions": [version],
            "names": { "kind": "DeviceTaintRule", "listKind": "DeviceTaintRuleList", "plural": "devicetaintrules", "singular": "devicetaintrule" },
        },
    }));
}

/// A slice with one device.
pub(crate) fn slice(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": name },
        "spec": {
            "driver": "hostler.dev", "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "cpu-0" }],
        },
    })
}

/// The same, as a server of 1.33 takes it.
pub(crate) fn slice_of(release: ApiServerRelease, name: &str) -> Value {
    let mut slice = slice(name, "n");
    if release == ApiServerRelease::V1_33 {
        slice["apiVersion"] = json!("resource.k8s.io/v1beta2");
    }
    slice
}

/// A line of the figures.
pub(crate) fn objects(kind: &str, count: usize) -> String {
    format!("hostler_controller_objects{{kind=\"{kind}\"}} {count}")
}

//! A cluster for questions about one pod: an API server, a node with two devices, and objects that tests add.

#![allow(clippy::needless_pass_by_value, reason = "a test hands over what json!() has made")]

use std::{fs, path::PathBuf};

use hostler_testing::apiserver::{ApiServer, ApiServerOptions, ApiServerRelease, PolicyRule};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{link, plugin};
use crate::rig::{install, install_rules_for_devices, root};

/// A user with all rights.
pub(super) const OPERATOR: &str = "operator";

/// A cluster, and a folder with the plugin.
pub(super) struct PluginScene {
    pub(super) server: ApiServer,
    pub(super) folder: TempDir,
}

/// The answer of a command.
pub(super) struct Said {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl PluginScene {
    /// An API server with hostler's kinds.
    pub(super) async fn empty(release: ApiServerRelease) -> Self {
        let server = ApiServer::start(ApiServerOptions { release, ..ApiServerOptions::default() }).await;
        install(&server);
        install_rules_for_devices(&server);
        server.create_yaml(&fs::read_to_string(root().join("deploy/crds/reservations.yaml")).unwrap());
        server.create(hostler_testing::provisioning::definition(&["v1"]));
        let folder = tempfile::tempdir().unwrap();
        link(folder.path());
        Self { server, folder }
    }

    /// The same with node n1, which has the devices a and b of class gpu.
    pub(super) async fn new() -> Self {
        let scene = Self::empty(ApiServerRelease::V1_36).await;
        scene.put(node("n1"));
        scene.put(class("gpu"));
        scene.put(slice("n1", json!([{"name": "a"}, {"name": "b"}])));
        scene
    }

    /// Creates an object, with its status.
    pub(super) fn put(&self, object: Value) -> Value {
        let status = object.get("status").cloned();
        let created = self.server.create(object);
        let text = |field: &str| created["metadata"][field].as_str().unwrap_or_default().to_owned();
        let plural = match created["kind"].as_str().unwrap() {
            "NodeHardware" => "nodehardware".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let path = match &*text("namespace") {
            "" => text("name"),
            namespace => format!("{namespace}/{}", text("name")),
        };
        status.map_or(created, |status| self.server.set_status(&plural, &path, status))
    }

    pub(super) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.server.kubeconfig(user)
    }

    /// Runs the plugin in namespace ml, as an operator.
    pub(super) async fn ask(&self, args: &[&str]) -> Said {
        self.ask_as(OPERATOR, args).await
    }

    /// Runs the plugin in namespace ml, as a user.
    pub(super) async fn ask_as(&self, user: &str, args: &[&str]) -> Said {
        let mut command = plugin(self.folder.path(), args);
        command.env("KUBECONFIG", with_namespace(&self.kubeconfig(user), "ml"));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Allows a user to read some kinds, and nothing else.
    pub(super) fn allow(&self, user: &str, groups: &[&str], resources: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
        let verbs = owned(&["get", "list", "watch"]);
        let rule =
            PolicyRule { api_groups: owned(groups), resources: owned(resources), verbs, ..PolicyRule::default() };
        self.server.allow(user, vec![rule]);
    }
}

/// Writes the namespace into the context of a kubeconfig.
pub(super) fn with_namespace(path: &PathBuf, namespace: &str) -> PathBuf {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    config["contexts"][0]["context"]["namespace"] = namespace.into();
    let path = path.with_extension(namespace);
    fs::write(&path, config.to_string()).unwrap();
    path
}

pub(super) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A class of the devices of driver `NAME.example`.
pub(super) fn class(name: &str) -> Value {
    let selector = json!({"cel": {"expression": format!("device.driver == '{name}.example'")}});
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
        "spec": {"selectors": [selector]},
    })
}

/// Devices of driver gpu.example on a node.
pub(super) fn slice(node: &str, devices: Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-gpu")},
        "spec": {
            "driver": "gpu.example", "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    })
}

/// Pod ml/train with claim gpu, of which `spec` and `status` are completed.
pub(super) fn pod(spec: Value, status: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train", "namespace": "ml", "labels": {"app": "train"}},
        "spec": {
            "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "train-gpu"}],
        },
        "status": {"phase": "Pending"},
    });
    for (part, more) in [("spec", spec), ("status", status)] {
        pod[part].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    pod
}

/// Claim ml/NAME with one request, completed by `request`.
pub(super) fn claim(name: &str, request: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    exactly.as_object_mut().unwrap().extend(request.as_object().unwrap().clone());
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "ml"},
        "spec": {"devices": {"requests": [{"name": "one", "exactly": exactly}]}},
    })
}

/// The same, allocated to a pod.
pub(super) fn given(name: &str, device: &str, pod: &str) -> Value {
    let mut claim = claim(name, json!({}));
    let result = json!({"request": "one", "driver": "gpu.example", "pool": "n1", "device": device});
    claim["status"] = json!({
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": format!("uid-of-{pod}")}],
    });
    claim
}

/// An Event about pod ml/train.
pub(super) fn event(writer: &str, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("train.{reason}").to_lowercase(), "namespace": "ml"},
        "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train"},
        "type": "Warning", "reason": reason, "message": message, "source": {"component": writer},
        "reportingComponent": writer, "reportingInstance": "n1",
        "firstTimestamp": "2026-11-01T10:00:00Z", "lastTimestamp": "2026-11-01T10:00:00Z", "count": 1,
    })
}

/// A Reservation for an owner, made and kept; returns the value of the taint that keeps devices for it.
pub(super) fn reserve(scene: &PluginScene, name: &str, owner: Value) -> String {
    let made = scene.server.create(json!({
        "apiVersion": "hostler.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": name},
        "spec": {"ttl": "0", "owners": [owner], "template": {"spec": {"containers": []}}},
    }));
    // FNV-1a of the UID: what docs/reservations.md calls the value of the toleration.
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let hash = uid
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let value = format!("{hash:016x}");
    let status = json!({"phase": "Available", "tolerationValue": value, "held": 1});
    scene.server.set_status("reservations", name, status);
    value
}

/// A device that is kept.
pub(super) fn kept(name: &str, value: &str) -> Value {
    json!({"name": name, "taints": [{"key": "hostler.dev/held", "value": value, "effect": "NoSchedule"}]})
}

/// A device that its driver has put out of service.
pub(super) fn out_of_service(name: &str, reason: &str, value: &str) -> Value {
    json!({"name": name, "taints": [{"key": format!("gpu.example/{reason}"), "value": value, "effect": "NoSchedule"}]})
}

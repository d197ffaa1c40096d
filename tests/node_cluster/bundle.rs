//! An installation in a real cluster: applied and deleted with kubectl, read as its users read it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use hostler_testing::{
    binary::{binary, controller_binary, tool},
    real_node::{RealNode, eventually},
    skip::skipped,
};
use serde_json::{Value, json};

use super::image::Image;

pub const RESOURCE: &str = "/apis/resource.k8s.io/v1";
const DAEMON: &str = "/apis/apps/v1/namespaces/hostler-system/daemonsets/hostler";
const PODS: &str = "/api/v1/namespaces/hostler-system/pods";
const IMAGES: &str = "HOSTLER_IMAGES";
/// The registry path of images without a registry.
const LIBRARY: &str = "docker.io/library";

/// Kinds that bundles need and other programs bring: group, kind, plural, version, scope.
const KINDS: [[&str; 5]; 3] = [
    ["monitoring.coreos.com", "PodMonitor", "podmonitors", "v1", "Namespaced"],
    ["monitoring.coreos.com", "PrometheusRule", "prometheusrules", "v1", "Namespaced"],
    ["topology.node.k8s.io", "NodeResourceTopology", "noderesourcetopologies", "v1alpha2", "Cluster"],
];

/// A node that has the images, and nothing of hostler yet.
pub struct Installation {
    pub node: RealNode,
    kubectl: PathBuf,
}

impl Installation {
    /// Returns the node of a cluster of 1.34 or later, when it is this test's turn.
    pub fn find() -> Option<Self> {
        Self::on(RealNode::find_modern()?)
    }

    /// Returns the node of a cluster of 1.31.
    pub fn find_classic() -> Option<Self> {
        let is_classic = |versions: &[String]| versions == ["v1alpha3"];
        Self::on(RealNode::find(is_classic, "the cluster is none of 1.31 with classic DRA")?)
    }

    fn on(node: RealNode) -> Option<Self> {
        let Some(kubectl) = tool("kubectl") else {
            skipped("there is no kubectl on the PATH, or where tools/deps.sh puts it");
            return None;
        };
        if !node.imports_images() {
            skipped("the node's folder has no program `import`");
            return None;
        }
        let cluster = Self { node, kubectl };
        cluster.import_images();
        cluster.begin_anew();
        Some(cluster)
    }

    /// Imports the images of this version, and a second one of the daemon. `HOSTLER_IMAGES` names the folder of those
    /// that `make image` built; without it the binaries that were built with the tests are put into images.
    fn import_images(&self) {
        let folder = tempfile::tempdir().unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let released = env::var_os(IMAGES).map(PathBuf::from);
        let daemon = |tag: &str, revision| Image {
            name: format!("{LIBRARY}/hostler:{tag}"),
            binary: binary(),
            place: "/usr/bin/hostler",
            user: "",
            revision,
        };
        let controller = Image {
            name: format!("{LIBRARY}/hostler-controller:{version}"),
            binary: controller_binary(),
            place: "/usr/bin/hostler-controller",
            user: "65532:65532",
            revision: "first",
        };
        let made = if released.is_some() {
            vec![daemon("second", "second")]
        } else {
            vec![daemon(version, "first"), daemon("second", "second"), controller]
        };
        for image in made {
            let path = folder.path().join("image.tar");
            image.write(&path);
            self.node.import_image(&path);
        }
        if let Some(folder) = released {
            for program in ["hostler", "hostler-controller"] {
                self.node.import_image(&folder.join(format!("{program}_{version}.oci.tar")));
            }
        }
    }

    /// Deletes the rest of an earlier test that failed.
    fn begin_anew(&self) {
        for (namespace, bundle) in [("hostler-system", "deploy"), ("hostler-controller", "deploy/holds/repair")] {
            if self.node.get(&format!("/api/v1/namespaces/{namespace}")).is_some() {
                let _ = self.kubectl(&["delete", "--ignore-not-found", "-k", bundle]);
            }
        }
    }

    pub fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.kubectl).args(args).env("KUBECONFIG", self.node.kubeconfig()).output().unwrap();
        let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        if output.status.success() { Ok(out) } else { Err(error) }
    }

    /// Applies a bundle as the documentation says.
    pub fn apply(&self, folder: &Path) {
        let applied = self.kubectl(&["apply", "-k", folder.to_str().unwrap()]);
        applied.unwrap_or_else(|error| panic!("kubectl apply -k {}: {error}", folder.display()));
    }

    pub fn delete(&self, folder: &Path) {
        let deleted = self.kubectl(&["delete", "--ignore-not-found", "-k", folder.to_str().unwrap()]);
        deleted.unwrap_or_else(|error| panic!("kubectl delete -k {}: {error}", folder.display()));
    }

    /// Deletes the objects of a component, but not the daemon.
    pub fn delete_component(&self, folder: &Path) {
        let built = self.kubectl(&["kustomize", folder.to_str().unwrap()]).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&built).unwrap();
        let base = self.kubectl(&["kustomize", "deploy"]).unwrap();
        let base: Vec<Value> = serde_saphyr::from_multiple(&base).unwrap();
        let name = |object: &Value| (object["kind"].clone(), object["metadata"]["name"].clone());
        let known: Vec<_> = base.iter().map(name).collect();
        for object in objects.iter().filter(|object| !known.contains(&name(object))) {
            let (kind, name) = name(object);
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
            let args =
                ["delete", "--ignore-not-found", "-n", namespace, kind.as_str().unwrap(), name.as_str().unwrap()];
            self.kubectl(&args).unwrap();
        }
    }

    /// Installs kinds that other operators bring.
    pub fn others_kinds(&self) {
        for [group, kind, plural, version, scope] in KINDS {
            self.define(group, kind, plural, version, scope);
        }
    }

    /// Waits until the object for topology-aware schedulers is complete.
    pub fn until_topology_is_told(&self) {
        let path = format!("/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{}", self.node.name());
        eventually("a NodeResourceTopology with zones", || {
            self.node.get(&path)?["zones"][0]["name"].is_string().then_some(())
        });
    }

    pub fn define(&self, group: &str, kind: &str, plural: &str, version: &str, scope: &str) {
        let name = format!("{plural}.{group}");
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {
                "name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
            },
            "spec": {
                "group": group, "scope": scope, "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": version, "served": true, "storage": true, "schema": schema}],
            },
        });
        let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        if self.node.get(&format!("{all}/{name}")).is_none() {
            self.node.create(all, &definition);
        }
        eventually(&format!("{kind} to be served"), || self.node.get(&format!("/apis/{group}/{version}/{plural}")));
    }

    /// Waits until every node has a ready daemon of an image with this tag, and no other, and its devices are
    /// published.
    pub fn until_daemons_are(&self, tag: &str) {
        eventually(&format!("ready daemons of {tag}"), || {
            let set = self.node.get(DAEMON)?;
            let status = &set["status"];
            let wanted = &status["desiredNumberScheduled"];
            let all = ["updatedNumberScheduled", "numberReady", "numberAvailable"];
            let is_done = status["observedGeneration"] == set["metadata"]["generation"]
                && *wanted != json!(0)
                && all.iter().all(|field| status[field] == *wanted);
            let pods = self.node.get(PODS)?["items"].as_array()?.clone();
            let crashed = pods.iter().find(|pod| restarts(pod) > 2);
            assert!(crashed.is_none(), "{}", self.told(crashed.unwrap()));
            let is_tagged = |pod: &Value| {
                pod["spec"]["containers"][0]["image"].as_str().is_some_and(|it| it.ends_with(&format!(":{tag}")))
            };
            (is_done && json!(pods.len()) == *wanted && pods.iter().all(is_tagged)).then_some(())
        });
    }

    /// Waits until the devices of the node are published.
    pub fn until_published(&self) {
        eventually("slices", || (!self.slices().is_empty()).then_some(()));
    }

    /// Returns the log and status of a pod that does not stay.
    pub fn told(&self, pod: &Value) -> String {
        let (namespace, name) =
            (pod["metadata"]["namespace"].as_str().unwrap(), pod["metadata"]["name"].as_str().unwrap());
        let log = self.kubectl(&["logs", "-p", "-n", namespace, name]).unwrap_or_else(|error| error);
        format!("{name} does not stay: {log}\n{}", pod["status"])
    }

    pub fn slices(&self) -> Vec<Value> {
        let slices = self.node.get(&format!("{RESOURCE}/resourceslices"));
        let slices = slices.and_then(|all| all["items"].as_array().cloned()).unwrap_or_default();
        slices.into_iter().filter(|slice| slice["spec"]["driver"] == "hostler.dev").collect()
    }

    /// Creates a template for claims of one CPU.
    pub fn claim_template(&self) {
        let collection = self.node.of(RESOURCE, "resourceclaimtemplates");
        if self.node.get(&format!("{collection}/cpu")).is_none() {
            let request = json!({"name": "cpu", "exactly": {
                "deviceClassName": "cpu.hostler.dev", "capacity": {"requests": {"cpus": "1"}},
            }});
            self.node.create(
                &collection,
                &json!({
                    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "cpu"},
                    "spec": {"spec": {"devices": {"requests": [request]}}},
                }),
            );
        }
    }

    /// Creates a pod with a claim of one CPU, and waits until its container runs.
    pub fn run_pod(&self, name: &str) -> u32 {
        self.node.run_pod(name, &[json!({"name": "cpu", "resourceClaimTemplateName": "cpu"})], &Value::Null);
        eventually(&format!("the container of {name}"), || self.node.pid(name))
    }

    pub fn end_pod(&self, name: &str) {
        let path = self.node.of("/api/v1", &format!("pods/{name}"));
        // Not at once: then the scheduler would give its devices to others before the kubelet has taken them back.
        self.node.delete(&path, 1);
        eventually(&format!("{name} to be gone"), || self.node.get(&path).is_none().then_some(()));
    }

    /// Runs a pod with a claim on its one CPU, and checks that its devices are taken back.
    pub fn prepares_a_claim(&self) {
        self.claim_template();
        let pid = self.run_pod("a");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
        assert!(cpus.parse::<u32>().is_ok(), "{cpus} is not one CPU");
        assert!(!self.cdi_files().is_empty());
        self.end_pod("a");
        eventually("the claim to be taken back", || self.cdi_files().is_empty().then_some(()));
    }

    fn cdi_files(&self) -> Vec<String> {
        names(&self.node.folder().join("cdi"), |name| name.starts_with("hostler.dev-"))
    }

    /// Waits until everything is gone that must go with the bundles. Records and the binary for hooks stay on the host,
    /// for the next installation.
    pub fn nothing_is_left(&self) {
        let is_gone = |path: &str| self.node.get(path).is_none();
        let objects = [
            "/api/v1/namespaces/hostler-system",
            "/api/v1/namespaces/hostler-controller",
            "/apis/hostler.dev",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/hostler",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/hostler",
            &format!("{RESOURCE}/deviceclasses/cpu.hostler.dev"),
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/hostler-hardware-of-own-node",
        ];
        for object in objects {
            eventually(&format!("{object} to be gone"), || is_gone(object).then_some(()));
        }
        // The kubelet's own work, half a minute after the driver has gone.
        eventually("the slices to be gone", || self.slices().is_empty().then_some(()));
        assert_eq!(self.cdi_files(), Vec::<String>::new());
        let kubelet = self.node.folder().join("kubelet");
        let is_socket = |name: &str| name.ends_with(".sock");
        let ours = |name: &str| name.contains("hostler.dev") && is_socket(name);
        assert_eq!(names(&kubelet.join("plugins_registry"), ours), Vec::<String>::new());
        assert_eq!(names(&kubelet.join("plugins/hostler.dev"), is_socket), Vec::<String>::new());
    }
}

fn names(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| wanted(name)).collect()
}

pub fn restarts(pod: &Value) -> u64 {
    let of = |status: &Value| status["restartCount"].as_u64().unwrap_or_default();
    pod["status"]["containerStatuses"].as_array().into_iter().flatten().map(of).sum()
}

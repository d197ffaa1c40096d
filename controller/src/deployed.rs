//! Objects that are deployed: those of a cluster, or those of manifests.

mod expected;
mod program_version;
mod read;
mod rights;

use serde_json::Value;

pub(crate) use self::{
    expected::{DEFINITIONS, ExpectedManifest, ROLES},
    program_version::{ProgramVersion, VersionStep},
    read::DeployedReader,
    rights::{RoleRight, rights},
};

/// The namespace of the daemons.
pub(crate) const DAEMON_NAMESPACE: &str = "hostler-system";

/// The namespace of the controller.
pub(crate) const CONTROLLER_NAMESPACE: &str = "hostler-controller";

/// Both programs: kind of the workload, its plural, namespace and name.
pub(crate) const WORKLOADS: [(&str, &str, &str, &str); 2] = [
    ("DaemonSet", "daemonsets", DAEMON_NAMESPACE, "hostler"),
    ("Deployment", "deployments", CONTROLLER_NAMESPACE, "hostler-controller"),
];

/// A configuration of a workload.
pub(crate) struct DeployedConfig<'a> {
    /// Name of the ConfigMap.
    pub(crate) map: &'a str,
    /// Text of the file.
    pub(crate) text: &'a str,
}

/// Everything that was read.
#[derive(Debug, Default)]
pub(crate) struct DeployedObjects {
    /// Minor release of the API server; `None` for manifests.
    pub(crate) minor: Option<u32>,
    /// True if the API server serves a version of `resource.k8s.io` that hostler speaks; `None` for manifests.
    pub(crate) serves_claims: Option<bool>,
    /// Objects, each with `apiVersion` and `kind`.
    pub(crate) objects: Vec<Value>,
}

impl DeployedObjects {
    /// True if what was not read is not there.
    pub(crate) fn is_cluster(&self) -> bool {
        self.serves_claims.is_some()
    }

    /// Returns the objects of a kind.
    pub(crate) fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// Returns an object.
    pub(crate) fn named<'a>(&'a self, kind: &'a str, name: &str) -> Option<&'a Value> {
        self.of(kind).find(|object| name_of(object) == name)
    }

    /// Returns the workload of a kind.
    pub(crate) fn workload(&self, kind: &str) -> Option<&Value> {
        let (.., name) = WORKLOADS.iter().find(|(known, ..)| *known == kind)?;
        self.objects.iter().find(|it| it["kind"] == kind && name_of(it) == *name)
    }

    /// Returns a file of the ConfigMap that the workload of a kind mounts.
    pub(crate) fn configuration(&self, kind: &str, file: &str) -> Option<DeployedConfig<'_>> {
        let volumes = list(&self.workload(kind)?["spec"]["template"]["spec"]["volumes"]);
        let maps = volumes.filter_map(|volume| volume["configMap"]["name"].as_str());
        let map = |name| self.named("ConfigMap", name).and_then(|map| Some((name, map["data"][file].as_str()?)));
        let (map, text) = maps.filter_map(map).next()?;
        Some(DeployedConfig { map, text })
    }

    /// True if something of the kind is known to be absent: in manifests, only if others of the kind are there.
    pub(crate) fn lacks(&self, kind: &str, name: &str) -> bool {
        self.named(kind, name).is_none() && (self.is_cluster() || self.of(kind).next().is_some())
    }
}

/// Returns the name of an object.
pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the elements of a list; none for what is no list.
pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the texts of a list.
pub(crate) fn texts(value: &Value) -> impl Iterator<Item = &str> {
    list(value).filter_map(Value::as_str)
}

//! ProvisioningRequests as clusters know them and as batch systems write them: the kind, and what Kueue makes of a
//! workload that waits for room.

use serde_json::{Map, Value, json};

const DEFINITION: &str = include_str!("../kinds/provisioningrequests.yaml");
/// Prefix of parameters in Kueue's annotations.
const PARAMETER_PREFIX: &str = "provreq.kueue.x-k8s.io/";

/// The definition of the kind, served in these versions; the first is stored.
///
/// # Panics
///
/// If there is no version.
pub fn definition(versions: &[&str]) -> Value {
    let mut definition: Value = serde_saphyr::from_str(DEFINITION).expect("the file is read by this test");
    let of_version = |(at, name): (usize, &&str)| {
        let mut version = definition["spec"]["versions"][0].clone();
        (version["name"], version["storage"]) = (json!(name), json!(at == 0));
        if name.contains("beta") {
            version["deprecated"] = json!(true);
        }
        version
    };
    assert!(!versions.is_empty(), "a kind has versions");
    let versions: Vec<Value> = versions.iter().enumerate().map(of_version).collect();
    definition["spec"]["versions"] = json!(versions);
    definition
}

/// A workload of Kueue that waits for its check.
#[derive(Clone, Debug)]
pub struct KueueWorkload<'a> {
    /// The name; requests and templates are named after it.
    pub name: &'a str,
    /// The class that the check's configuration names.
    pub class: &'a str,
    /// The parameters of the check's configuration.
    pub parameters: &'a [(&'a str, &'a str)],
    /// The workload's own parameters, which its users write into annotations of the job.
    pub annotations: &'a [(&'a str, &'a str)],
    /// The template of each pod.
    pub pod: Value,
    /// Number of pods.
    pub pods: usize,
}

impl KueueWorkload<'_> {
    /// The name of the request of an attempt.
    pub fn request_name(&self, attempt: usize) -> String {
        format!("job-{}-room-{attempt}", self.name)
    }

    /// The request of an attempt: the workload's, as it is written first.
    pub fn request(&self, attempt: usize) -> Value {
        let name = self.request_name(attempt);
        // What users write goes before what the check's configuration says.
        let all = self.parameters.iter().chain(self.annotations);
        let parameters: Map<String, Value> = all.map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let mut metadata = metadata(&name);
        metadata["ownerReferences"] = owners("kueue.x-k8s.io/v1beta1", "Workload", &format!("job-{}", self.name), "w");
        json!({
            "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": metadata,
            "spec": {
                "provisioningClassName": self.class, "parameters": parameters,
                "podSets": [{ "podTemplateRef": { "name": template_name(&name) }, "count": self.pods }],
            },
        })
    }

    /// The template of the pods of a request, which is the request's: it is written once that is there.
    pub fn template(&self, request: &Value) -> Value {
        let text = |field: &str| request["metadata"][field].as_str().unwrap_or_default();
        let mut metadata = metadata(&template_name(text("name")));
        metadata["ownerReferences"] =
            owners("autoscaling.x-k8s.io/v1", "ProvisioningRequest", text("name"), text("uid"));
        let annotations: Map<String, Value> =
            self.annotations.iter().map(|(key, value)| (format!("{PARAMETER_PREFIX}{key}"), json!(value))).collect();
        let of_pods = json!({
            "labels": { "batch.kubernetes.io/job-name": self.name, "kueue.x-k8s.io/podset": "main" },
            "annotations": annotations,
        });
        json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata,
            "template": { "metadata": of_pods, "spec": self.pod },
        })
    }
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "labels": { "kueue.x-k8s.io/managed": "true" } })
}

fn template_name(request: &str) -> String {
    format!("ppt-{request}-main")
}

fn owners(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true,
    }])
}

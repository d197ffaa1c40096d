//! Objects that make pods: the template of their pods, and the wanted number.

use hostler_api::ObjectKey;
use hostler_api::core::{ObjectMeta, OwnerReference, PodTemplateSpec};
use serde::Deserialize;

/// Labels of the pods of a Job, with its name.
const JOB_NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// A workload.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// `Deployment`, and others.
    pub(crate) kind: &'static str,
    /// Namespace and name.
    pub(crate) key: ObjectKey,
    /// Number of pods that the workload wants at a time.
    pub(crate) wanted: u32,
    /// The template of its pods.
    pub(crate) template: PodTemplateSpec,
    /// The owner of the workload.
    pub(crate) owner: Option<OwnerReference>,
    /// A field of the workload that planning does not judge, in words.
    pub(crate) unseen: Option<&'static str>,
}

/// A Deployment, ReplicaSet, StatefulSet or ReplicationController.
#[derive(Debug, Deserialize)]
pub(super) struct ReplicatedWorkload {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: ReplicatedSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplicatedSpec {
    replicas: Option<u32>,
    template: PodTemplateSpec,
    #[serde(default)]
    volume_claim_templates: Option<Vec<serde_json::Value>>,
}

impl ReplicatedWorkload {
    pub(super) fn workload(self, kind: &'static str, key: ObjectKey) -> Workload {
        let Self { metadata, spec } = self;
        let has_storage = spec.volume_claim_templates.is_some_and(|templates| !templates.is_empty());
        let unseen = has_storage.then_some("where its volumes can be is not looked at");
        let owner = controller_of(&metadata).cloned();
        Workload { kind, key, wanted: spec.replicas.unwrap_or(1), template: spec.template, owner, unseen }
    }
}

/// A Job.
#[derive(Debug, Deserialize)]
pub(super) struct Job {
    spec: JobSpec,
    #[serde(default)]
    status: JobStatus,
}

#[derive(Debug, Deserialize)]
struct JobSpec {
    parallelism: Option<u32>,
    completions: Option<u32>,
    #[serde(default)]
    suspend: Option<bool>,
    template: PodTemplateSpec,
}

#[derive(Debug, Default, Deserialize)]
struct JobStatus {
    #[serde(default)]
    succeeded: u32,
}

impl JobSpec {
    /// Returns the number of pods wanted: a job runs no more at a time than it still needs.
    fn wanted(&self, succeeded: u32) -> u32 {
        let at_once = self.parallelism.unwrap_or(1);
        match self.completions {
            _ if self.suspend == Some(true) => 0,
            Some(completions) => at_once.min(completions.saturating_sub(succeeded)),
            None => at_once,
        }
    }
}

impl Job {
    pub(super) fn workload(self, key: ObjectKey) -> Workload {
        let wanted = self.spec.wanted(self.status.succeeded);
        let mut template = self.spec.template;
        // The job controller gives its pods the name of their job.
        template.metadata.labels.extend(JOB_NAME_LABELS.map(|label| (label.to_owned(), key.name.clone())));
        Workload { kind: "Job", key, wanted, template, owner: None, unseen: None }
    }
}

/// A CronJob; it is planned once, as its next job.
#[derive(Debug, Deserialize)]
pub(super) struct CronJob {
    spec: CronJobSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CronJobSpec {
    #[serde(default)]
    suspend: Option<bool>,
    job_template: JobTemplate,
}

#[derive(Debug, Deserialize)]
struct JobTemplate {
    spec: JobSpec,
}

impl CronJob {
    pub(super) fn workload(self, key: ObjectKey) -> Workload {
        let job = self.spec.job_template.spec;
        let wanted = if self.spec.suspend == Some(true) { 0 } else { job.wanted(0) };
        Workload { kind: "CronJob", key, wanted, template: job.template, owner: None, unseen: None }
    }
}

/// Returns the owner that makes the object anew when it is gone.
pub(super) fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.first()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(spec: &serde_json::Value, succeeded: u32) -> u32 {
        let job = json!({ "metadata": { "name": "j" }, "spec": spec, "status": { "succeeded": succeeded } });
        serde_json::from_value::<Job>(job).unwrap().workload(ObjectKey::default()).wanted
    }

    #[test]
    fn a_job_wants_what_it_runs_at_a_time_and_still_needs() {
        let of = |fields: serde_json::Value| {
            let mut spec = json!({ "template": {} });
            spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            spec
        };
        assert_eq!(wanted(&of(json!({})), 0), 1);
        assert_eq!(wanted(&of(json!({ "parallelism": 4 })), 9), 4);
        assert_eq!(wanted(&of(json!({ "parallelism": 4, "completions": 10 })), 8), 2);
        assert_eq!(wanted(&of(json!({ "parallelism": 4, "completions": 10 })), 12), 0);
        assert_eq!(wanted(&of(json!({ "parallelism": 4, "suspend": true })), 0), 0);
    }
}

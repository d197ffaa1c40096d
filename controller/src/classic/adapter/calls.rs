//! Calls that the core asks for: reads of a pod, and writes of an object with their outcome.

use hostler_api::{
    Chain, ObjectKey,
    classic::{ClassicMeta, ClassicVersion},
    well_known::CONTROLLER_FIELD_MANAGER,
};
use hostler_cluster::{ApiClient, ApiFailure, Collection};
use hostler_reconcile::WriteOutcome;
use serde::Deserialize;
use serde_json::Value;

use super::kind::ClassicKind;
use crate::classic::{
    dialect::{ClassicDialect, ClassicPatch},
    event::{ClassicWrite, WriteTarget},
    model::PodFacts,
};

/// A request to the server.
#[derive(Debug)]
pub(super) enum ClassicCall {
    Pod(ObjectKey),
    /// Asks whether there is a claim with this UID.
    Claim(ObjectKey, String),
    Write(ClassicWrite),
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum CallAnswer {
    Pod(ObjectKey, Result<Option<PodFacts>, String>),
    Claim(String, Result<bool, String>),
    Written {
        target: WriteTarget,
        /// The kind of the write, in one word, for figures.
        what: &'static str,
        outcome: WriteOutcome,
        /// The object as it is now, if the server returned it.
        object: Option<Value>,
    },
}

/// Makes calls in one version.
#[derive(Clone, Debug)]
pub(super) struct ClassicCaller {
    pub(super) client: ApiClient,
    pub(super) dialect: ClassicDialect,
}

impl ClassicCaller {
    pub(super) async fn call(&self, call: ClassicCall) -> CallAnswer {
        match call {
            ClassicCall::Pod(key) => {
                let pod = self.pod(&key).await;
                CallAnswer::Pod(key, pod)
            }
            ClassicCall::Claim(key, uid) => {
                let is_there = self.has_claim(&key, &uid).await;
                CallAnswer::Claim(uid, is_there)
            }
            ClassicCall::Write(write) => {
                let (outcome, object) = self.write(&write).await;
                CallAnswer::Written { target: write.target(), what: what(&write), outcome, object }
            }
        }
    }

    async fn pod(&self, key: &ObjectKey) -> Result<Option<PodFacts>, String> {
        let pods = Collection::core("Pod", "pods").of(&key.namespace);
        let found = self.client.find::<Value>(&pods, &key.name).await.map_err(|failure| Chain(&failure).to_string())?;
        found.map(|pod| self.dialect.pod(&pod).map_err(|error| error.to_string())).transpose()
    }

    async fn has_claim(&self, key: &ObjectKey, uid: &str) -> Result<bool, String> {
        let claims = ClassicKind::Claim.collection(self.dialect.version).of(&key.namespace);
        match self.client.uid(&claims, &key.name).await {
            Ok(found) => Ok(found == uid),
            Err(failure) if failure.code() == Some(404) => Ok(false),
            Err(failure) => Err(Chain(&failure).to_string()),
        }
    }

    async fn write(&self, write: &ClassicWrite) -> (WriteOutcome, Option<Value>) {
        let patch = match self.dialect.patch(write) {
            Ok(patch) => patch,
            Err(error) => return (WriteOutcome::Refused(Chain(&error).to_string()), None),
        };
        match self.send(&write.target(), &patch).await {
            Ok(object) => {
                let dropped = self.dialect.dropped(write, &object);
                let outcome = dropped.map_or(WriteOutcome::Done, |fields| WriteOutcome::Dropped(fields.to_owned()));
                (outcome, Some(object))
            }
            Err(failure) => (WriteOutcome::of_failure(&failure), None),
        }
    }

    async fn send(&self, target: &WriteTarget, patch: &ClassicPatch) -> Result<Value, ApiFailure> {
        let (all, name) = self.place(target);
        match (patch.is_status, patch.is_apply) {
            (_, true) => self.client.apply_status(&all, name, CONTROLLER_FIELD_MANAGER, &patch.body).await,
            (true, false) => self.client.change_status(&all, name, CONTROLLER_FIELD_MANAGER, &patch.body).await,
            (false, false) if self.has_parameters(target) => self.keep(&all, name, &patch.body).await,
            (false, false) => self.client.change(&all, name, CONTROLLER_FIELD_MANAGER, &patch.body).await,
        }
    }

    /// Returns true if the object can have parameters: claims have them from 1.31 on. For a patch, the server would
    /// write the parameters anew without their spaces, and then refuse the patch since they have changed.
    fn has_parameters(&self, target: &WriteTarget) -> bool {
        self.dialect.version == ClassicVersion::V1Alpha3 && matches!(target, WriteTarget::Claim(_))
    }

    /// Writes the finalizers of a patch in the binary form, and leaves everything else as it is.
    async fn keep(&self, all: &Collection, name: &str, patch: &Value) -> Result<Value, ApiFailure> {
        let metadata = ClassicMeta::deserialize(&patch["metadata"]).unwrap_or_default();
        let change = (&*metadata.resource_version, &*metadata.finalizers);
        self.client.replace_finalizers(all, name, CONTROLLER_FIELD_MANAGER, change).await
    }

    fn place<'t>(&self, target: &'t WriteTarget) -> (Collection, &'t str) {
        let (kind, namespace, name) = match target {
            WriteTarget::Claim(key) => (ClassicKind::Claim, Some(&key.namespace), &key.name),
            WriteTarget::Context(key) => (ClassicKind::Context, Some(&key.namespace), &key.name),
            WriteTarget::Source(name) => (ClassicKind::Source, None, name),
            WriteTarget::Node(name) => (ClassicKind::Node, None, name),
        };
        let all = kind.collection(self.dialect.version);
        (namespace.into_iter().fold(all, |all, namespace| all.of(namespace)), name)
    }
}

fn what(write: &ClassicWrite) -> &'static str {
    match write {
        ClassicWrite::Finalizers(..) => "finalizers",
        ClassicWrite::Allocation(..) => "allocation",
        ClassicWrite::Deallocation(..) => "deallocation",
        ClassicWrite::Unsuitable { .. } => "unsuitable_nodes",
        ClassicWrite::Grants { .. } => "grants",
        ClassicWrite::Labels { .. } => "labels",
    }
}

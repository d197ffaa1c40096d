//! The calls that make a plan true, and the comparison of each answer with what was sent.

use std::sync::Arc;

use hostler_api::resource::{ApiVersion, ResourcePool, ResourceSliceSpec, SliceContent};
use hostler_cluster::{ApiClient, ApiFailure, ApiObject, Collection, ObjectVersion};
use hostler_reconcile::{
    ReconcileMoment,
    slices::{Dropped, Feature, PublishedSlice, SliceDeletion, SlicePlan, SliceWrite, dropped},
};
use serde_json::{Value, json};

use crate::view::ClusterView;

/// Features without which nothing is offered: a device would be given to a pod that it is never attached for, or to two.
pub(super) const NEEDED: [Feature; 2] = [Feature::Taints, Feature::Binding];

/// Makes the calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SliceCalls {
    pub(super) client: ApiClient,
    pub(super) driver: Arc<str>,
    pub(super) slices: Arc<Collection>,
}

/// Slices on the server after the calls of a plan.
#[derive(Debug, Default)]
pub(super) struct SliceAnswers {
    /// Slices that were written, by name.
    pub(super) written: Vec<(String, PublishedSlice)>,
    /// Slices that were deleted.
    pub(super) deleted: Vec<SliceDeletion>,
    /// Needed features of which the server was found to have them (empty), or not; `None`: it was not asked.
    pub(super) dropped: Option<Dropped>,
    /// The reason why not everything was done.
    pub(super) failure: Option<ApiFailure>,
    /// True if this process stopped to lead before everything was done.
    pub(super) is_interrupted: bool,
}

/// The slices of a version of the API.
pub(super) fn slices_of(version: ApiVersion) -> Collection {
    Collection::resource(version, "ResourceSlice", "resourceslices")
}

impl SliceCalls {
    /// Has the server check a slice with all needed features, without storing it; then makes the plan true. Deletions
    /// come last: until then the old slices serve.
    pub(super) async fn carry_out(
        self,
        plan: SlicePlan,
        example: Option<SliceContent>,
        now: ReconcileMoment<ClusterView>,
    ) -> SliceAnswers {
        let mut answers = SliceAnswers::default();
        let done = self.try_all(plan, example, &now, &mut answers).await;
        answers.failure = done.err();
        answers
    }

    async fn try_all(
        &self,
        plan: SlicePlan,
        example: Option<SliceContent>,
        now: &ReconcileMoment<ClusterView>,
        answers: &mut SliceAnswers,
    ) -> Result<(), ApiFailure> {
        if let Some(example) = example {
            let lost = self.try_out(&example).await?;
            let is_lacking = !lost.is_empty();
            answers.dropped = Some(lost);
            if is_lacking && !plan.writes.is_empty() {
                return Ok(());
            }
        }
        for write in plan.writes {
            if !now.may_write() {
                answers.is_interrupted = true;
                return Ok(());
            }
            let (name, sent) = (write.name.clone(), write.content.clone());
            let slice = self.write(write).await?;
            let lost = needed(&sent, &slice.content);
            answers.written.push((name, slice));
            if !lost.is_empty() {
                answers.dropped = Some(lost);
                return Ok(());
            }
        }
        for delete in plan.deletes {
            if !now.may_write() {
                answers.is_interrupted = true;
                return Ok(());
            }
            match self.client.delete(&self.slices, &delete.name, &delete.version).await {
                Err(failure) if failure.code() != Some(404) => return Err(failure),
                _ => answers.deleted.push(delete),
            }
        }
        Ok(())
    }

    async fn try_out(&self, example: &SliceContent) -> Result<Dropped, ApiFailure> {
        let pool = ResourcePool { name: "fabric/probe/probe".to_owned(), generation: 1, resource_slice_count: 1 };
        let body = self.body("probe-fabric", None, &pool, example);
        match self.client.try_out::<ApiObject<ResourceSliceSpec>>(&self.slices, &body).await {
            Ok(kept) => {
                let kept = SliceContent { devices: kept.spec.devices, ..SliceContent::default() };
                Ok(needed(example, &kept))
            }
            // A webhook cannot be tried out. Dropped fields then show after the first write.
            Err(failure) if failure.code() == Some(400) => Ok(Dropped::new()),
            Err(failure) => Err(failure),
        }
    }

    async fn write(&self, write: SliceWrite) -> Result<PublishedSlice, ApiFailure> {
        let SliceWrite { name, replaces, pool, content } = write;
        let body = self.body(&name, replaces.as_ref(), &pool, &content);
        let answer: ApiObject<ResourceSliceSpec> = match replaces {
            Some(_) => self.client.replace(&self.slices, &name, &body).await?,
            None => self.client.create(&self.slices, &name, &body).await?,
        };
        let unusable = || ApiFailure::unusable(format!("read the answer about ResourceSlice {name}"), "it has no name");
        let (_, mut slice) = PublishedSlice::of(answer).ok_or_else(unusable)?;
        if *slice.content != *content {
            slice.sent = Some(content);
        }
        Ok(slice)
    }

    fn body(&self, name: &str, replaces: Option<&ObjectVersion>, pool: &ResourcePool, content: &SliceContent) -> Value {
        let mut metadata = json!({ "name": name });
        if let Some(version) = replaces {
            metadata["uid"] = json!(version.uid);
            metadata["resourceVersion"] = json!(version.resource_version);
        }
        json!({
            "apiVersion": self.slices.api_version(), "kind": "ResourceSlice", "metadata": metadata,
            "spec": {
                "driver": &*self.driver, "pool": pool, "nodeSelector": content.node_selector, "devices": content.devices,
            },
        })
    }
}

/// Needed features that were sent and did not come back.
fn needed(sent: &SliceContent, kept: &SliceContent) -> Dropped {
    dropped(sent, kept).into_iter().filter(|feature| NEEDED.contains(feature)).collect()
}

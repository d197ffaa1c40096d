//! The calls: one slice is created, replaced, deleted or tried out. The answer is compared with what was sent.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use hostler_api::resource::{ApiVersion, ResourcePool, SliceContent, SliceCounterSet, SliceDevice};
use hostler_cluster::{ApiFailure, Collection, ObjectVersion};
use hostler_reconcile::{
    WriteOutcome,
    slices::{Dropped, Feature, PublishedSlice, SliceDeletion, SliceWrite, dropped},
};
use serde::Serialize;

use crate::kubernetes::{ClusterNode, ResourceSlice, slices_of};

/// End of a call.
#[derive(Debug)]
pub(super) enum SliceAnswer {
    /// The slice is written.
    Written {
        /// Name of the slice.
        name: String,
        /// `create` or `update`.
        verb: &'static str,
        /// The slice as the server has it.
        slice: Box<PublishedSlice>,
        /// Features that the server did not keep.
        dropped: Dropped,
    },
    /// The slice is deleted.
    Deleted {
        /// Name of the slice.
        name: String,
        /// Version that was deleted.
        last: ObjectVersion,
    },
    /// The slice was not as expected, and nothing was changed.
    Found {
        /// Name of the slice.
        name: String,
        /// The slice as the server has it.
        slice: Box<PublishedSlice>,
    },
    /// The slice does not exist, though it was expected to.
    Missing {
        /// Name of the slice.
        name: String,
        /// Version that was expected; absent of a slice that was to be created.
        last: Option<ObjectVersion>,
    },
    /// The server was shown an example of features.
    Probed {
        /// The features.
        shown: BTreeSet<Feature>,
        /// Features among them that the server does not have.
        dropped: Dropped,
    },
    /// The call failed.
    Failed(ApiFailure),
}

/// Makes the calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SliceWriter {
    cluster: ClusterNode,
    version: ApiVersion,
    /// UID of the Node, which owns all slices.
    owner: Arc<str>,
    slices: Arc<Collection>,
}

impl SliceWriter {
    pub(super) fn new(cluster: ClusterNode, version: ApiVersion, owner: &str) -> Self {
        Self { cluster, version, owner: owner.into(), slices: Arc::new(slices_of(version)) }
    }

    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    pub(super) fn version(&self) -> ApiVersion {
        self.version
    }

    /// Creates or replaces a slice.
    pub(super) async fn write(self, write: SliceWrite) -> SliceAnswer {
        let (client, slices, name) = (self.cluster.client(), &self.slices, &write.name);
        let body = self.body(name, write.replaces.as_ref(), &write.pool, &write.content);
        let (verb, answer) = match write.replaces {
            Some(_) => ("update", client.replace(slices, name, &body).await),
            None => ("create", client.create(slices, name, &body).await),
        };
        match answer.and_then(|slice| self.ours(&write.name, slice)) {
            Ok(slice) => written(write, verb, slice),
            Err(failure) => self.refused(failure, write.name, write.replaces).await,
        }
    }

    /// Deletes exactly the slice that was seen.
    pub(super) async fn delete(self, delete: SliceDeletion) -> SliceAnswer {
        let SliceDeletion { name, version: last } = delete;
        match self.cluster.client().delete(&self.slices, &name, &last).await {
            Ok(()) => SliceAnswer::Deleted { name, last },
            Err(failure) => self.refused(failure, name, Some(last)).await,
        }
    }

    /// Reads a slice that was not as expected.
    async fn refused(&self, failure: ApiFailure, name: String, last: Option<ObjectVersion>) -> SliceAnswer {
        match WriteOutcome::of_failure(&failure) {
            WriteOutcome::Conflict => {}
            WriteOutcome::Gone if last.is_some() => return SliceAnswer::Missing { name, last },
            _ => return SliceAnswer::Failed(failure),
        }
        match self.cluster.client().find(&self.slices, &name).await {
            Ok(None) => SliceAnswer::Missing { name, last },
            Ok(Some(slice)) => match self.ours(&name, slice) {
                Ok(slice) => SliceAnswer::Found { name, slice: Box::new(slice) },
                Err(failure) => SliceAnswer::Failed(failure),
            },
            Err(failure) => SliceAnswer::Failed(failure),
        }
    }

    /// Has the server check and shape a slice without storing it.
    pub(super) async fn probe(self, pool: String, content: SliceContent, shown: BTreeSet<Feature>) -> SliceAnswer {
        let name = format!("probe-{:08x}", crc32fast::hash(pool.as_bytes()));
        let pool = ResourcePool { name: pool, generation: 1, resource_slice_count: 1 };
        let answer = self.cluster.client().try_out(&self.slices, &self.body(&name, None, &pool, &content)).await;
        match answer.and_then(|slice| self.ours(&name, slice)) {
            Ok(kept) => SliceAnswer::Probed { shown, dropped: dropped(&content, &kept.content) },
            // Some webhook cannot be tried out. What is dropped then shows after the first write.
            Err(failure) if failure.code() == Some(400) => SliceAnswer::Probed { shown, dropped: Dropped::new() },
            Err(failure) => SliceAnswer::Failed(failure),
        }
    }

    /// Reads an answer about the slice with this name, if it is one of this driver and node.
    fn ours(&self, name: &str, slice: ResourceSlice) -> Result<PublishedSlice, ApiFailure> {
        let fail = |reason: String| ApiFailure::unusable(format!("read the answer about ResourceSlice {name}"), reason);
        let whose = (slice.spec.driver.as_str(), slice.spec.node_name.as_deref());
        if whose != (self.cluster.driver(), Some(self.cluster.node())) {
            return Err(fail(format!("there is a ResourceSlice {name} of somebody else")));
        }
        PublishedSlice::of(slice).map(|(_, slice)| slice).ok_or_else(|| fail("it has no name".to_owned()))
    }

    fn body<'a>(
        &'a self,
        name: &'a str,
        replaces: Option<&'a ObjectVersion>,
        pool: &'a ResourcePool,
        content: &'a SliceContent,
    ) -> SliceBody<'a> {
        let devices = match self.version {
            ApiVersion::V1 | ApiVersion::V1Beta2 => Cow::Borrowed(content.devices.as_slice()),
            ApiVersion::V1Beta1 => Cow::Owned(content.devices.iter().map(SliceDevice::wrapped).collect()),
        };
        let (driver, node) = (self.cluster.driver(), self.cluster.node());
        let owner = OwnerBody { api_version: "v1", kind: "Node", name: node, uid: &self.owner, controller: true };
        let metadata = MetadataBody {
            name,
            uid: replaces.map(|version| version.uid.as_str()),
            resource_version: replaces.map(|version| version.resource_version.as_str()),
            owner_references: [owner],
        };
        let spec = SpecBody { driver, pool, node_name: node, devices, shared_counters: &content.shared_counters };
        SliceBody { api_version: self.slices.api_version(), kind: "ResourceSlice", metadata, spec }
    }
}

fn written(write: SliceWrite, verb: &'static str, mut slice: PublishedSlice) -> SliceAnswer {
    let dropped = dropped(&write.content, &slice.content);
    if *slice.content != *write.content {
        slice.sent = Some(write.content);
    } else if write.content.devices.iter().all(|device| device.taints.is_empty()) {
        // Only taints get something from the server: when they were added.
        slice.content = write.content;
    }
    SliceAnswer::Written { name: write.name, verb, slice: Box::new(slice), dropped }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SliceBody<'a> {
    api_version: String,
    kind: &'static str,
    metadata: MetadataBody<'a>,
    spec: SpecBody<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetadataBody<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    owner_references: [OwnerBody<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnerBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
    uid: &'a str,
    controller: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpecBody<'a> {
    driver: &'a str,
    pool: &'a ResourcePool,
    node_name: &'a str,
    #[serde(skip_serializing_if = "<[SliceDevice]>::is_empty")]
    devices: Cow<'a, [SliceDevice]>,
    #[serde(skip_serializing_if = "<[SliceCounterSet]>::is_empty")]
    shared_counters: &'a [SliceCounterSet],
}

//! The calls: one slice created, replaced, deleted or tried out. What comes back is compared with what was sent.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use hostler_api::resource::{ApiVersion, ResourcePool, SliceContent, SliceCounterSet, SliceDevice};
use hostler_cluster::{ApiFailure, Collection, ObjectVersion};
use serde::Serialize;

use crate::kubernetes::{
    ClusterNode, ResourceSlice,
    features::{Dropped, Feature, dropped},
    plan::{PublishedSlice, SliceDeletion, SliceWrite},
    slices_of,
};

/// What a call came to.
#[derive(Debug)]
pub(super) enum WriteOutcome {
    /// The slice stands there.
    Written {
        /// Name of the slice.
        name: String,
        /// `create` or `update`.
        verb: &'static str,
        /// As the server has it.
        slice: Box<PublishedSlice>,
        /// What the server did not keep.
        dropped: Dropped,
    },
    /// The slice is gone.
    Deleted {
        /// Name of the slice.
        name: String,
    },
    /// The slice was not as expected, and nothing was changed; this is how it is.
    Found {
        /// Name of the slice.
        name: String,
        /// `None`: it is not there.
        slice: Option<Box<PublishedSlice>>,
    },
    /// The server was shown what features look like.
    Probed {
        /// The features.
        shown: BTreeSet<Feature>,
        /// Those of them that it does not have.
        dropped: Dropped,
    },
    /// No.
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
    pub(super) async fn write(self, write: SliceWrite) -> WriteOutcome {
        let (client, slices, name) = (self.cluster.client(), &self.slices, &write.name);
        let body = self.body(name, write.replaces.as_ref(), &write.pool, &write.content);
        let (verb, answer) = match write.replaces {
            Some(_) => ("update", client.replace(slices, name, &body).await),
            None => ("create", client.create(slices, name, &body).await),
        };
        match answer.and_then(|slice| self.ours(&write.name, slice)) {
            Ok(slice) => written(write, verb, slice),
            Err(failure) => match failure.code() {
                Some(409) => self.read(write.name).await,
                Some(404) if write.replaces.is_some() => WriteOutcome::Found { name: write.name, slice: None },
                _ => WriteOutcome::Failed(failure),
            },
        }
    }

    /// Deletes exactly the slice that was seen.
    pub(super) async fn delete(self, delete: SliceDeletion) -> WriteOutcome {
        match self.cluster.client().delete(&self.slices, &delete.name, &delete.version).await {
            Ok(()) => WriteOutcome::Deleted { name: delete.name },
            Err(failure) => match failure.code() {
                Some(404) => WriteOutcome::Found { name: delete.name, slice: None },
                Some(409) => self.read(delete.name).await,
                _ => WriteOutcome::Failed(failure),
            },
        }
    }

    /// How a slice is that was not as expected.
    async fn read(self, name: String) -> WriteOutcome {
        let answer = self.cluster.client().get(&self.slices, &name).await;
        match answer.and_then(|slice| self.ours(&name, slice)) {
            Ok(slice) => WriteOutcome::Found { name, slice: Some(Box::new(slice)) },
            Err(failure) if failure.code() == Some(404) => WriteOutcome::Found { name, slice: None },
            Err(failure) => WriteOutcome::Failed(failure),
        }
    }

    /// Has the server check and shape a slice without storing it.
    pub(super) async fn probe(self, pool: String, content: SliceContent, shown: BTreeSet<Feature>) -> WriteOutcome {
        let name = format!("probe-{:08x}", crc32fast::hash(pool.as_bytes()));
        let pool = ResourcePool { name: pool, generation: 1, resource_slice_count: 1 };
        let answer = self.cluster.client().try_out(&self.slices, &self.body(&name, None, &pool, &content)).await;
        match answer.and_then(|slice| self.ours(&name, slice)) {
            Ok(kept) => WriteOutcome::Probed { shown, dropped: dropped(&content, &kept.content) },
            // Some webhook cannot be tried out. What is dropped then shows after the first write.
            Err(failure) if failure.code() == Some(400) => WriteOutcome::Probed { shown, dropped: Dropped::new() },
            Err(failure) => WriteOutcome::Failed(failure),
        }
    }

    /// What an answer says of the slice called `name`, if it is one of this driver and node.
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

fn written(write: SliceWrite, verb: &'static str, mut slice: PublishedSlice) -> WriteOutcome {
    let dropped = dropped(&write.content, &slice.content);
    if *slice.content != *write.content {
        slice.sent = Some(write.content);
    } else if write.content.devices.iter().all(|device| device.taints.is_empty()) {
        // Only taints get something from the server: when they were added.
        slice.content = write.content;
    }
    WriteOutcome::Written { name: write.name, verb, slice: Box::new(slice), dropped }
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

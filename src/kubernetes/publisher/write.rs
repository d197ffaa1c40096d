//! The calls: one slice created, replaced, deleted or tried out. What comes back is compared with what was sent.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use hostler_api::resource::{ApiVersion, ResourcePool, SliceContent, SliceCounterSet, SliceDevice};
use hyper::Request;
use kube::{
    Resource,
    api::{DeleteParams, PostParams, Preconditions},
    client::Body,
    core::{ApiResource, Status, request::Request as Paths},
};
use serde::Serialize;

use super::mirror::existing;
use crate::kubernetes::{
    ApiFailure, Cluster, ResourceSlice,
    features::{Dropped, Feature, dropped},
    plan::{Delete, Existing, Identity, Write},
};

/// What a call came to.
#[derive(Debug)]
pub(super) enum Done {
    /// The slice stands there.
    Written {
        /// Name of the slice.
        name: String,
        /// `create` or `update`.
        verb: &'static str,
        /// As the server has it.
        slice: Box<Existing>,
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
        slice: Option<Box<Existing>>,
    },
    /// The server was shown what features look like.
    Probed {
        /// The features.
        shown: BTreeSet<Feature>,
        /// Those of them that it does not have.
        dropped: Dropped,
    },
    /// No.
    Failed(Refusal),
}

/// Why a call failed, and what to do about it.
#[derive(Debug)]
pub(super) struct Refusal {
    /// For people.
    pub(super) failure: ApiFailure,
    /// How long the server wants to be left alone.
    pub(super) retry_after: Option<Duration>,
}

impl From<ApiFailure> for Refusal {
    fn from(failure: ApiFailure) -> Self {
        Self { failure, retry_after: None }
    }
}

/// Makes the calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    cluster: Cluster,
    version: ApiVersion,
    /// UID of the Node, which owns all slices.
    owner: Arc<str>,
    paths: Arc<Paths>,
}

impl Writer {
    pub(super) fn new(cluster: Cluster, version: ApiVersion, owner: &str) -> Self {
        let paths = Paths::new(ResourceSlice::url_path(&resource(version), None));
        Self { cluster, version, owner: owner.into(), paths: Arc::new(paths) }
    }

    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    pub(super) fn version(&self) -> ApiVersion {
        self.version
    }

    /// Creates or replaces a slice.
    pub(super) async fn write(self, write: Write) -> Done {
        let body = self.body(&write.name, write.replaces.as_ref(), &write.pool, &write.content);
        let verb = if write.replaces.is_some() { "update" } else { "create" };
        let post = PostParams::default();
        let request = body.and_then(|body| {
            let request = match write.replaces {
                Some(_) => self.paths.replace(&write.name, &post, body),
                None => self.paths.create(&post, body),
            };
            request.map_err(kube::Error::BuildRequest)
        });
        match self.send(format!("{verb} ResourceSlice {}", write.name), request).await {
            Ok(answer) => self.written(write, verb, &answer),
            Err(refusal) => match refusal.failure.code() {
                Some(409) => self.read(write.name).await,
                Some(404) if write.replaces.is_some() => Done::Found { name: write.name, slice: None },
                _ => Done::Failed(refusal),
            },
        }
    }

    fn written(&self, write: Write, verb: &'static str, answer: &[u8]) -> Done {
        let mut slice = match self.parse(&write.name, answer) {
            Ok(slice) => slice,
            Err(failure) => return Done::Failed(failure.into()),
        };
        let dropped = dropped(&write.content, &slice.content);
        if *slice.content != *write.content {
            slice.sent = Some(write.content);
        } else if write.content.devices.iter().all(|device| device.taints.is_empty()) {
            // Only taints get something from the server: when they were added.
            slice.content = write.content;
        }
        Done::Written { name: write.name, verb, slice: Box::new(slice), dropped }
    }

    /// Deletes exactly the slice that was seen.
    pub(super) async fn delete(self, delete: Delete) -> Done {
        let Identity { uid, resource_version } = delete.identity;
        let preconditions = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = self.paths.delete(&delete.name, &params).map_err(kube::Error::BuildRequest);
        match self.send(format!("delete ResourceSlice {}", delete.name), request).await {
            Ok(_) => Done::Deleted { name: delete.name },
            Err(refusal) => match refusal.failure.code() {
                Some(404) => Done::Found { name: delete.name, slice: None },
                Some(409) => self.read(delete.name).await,
                _ => Done::Failed(refusal),
            },
        }
    }

    /// How a slice is that was not as expected.
    async fn read(self, name: String) -> Done {
        let request = self.paths.get(&name, &kube::api::GetParams::default()).map_err(kube::Error::BuildRequest);
        match self.send(format!("get ResourceSlice {name}"), request).await {
            Ok(answer) => match self.parse(&name, &answer) {
                Ok(slice) => Done::Found { name, slice: Some(Box::new(slice)) },
                Err(failure) => Done::Failed(failure.into()),
            },
            Err(refusal) if refusal.failure.code() == Some(404) => Done::Found { name, slice: None },
            Err(refusal) => Done::Failed(refusal),
        }
    }

    /// Has the server check and shape a slice without storing it.
    pub(super) async fn probe(self, pool: String, content: SliceContent, shown: BTreeSet<Feature>) -> Done {
        let name = format!("probe-{:08x}", crc32fast::hash(pool.as_bytes()));
        let pool = ResourcePool { name: pool, generation: 1, resource_slice_count: 1 };
        let post = PostParams { dry_run: true, ..PostParams::default() };
        let request = self
            .body(&name, None, &pool, &content)
            .and_then(|body| self.paths.create(&post, body).map_err(kube::Error::BuildRequest));
        match self.send("try out a ResourceSlice".to_owned(), request).await {
            Ok(answer) => match self.parse(&name, &answer) {
                Ok(kept) => Done::Probed { shown, dropped: dropped(&content, &kept.content) },
                Err(failure) => Done::Failed(failure.into()),
            },
            // Some webhook cannot be tried out. What is dropped then shows after the first write.
            Err(refusal) if refusal.failure.code() == Some(400) => Done::Probed { shown, dropped: Dropped::new() },
            Err(refusal) => Done::Failed(refusal),
        }
    }

    fn parse(&self, name: &str, answer: &[u8]) -> Result<Existing, ApiFailure> {
        let fail = |source| ApiFailure::Call {
            step: format!("read the answer about ResourceSlice {name}"),
            source: kube::Error::SerdeError(source).into(),
        };
        let mut slice: ResourceSlice = serde_json::from_slice(answer).map_err(fail)?;
        // What was only tried out has no version.
        slice.metadata.resource_version.get_or_insert_default();
        slice.metadata.uid.get_or_insert_default();
        let whose = (slice.spec.driver.as_str(), slice.spec.node_name.as_deref());
        if whose != (self.cluster.driver(), Some(self.cluster.node())) {
            let reason = format!("there is a ResourceSlice {name} of somebody else");
            return Err(fail(serde::de::Error::custom(reason)));
        }
        existing(slice).map(|(_, slice)| slice).ok_or_else(|| fail(serde::de::Error::custom("it has no name")))
    }

    fn body(
        &self,
        name: &str,
        replaces: Option<&Identity>,
        pool: &ResourcePool,
        content: &SliceContent,
    ) -> Result<Vec<u8>, kube::Error> {
        let devices = match self.version {
            ApiVersion::V1 | ApiVersion::V1Beta2 => Cow::Borrowed(content.devices.as_slice()),
            ApiVersion::V1Beta1 => Cow::Owned(content.devices.iter().map(SliceDevice::wrapped).collect()),
        };
        let (driver, node) = (self.cluster.driver(), self.cluster.node());
        let owner = OwnerBody { api_version: "v1", kind: "Node", name: node, uid: &self.owner, controller: true };
        let metadata = MetadataBody {
            name,
            uid: replaces.map(|identity| identity.uid.as_str()),
            resource_version: replaces.map(|identity| identity.resource_version.as_str()),
            owner_references: [owner],
        };
        let spec = SpecBody { driver, pool, node_name: node, devices, shared_counters: &content.shared_counters };
        let body = SliceBody { api_version: self.version.group_version(), kind: "ResourceSlice", metadata, spec };
        serde_json::to_vec(&body).map_err(kube::Error::SerdeError)
    }

    /// One exchange. `kube`'s own way loses the header that says when to come back.
    async fn send(&self, step: String, request: Result<Request<Vec<u8>>, kube::Error>) -> Result<Vec<u8>, Refusal> {
        let client = self.cluster.client();
        let exchange = async {
            let answer = client.send(request?.map(Body::from)).await?;
            let status = answer.status().as_u16();
            let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
            Ok((status, retry_after, answer.into_body().collect_bytes().await?))
        };
        let (code, retry_after, body) = self.cluster.call(step.clone(), exchange).await?;
        if (200..300).contains(&code) {
            return Ok(body.into());
        }
        let said = serde_json::from_slice(&body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&body);
            Status { message: text.trim().to_owned(), ..Status::default() }
        });
        let status = Status { code, ..said };
        let in_body = status.details.as_ref().map(|details| u64::from(details.retry_after_seconds));
        let retry_after = retry_after.or(in_body).map(Duration::from_secs);
        let source = kube::Error::Api(status.boxed()).into();
        Err(Refusal { failure: ApiFailure::Call { step, source }, retry_after })
    }
}

/// What `kube` must know of slices.
pub(super) fn resource(version: ApiVersion) -> ApiResource {
    crate::kubernetes::resource(version, "ResourceSlice", "resourceslices")
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

//! What is read for requests: the requests, what their pods look like, and which pods there are already.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use hostler_api::{
    ObjectKey,
    core::{Pod, PodSpec},
    provisioning::{
        PodTemplate, ProvisioningRequest, ProvisioningRequestSpec, ProvisioningRequestStatus, consumed_request,
    },
};
use hostler_cluster::{ObjectVersion, from_rfc3339};

use super::shape::PodShape;

/// What is read for requests, at one moment. A copy shares the objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProvisionObjects {
    /// All requests, whoever is asked.
    pub(crate) requests: BTreeMap<ObjectKey, Arc<SeenRequest>>,
    /// What pods look like.
    pub(crate) templates: BTreeMap<ObjectKey, Arc<PodSpec>>,
    /// Pods that say of which request they are.
    pub(crate) consumers: BTreeMap<ObjectKey, Arc<ConsumerPod>>,
}

/// A request in one of its versions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenRequest {
    /// Namespace and name.
    pub(crate) key: ObjectKey,
    /// Identity, and which version this is.
    pub(crate) version: ObjectVersion,
    /// When the server made it.
    pub(crate) created: Option<SystemTime>,
    /// Whether it was asked to go.
    pub(crate) is_going: bool,
    /// Who wants to do something before it goes.
    pub(crate) finalizers: Vec<String>,
    /// What is asked for.
    pub(crate) spec: ProvisioningRequestSpec,
    /// What was answered.
    pub(crate) status: ProvisioningRequestStatus,
}

/// A pod that consumes what was booked for a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConsumerPod {
    /// Identity.
    pub(crate) uid: String,
    /// The request.
    pub(crate) request: ObjectKey,
    /// Whether it has a node, or had one.
    pub(crate) is_scheduled: bool,
    /// What it looks like, as far as that tells sets apart.
    pub(crate) shape: PodShape,
    /// The claims that were made for it from templates; fewer than it asks for as long as not all are made.
    pub(crate) claims: Vec<ObjectKey>,
}

impl SeenRequest {
    /// A request as the server tells it.
    pub(crate) fn new(version: ObjectVersion, request: ProvisioningRequest) -> Self {
        let ProvisioningRequest { metadata, spec, status } = request;
        Self {
            key: ObjectKey { namespace: metadata.namespace, name: metadata.name },
            version,
            created: metadata.creation_timestamp.as_deref().and_then(from_rfc3339),
            is_going: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers,
            spec,
            status,
        }
    }

    /// Identity.
    pub(crate) fn uid(&self) -> &str {
        &self.version.uid
    }

    /// How many pods it is about.
    pub(crate) fn pods(&self) -> i64 {
        self.spec.pod_sets.iter().map(|set| set.count).sum()
    }
}

impl ProvisionObjects {
    /// Takes a request.
    pub(crate) fn see_request(&mut self, request: SeenRequest) {
        self.requests.insert(request.key.clone(), Arc::new(request));
    }

    /// Takes a template.
    pub(crate) fn see_template(&mut self, key: ObjectKey, template: PodTemplate) {
        self.templates.insert(key, Arc::new(template.template.spec));
    }

    /// Whether a pod is of any request, or was.
    pub(crate) fn concerns(&self, key: &ObjectKey, pod: &Pod) -> bool {
        consumed_request(&pod.metadata).is_some() || self.consumers.contains_key(key)
    }

    /// Takes a pod, if it is of a request.
    pub(crate) fn see_pod(&mut self, key: ObjectKey, pod: &Pod) {
        let Some(name) = consumed_request(&pod.metadata) else {
            self.consumers.remove(&key);
            return;
        };
        let request = ObjectKey { namespace: key.namespace.clone(), name: name.to_owned() };
        let made = pod.status.resource_claim_statuses.iter().filter_map(|status| status.resource_claim_name.clone());
        let claims = made.map(|name| ObjectKey { namespace: key.namespace.clone(), name }).collect();
        let (uid, is_scheduled) = (pod.metadata.uid.clone().unwrap_or_default(), pod.node().is_some());
        let consumer = ConsumerPod { uid, request, is_scheduled, shape: PodShape::of(&pod.spec), claims };
        self.consumers.insert(key, Arc::new(consumer));
    }

    /// The pods that say that they are of a request.
    pub(crate) fn consumers_of<'a>(&'a self, request: &'a ObjectKey) -> impl Iterator<Item = &'a ConsumerPod> {
        self.consumers.values().map(|pod| &**pod).filter(move |pod| pod.request == *request)
    }
}

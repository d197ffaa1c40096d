//! Objects that are read for requests: the requests, the templates of their pods, and pods that exist.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use hostler_api::{
    ObjectKey,
    core::{Pod, PodTemplateSpec},
    provisioning::{
        PodTemplate, ProvisioningConditionType, ProvisioningRequest, ProvisioningRequestSpec,
        ProvisioningRequestStatus, consumed_request,
    },
};
use hostler_cluster::{ObjectVersion, from_rfc3339};

use super::{OFFICIAL_ATOMIC_SCALE_UP, PodShape};

/// The detail of a request's status that marks the leader term in which it is answered: another value in each term.
pub(crate) const CONTROLLER_TERM: &str = "controllerTerm";

/// Objects that are read for requests, at one moment. A copy shares the objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProvisionObjects {
    /// All requests, also those that other programs answer.
    pub(crate) requests: BTreeMap<ObjectKey, Arc<SeenRequest>>,
    /// Pod templates.
    pub(crate) templates: BTreeMap<ObjectKey, Arc<PodTemplateSpec>>,
    /// Pods that name their request.
    pub(crate) consumers: BTreeMap<ObjectKey, Arc<ConsumerPod>>,
}

/// A request in one of its versions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenRequest {
    /// Namespace and name.
    pub(crate) key: ObjectKey,
    /// UID and resourceVersion.
    pub(crate) version: ObjectVersion,
    /// Creation time, by the server.
    pub(crate) created: Option<SystemTime>,
    /// True if the request is being deleted.
    pub(crate) is_going: bool,
    /// Finalizers.
    pub(crate) finalizers: Vec<String>,
    /// The request's spec.
    pub(crate) spec: ProvisioningRequestSpec,
    /// The request's status.
    pub(crate) status: ProvisioningRequestStatus,
}

/// A pod that uses the booking of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConsumerPod {
    /// UID.
    pub(crate) uid: String,
    /// The request.
    pub(crate) request: ObjectKey,
    /// True if the pod has a node, or had one.
    pub(crate) is_scheduled: bool,
    /// The fields that tell sets apart.
    pub(crate) shape: PodShape,
    /// Claims that were made for the pod from templates; fewer than it asks for until all are made.
    pub(crate) claims: Vec<ObjectKey>,
}

impl SeenRequest {
    /// Converts a request of the server.
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

    /// Returns the UID.
    pub(crate) fn uid(&self) -> &str {
        &self.version.uid
    }

    /// True if hostler's controller has answered the request, or begun to.
    pub(crate) fn is_answered(&self) -> bool {
        self.status.provisioning_class_details.contains_key(CONTROLLER_TERM)
    }

    /// True if another program has accepted a request of a class that it answers, too: two answers contradict each other.
    pub(crate) fn is_of_another(&self) -> bool {
        self.spec.provisioning_class_name == OFFICIAL_ATOMIC_SCALE_UP
            && self.status.is(ProvisioningConditionType::Accepted)
            && !self.is_answered()
    }

    /// Returns the number of pods of all sets.
    pub(crate) fn pods(&self) -> i64 {
        self.spec.pod_sets.iter().map(|set| set.count).sum()
    }
}

impl ProvisionObjects {
    /// Stores a request.
    pub(crate) fn see_request(&mut self, request: SeenRequest) {
        self.requests.insert(request.key.clone(), Arc::new(request));
    }

    /// Stores a template.
    pub(crate) fn see_template(&mut self, key: ObjectKey, template: PodTemplate) {
        self.templates.insert(key, Arc::new(template.template));
    }

    /// Returns true if a pod belongs to a request, or did.
    pub(crate) fn concerns(&self, key: &ObjectKey, pod: &Pod) -> bool {
        consumed_request(&pod.metadata).is_some() || self.consumers.contains_key(key)
    }

    /// Stores a pod, if it belongs to a request.
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

    /// Returns the pods that name this request.
    pub(crate) fn consumers_of<'a>(&'a self, request: &'a ObjectKey) -> impl Iterator<Item = &'a ConsumerPod> {
        self.consumers.values().map(|pod| &**pod).filter(move |pod| pod.request == *request)
    }
}

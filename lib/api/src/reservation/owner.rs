//! Owners: pods for which devices are kept.

use serde::{Deserialize, Serialize};

use super::OwnerCandidate;
use crate::{core::LabelSelector, provisioning::CONSUME_ANNOTATIONS};

/// Pods for which devices are kept. All fields that are written must match; an owner without fields matches no pod.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationOwner {
    /// One pod. Fields that are not written match anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<OwnerObject>,
    /// The pods of a controller. Fields that are not written match anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<OwnerController>,
    /// Pods with these labels, in the namespace that another field of this owner names, or else in the template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Pods that name this ProvisioningRequest as theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_request: Option<OwnerRequest>,
}

/// A pod.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerObject {
    /// `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `Pod`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Identity.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// A controller that makes pods.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerController {
    /// API version of the controller, such as `apps/v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind of the controller, such as `StatefulSet`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace of its pods.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Identity.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// A ProvisioningRequest.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerRequest {
    /// Namespace of the request and its pods.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// True if the two texts agree; an empty `wanted` agrees with any.
fn agrees(wanted: &str, is: &str) -> bool {
    wanted.is_empty() || wanted == is
}

impl ReservationOwner {
    /// Namespace that the owner names.
    pub fn namespace(&self) -> Option<&str> {
        let object = self.object.as_ref().map(|it| &it.namespace);
        let controller = self.controller.as_ref().map(|it| &it.namespace);
        let request = self.provisioning_request.as_ref().map(|it| &it.namespace);
        [object, controller, request].into_iter().flatten().find(|it| !it.is_empty()).map(String::as_str)
    }

    /// True if the owner itself says where its pods are: by a namespace, or by the UID of a pod, which the API server
    /// gives. The controller of a pod is no proof: the maker of the pod writes it.
    pub fn is_somewhere(&self) -> bool {
        self.namespace().is_some() || self.object.as_ref().is_some_and(|it| !it.uid.is_empty())
    }

    /// True if the pod matches.
    pub fn matches(&self, pod: &OwnerCandidate<'_>) -> bool {
        if *self == Self::default() {
            return false;
        }
        let Self { object, controller, label_selector, provisioning_request } = self;
        object.as_ref().is_none_or(|it| it.is(pod))
            && controller.as_ref().is_none_or(|it| it.made(pod))
            && label_selector.as_ref().is_none_or(|it| it.matches(pod.labels))
            && provisioning_request.as_ref().is_none_or(|it| it.has(pod))
    }
}

impl OwnerObject {
    fn is(&self, pod: &OwnerCandidate<'_>) -> bool {
        agrees(&self.api_version, "v1")
            && agrees(&self.kind, "Pod")
            && agrees(&self.namespace, pod.namespace)
            && agrees(&self.name, pod.name)
            && agrees(&self.uid, pod.uid)
    }
}

impl OwnerController {
    fn made(&self, pod: &OwnerCandidate<'_>) -> bool {
        let Some(made) = pod.controller else { return false };
        agrees(&self.api_version, &made.api_version)
            && agrees(&self.kind, &made.kind)
            && agrees(&self.namespace, pod.namespace)
            && agrees(&self.name, &made.name)
            && agrees(&self.uid, &made.uid)
    }
}

impl OwnerRequest {
    fn has(&self, pod: &OwnerCandidate<'_>) -> bool {
        let said = CONSUME_ANNOTATIONS.iter().find_map(|key| pod.annotations.get(*key));
        self.namespace == pod.namespace && said == Some(&self.name)
    }
}

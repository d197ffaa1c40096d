//! Translation between the objects of a version and the core's types. Pure.

use hostler_api::{
    ObjectKey,
    classic::{
        AllocationResultV1Alpha1, AllocationResultV1Alpha2, AllocationResultV1Alpha3, ClassicMeta, ClassicVersion,
        HandleData, HandleError, ResourceHandle,
    },
    hardware,
    resource::GROUP,
};
use serde_json::{Value, json};

use super::event::{ClassicWrite, NewAllocation};
use crate::claim_write::ClaimVersion;

pub(super) use parameters::CONFIG;

pub(crate) use self::node::ClassicNode;

mod generated;
mod node;
mod parameters;
mod read;
mod read_parameters;

/// A version of the API, for one driver.
#[derive(Clone, Debug)]
pub(crate) struct ClassicDialect {
    pub(crate) version: ClassicVersion,
    pub(crate) driver: String,
}

/// A write in the form that the API server takes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClassicPatch {
    /// Path of the object.
    pub(crate) path: String,
    /// True if the patch is for the status subresource.
    pub(crate) is_status: bool,
    /// True for an apply of fields of our own, false for a merge patch.
    pub(crate) is_apply: bool,
    pub(crate) body: Value,
}

impl ClassicDialect {
    /// Returns the path of an object of the group.
    pub(crate) fn path(&self, resource: &str, key: &ObjectKey) -> String {
        let (version, ObjectKey { namespace, name }) = (self.version.as_str(), key);
        format!("/apis/{GROUP}/{version}/namespaces/{namespace}/{resource}/{name}")
    }

    /// Returns a write in the form that this version takes.
    ///
    /// # Errors
    /// Fails if the text for the node is too long.
    pub(crate) fn patch(&self, write: &ClassicWrite) -> Result<ClassicPatch, HandleError> {
        Ok(match write {
            ClassicWrite::Finalizers(claim, finalizers) => {
                let mut metadata = precondition(claim);
                metadata["finalizers"] = json!(finalizers);
                self.of_claim(claim, false, json!({"metadata": metadata}))
            }
            ClassicWrite::Allocation(claim, new) => {
                let body = json!({"metadata": precondition(claim), "status": self.allocated(new)?});
                self.of_claim(claim, true, body)
            }
            ClassicWrite::Deallocation(claim) => {
                let body = json!({"metadata": precondition(claim), "status": self.deallocated()});
                self.of_claim(claim, true, body)
            }
            ClassicWrite::Unsuitable { key, uid, entries } => {
                let entries = entries.iter().map(|(name, nodes)| json!({"name": name, "unsuitableNodes": nodes}));
                let body = json!({
                    "apiVersion": self.version.group_version(),
                    "kind": self.version.scheduling_kind(),
                    "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
                    "status": {"resourceClaims": entries.collect::<Vec<_>>()},
                });
                let path = self.path(self.version.scheduling_resource(), key);
                ClassicPatch { path, is_status: true, is_apply: true, body }
            }
            ClassicWrite::Grants { source, version, grants } => {
                let path =
                    format!("/apis/{}/{}/{}/{source}", hardware::GROUP, hardware::VERSION, hardware::NODE_HARDWARE);
                let body = json!({"metadata": {"resourceVersion": version}, "spec": {"claims": grants}});
                ClassicPatch { path, is_status: false, is_apply: false, body }
            }
            ClassicWrite::Labels { node, labels } => {
                let body = json!({"metadata": {"labels": labels}});
                ClassicPatch { path: format!("/api/v1/nodes/{node}"), is_status: false, is_apply: false, body }
            }
        })
    }

    fn of_claim(&self, claim: &ClaimVersion, is_status: bool, body: Value) -> ClassicPatch {
        ClassicPatch { path: self.path("resourceclaims", &claim.key), is_status, is_apply: false, body }
    }

    fn allocated(&self, new: &NewAllocation) -> Result<Value, HandleError> {
        let handle = HandleData::new(&*new.node, new.result.devices.clone(), new.absent.clone());
        let available_on_nodes = new.result.node_selector.clone();
        let allocation = match self.version {
            ClassicVersion::V1Alpha1 => {
                let resource_handle = handle.to_text()?;
                let shareable = new.is_shareable;
                json!(AllocationResultV1Alpha1 { resource_handle, available_on_nodes, shareable })
            }
            ClassicVersion::V1Alpha2 => {
                let handle = ResourceHandle { driver_name: self.driver.clone(), data: handle.to_text()? };
                let (resource_handles, shareable) = (vec![handle], new.is_shareable);
                json!(AllocationResultV1Alpha2 { resource_handles, available_on_nodes, shareable })
            }
            ClassicVersion::V1Alpha3 => {
                json!(AllocationResultV1Alpha3::of_controller(&self.driver, &new.result, handle)?)
            }
        };
        let mut status = json!({"allocation": allocation});
        if self.version != ClassicVersion::V1Alpha3 {
            status["driverName"] = json!(self.driver);
        }
        if !new.consumers.is_empty() {
            status["reservedFor"] = json!(new.consumers);
        }
        Ok(status)
    }

    fn deallocated(&self) -> Value {
        let mut status = json!({"allocation": null, "deallocationRequested": null, "reservedFor": null});
        if self.version != ClassicVersion::V1Alpha3 {
            status["driverName"] = Value::Null;
        }
        status
    }

    /// Returns the fields that the server dropped, by its answer to a write.
    pub(crate) fn dropped(&self, write: &ClassicWrite, answer: &Value) -> Option<&'static str> {
        let ClassicWrite::Allocation(..) = write else { return None };
        let allocation = &answer["status"]["allocation"];
        if allocation.is_null() {
            return Some("status.allocation");
        }
        let is_without_controller =
            self.version == ClassicVersion::V1Alpha3 && allocation["controller"] != *self.driver;
        is_without_controller.then_some("status.allocation.controller")
    }
}

/// Returns the precondition that the claim is this very object, and unchanged since it was read.
fn precondition(claim: &ClaimVersion) -> Value {
    json!({"uid": claim.uid, "resourceVersion": claim.version})
}

/// Returns namespace and name as a key.
fn key(metadata: &ClassicMeta) -> ObjectKey {
    ObjectKey::new(&metadata.namespace, &metadata.name)
}

//! Objects of a version, in the core's types.

use hostler_api::{
    ObjectKey,
    classic::{
        AllocationMode, AllocationResultV1Alpha3, ClassicConsumer, ClassicMeta, ClassicPod, ClassicPodClaim,
        ClassicVersion, DeviceClassV1Alpha3, HandleData, NodeHardwareJournal, PodSchedulingContext,
        ResourceClaimSpecV1Alpha2, ResourceClaimV1Alpha1, ResourceClaimV1Alpha2, ResourceClaimV1Alpha3, ResourceClass,
    },
    core::{ObjectMeta, PodResourceClaim},
    resource::{AllocationResult, DeviceClass, DeviceClassSpec, DeviceRequestAllocationResult, ResourceSliceSpec},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ClassicDialect, key};
use crate::classic::model::{
    ClaimAllocation, ClaimContent, ClassContent, ClassicClaim, ClassicClass, DeviceSource, OfferedSlice, PodClaim,
    PodFacts, SchedulingContext,
};

/// Fields of a claim's status that are the same in every version.
#[derive(Debug)]
struct ClaimStatus {
    allocation: Option<ClaimAllocation>,
    consumers: Vec<ClassicConsumer>,
    is_deallocation_requested: bool,
}

impl ClassicDialect {
    /// Reads a claim.
    pub(crate) fn claim(&self, object: &Value) -> Result<ClassicClaim, serde_json::Error> {
        Ok(match self.version {
            ClassicVersion::V1Alpha1 => {
                let ResourceClaimV1Alpha1 { metadata, spec, status } = read(object)?;
                let (by, allocation) = (status.driver_name, status.allocation);
                let allocation = allocation.map(|it| self.allocation(by, [&*it.resource_handle]));
                let (consumers, is_deallocation_requested) = (status.reserved_for, status.deallocation_requested);
                claim(metadata, content(spec), ClaimStatus { allocation, consumers, is_deallocation_requested })
            }
            ClassicVersion::V1Alpha2 => {
                let ResourceClaimV1Alpha2 { metadata, spec, status } = read(object)?;
                let (by, allocation) = (status.driver_name, status.allocation);
                let allocation = allocation.map(|it| {
                    let is_ours = |name: &str| name == self.driver || (name.is_empty() && by == self.driver);
                    let ours = it.resource_handles.iter().filter(|handle| is_ours(&handle.driver_name));
                    self.allocation(by.clone(), ours.map(|handle| &*handle.data))
                });
                let (consumers, is_deallocation_requested) = (status.reserved_for, status.deallocation_requested);
                claim(metadata, content(spec), ClaimStatus { allocation, consumers, is_deallocation_requested })
            }
            ClassicVersion::V1Alpha3 => {
                let ResourceClaimV1Alpha3 { metadata, spec, status } = read(object)?;
                let content = ClaimContent::Devices { devices: spec.devices, controller: spec.controller };
                let allocation = status.allocation.map(|it| self.allocation_of_devices(&it));
                let (consumers, is_deallocation_requested) = (status.reserved_for, status.deallocation_requested);
                claim(metadata, content, ClaimStatus { allocation, consumers, is_deallocation_requested })
            }
        })
    }

    /// Reads an allocation from its handles. Handles of other drivers are ignored.
    fn allocation<'h>(&self, by: String, handles: impl IntoIterator<Item = &'h str>) -> ClaimAllocation {
        let devices = if by == self.driver {
            let allocations = handles.into_iter().map(|text| HandleData::from_text(text).map(HandleData::allocation));
            let devices = allocations.map(|allocation| allocation.map(|it| self.devices(it)));
            devices.collect::<Result<Vec<_>, _>>().map(|all| all.concat()).map_err(|error| error.to_string())
        } else {
            Ok(Vec::new())
        };
        ClaimAllocation { by, devices }
    }

    fn allocation_of_devices(&self, allocation: &AllocationResultV1Alpha3) -> ClaimAllocation {
        let devices = allocation.modern(&self.driver).map(|it| self.devices(it)).map_err(|error| error.to_string());
        ClaimAllocation { by: allocation.controller.clone(), devices }
    }

    fn devices(&self, allocation: AllocationResult) -> Vec<DeviceRequestAllocationResult> {
        allocation.devices.results.into_iter().filter(|device| device.driver == self.driver).collect()
    }

    /// Reads a class.
    pub(crate) fn class(&self, object: &Value) -> Result<ClassicClass, serde_json::Error> {
        if self.version == ClassicVersion::V1Alpha3 {
            let DeviceClassV1Alpha3 { metadata, spec } = read(object)?;
            let meta = ObjectMeta { name: metadata.name.clone(), ..ObjectMeta::default() };
            let device =
                DeviceClassSpec { selectors: spec.selectors, config: spec.config, extended_resource_name: None };
            let content = ClassContent::Device(Box::new(DeviceClass { metadata: meta, spec: device }));
            return Ok(ClassicClass { name: metadata.name, suitable_nodes: spec.suitable_nodes, content });
        }
        let ResourceClass { metadata, driver_name, parameters_ref, suitable_nodes, structured_parameters } =
            read(object)?;
        let is_structured = structured_parameters == Some(true);
        let content = ClassContent::Resource { driver: driver_name, parameters: parameters_ref, is_structured };
        Ok(ClassicClass { name: metadata.name, suitable_nodes, content })
    }

    /// Reads a negotiation.
    pub(crate) fn context(&self, object: &Value) -> Result<(ObjectKey, SchedulingContext), serde_json::Error> {
        let PodSchedulingContext { metadata, spec, status } = read(object)?;
        let entries = status.resource_claims.into_iter();
        let context = SchedulingContext {
            owner: metadata.controller_uid().map(str::to_owned),
            is_deleting: metadata.deletion_timestamp.is_some(),
            selected: (!spec.selected_node.is_empty()).then_some(spec.selected_node),
            potential: spec.potential_nodes.into_iter().collect(),
            entries: entries.map(|entry| (entry.name, entry.unsuitable_nodes.into_iter().collect())).collect(),
            uid: metadata.uid.clone(),
            version: metadata.resource_version.clone(),
        };
        Ok((key(&metadata), context))
    }

    /// Reads a pod, with the names of its claims.
    pub(crate) fn pod(&self, object: &Value) -> Result<PodFacts, serde_json::Error> {
        let ClassicPod { metadata, spec, status } = read(object)?;
        let made = &status.resource_claim_statuses;
        let claims = spec.resource_claims.iter().filter_map(|claim| pod_claim(&metadata.name, claim, made)).collect();
        Ok(PodFacts { uid: metadata.uid, is_deleting: metadata.deletion_timestamp.is_some(), claims })
    }

    /// Reads a NodeHardware.
    pub(crate) fn source(&self, object: &Value) -> Result<DeviceSource, serde_json::Error> {
        let NodeHardwareJournal { metadata, spec, status } = read(object)?;
        let is_ready = status.is_ready();
        let offered = status.slices.iter().filter_map(|slice| self.offered(slice));
        Ok(DeviceSource {
            node: (!spec.node_name.is_empty()).then_some(spec.node_name),
            is_ready,
            offered: offered.collect(),
            grants: spec.claims,
            name: metadata.name,
            version: metadata.resource_version,
        })
    }

    /// Reads a slice of our driver. A slice that cannot be read is left out; its pool is then incomplete, and not used.
    fn offered(&self, slice: &Value) -> Option<OfferedSlice> {
        let spec: ResourceSliceSpec = read(slice).ok()?;
        let text = || slice.to_string().into_boxed_str();
        (spec.driver == self.driver).then(|| OfferedSlice { pool: spec.pool.name, text: text() })
    }
}

fn claim(metadata: ClassicMeta, content: ClaimContent, status: ClaimStatus) -> ClassicClaim {
    ClassicClaim {
        key: key(&metadata),
        owner: metadata.controller_uid().map(str::to_owned),
        is_deleting: metadata.deletion_timestamp.is_some(),
        uid: metadata.uid,
        version: metadata.resource_version,
        finalizers: metadata.finalizers,
        content,
        allocation: status.allocation,
        consumers: status.consumers,
        is_deallocation_requested: status.is_deallocation_requested,
    }
}

fn content(spec: ResourceClaimSpecV1Alpha2) -> ClaimContent {
    let is_immediate = spec.allocation_mode == AllocationMode::Immediate;
    ClaimContent::Class { class: spec.resource_class_name, parameters: spec.parameters_ref, is_immediate }
}

/// Returns the claim that an entry of a pod means. Until 1.27 a pod's status does not name a claim that was made from a
/// template: a fixed rule does.
fn pod_claim(pod: &str, claim: &ClassicPodClaim, made: &[PodResourceClaim]) -> Option<PodClaim> {
    let ClassicPodClaim { name, resource_claim_name, resource_claim_template_name } = claim;
    let is_made = resource_claim_name.is_none();
    let claim = if is_made {
        resource_claim_template_name.as_ref()?;
        match made.iter().find(|made| made.name == *name) {
            // The status also says that there is no claim, and shall be none.
            Some(made) => made.resource_claim_name.clone(),
            None => Some(format!("{pod}-{name}")),
        }
    } else {
        resource_claim_name.clone()
    };
    Some(PodClaim { name: name.clone(), claim, is_made })
}

pub(super) fn read<T: DeserializeOwned>(object: &Value) -> Result<T, serde_json::Error> {
    T::deserialize(object)
}

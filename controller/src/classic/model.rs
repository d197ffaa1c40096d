//! Objects of classic DRA as the core knows them, the same for each version.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use hostler_api::{
    ObjectKey,
    classic::{ClaimParametersSpec, ClassParametersSpec, ClassicConsumer, ClassicParametersReference},
    core::NodeSelector,
    hardware::NodeGrant,
    resource::{DeviceClaim, DeviceClass, DeviceRequestAllocationResult},
};

/// A claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClassicClaim {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) finalizers: Vec<String>,
    pub(crate) is_deleting: bool,
    /// UID of the pod that the claim was made for.
    pub(crate) owner: Option<String>,
    pub(crate) content: ClaimContent,
    pub(crate) allocation: Option<ClaimAllocation>,
    pub(crate) consumers: Vec<ClassicConsumer>,
    pub(crate) is_deallocation_requested: bool,
}

impl ClassicClaim {
    /// Returns true if the controller of this driver allocated the claim.
    pub(crate) fn is_allocated_by(&self, driver: &str) -> bool {
        self.allocation.as_ref().is_some_and(|it| it.by == driver)
    }

    /// Returns true if the claim is being deleted or released.
    pub(crate) fn is_over(&self) -> bool {
        self.is_deleting || self.is_deallocation_requested
    }
}

/// The request of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClaimContent {
    /// A resource of a ResourceClass, until 1.30.
    Class { class: String, parameters: Option<ClassicParametersReference>, is_immediate: bool },
    /// Devices, from the controller of a driver, in 1.31.
    Devices { devices: DeviceClaim, controller: String },
}

/// The allocation of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimAllocation {
    /// The driver whose controller allocated; empty for the scheduler.
    pub(crate) by: String,
    /// Devices of our driver, or the reason why they are unknown.
    pub(crate) devices: Result<Vec<DeviceRequestAllocationResult>, String>,
}

/// Fields that all claims of a class share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClassicClass {
    pub(crate) name: String,
    pub(crate) suitable_nodes: Option<NodeSelector>,
    pub(crate) content: ClassContent,
}

/// The content of a class, by kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClassContent {
    /// A ResourceClass.
    Resource { driver: String, parameters: Option<ClassicParametersReference>, is_structured: bool },
    /// A DeviceClass.
    Device(Box<DeviceClass>),
}

/// An object with parameters.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct ParametersKey {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ParametersKey {
    /// Returns the key of the object that a claim or a class refers to. `namespace` counts where the reference has
    /// none.
    pub(crate) fn new(reference: &ClassicParametersReference, namespace: &str) -> Self {
        let ClassicParametersReference { api_group, kind, name, namespace: own } = reference.clone();
        let namespace = own.unwrap_or_else(|| namespace.to_owned());
        Self { group: api_group, kind, namespace, name }
    }
}

impl fmt::Display for ParametersKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// The content of parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Parameters {
    /// Parameters of claims.
    Claim(ClaimParametersSpec),
    /// Parameters of classes.
    Class(ClassParametersSpec),
}

/// The negotiation about the node of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SchedulingContext {
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) is_deleting: bool,
    /// UID of the pod.
    pub(crate) owner: Option<String>,
    pub(crate) selected: Option<String>,
    pub(crate) potential: BTreeSet<String>,
    pub(crate) entries: UnsuitableNodes,
}

impl SchedulingContext {
    /// Returns true if the entries contain ours already; entries of others do not matter.
    pub(crate) fn has_entries(&self, ours: &UnsuitableNodes) -> bool {
        ours.iter().all(|(name, nodes)| self.entries.get(name) == Some(nodes))
    }
}

/// Nodes on which claims cannot be allocated, by the pod's name for the claim.
pub(crate) type UnsuitableNodes = BTreeMap<String, BTreeSet<String>>;

/// A pod, as it was when it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodFacts {
    pub(crate) uid: String,
    pub(crate) is_deleting: bool,
    pub(crate) claims: Vec<PodClaim>,
}

/// A claim of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodClaim {
    /// The pod's name for the claim.
    pub(crate) name: String,
    /// The claim, if there shall be one.
    pub(crate) claim: Option<String>,
    /// True if the claim is made from a template, for this pod alone.
    pub(crate) is_made: bool,
}

/// A node, with the fields that matter for giving devices.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct NodeState {
    pub(crate) labels: BTreeMap<String, String>,
    /// Keys of labels that this controller wrote, by the API server's record.
    pub(crate) own_labels: BTreeSet<String>,
    pub(crate) access: NodeAccess,
}

/// The pods that a node takes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum NodeAccess {
    #[default]
    Open,
    /// Pods that tolerate its taints.
    Tainted,
    /// No pods for now: the node is cordoned, or not ready.
    Closed,
}

/// A source of devices: the NodeHardware of a node, or of devices that several nodes reach.
#[derive(Clone, Debug)]
pub(crate) struct DeviceSource {
    /// Name of the NodeHardware.
    pub(crate) name: String,
    pub(crate) version: String,
    /// The node, if the source is of one.
    pub(crate) node: Option<String>,
    /// True if the source's devices can be relied on.
    pub(crate) is_ready: bool,
    /// Slices of our driver.
    pub(crate) offered: Vec<OfferedSlice>,
    /// Grants of the source, by UID of the claim.
    pub(crate) grants: BTreeMap<String, NodeGrant>,
}

/// A ResourceSlice that a source offers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OfferedSlice {
    /// The pool of the slice.
    pub(crate) pool: String,
    /// The slice as JSON.
    pub(crate) text: Box<str>,
}

impl DeviceSource {
    /// Returns true if the other source offers the same devices.
    pub(crate) fn offers_the_same(&self, other: &Self) -> bool {
        (self.is_ready, &self.node, &self.offered) == (other.is_ready, &other.node, &other.offered)
    }
}

//! What a backend says about a device.

use std::{collections::BTreeMap, fmt};

use hostler_api::{DeviceName, QualifiedName, Quantity, resource::policy};
use serde::{Deserialize, Serialize};

use crate::ContainerEdits;

/// Attributes of a device, for selectors.
pub type Attributes = BTreeMap<QualifiedName, AttributeValue>;
/// Capacities of a device.
pub type Capacities = BTreeMap<QualifiedName, Capacity>;

/// One device as a backend sees it now.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Unique in the backend, stable over reboots.
    pub name: DeviceName,
    /// What selectors can ask for.
    pub attributes: Attributes,
    /// What can be counted, and how it may be split.
    pub capacity: Capacities,
    /// Whether several claims may hold it at once.
    pub sharing: Sharing,
    /// Whether it is usable now.
    pub health: Health,
    /// What every container that uses the device needs, device nodes for example.
    pub edits: ContainerEdits,
    /// What the device takes of the counters that it shares with others: partitions of one card exclude each other.
    pub consumes: Vec<CounterUse>,
    /// What has to happen between scheduling and start, for devices that are attached first.
    pub binding: Option<BindingConditions>,
    /// What the device stands for of the resources that the node itself accounts for, by resource name (`cpu`,
    /// `memory`, `hugepages-2Mi`).
    pub node_allocatable: BTreeMap<String, NodeAllocatable>,
    /// The backend's own facts, handed back to it in [`crate::PlanWork`] and [`crate::PrepareWork`]; never published.
    pub data: serde_json::Value,
}

impl Device {
    /// A healthy, exclusive device with nothing but a name.
    pub fn new(name: DeviceName) -> Self {
        Self {
            name,
            attributes: Attributes::new(),
            capacity: Capacities::new(),
            sharing: Sharing::Exclusive,
            health: Health::Healthy,
            edits: ContainerEdits::default(),
            consumes: Vec::new(),
            binding: None,
            node_allocatable: BTreeMap::new(),
            data: serde_json::Value::Null,
        }
    }
}

/// The value of an attribute. Strings hold at most 64 bytes (a limit of the API server).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AttributeValue {
    /// A whole number.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// Text.
    String(String),
    /// A semantic version, 2.0.0 syntax.
    Version(String),
    /// Several whole numbers. Lists are published only where the operator says that the cluster takes them.
    Ints(Vec<i64>),
    /// Several texts.
    Strings(Vec<String>),
}

impl Serialize for AttributeValue {
    /// As the plain JSON value: a version and a string look alike to a reader.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::String(value) | Self::Version(value) => serializer.serialize_str(value),
            Self::Ints(values) => values.serialize(serializer),
            Self::Strings(values) => values.serialize(serializer),
        }
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::String(value) | Self::Version(value) => f.write_str(value),
            Self::Ints(values) => f.write_str(&values.iter().map(i64::to_string).collect::<Vec<_>>().join(",")),
            Self::Strings(values) => f.write_str(&values.join(",")),
        }
    }
}

impl From<i64> for AttributeValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for AttributeValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for AttributeValue {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

/// An amount that a device has.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Capacity {
    /// How much there is to hand out.
    pub value: Quantity,
    /// How a request for a part of it is rounded; `None`: only the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<RequestPolicy>,
}

/// The valid requests for a part of a capacity: `min`, `min + step`, … up to the value.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct RequestPolicy {
    /// What a request that names no amount gets.
    pub default: Quantity,
    /// The least that can be requested.
    pub min: Quantity,
    /// The distance between valid requests.
    pub step: Quantity,
}

impl RequestPolicy {
    /// What a request for `asked` is given, as the scheduler rounds it.
    pub fn round_up(&self, asked: Quantity) -> Quantity {
        let rounded = policy::round_up(asked.into(), self.min.into(), Some(self.step.into()));
        // More than can be counted is more than there is, rounded or not.
        Quantity::try_from(rounded).unwrap_or(asked)
    }
}

/// Whether several claims may hold a device at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Sharing {
    /// One claim at a time.
    Exclusive,
    /// Any number of claims, as long as their parts fit into the capacities.
    Shared,
}

/// Counters that several devices of a backend draw on.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CounterSet {
    /// Unique in the backend.
    pub name: DeviceName,
    /// What there is of each, by name: DNS labels.
    pub counters: BTreeMap<DeviceName, Quantity>,
}

/// What a device takes of a [`CounterSet`] as long as anyone holds the device.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CounterUse {
    /// Name of the set.
    pub set: DeviceName,
    /// How much of each counter.
    pub counters: BTreeMap<DeviceName, Quantity>,
}

/// What the scheduler waits for, once a device is allocated, before the pod is bound to its node.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BindingConditions {
    /// Whether the allocation is then only good on the node that was chosen.
    pub binds_to_node: bool,
    /// Conditions of the claim's device status that must all become true; 1 to 4.
    pub conditions: Vec<String>,
    /// Conditions of which one that becomes true makes the scheduler choose anew; 1 to 4.
    pub failure_conditions: Vec<String>,
}

/// How much of a resource of the node a device stands for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub enum NodeAllocatable {
    /// The amount of this capacity that the claim takes, times the factor.
    PerCapacity {
        /// The capacity.
        capacity: QualifiedName,
        /// Units of the resource per unit of the capacity.
        factor: Quantity,
    },
    /// This much per device.
    PerDevice(Quantity),
}

/// Whether a device is usable now.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum Health {
    /// It was checked and works.
    Healthy,
    /// It was checked and does not work.
    Unhealthy {
        /// What was seen, for people.
        reason: String,
    },
    /// It could not be checked.
    Unknown {
        /// Why not, for people.
        reason: String,
    },
}

impl Health {
    /// The state in one word, as in Kubernetes.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy { .. } => "Unhealthy",
            Self::Unknown { .. } => "Unknown",
        }
    }

    /// Why the device is not healthy.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Healthy => None,
            Self::Unhealthy { reason } | Self::Unknown { reason } => Some(reason),
        }
    }
}

//! Devices as backends describe them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use compact_str::CompactString;
use hostler_api::{
    DeviceName, QualifiedName, Quantity,
    fabric::ErasureMethod,
    resource::{SortedMap, policy},
};
use serde::{Deserialize, Serialize};

use crate::ContainerEdits;

/// Attributes of a device, for selectors.
pub type Attributes = SortedMap<AttributeValue, QualifiedName>;
/// Capacities of a device.
pub type Capacities = SortedMap<Capacity, QualifiedName>;

/// One device as a backend sees it now.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Name that is unique in the backend and stable over reboots.
    pub name: DeviceName,
    /// Attributes that selectors can ask for.
    pub attributes: Attributes,
    /// Amounts that can be counted, and how each may be split.
    pub capacity: Capacities,
    /// Number of claims that may hold the device at once: one or any.
    pub sharing: Sharing,
    /// Health of the device now.
    pub health: Health,
    /// Edits that every container needs in order to use the device, device nodes for example.
    pub edits: ContainerEdits,
    /// Counters that the device draws on together with others: partitions of one card exclude each other.
    pub consumes: Vec<CounterUse>,
    /// Conditions to wait for between scheduling and start, for devices that are attached first.
    pub binding: Option<BindingConditions>,
    /// Amounts of the node's own resources that the device stands for, by resource name (`cpu`, `memory`,
    /// `hugepages-2Mi`).
    pub node_allocatable: BTreeMap<String, NodeAllocatable>,
    /// Serial numbers of the cards behind the device: by these a card that was attached from outside is known.
    pub cards: CardSerials,
    /// Method by which an order to detach the device erases what claims wrote, and nothing else.
    pub erasure: Erasure,
    /// The backend's own facts, handed back to it in [`crate::PlanWork`] and [`crate::PrepareWork`]; never published.
    pub data: serde_json::Value,
}

/// Method by which an order erases a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Erasure {
    /// The order erases all that claims wrote.
    By(ErasureMethod),
    /// No order can erase the device.
    Impossible {
        /// The obstacle, and the way out where there is one.
        reason: &'static str,
    },
}

impl Default for Erasure {
    fn default() -> Self {
        Self::Impossible { reason: "devices of its kind cannot be erased" }
    }
}

impl Erasure {
    /// Returns the method, where there is one.
    pub fn method(&self) -> Option<ErasureMethod> {
        match self {
            Self::By(method) => Some(*method),
            Self::Impossible { .. } => None,
        }
    }

    /// Returns the reason why no order can erase the device.
    pub fn obstacle(&self) -> Option<&'static str> {
        match self {
            Self::By(_) => None,
            Self::Impossible { reason } => Some(reason),
        }
    }
}

/// Serial numbers of the cards behind a device.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum CardSerials {
    /// No card is behind the device, or none with a serial number.
    #[default]
    Unknown,
    /// A card is behind the device, and its serial number cannot be read now.
    Hidden,
    /// The device is this card, whole.
    Whole(u64),
    /// The device is made of these cards, in whole or in part.
    Among(BTreeSet<u64>),
}

impl CardSerials {
    /// True if a card with this serial number, or without one, can be behind the device.
    pub fn is_card(&self, serial: Option<u64>) -> bool {
        match serial {
            None => matches!(self, Self::Unknown | Self::Hidden),
            Some(serial) => self.iter().any(|known| known == serial),
        }
    }

    /// Returns every serial number.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let (whole, among) = match self {
            Self::Unknown | Self::Hidden => (None, None),
            Self::Whole(serial) => (Some(*serial), None),
            Self::Among(serials) => (None, Some(serials)),
        };
        whole.into_iter().chain(among.into_iter().flatten().copied())
    }
}

impl Device {
    /// A healthy, exclusive device with nothing but a name.
    pub fn new(name: DeviceName) -> Self {
        Self {
            name,
            attributes: Attributes::default(),
            capacity: Capacities::default(),
            sharing: Sharing::Exclusive,
            health: Health::Healthy,
            edits: ContainerEdits::default(),
            consumes: Vec::new(),
            binding: None,
            node_allocatable: BTreeMap::new(),
            cards: CardSerials::Unknown,
            erasure: Erasure::default(),
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
    String(CompactString),
    /// A semantic version, 2.0.0 syntax.
    Version(CompactString),
    /// Several whole numbers. Lists are published only where the operator says that the cluster takes them.
    Ints(Vec<i64>),
    /// Several texts.
    Strings(Vec<String>),
}

impl Serialize for AttributeValue {
    /// Writes the plain JSON value: a version and a string look alike to a reader.
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
        Self::String(value.into())
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
    /// Amount for a request that names none.
    pub default: Quantity,
    /// The least that can be requested.
    pub min: Quantity,
    /// The distance between valid requests.
    pub step: Quantity,
}

impl RequestPolicy {
    /// Amount that a request for `asked` is given, as the scheduler rounds it.
    pub fn round_up(&self, asked: Quantity) -> Quantity {
        let rounded = policy::round_up(asked.into(), self.min.into(), Some(self.step.into()));
        // More than can be counted is more than there is, rounded or not.
        Quantity::try_from(rounded).unwrap_or(asked)
    }
}

/// Number of claims that may hold a device at once.
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
    /// Total of each counter, by name: DNS labels.
    pub counters: BTreeMap<DeviceName, Quantity>,
}

/// Counters of a [`CounterSet`] that a device takes as long as any claim holds the device.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CounterUse {
    /// Name of the set.
    pub set: DeviceName,
    /// How much of each counter.
    pub counters: BTreeMap<DeviceName, Quantity>,
}

/// Conditions that the scheduler waits for, once a device is allocated, before the pod is bound to its node.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BindingConditions {
    /// True if the allocation is then only good on the node that was chosen.
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

/// Health of a device: usable now or not.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum Health {
    /// The device was checked and works.
    Healthy,
    /// The device was checked and does not work.
    Unhealthy {
        /// Reason, from what was seen, for people.
        reason: String,
    },
    /// The device could not be checked.
    Unknown {
        /// Reason why not, for people.
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

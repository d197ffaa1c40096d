//! What a backend says about a device.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{ContainerEdits, DeviceName, QualifiedName, Quantity};

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
}

impl Serialize for AttributeValue {
    /// As the plain JSON value: a version and a string look alike to a reader.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::String(value) | Self::Version(value) => serializer.serialize_str(value),
        }
    }
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::String(value) | Self::Version(value) => f.write_str(value),
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

/// Whether several claims may hold a device at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Sharing {
    /// One claim at a time.
    Exclusive,
    /// Any number of claims, as long as their parts fit into the capacities.
    Shared,
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

//! A case: what the allocator is given, as plain objects of the API, and what upstream's allocator said of it.

use std::{collections::BTreeSet, fmt, str::FromStr};

use hostler_allocator::structured::Variant;
use hostler_api::KubernetesVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One line of a file of cases.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Case {
    /// `file/what is special`.
    pub(crate) name: String,
    /// Names of the allocator's features that are on.
    #[serde(default)]
    pub(crate) features: Vec<String>,
    /// The Node.
    pub(crate) node: Value,
    /// DeviceClasses.
    #[serde(default)]
    pub(crate) classes: Vec<Value>,
    /// ResourceClaims, in the order in which they are to be satisfied.
    #[serde(default)]
    pub(crate) claims: Vec<Value>,
    /// ResourceSlices, in the order in which they are listed.
    #[serde(default)]
    pub(crate) slices: Vec<Value>,
    /// What others hold.
    #[serde(default, skip_serializing_if = "Allocated::is_empty")]
    pub(crate) allocated: Allocated,
    /// What upstream said, equal answers together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<Answer>,
}

/// What others hold.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Allocated {
    /// Devices that are held as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) devices: Vec<DeviceReference>,
    /// Shares of devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) shares: Vec<ShareReference>,
    /// What all shares of a device took together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) capacity: Vec<ConsumedCapacity>,
}

impl Allocated {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Which device.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct DeviceReference {
    /// Its driver.
    pub(crate) driver: String,
    /// Its pool.
    pub(crate) pool: String,
    /// Its name.
    pub(crate) device: String,
}

/// Which share of a device.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct ShareReference {
    /// Of which device.
    #[serde(flatten)]
    pub(crate) device: DeviceReference,
    /// Identity of the share.
    #[serde(rename = "shareID")]
    pub(crate) share_id: String,
}

/// How much of a device is taken.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct ConsumedCapacity {
    /// Of which device.
    #[serde(flatten)]
    pub(crate) device: DeviceReference,
    /// Quantities by the name of the capacity.
    pub(crate) capacity: Value,
}

/// What several implementations said alike.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Answer {
    /// Who said it.
    pub(crate) of: BTreeSet<Implementation>,
    /// What they said.
    pub(crate) outcome: Outcome,
    /// How many steps their search took; only some count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) invocations: Option<u64>,
}

/// One of upstream's implementations, written `1.36/stable`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Implementation {
    /// Of which release.
    pub(crate) version: KubernetesVersion,
    /// Which of the three that each release has.
    pub(crate) variant: Variant,
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variant = json!(self.variant);
        write!(f, "{}/{}", self.version, variant.as_str().unwrap_or_default())
    }
}

impl FromStr for Implementation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| {
            let (version, variant) = text.split_once('/')?;
            let version = serde_json::from_value(json!(version)).ok()?;
            Some(Self { version, variant: serde_json::from_value(json!(variant)).ok()? })
        };
        parse(text).ok_or_else(|| format!("{text:?} is not like 1.36/stable"))
    }
}

impl Serialize for Implementation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Implementation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What an allocator says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// It fits: an AllocationResult for each claim.
    Fit(Vec<Value>),
    /// It does not fit on this node.
    NoFit(bool),
    /// It fits on no node, and why in a word.
    Fatal(String),
}

impl Outcome {
    /// As it can be compared: empty fields are absent ones, and all identities of shares are the same.
    #[must_use]
    pub(crate) fn normalised(mut self) -> Self {
        if let Self::Fit(results) = &mut self {
            results.iter_mut().for_each(normalise);
        }
        self
    }
}

/// Empties go, except in what a driver alone understands.
fn normalise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut().filter(|(name, _)| *name != "parameters") {
                normalise(field);
                if name == "shareID" {
                    *field = Value::from("share");
                }
            }
            fields.retain(|name, field| name == "parameters" || !is_empty(field));
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Puts equal answers together.
#[must_use]
pub(crate) fn grouped(answers: impl IntoIterator<Item = Answer>) -> Vec<Answer> {
    let mut groups: Vec<Answer> = Vec::new();
    for answer in answers {
        let same = |group: &&mut Answer| (&group.outcome, group.invocations) == (&answer.outcome, answer.invocations);
        match groups.iter_mut().find(same) {
            Some(group) => group.of.extend(answer.of),
            None => groups.push(answer),
        }
    }
    groups
}

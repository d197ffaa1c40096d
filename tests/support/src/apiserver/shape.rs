//! Shape of an object: which parts are one field, and which have fields of their own; for lists, the keys that tell
//! their members apart. For built-in kinds the shape is a table, for others the schema has it.

use serde_json::{Map, Value};

use super::{fieldpath::PathElement, resources::ServedResource, slices::items};

/// Lists whose members are owned one by one, with their keys; `=` for sets. Matched at the end of a path.
const LISTS: &[(&str, &str)] = &[
    ("metadata.finalizers", "="),
    ("metadata.ownerReferences", "uid"),
    ("spec.podCIDRs", "="),
    ("spec.containers", "name"),
    ("containers[].env", "name"),
    ("containers[].ports", "containerPort,protocol"),
    ("containers[].volumeDevices", "devicePath"),
    ("containers[].volumeMounts", "mountPath"),
    ("resources.claims", "name"),
    ("spec.hostAliases", "ip"),
    ("spec.imagePullSecrets", "name"),
    ("spec.resourceClaims", "name"),
    ("spec.schedulingGates", "name"),
    ("spec.topologySpreadConstraints", "topologyKey,whenUnsatisfiable"),
    ("spec.volumes", "name"),
    ("secrets", "name"),
    ("status.addresses", "type"),
    ("status.conditions", "type"),
    ("status.devices", "driver,device,pool,shareID"),
    ("status.devices[].conditions", "type"),
    ("status.podIPs", "ip"),
    ("status.reservedFor", "uid"),
    ("status.resourceClaimStatuses", "name"),
    ("status.resourceClaims", "name"),
    ("status.resourceClaims[].unsuitableNodes", "="),
    ("spec.potentialNodes", "="),
];
/// Lists that strategic merge patches merge, with the key; `=` for those of plain values.
const PATCHED: &[(&str, &str)] = &[
    ("metadata.finalizers", "="),
    ("metadata.ownerReferences", "uid"),
    ("spec.podCIDRs", "="),
    ("spec.containers", "name"),
    ("containers[].env", "name"),
    ("containers[].ports", "containerPort"),
    ("containers[].volumeDevices", "devicePath"),
    ("containers[].volumeMounts", "mountPath"),
    ("spec.hostAliases", "ip"),
    ("spec.imagePullSecrets", "name"),
    ("spec.resourceClaims", "name"),
    ("spec.schedulingGates", "name"),
    ("spec.topologySpreadConstraints", "topologyKey"),
    ("spec.volumes", "name"),
    ("secrets", "name"),
    ("status.addresses", "type"),
    ("status.conditions", "type"),
    ("status.hostIPs", "ip"),
    ("status.podIPs", "ip"),
    ("status.reservedFor", "uid"),
    ("status.resourceClaimStatuses", "name"),
];
/// Structures and maps that are one field.
const ATOMIC: &[&str] = &[
    "availableOnNodes",
    "suitableNodes",
    "configMapKeyRef",
    "fieldRef",
    "fileKeyRef",
    "imagePullSecrets[]",
    "involvedObject",
    "labelSelector",
    "metadata.ownerReferences[]",
    "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelector",
    "related",
    "resourceFieldRef",
    "secretKeyRef",
    "secrets[]",
    "status.devices[].data",
];
/// Maps: names in them are not those of a type.
const MAPS: &[&str] = &[
    "allocatable",
    "allocatedResources",
    "annotations",
    "binaryData",
    "capacity",
    "data",
    "labels",
    "limits",
    "overhead",
    "requests",
];

/// The shape of a part of an object.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// A part of a built-in kind, by its path; every kind of container is one of `containers`.
    BuiltIn(String),
    /// An object of a custom kind.
    Custom(&'static Value),
    /// A part of a custom kind.
    Schema(&'static Value),
    /// An unknown part: objects have fields, a list is one field.
    Unknown,
}

/// The way in which members of a list are told apart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

fn ends(path: &str, pattern: &str) -> bool {
    path.strip_suffix(pattern).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn look(table: &'static [(&str, &str)], path: &str) -> Option<&'static str> {
    table.iter().find(|(pattern, _)| ends(path, pattern)).map(|(_, keys)| *keys)
}

impl Shape {
    pub(crate) fn of(resource: &ServedResource) -> Self {
        resource.custom.map_or_else(|| Self::BuiltIn(String::new()), |custom| Self::Custom(&custom.schema))
    }

    /// Returns the shape of a member of an object.
    pub(crate) fn field(&self, name: &str) -> Self {
        match self {
            Self::BuiltIn(path) => {
                let name = if matches!(name, "initContainers" | "ephemeralContainers") { "containers" } else { name };
                Self::BuiltIn(if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") })
            }
            Self::Custom(_) if matches!(name, "metadata" | "apiVersion" | "kind") => Self::BuiltIn(name.to_owned()),
            Self::Custom(schema) | Self::Schema(schema) => match &schema["properties"][name] {
                Value::Null if schema["additionalProperties"].is_object() => {
                    Self::Schema(&schema["additionalProperties"])
                }
                Value::Null => Self::Unknown,
                schema => Self::Schema(schema),
            },
            Self::Unknown => Self::Unknown,
        }
    }

    /// Returns the shape of a member of a list.
    pub(crate) fn item(&self) -> Self {
        match self {
            Self::BuiltIn(path) => Self::BuiltIn(format!("{path}[]")),
            Self::Schema(schema) => Self::Schema(&schema["items"]),
            Self::Custom(_) | Self::Unknown => Self::Unknown,
        }
    }

    /// Returns true if a name is a field of the type, not one that a map has.
    pub(crate) fn names(&self, name: &str) -> bool {
        match self {
            Self::BuiltIn(path) => !MAPS.iter().any(|map| ends(path, map)),
            Self::Custom(schema) => name == "metadata" || schema["properties"].get(name).is_some(),
            Self::Schema(schema) => schema["properties"].get(name).is_some(),
            Self::Unknown => false,
        }
    }

    /// Returns true if an object is one field.
    pub(crate) fn is_atomic(&self) -> bool {
        match self {
            Self::BuiltIn(path) => ATOMIC.iter().any(|pattern| ends(path, pattern)),
            Self::Schema(schema) => schema["x-kubernetes-map-type"] == "atomic",
            Self::Custom(_) | Self::Unknown => false,
        }
    }

    pub(crate) fn list(&self) -> ListKind {
        match self {
            Self::BuiltIn(path) => match look(LISTS, path) {
                None => ListKind::Atomic,
                Some("=") => ListKind::Set,
                Some(keys) => ListKind::Map(keys.split(',').map(str::to_owned).collect()),
            },
            Self::Schema(schema) => match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListKind::Set,
                Some("map") => {
                    let keys = items(&schema["x-kubernetes-list-map-keys"]).iter();
                    ListKind::Map(keys.filter_map(|key| key.as_str().map(str::to_owned)).collect())
                }
                _ => ListKind::Atomic,
            },
            Self::Custom(_) | Self::Unknown => ListKind::Atomic,
        }
    }

    /// The key by which strategic merge patches merge a list; `=` for one of plain values.
    pub(crate) fn patch_key(&self) -> Option<&'static str> {
        match self {
            Self::BuiltIn(path) => look(PATCHED, path),
            _ => None,
        }
    }

    /// The step to a member of this list; `None` where members have no identity.
    pub(crate) fn step(&self, item: &Value) -> Option<PathElement> {
        match self.list() {
            ListKind::Atomic => None,
            ListKind::Set => Some(PathElement::Item(item.to_string())),
            ListKind::Map(keys) => {
                let shape = self.item();
                let value = |key: &str| item.get(key).cloned().or_else(|| shape.default_of(key));
                let keys = keys.into_iter().filter_map(|key| value(&key).map(|value| (key, value)));
                Some(PathElement::Member(Value::Object(keys.collect::<Map<_, _>>()).to_string()))
            }
        }
    }

    /// Returns the default of a key that is missing.
    fn default_of(&self, key: &str) -> Option<Value> {
        match self {
            Self::BuiltIn(path) => (ends(path, "ports[]") && key == "protocol").then(|| Value::from("TCP")),
            Self::Schema(schema) => schema["properties"][key].get("default").cloned(),
            Self::Custom(_) | Self::Unknown => None,
        }
    }
}

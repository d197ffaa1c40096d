//! The device that a selector judges: looked into where it lies, without building maps of it.

use std::{cmp::Ordering, collections::BTreeMap};

use hostler_api::resource::{DeviceAttribute, DeviceCapacity, SliceQuantity, SortedMap};

use super::{
    EvaluationError,
    collections::{List, Map},
    semver::Semver,
    value::{Shared, Value},
};

/// Facts of a device that a selector sees.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFacts<'a> {
    /// Driver of the device; the domain of names that have none.
    pub driver: &'a str,
    /// Attributes by qualified name.
    pub attributes: &'a SortedMap<DeviceAttribute>,
    /// Capacities by qualified name.
    pub capacity: &'a SortedMap<DeviceCapacity>,
    /// True if several claims can hold the device.
    pub allow_multiple_allocations: bool,
}

/// Named properties of a device: attributes or capacities.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Property {
    /// `device.attributes`.
    Attribute,
    /// `device.capacity`.
    Capacity,
}

impl Property {
    /// Field of `device` in expressions.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Attribute => "attributes",
            Self::Capacity => "capacity",
        }
    }
}

/// Maps of the language that are a device, or a part of one.
#[derive(Clone, Debug)]
pub(super) enum DeviceMap<'a> {
    Device(&'a DeviceFacts<'a>),
    Domains(&'a DeviceFacts<'a>, Property),
    Domain(&'a DeviceFacts<'a>, Property, Shared<'a, str>),
}

impl<'a> DeviceFacts<'a> {
    /// Reason why no selector can judge the device, if there is one: Kubernetes reads all attributes before it
    /// evaluates anything.
    pub fn fault(&self, has_lists: bool) -> Option<EvaluationError> {
        let is_version = |version: &str| Semver::parse(version).is_some();
        let attributes = self.attributes.iter().find_map(|(name, attribute)| {
            let is_readable = match attribute {
                DeviceAttribute::Int(_) | DeviceAttribute::Bool(_) | DeviceAttribute::String(_) => true,
                DeviceAttribute::Version(version) => is_version(version),
                DeviceAttribute::Versions(versions) => has_lists && versions.iter().all(|version| is_version(version)),
                DeviceAttribute::Ints(_) | DeviceAttribute::Bools(_) | DeviceAttribute::Strings(_) => has_lists,
                DeviceAttribute::Unknown(_) => false,
            };
            (!is_readable).then(|| EvaluationError::Attribute(name.to_owned()))
        });
        let capacity = || self.capacity.iter().find(|(_, capacity)| capacity.value.get().is_none());
        attributes.or_else(|| {
            capacity().map(|(name, _)| EvaluationError::Unsupported(format!("the amount of capacity {name}")))
        })
    }

    /// The value of an attribute or a capacity.
    pub(super) fn property(&self, property: Property, domain: &str, id: &str) -> Option<Value<'a>> {
        match property {
            Property::Attribute => self.named(self.attributes, domain, id).and_then(attribute_value),
            Property::Capacity => self.named(self.capacity, domain, id).and_then(capacity_value),
        }
    }

    /// Finds a value by its full name, or by the id alone if the domain is the driver's.
    fn named<V>(&self, map: &'a SortedMap<V>, domain: &str, id: &str) -> Option<&'a V> {
        if domain.contains('/') {
            return None;
        }
        let full = map.search(|name| compare_qualified(name, domain, id));
        full.or_else(|| if domain == self.driver && !id.contains('/') { map.get(id) } else { None })
    }

    /// Names, as domain and id, in their order.
    fn names(&self, property: Property) -> impl Iterator<Item = (&'a str, &'a str)> {
        let driver = self.driver;
        let attributes = self.attributes.iter().map(|(name, _)| name).filter(move |_| property == Property::Attribute);
        let capacity = self.capacity.iter().map(|(name, _)| name).filter(move |_| property == Property::Capacity);
        attributes.chain(capacity).map(move |name| name.split_once('/').unwrap_or((driver, name)))
    }
}

/// The order of a name and `domain/id`.
fn compare_qualified(name: &str, domain: &str, id: &str) -> Ordering {
    let (head, tail) = name.as_bytes().split_at(domain.len().min(name.len()));
    head.cmp(domain.as_bytes()).then_with(|| match tail.split_first() {
        Some((slash, rest)) => slash.cmp(&b'/').then_with(|| rest.cmp(id.as_bytes())),
        None => Ordering::Less,
    })
}

fn attribute_value(attribute: &DeviceAttribute) -> Option<Value<'_>> {
    Some(match attribute {
        DeviceAttribute::Int(number) => Value::Int(*number),
        DeviceAttribute::Bool(value) => Value::Bool(*value),
        DeviceAttribute::String(text) => Value::Text(Shared::Borrowed(text)),
        DeviceAttribute::Version(version) => return parsed_version(version),
        DeviceAttribute::Ints(numbers) => Value::List(List::Ints(numbers)),
        DeviceAttribute::Bools(bools) => Value::List(List::Bools(bools)),
        DeviceAttribute::Strings(texts) => Value::List(List::Texts(texts)),
        DeviceAttribute::Versions(versions) => Value::List(List::Versions(versions)),
        DeviceAttribute::Unknown(_) => return None,
    })
}

fn capacity_value(capacity: &DeviceCapacity) -> Option<Value<'_>> {
    match &capacity.value {
        SliceQuantity::Exact(quantity) => Some(Value::Quantity(Shared::Borrowed(quantity))),
        SliceQuantity::Unreadable(_) => None,
    }
}

/// Value of a version attribute; `None` for a text that is no version, which [`DeviceFacts::fault`] finds first.
pub(super) fn parsed_version(text: &str) -> Option<Value<'static>> {
    Semver::parse(text).map(|version| Value::Semver(Shared::owned(version)))
}

impl<'a> DeviceMap<'a> {
    pub(super) fn get(&self, key: &Shared<'a, str>) -> Option<Value<'a>> {
        match self {
            Self::Device(facts) => match &**key {
                "driver" => Some(Value::Text(Shared::Borrowed(facts.driver))),
                "allowMultipleAllocations" => Some(Value::Bool(facts.allow_multiple_allocations)),
                "attributes" => Some(Value::Map(Map::Device(Self::Domains(facts, Property::Attribute)))),
                "capacity" => Some(Value::Map(Map::Device(Self::Domains(facts, Property::Capacity)))),
                _ => None,
            },
            // A domain that the device does not know is one without names.
            Self::Domains(facts, property) => {
                Some(Value::Map(Map::Device(Self::Domain(facts, *property, key.clone()))))
            }
            Self::Domain(facts, property, domain) => facts.property(*property, domain, key),
        }
    }

    /// Result of a lookup by a key that is no text.
    pub(super) fn without_key(&self) -> Option<Value<'a>> {
        matches!(self, Self::Domains(..)).then(|| Value::Map(Map::new(BTreeMap::new())))
    }

    pub(super) fn contains(&self, key: &Shared<'a, str>) -> bool {
        match self {
            Self::Domains(facts, property) => facts.names(*property).any(|(domain, _)| *domain == **key),
            _ => self.get(key).is_some(),
        }
    }

    pub(super) fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        let mut keys: Vec<&'a str> = match self {
            Self::Device(_) => vec!["allowMultipleAllocations", "attributes", "capacity", "driver"],
            Self::Domains(facts, property) => facts.names(*property).map(|(domain, _)| domain).collect(),
            Self::Domain(facts, property, domain) => {
                facts.names(*property).filter(|(other, _)| *other == &**domain).map(|(_, id)| id).collect()
            }
        };
        keys.sort_unstable();
        keys.dedup();
        let entry = |key: &'a str| {
            let key = Shared::Borrowed(key);
            Some((Value::Text(key.clone()), self.get(&key)?))
        };
        keys.into_iter().filter_map(entry).collect()
    }
}

//! A device as maps and values of the language: looked into where it lies, without building maps of it.

use hostler_api::resource::{DeviceAttribute, DeviceCapacity, SliceQuantity};

use super::{Shared, Value, list::List};
use crate::device::{DeviceFacts, Property};

/// Maps of the language that are a device, or a part of one.
#[derive(Clone, Debug)]
pub(crate) enum DeviceMap<'a> {
    Device(&'a DeviceFacts<'a>),
    Domains(&'a DeviceFacts<'a>, Property),
    Domain(&'a DeviceFacts<'a>, Property, Shared<'a, str>),
}

impl<'a> DeviceFacts<'a> {
    /// The value of an attribute or a capacity.
    pub(crate) fn property(&self, property: Property, domain: &str, id: &str) -> Option<Value<'a>> {
        match property {
            Property::Attribute => self.named(self.attributes, domain, id).and_then(attribute_value),
            Property::Capacity => self.named(self.capacity, domain, id).and_then(capacity_value),
        }
    }
}

fn attribute_value(attribute: &DeviceAttribute) -> Option<Value<'_>> {
    Some(match attribute {
        DeviceAttribute::Int(number) => Value::Int(*number),
        DeviceAttribute::Bool(value) => Value::Bool(*value),
        DeviceAttribute::String(text) => Value::Text(Shared::Borrowed(text)),
        DeviceAttribute::Version(version) => return Value::version(version),
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

impl<'a> DeviceMap<'a> {
    pub(crate) fn get(&self, key: &Shared<'a, str>) -> Option<Value<'a>> {
        match self {
            Self::Device(facts) => match &**key {
                "driver" => Some(Value::Text(Shared::Borrowed(facts.driver))),
                "allowMultipleAllocations" => Some(Value::Bool(facts.allow_multiple_allocations)),
                "attributes" => Some(Value::device_map(Self::Domains(facts, Property::Attribute))),
                "capacity" => Some(Value::device_map(Self::Domains(facts, Property::Capacity))),
                _ => None,
            },
            // A domain that the device does not know is one without names.
            Self::Domains(facts, property) => Some(Value::device_map(Self::Domain(facts, *property, key.clone()))),
            Self::Domain(facts, property, domain) => facts.property(*property, domain, key),
        }
    }

    /// Result of a lookup by a key that is no text.
    pub(crate) fn without_key(&self) -> Option<Value<'a>> {
        matches!(self, Self::Domains(..)).then(Value::empty_map)
    }

    pub(crate) fn contains(&self, key: &Shared<'a, str>) -> bool {
        match self {
            Self::Domains(facts, property) => facts.names(*property).any(|(domain, _)| *domain == **key),
            _ => self.get(key).is_some(),
        }
    }

    pub(crate) fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
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

//! The device that a selector judges, and the search for its properties by name.

use std::cmp::Ordering;

use hostler_api::resource::{DeviceAttribute, DeviceCapacity, SortedMap};

use super::{EvaluationError, semver::Semver};

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

    /// Finds a value by its full name, or by the id alone if the domain is the driver's.
    pub(super) fn named<V>(&self, map: &'a SortedMap<V>, domain: &str, id: &str) -> Option<&'a V> {
        if domain.contains('/') {
            return None;
        }
        let full = map.search(|name| compare_qualified(name, domain, id));
        full.or_else(|| if domain == self.driver && !id.contains('/') { map.get(id) } else { None })
    }

    /// Names, as domain and id, in their order.
    pub(super) fn names(&self, property: Property) -> impl Iterator<Item = (&'a str, &'a str)> {
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

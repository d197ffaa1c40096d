//! Maps: those that expressions make, and a device's own without copying them.

use std::{cmp::Ordering, collections::BTreeMap, net::IpAddr, sync::Arc};

use super::{Shared, Value, device_map::DeviceMap, is_not_other};
use crate::{
    time::{Duration, Timestamp},
    work::Work,
};

/// A map.
#[derive(Clone, Debug)]
pub(crate) enum Map<'a> {
    Entries(Arc<BTreeMap<Key<'a>, Value<'a>>>),
    Device(DeviceMap<'a>),
}

/// Key by which a map that an expression makes is looked up.
#[derive(Clone, Debug)]
pub(crate) enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(Shared<'a, str>),
    Null,
    /// A number that is not whole.
    Double(f64),
    Timestamp(Timestamp),
    Duration(Duration),
    Ip(IpAddr),
}

impl<'a> Key<'a> {
    /// Key of a value. Whole numbers of all types are one kind of key.
    pub(crate) fn of(value: &Value<'a>) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(number) => Some(Self::Int(*number)),
            Value::Uint(number) => Some(Self::Uint(*number)),
            Value::Double(number) if number.is_nan() => None,
            Value::Double(number) => Some(value.as_index().map_or(Self::Double(*number), Self::Int)),
            Value::Text(text) => Some(Self::Text(text.clone())),
            Value::Null => Some(Self::Null),
            Value::Timestamp(time) => time.is_utc().then_some(Self::Timestamp(*time)),
            Value::Duration(duration) => Some(Self::Duration(*duration)),
            Value::Ip(address) => Some(Self::Ip(*address)),
            _ => None,
        }
    }

    fn value(&self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(number) => Value::Int(*number),
            Self::Uint(number) => Value::Uint(*number),
            Self::Text(text) => Value::Text(text.clone()),
            Self::Null => Value::Null,
            Self::Double(number) => Value::Double(*number),
            Self::Timestamp(time) => Value::Timestamp(*time),
            Self::Duration(duration) => Value::Duration(*duration),
            Self::Ip(address) => Value::Ip(*address),
        }
    }

    /// Sort key that tells all keys apart.
    fn order(&self) -> (u8, i128, &str) {
        match self {
            Self::Bool(value) => (0, i128::from(*value), ""),
            Self::Int(number) => (1, i128::from(*number), ""),
            Self::Uint(number) => (1, i128::from(*number), ""),
            Self::Text(text) => (2, 0, text),
            Self::Null => (3, 0, ""),
            Self::Double(number) => (4, i128::from(number.to_bits()), ""),
            Self::Timestamp(time) => (5, i128::from(time.seconds()) << 32 | i128::from(time.nanos()), ""),
            Self::Duration(duration) => (6, i128::from(duration.0), ""),
            Self::Ip(IpAddr::V4(address)) => (7, i128::from(u32::from(*address)), ""),
            Self::Ip(IpAddr::V6(address)) => (8, u128::from(*address).cast_signed(), ""),
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

impl<'a> Map<'a> {
    pub(crate) fn new(entries: BTreeMap<Key<'a>, Value<'a>>) -> Self {
        Self::Entries(Arc::new(entries))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Entries(entries) => entries.len(),
            Self::Device(map) => map.entries().len(),
        }
    }

    /// True if a lookup in the map takes a hash.
    pub(crate) fn is_hashed(&self) -> bool {
        matches!(self, Self::Entries(entries) if !entries.is_empty())
    }

    /// Entries in the order of the keys; Kubernetes has none.
    pub(crate) fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        match self {
            Self::Entries(entries) => entries.iter().map(|(key, value)| (key.value(), value.clone())).collect(),
            Self::Device(map) => map.entries(),
        }
    }

    pub(crate) fn get(&self, key: &Value<'a>) -> Option<Value<'a>> {
        match (self, key) {
            (Self::Entries(entries), key) => entries.get(&Key::of(key)?).cloned(),
            (Self::Device(map), Value::Text(key)) => map.get(key),
            (Self::Device(map), _) => map.without_key(),
        }
    }

    /// Reads the map back, which leaves of all domains those that the device knows.
    pub(crate) fn reread(&self) -> Self {
        match self {
            Self::Device(DeviceMap::Domains(..)) => {
                let entries = self.entries().into_iter();
                Self::new(entries.filter_map(|(key, value)| Some((Key::of(&key)?, value))).collect())
            }
            other => other.clone(),
        }
    }

    /// True if the map has the key; unlike a lookup, this check knows which domains there are.
    pub(crate) fn contains(&self, key: &Value<'a>) -> bool {
        match (self, key) {
            (Self::Device(map), Value::Text(key)) => map.contains(key),
            (Self::Device(_), _) => false,
            _ => self.get(key).is_some(),
        }
    }

    /// This map with one entry more; `None` if the key is there already or can be none.
    pub(crate) fn inserted(self, key: &Value<'a>, value: Value<'a>) -> Option<Self> {
        let key = Key::of(key)?;
        let mut entries = match self {
            Self::Entries(entries) => entries,
            Self::Device(map) => {
                let entries = map.entries().into_iter();
                Arc::new(entries.filter_map(|(key, value)| Some((Key::of(&key)?, value))).collect())
            }
        };
        if entries.contains_key(&key) {
            return None;
        }
        Arc::make_mut(&mut entries).insert(key, value);
        Some(Self::Entries(entries))
    }

    pub(crate) fn equals(&self, other: &Map<'_>, work: &mut Work) -> bool {
        let (one, two) = (self.entries(), other.entries());
        let is_entry_equal =
            |((key, value), (other_key, other)): (&(Value<'a>, Value<'a>), &(Value<'_>, Value<'_>))| {
                key.equals(other_key, work) && is_not_other(value, other, work)
            };
        one.len() == two.len() && one.iter().zip(&two).all(is_entry_equal)
    }
}

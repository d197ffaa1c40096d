//! Values that expressions calculate with.

use std::{cmp::Ordering, collections::BTreeMap, mem::discriminant, net::IpAddr, ops::Deref, sync::Arc};

use hostler_api::ExactQuantity;

use super::{
    EvaluationError,
    addresses::Cidr,
    formats::NamedFormat,
    semver::Semver,
    time::{Duration, Timestamp},
    types::{DURATION, TIMESTAMP, Type},
    url::Url,
    work::Work,
};

mod device_map;
mod list;
mod map;

pub(super) use device_map::DeviceMap;
pub(super) use list::List;
pub(super) use map::{Key, Map};

/// A value that is borrowed from a device or a selector, or shared with other values.
#[derive(Debug)]
pub(super) enum Shared<'a, T: ?Sized> {
    Borrowed(&'a T),
    Owned(Arc<T>),
}

/// A value of the language.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Shared<'a, str>),
    Bytes(Shared<'a, [u8]>),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Value<'a>>>),
    Type(Arc<Type>),
    Quantity(Shared<'a, ExactQuantity>),
    /// A result of `add` or `sub`: Go hands a pointer out there, and finds no quantity equal to it.
    Sum(Shared<'a, ExactQuantity>),
    Semver(Shared<'a, Semver>),
    Ip(IpAddr),
    Cidr(Cidr),
    Timestamp(Timestamp),
    Duration(Duration),
    Url(Shared<'a, Url>),
    Format(&'static NamedFormat),
    /// The inside of an optional value that Go failed to read back; any use is an error.
    Lost,
}

impl<T: ?Sized> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(borrowed) => Self::Borrowed(borrowed),
            Self::Owned(owned) => Self::Owned(Arc::clone(owned)),
        }
    }
}

impl<T: ?Sized> Deref for Shared<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(borrowed) => borrowed,
            Self::Owned(owned) => owned,
        }
    }
}

impl<T> Shared<'_, T> {
    /// Address of the value, which tells it from others that are equal.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref::<T>(self).addr()
    }

    pub(super) fn owned(value: T) -> Self {
        Self::Owned(Arc::new(value))
    }
}

impl<T: ?Sized> Shared<'_, T> {
    fn borrowed(&self) -> Shared<'_, T> {
        Shared::Borrowed(self)
    }
}

impl<'a> Value<'a> {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(Shared::Owned(text.into()))
    }

    pub(super) fn bytes(bytes: &[u8]) -> Self {
        Self::Bytes(Shared::Owned(bytes.into()))
    }

    pub(super) fn list(values: Vec<Self>) -> Self {
        Self::List(List::new(values))
    }

    pub(super) fn device_map(map: DeviceMap<'a>) -> Self {
        Self::Map(Map::Device(map))
    }

    fn empty_map() -> Self {
        Self::Map(Map::new(BTreeMap::new()))
    }

    /// Returns the value of a version attribute; `None` for a text that is no version, which [`DeviceFacts::fault`]
    /// finds first.
    ///
    /// [`DeviceFacts::fault`]: super::DeviceFacts::fault
    fn version(text: &str) -> Option<Self> {
        Semver::parse(text).map(|version| Self::Semver(Shared::owned(version)))
    }

    pub(super) fn optional(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Returns the same value without counting references where that costs.
    pub(super) fn borrowed(&'a self) -> Self {
        match self {
            Self::Text(text) => Self::Text(text.borrowed()),
            Self::Bytes(bytes) => Self::Bytes(bytes.borrowed()),
            Self::Quantity(quantity) => Self::Quantity(quantity.borrowed()),
            Self::Sum(quantity) => Self::Sum(quantity.borrowed()),
            Self::Semver(version) => Self::Semver(version.borrowed()),
            other => other.clone(),
        }
    }

    /// Refuses a value that was lost in an optional one.
    pub(super) fn unless_lost(self) -> Result<Self, EvaluationError> {
        match self {
            Self::Lost => Err(EvaluationError::Failed("an optional value cannot be read back".to_owned())),
            value => Ok(value),
        }
    }

    /// True if the value is of a type that Kubernetes adds to the language.
    pub(super) fn is_of_kubernetes(&self) -> bool {
        matches!(self, Self::Quantity(_) | Self::Sum(_) | Self::Semver(_))
            || matches!(self, Self::Ip(_) | Self::Cidr(_) | Self::Url(_) | Self::Format(_))
    }

    /// Returns true if equality with the other has an answer: types of Kubernetes know only their like.
    fn can_equal(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::Lost, _) | (Value::Sum(_), Value::Sum(_)) => false,
            (Value::Sum(_), Value::Quantity(_)) => true,
            _ => !self.is_of_kubernetes() || discriminant(self) == discriminant(other),
        }
    }

    /// True if the values are equal: numbers are equal across their types; values of different types are not equal,
    /// and nothing goes wrong.
    pub(super) fn equals(&self, other: &Value<'_>, work: &mut Work) -> bool {
        self.equality(other, work) == Some(true)
    }

    /// Returns the same, and `None` where types of Kubernetes have no answer: they know only their like.
    pub(super) fn equality(&self, other: &Value<'_>, work: &mut Work) -> Option<bool> {
        let has_answer = matches!(other, Value::Null) || self.can_equal(other);
        if has_answer { self.equality_of_like(other, work) } else { None }
    }

    fn equality_of_like(&self, other: &Value<'_>, work: &mut Work) -> Option<bool> {
        Some(match (self, other) {
            _ if !work.step() => false,
            (Value::Null, Value::Null) => true,
            (Value::Bool(one), Value::Bool(two)) => one == two,
            (Value::Text(one), Value::Text(two)) => **one == **two,
            (Value::Bytes(one), Value::Bytes(two)) => **one == **two,
            (Value::List(one), Value::List(two)) => one.equals(two, work),
            (Value::Map(one), Value::Map(two)) => one.equals(two, work),
            (Value::Optional(one), Value::Optional(two)) => match (one, two) {
                (Some(one), Some(two)) if !one.can_equal(two) => return None,
                (Some(one), Some(two)) => return one.equality(two, work),
                (one, two) => one.is_none() && two.is_none(),
            },
            (Value::Type(one), Value::Type(two)) => one.runtime_name() == two.runtime_name(),
            (Value::Quantity(one) | Value::Sum(one), Value::Quantity(two)) => **one == **two,
            (Value::Semver(one), Value::Semver(two)) => one.cmp(two) == Ordering::Equal,
            (Value::Ip(one), Value::Ip(two)) => one == two,
            (Value::Cidr(one), Value::Cidr(two)) => one == two,
            (Value::Timestamp(one), Value::Timestamp(two)) => one == two,
            (Value::Duration(one), Value::Duration(two)) => one == two,
            (Value::Url(one), Value::Url(two)) => **one == **two,
            (Value::Format(one), Value::Format(two)) => one.name == two.name,
            _ => self.compare_numbers(other) == Some(Ordering::Equal),
        })
    }

    /// True if Go could look the value up; a lookup of another one ends the evaluation.
    pub(super) fn has_hash(&self) -> bool {
        !matches!(self, Self::Semver(_) | Self::Format(_) | Self::Bytes(_))
    }

    /// Order of two values that have one: numbers, texts, bytes, truths, times and durations.
    pub(super) fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(one), Value::Bool(two)) => Some(one.cmp(two)),
            (Value::Text(one), Value::Text(two)) => Some((**one).cmp(&**two)),
            (Value::Bytes(one), Value::Bytes(two)) => Some((**one).cmp(&**two)),
            (Value::Timestamp(one), Value::Timestamp(two)) => Some(one.cmp(two)),
            (Value::Duration(one), Value::Duration(two)) => Some(one.cmp(two)),
            _ => self.compare_numbers(other),
        }
    }

    fn compare_numbers(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Double(one), Value::Double(two)) => one.partial_cmp(two),
            (Value::Double(one), _) => compare_with_double(other.as_whole()?, *one).map(Ordering::reverse),
            (_, Value::Double(two)) => compare_with_double(self.as_whole()?, *two),
            _ => Some(self.as_whole()?.cmp(&other.as_whole()?)),
        }
    }

    /// Whole number that the value is.
    pub(super) fn as_whole(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(i128::from(*number)),
            Self::Uint(number) => Some(i128::from(*number)),
            _ => None,
        }
    }

    /// Position that a number means; `None` where it is no whole number.
    pub(super) fn as_index(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Uint(number) => i64::try_from(*number).ok(),
            Self::Double(number) => whole(*number),
            _ => None,
        }
    }

    /// True if the value can be the key of a lookup.
    pub(super) fn is_index(&self) -> bool {
        matches!(self, Self::Bool(_) | Self::Int(_) | Self::Uint(_) | Self::Double(_) | Self::Text(_))
    }

    /// Size by which costs are counted: characters, bytes, elements; one for everything else.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Text(text) => count(text.chars().count()),
            Self::Bytes(bytes) => count(bytes.len()),
            Self::List(list) => list.len(),
            Self::Map(map) => count(map.len()),
            Self::Optional(Some(value)) => value.size(),
            Self::Ip(address) => {
                if address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Self::Cidr(cidr) => u64::from(cidr.bits).div_ceil(8),
            _ => 1,
        }
    }

    /// Reads the value back as Go does from inside an optional one: wrappings go, types become their names, and
    /// values of types of Kubernetes are lost.
    pub(super) fn reread(&self) -> Self {
        match self {
            Self::Optional(None) => Self::Null,
            Self::Optional(Some(inside)) => inside.reread(),
            Self::Type(ty) => Self::text(ty.runtime_name()),
            Self::List(list) => Self::List(list.reread()),
            Self::Map(map) => Self::Map(map.reread()),
            Self::Format(_) => self.clone(),
            other if other.is_of_kubernetes() => Self::Lost,
            other => other.clone(),
        }
    }

    /// True if the value counts as nothing for `optional.ofNonZeroValue`.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(number) => *number == 0,
            Self::Uint(number) => *number == 0,
            Self::Double(number) => *number == 0.0,
            Self::Text(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.len() == 0,
            Self::Map(map) => map.len() == 0,
            Self::Timestamp(time) => time.is_zero(),
            Self::Duration(duration) => duration.0 == 0,
            _ => false,
        }
    }

    /// Type of the value, as far as `type()` tells types apart.
    pub(super) fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::Text(_) => Type::Text,
            Self::Bytes(_) => Type::Bytes,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Type(_) => Type::Meta(None),
            Self::Quantity(_) | Self::Sum(_) => Type::Struct("kubernetes.Quantity"),
            Self::Semver(_) => Type::Struct("kubernetes.Semver"),
            Self::Ip(_) => Type::opaque("net.IP"),
            Self::Cidr(_) => Type::opaque("net.CIDR"),
            Self::Timestamp(_) => TIMESTAMP,
            Self::Duration(_) => DURATION,
            Self::Url(_) => Type::Struct("kubernetes.URL"),
            Self::Format(_) => Type::Struct("kubernetes.NamedFormat"),
            Self::Lost => Type::Dyn,
        }
    }
}

/// Length in the type of costs.
pub(super) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Whole number that a floating-point number is.
pub(super) fn whole(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "checked by converting back")]
    let truncated = number as i64;
    #[expect(clippy::cast_precision_loss, reason = "a number that loses something is not equal")]
    let is_whole = truncated as f64 == number && truncated != i64::MAX;
    is_whole.then_some(truncated)
}

/// Compares both as floating-point numbers, as Kubernetes does: 2^63 - 1 is equal to 2^63 there.
fn compare_with_double(whole: i128, double: f64) -> Option<Ordering> {
    #[expect(clippy::cast_precision_loss, reason = "it is lost there, too")]
    let whole = whole as f64;
    whole.partial_cmp(&double)
}

/// True unless the elements differ: elements that cannot be compared count as equal.
fn is_not_other(one: &Value<'_>, two: &Value<'_>, work: &mut Work) -> bool {
    one.equality(two, work) != Some(false)
}

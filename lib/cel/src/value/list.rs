//! Lists: those that expressions make, and a device's own without copying them.

use std::sync::Arc;

use super::{Shared, Value, count, is_not_other};
use crate::work::Work;

/// A list.
#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Values(Arc<Vec<Value<'a>>>),
    /// Two lists behind each other, and their length together.
    Joined(Arc<(List<'a>, List<'a>)>, u64),
    Texts(&'a [String]),
    Ints(&'a [i64]),
    Bools(&'a [bool]),
    Versions(&'a [String]),
}

impl<'a> List<'a> {
    pub(crate) fn new(values: Vec<Value<'a>>) -> Self {
        Self::Values(Arc::new(values))
    }

    pub(crate) fn texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::new(texts.into_iter().map(|text| Value::text(text.as_ref())).collect())
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Values(values) => count(values.len()),
            Self::Joined(_, length) => *length,
            Self::Texts(texts) | Self::Versions(texts) => count(texts.len()),
            Self::Ints(numbers) => count(numbers.len()),
            Self::Bools(bools) => count(bools.len()),
        }
    }

    pub(crate) fn get(&self, index: u64) -> Option<Value<'a>> {
        if let Self::Joined(parts, _) = self {
            let first = parts.0.len();
            return if index < first { parts.0.get(index) } else { parts.1.get(index - first) };
        }
        let index = usize::try_from(index).ok()?;
        match self {
            Self::Values(values) => values.get(index).cloned(),
            Self::Joined(..) => None,
            Self::Texts(texts) => texts.get(index).map(|text| Value::Text(Shared::Borrowed(text))),
            Self::Ints(numbers) => numbers.get(index).map(|number| Value::Int(*number)),
            Self::Bools(bools) => bools.get(index).map(|value| Value::Bool(*value)),
            // What is no version was refused with the whole device.
            Self::Versions(versions) => versions.get(index).and_then(|text| Value::version(text)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Value<'a>> {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// This list with another behind it; neither is copied.
    pub(crate) fn joined(self, other: Self) -> Self {
        match (self.len(), other.len()) {
            (0, _) => other,
            (_, 0) => self,
            (one, two) => Self::Joined(Arc::new((self, other)), one.saturating_add(two)),
        }
    }

    /// This list with more elements, in place where nothing else holds it.
    pub(crate) fn extended(self, more: impl IntoIterator<Item = Value<'a>>) -> Self {
        let Self::Values(mut values) = self else { return self.joined(Self::new(more.into_iter().collect())) };
        Arc::make_mut(&mut values).extend(more);
        Self::Values(values)
    }

    /// Reads the list back; joined lists are taken apart.
    pub(crate) fn reread(&self) -> Self {
        match self {
            Self::Joined(..) => Self::new(self.iter().map(|element| element.reread()).collect()),
            other => other.clone(),
        }
    }

    pub(crate) fn contains(&self, wanted: &Value<'_>, work: &mut Work) -> bool {
        self.iter().any(|element| wanted.equals(&element, work))
    }

    pub(crate) fn equals(&self, other: &List<'_>, work: &mut Work) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(one, two)| is_not_other(&one, &two, work))
    }
}

//! Finds the line of a YAML text on which a field stands. Runs only for mistakes.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

/// A value, with the places of its fields.
#[derive(Debug, Default)]
pub(super) enum PlacedValue {
    /// Text, number, boolean or null.
    #[default]
    Scalar,
    /// Items in their order.
    List(Vec<Spanned<PlacedValue>>),
    /// Fields by name.
    Map(Vec<(String, Spanned<PlacedValue>)>),
}

impl PlacedValue {
    /// The line of the field at a path such as `items[3].spec.nodeName`, or of the nearest field above it.
    pub(super) fn line_of(&self, path: &str) -> Option<u64> {
        let mut value = self;
        let mut line = None;
        let mut rest = path;
        while !rest.is_empty() {
            let Some((step, below)) = value.step(rest) else { break };
            (line, value, rest) = (Some(step.referenced.line()), &step.value, below.trim_start_matches('.'));
        }
        line
    }

    /// The value of the path's first step, and the rest of the path. Names may have dots.
    fn step<'a, 'p>(&'a self, path: &'p str) -> Option<(&'a Spanned<Self>, &'p str)> {
        match self {
            Self::Scalar => None,
            Self::List(values) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                Some((values.get(index.parse::<usize>().ok()?)?, rest))
            }
            Self::Map(fields) => {
                let behind = |name: &str| {
                    let rest = path.strip_prefix(name)?;
                    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
                };
                let mut found = fields.iter().filter_map(|(name, value)| Some((value, behind(name)?)));
                found.next()
            }
        }
    }
}

impl<'de> Deserialize<'de> for PlacedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlacedVisitor)
    }
}

struct PlacedVisitor;

impl<'de> Visitor<'de> for PlacedVisitor {
    type Value = PlacedValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<PlacedValue, E> {
        Ok(PlacedValue::Scalar)
    }

    fn visit_bool<E>(self, _: bool) -> Result<PlacedValue, E> {
        Ok(PlacedValue::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<PlacedValue, E> {
        Ok(PlacedValue::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<PlacedValue, E> {
        Ok(PlacedValue::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<PlacedValue, E> {
        Ok(PlacedValue::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<PlacedValue, E> {
        Ok(PlacedValue::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<PlacedValue, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(PlacedValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<PlacedValue, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            fields.push(entry);
        }
        Ok(PlacedValue::Map(fields))
    }
}

/// Number of the line on which `part` of `whole` begins.
pub(super) fn line_at(whole: &str, part: &str) -> usize {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    1 + whole.as_bytes()[..start.min(whole.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// The parser's words; it appends a line that is one of the part that it was given.
pub(super) fn without_place(error: &serde_json::Error) -> String {
    let words = error.to_string();
    words.rsplit_once(" at line ").map_or(words.clone(), |(words, _)| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_or_what_is_above_it() {
        let text = "a:\n  b.c/d: 1\n  list:\n  - x: 1\n    y: {z: 2}\n  - q: 3\ne: 5\n";
        let value: PlacedValue = serde_saphyr::from_str(text).unwrap();
        let lines =
            ["a.b.c/d", "a.list[0].y.z", "a.list[1].absent.more", "a.list[7]", "e", ""].map(|path| value.line_of(path));
        assert_eq!(lines, [Some(2), Some(5), Some(6), Some(4), Some(7), None]);
    }
}

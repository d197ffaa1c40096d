//! The keys of a section, taken from its type, so that the list cannot fall behind the code.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
    forward_to_deserialize_any,
};

/// The field names of a struct, in the spelling of the file. Empty for anything but a struct with plain fields.
pub(super) fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    T::deserialize(FieldNames).err().map_or(&[], |found| found.0)
}

/// Asked for a struct, answers with an "error" that carries the field names.
struct FieldNames;

#[derive(Debug)]
struct FieldNamesError(&'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames {
    type Error = FieldNamesError;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, FieldNamesError> {
        Err(FieldNamesError(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, FieldNamesError> {
        Err(FieldNamesError(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl fmt::Display for FieldNamesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fields {:?}", self.0)
    }
}

impl std::error::Error for FieldNamesError {}

impl de::Error for FieldNamesError {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, rename_all = "kebab-case")]
    struct SampleSection {
        first_key: u32,
        second: Option<String>,
    }

    #[test]
    fn fields_are_named_as_in_the_file() {
        assert_eq!(fields_of::<SampleSection>(), ["first-key", "second"]);
        assert!(fields_of::<u32>().is_empty());
    }
}

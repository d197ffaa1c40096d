//! JSON with its version and a checksum.
//!
//! ```text
//!   {"version": 1, "checksum": "crc32:…", "<field>": …}
//! ```
//!
//! The checksum is taken over the compact JSON of the field as it stands in the file, so additions of a later version
//! to the content do not break it.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
    ser::{SerializeMap, Serializer},
};
use serde_json::{Value, value::RawValue};

const VERSION: &str = "version";
const CHECKSUM: &str = "checksum";

/// One kind of file.
#[derive(Clone, Copy, Debug)]
pub struct EnvelopeFormat {
    /// The version that is written. Every version up to it is read.
    pub version: u64,
    /// The name of the content's field.
    pub field: &'static str,
    /// Kind of the content, for people: `a claim record`.
    pub what: &'static str,
    /// Advice on a file of a later version, for people: `: upgrade hostler`, or nothing.
    pub remedy: &'static str,
}

/// Reason why bytes are not a whole, unchanged file of a version that is known.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Truncated or garbled.
    #[error("it is not the JSON of {what}")]
    Json {
        /// Kind of content that was expected.
        what: &'static str,
        /// Place and cause of the failure.
        #[source]
        source: serde_json::Error,
    },
    /// Written by a later version of hostler.
    #[error("it has format version {found}, this version of hostler reads up to {known}{remedy}")]
    Version {
        /// The version in the file.
        found: u64,
        /// The latest that is known.
        known: u64,
        /// Advice on it.
        remedy: &'static str,
    },
    /// The content changed since it was written.
    #[error("its checksum is {found}, its content gives {computed}")]
    Checksum {
        /// In the file.
        found: String,
        /// Of the content.
        computed: String,
    },
}

impl EnvelopeFormat {
    /// The bytes of a file with this content.
    ///
    /// # Errors
    /// When the content cannot be put into JSON.
    pub fn encode(&self, content: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
        self.encode_value(&serde_json::to_value(content)?)
    }

    /// The bytes of a file with this content, which is JSON already.
    ///
    /// # Errors
    /// When the content cannot be put into text.
    pub fn encode_value(&self, content: &Value) -> Result<Vec<u8>, serde_json::Error> {
        let checksum = checksum(content.to_string().as_bytes());
        let envelope = Envelope { version: self.version, checksum, content };
        let mut bytes = serde_json::to_vec_pretty(&EnvelopeWriter { field: self.field, envelope: &envelope })?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// The content of a file.
    ///
    /// # Errors
    /// When the bytes are damaged, of a later version, or something else.
    pub fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, EnvelopeError> {
        let json = |source| EnvelopeError::Json { what: self.what, source };
        let envelope = self.open(bytes).map_err(json)?;
        if envelope.version > self.version {
            let (found, known) = (envelope.version, self.version);
            return Err(EnvelopeError::Version { found, known, remedy: self.remedy });
        }
        let text = envelope.content.get();
        // Text as it was written needs no tree of values: a start reads thousands of files.
        if checksum(&without_white_space(text)) == envelope.checksum
            && let Ok(content) = serde_json::from_str(text)
        {
            return Ok(content);
        }
        let content: Value = serde_json::from_str(text).map_err(json)?;
        let computed = checksum(content.to_string().as_bytes());
        if computed != envelope.checksum {
            return Err(EnvelopeError::Checksum { found: envelope.checksum, computed });
        }
        serde_json::from_value(content).map_err(json)
    }

    /// Content of a file that [`EnvelopeFormat::decode`] refuses, if it can be read at all.
    pub fn salvage<T: DeserializeOwned>(&self, bytes: &[u8]) -> Option<T> {
        let content: Value = serde_json::from_str(self.open(bytes).ok()?.content.get()).ok()?;
        serde_json::from_value(content).ok()
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<Envelope<&'a RawValue>, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let envelope = EnvelopeReader { field: self.field }.deserialize(&mut reader)?;
        reader.end()?;
        Ok(envelope)
    }
}

fn checksum(compact: &[u8]) -> String {
    format!("crc32:{:08x}", crc32fast::hash(compact))
}

/// JSON without the white space between its tokens.
fn without_white_space(json: &str) -> Vec<u8> {
    let mut compact = Vec::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for &byte in json.as_bytes() {
        if in_string || !byte.is_ascii_whitespace() {
            compact.push(byte);
        }
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ => {}
        }
    }
    compact
}

struct Envelope<T> {
    version: u64,
    checksum: String,
    content: T,
}

/// An envelope with the name of its content's field, to be written.
struct EnvelopeWriter<'a> {
    field: &'static str,
    envelope: &'a Envelope<&'a Value>,
}

impl Serialize for EnvelopeWriter<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry(VERSION, &self.envelope.version)?;
        map.serialize_entry(CHECKSUM, &self.envelope.checksum)?;
        map.serialize_entry(self.field, &self.envelope.content)?;
        map.end()
    }
}

/// Reads an envelope as a derived `Deserialize` would if it could be told the name of a field.
struct EnvelopeReader {
    field: &'static str,
}

impl<'de> DeserializeSeed<'de> for EnvelopeReader {
    type Value = Envelope<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EnvelopeReader {
    type Value = Envelope<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("struct Envelope")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut version, mut checksum, mut content) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                VERSION => once(&mut version, VERSION, &mut map)?,
                CHECKSUM => once(&mut checksum, CHECKSUM, &mut map)?,
                field if field == self.field => once(&mut content, self.field, &mut map)?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Envelope {
            version: version.ok_or_else(|| A::Error::missing_field(VERSION))?,
            checksum: checksum.ok_or_else(|| A::Error::missing_field(CHECKSUM))?,
            content: content.ok_or_else(|| A::Error::missing_field(self.field))?,
        })
    }
}

/// Reads the value of a field that has not been there before.
fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    value: &mut Option<T>,
    field: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if value.is_some() {
        return Err(A::Error::duplicate_field(field));
    }
    *value = Some(map.next_value()?);
    Ok(())
}

#[cfg(test)]
mod tests;

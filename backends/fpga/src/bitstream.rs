//! Facts about a bitstream, read from its bytes: its digest, the interface that it fits to, the accelerator function
//! in it.
//!
//! | format | what tells | what is programmed |
//! |---|---|---|
//! | `gbs` | the header of a green bitstream of OPAE: both ids | what follows the header |
//! | `raw` | nothing: the operator gives the ids with the file | all of it |

mod gbs;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use gbs::GbsError;

/// The beginning of files that XRT loads.
const XCLBIN_MAGIC: &[u8] = b"xclbin2\0";

/// The SHA-256 digest of a file: 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct BitstreamDigest(String);

impl BitstreamDigest {
    /// Reads a digest, with or without `sha256:` in front, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
        (digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(Self(digits))
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first digits, as many as people need to tell two digests apart.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl fmt::Display for BitstreamDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for BitstreamDigest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is not a SHA-256 digest of 64 hexadecimal digits"))
    }
}

impl From<BitstreamDigest> for String {
    fn from(digest: BitstreamDigest) -> String {
        digest.0
    }
}

/// An interface id or accelerator function id, as the kernel writes them: 32 lower-case hexadecimal digits.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Guid(String);

impl Guid {
    /// Reads an id, with or without hyphens, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.replace('-', "").to_ascii_lowercase();
        (digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(Self(digits))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Guid {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is not an id of 32 hexadecimal digits"))
    }
}

impl From<Guid> for String {
    fn from(id: Guid) -> String {
        id.0
    }
}

/// Layout of a file.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BitstreamFormat {
    /// A green bitstream of OPAE: a header with the ids, then the image.
    Gbs,
    /// The image alone.
    Raw,
}

impl fmt::Display for BitstreamFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gbs => "gbs",
            Self::Raw => "raw",
        })
    }
}

/// Facts that the beginning of a file states.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BitstreamHeader {
    /// Layout of the file.
    pub format: BitstreamFormat,
    /// Interface that the region must offer, where the file names it.
    pub interface_id: Option<Guid>,
    /// Value that the kernel will show as `afu_id`, where the file names it.
    pub afu_id: Option<Guid>,
    /// Offset of the image, in bytes.
    pub image_at: usize,
}

/// Reason why a file is no bitstream that can be programmed.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file is for XRT.
    #[error("the file is an xclbin, which programs load themselves through XRT; hostler programs none")]
    Xclbin,
    /// The file begins as a green bitstream and is none.
    #[error("the header of the green bitstream is damaged")]
    Gbs(#[source] GbsError),
}

impl BitstreamHeader {
    /// Number of bytes from the beginning of a file that [`BitstreamHeader::read`] needs at most.
    pub const MOST_BYTES: usize = gbs::MOST_HEADER_BYTES;

    /// Reads the beginning of a file of `length` bytes in all.
    ///
    /// # Errors
    /// When the file is damaged, or of a kind that cannot be programmed.
    pub fn read(beginning: &[u8], length: u64) -> Result<Self, HeaderError> {
        if length == 0 {
            return Err(HeaderError::Empty);
        }
        if beginning.starts_with(XCLBIN_MAGIC) {
            return Err(HeaderError::Xclbin);
        }
        if gbs::is_gbs(beginning) {
            return gbs::read(beginning, length).map_err(HeaderError::Gbs);
        }
        Ok(Self { format: BitstreamFormat::Raw, interface_id: None, afu_id: None, image_at: 0 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gbs(json: &str, image: &[u8]) -> Vec<u8> {
        let length = u32::try_from(json.len()).unwrap();
        [&b"XeonFPGA\xb7GBSv001"[..], &length.to_le_bytes(), json.as_bytes(), image].concat()
    }

    fn read(bytes: &[u8]) -> Result<BitstreamHeader, HeaderError> {
        BitstreamHeader::read(&bytes[..bytes.len().min(BitstreamHeader::MOST_BYTES)], bytes.len() as u64)
    }

    fn description(clusters: &str) -> String {
        format!(
            r#"{{"version": 1, "afu-image": {{"interface-uuid": "1A422218-6dba-448e-b302-425cbcde1406",
            "power": 0, "accelerator-clusters": [{clusters}]}}}}"#
        )
    }

    const CLUSTER: &str = r#"{"name": "nlb", "accelerator-type-uuid": "d8424dc4-a4a3-c413-f89e-433683f9040b"}"#;

    #[test]
    fn a_green_bitstream_is_read_up_to_its_image() {
        let json = description(CLUSTER);
        let header = read(&gbs(&json, b"x")).unwrap();
        assert_eq!((header.format, header.image_at), (BitstreamFormat::Gbs, 20 + json.len()));
        assert_eq!(header.interface_id.unwrap().as_str(), "1a4222186dba448eb302425cbcde1406");
        assert_eq!(header.afu_id.unwrap().as_str(), "d8424dc4a4a3c413f89e433683f9040b");
        read(&gbs(&(json + "\0\0\0"), b"x")).unwrap();
    }

    #[test]
    fn what_is_wrong_with_a_green_bitstream_is_said() {
        let two = format!("{CLUSTER}, {CLUSTER}");
        let long = format!("{}{}", description(CLUSTER), " ".repeat(64 * 1024));
        for (bytes, expected) in [
            (gbs(&description(&two), b"x"), "it describes 2 accelerator clusters, not one"),
            (gbs(&description(""), b"x"), "it describes 0 accelerator clusters, not one"),
            (gbs(&description(CLUSTER), b""), "it ends before the image begins"),
            (gbs(&description(CLUSTER), b"x")[..60].to_vec(), "it ends before the image begins"),
            (gbs(&long, b"x"), "more than 65536"),
            (gbs("{}", b"x"), "its description cannot be read"),
            (gbs(&description(&CLUSTER.replace("d842", "x")), b"x"), "accelerator-type-uuid \"x"),
        ] {
            let HeaderError::Gbs(error) = read(&bytes).unwrap_err() else { panic!("{expected}") };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_damage_to_a_file_lets_the_image_begin_outside_of_it(
            at in 0usize..200,
            damage in any::<[u8; 4]>(),
            keep in 0usize..300,
        ) {
            let mut bytes = gbs(&description(CLUSTER), b"image");
            bytes[at..at + 4].copy_from_slice(&damage);
            bytes.truncate(keep);
            if let Ok(header) = read(&bytes) {
                prop_assert!(header.image_at < bytes.len());
            }
        }

        #[test]
        fn ids_are_the_same_however_they_are_spelled(id in any::<u128>(), hyphens in any::<bool>(), upper in any::<bool>()) {
            let plain = format!("{id:032x}");
            let parts = [&plain[..8], &plain[8..12], &plain[12..16], &plain[16..20], &plain[20..]];
            let text = if hyphens { parts.join("-") } else { plain.clone() };
            let text = if upper { text.to_uppercase() } else { text };
            let parsed = Guid::parse(&text);
            prop_assert_eq!(parsed.as_ref().map(Guid::as_str), Some(plain.as_str()));
        }
    }
}

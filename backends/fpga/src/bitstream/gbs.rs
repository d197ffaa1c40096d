//! Green bitstreams of OPAE.
//!
//! ```text
//!   16 bytes  "XeonFPGA" B7 "GBSv001"
//!    4 bytes  length of the description, little endian
//!    n bytes  the description, JSON
//!      rest   the image
//! ```

use serde::Deserialize;

use super::{BitstreamFormat, BitstreamHeader, Guid};

const MAGIC: &[u8; 16] = b"XeonFPGA\xb7GBSv001";
/// Magic and length.
const FIXED_BYTES: usize = 20;
/// Descriptions have a few hundred bytes; a damaged length must not make us read the image as one.
const MOST_JSON_BYTES: usize = 64 * 1024;
pub(super) const MOST_HEADER_BYTES: usize = FIXED_BYTES + MOST_JSON_BYTES;

/// Mistake in a header.
#[derive(Debug, thiserror::Error)]
pub enum GbsError {
    /// The file ends within the header, or right behind it.
    #[error("the file has {length} bytes: it ends before the image begins")]
    Truncated {
        /// Length of the file.
        length: u64,
    },
    /// The description is longer than any.
    #[error("its description would have {length} bytes, more than {MOST_JSON_BYTES}")]
    Length {
        /// Length in the header.
        length: u64,
    },
    /// The description is no JSON, or lacks a field that is needed.
    #[error("its description cannot be read")]
    Json(#[from] serde_json::Error),
    /// A field is no id.
    #[error("{field} {text:?} is not an id of 32 hexadecimal digits")]
    Id {
        /// The field.
        field: &'static str,
        /// Text of the field.
        text: String,
    },
    /// One region holds one accelerator function.
    #[error("it describes {count} accelerator clusters, not one")]
    Clusters {
        /// Number of clusters.
        count: usize,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct GbsMetadata {
    afu_image: AfuImage,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct AfuImage {
    interface_uuid: String,
    accelerator_clusters: Vec<AcceleratorCluster>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct AcceleratorCluster {
    accelerator_type_uuid: String,
}

pub(super) fn is_gbs(beginning: &[u8]) -> bool {
    beginning.starts_with(MAGIC)
}

pub(super) fn read(beginning: &[u8], length: u64) -> Result<BitstreamHeader, GbsError> {
    let truncated = GbsError::Truncated { length };
    let Some(field) = beginning.get(MAGIC.len()..FIXED_BYTES).and_then(|bytes| bytes.try_into().ok()) else {
        return Err(truncated);
    };
    let json_bytes = u32::from_le_bytes(field);
    let json_length = usize::try_from(json_bytes).ok().filter(|length| *length <= MOST_JSON_BYTES);
    let Some(json_length) = json_length else { return Err(GbsError::Length { length: json_bytes.into() }) };
    let image_at = FIXED_BYTES + json_length;
    let Some(json) = beginning.get(FIXED_BYTES..image_at).filter(|_| length > image_at as u64) else {
        return Err(truncated);
    };
    // Some tools pad the description, or count its terminator in.
    let end = json.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let AfuImage { interface_uuid, accelerator_clusters } =
        serde_json::from_slice::<GbsMetadata>(&json[..end])?.afu_image;
    let [cluster] = &accelerator_clusters[..] else {
        return Err(GbsError::Clusters { count: accelerator_clusters.len() });
    };
    Ok(BitstreamHeader {
        format: BitstreamFormat::Gbs,
        interface_id: Some(id("interface-uuid", &interface_uuid)?),
        afu_id: Some(id("accelerator-type-uuid", &cluster.accelerator_type_uuid)?),
        image_at,
    })
}

fn id(field: &'static str, text: &str) -> Result<Guid, GbsError> {
    Guid::parse(text).ok_or_else(|| GbsError::Id { field, text: text.to_owned() })
}

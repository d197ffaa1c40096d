//! Images that regions are programmed with, as the records of claims keep them.

use serde::{Deserialize, Serialize};

use crate::{
    bitstream::{BitstreamDigest, Guid},
    store::Bitstream,
};

/// Bitstream that a region is programmed with.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RegionImage {
    /// Name of the bitstream.
    pub(crate) name: String,
    /// Digest of the bitstream.
    pub(crate) digest: BitstreamDigest,
    /// Interface that the region must offer.
    #[serde(rename = "interfaceID")]
    pub(crate) interface_id: Guid,
    /// Function that must be there after programming.
    #[serde(rename = "afuID")]
    pub(crate) afu_id: Guid,
}

/// Image that one region of a card is programmed with when the claim ends.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct BlankImage {
    /// The card's number of the port behind the region.
    pub(crate) port: u32,
    /// The image.
    pub(crate) image: RegionImage,
}

impl From<Bitstream> for RegionImage {
    fn from(bitstream: Bitstream) -> Self {
        let Bitstream { name, digest, interface_id, afu_id, .. } = bitstream;
        Self { name, digest, interface_id, afu_id }
    }
}

//! The manifest of a capture: `hostler-capture.json`, beside `sys` and `proc`. docs/capture.md describes it.

use hostler_linux::SysRoot;
use serde::{Deserialize, Serialize};

use super::CliFailure;

/// The file in the archive.
pub(in crate::cli) const FILE: &str = "hostler-capture.json";

/// Far more than a manifest has, which is a page or two; that of a stranger may be anything.
const MOST_BYTES: u64 = 1 << 20;

/// Raised when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// Origin of a capture, and the changes that were made to it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(in crate::cli) struct CaptureManifest {
    /// Version of this form.
    pub(in crate::cli) version: u32,
    /// Version of hostler.
    pub(in crate::cli) hostler: String,
    /// Release of the kernel, where it is known.
    pub(in crate::cli) kernel: Option<String>,
    /// When the machine was captured, seconds since 1970.
    pub(in crate::cli) taken_at: u64,
    /// The backends that looked at it.
    pub(in crate::cli) backends: Vec<String>,
    /// State of serial numbers.
    pub(in crate::cli) serials: SerialNumbers,
    /// True if the host's name is in the capture.
    pub(in crate::cli) host_name: bool,
    /// Network addresses that were taken out.
    pub(in crate::cli) addresses_removed: usize,
    /// Files that were read and are not in it, as they may be about people.
    pub(in crate::cli) left_out: Vec<String>,
    /// Files that could not be read; `READ_ERRORS.tsv` names them.
    pub(in crate::cli) unreadable: usize,
}

/// State of serial numbers.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub(in crate::cli) enum SerialNumbers {
    /// Serial numbers as the machine has them.
    Kept,
    /// Pseudonyms.
    Replaced {
        /// How many.
        count: usize,
        /// Captures with one key have one pseudonym for one serial number. Absent where the key was thrown away.
        key: Option<String>,
    },
}

impl CaptureManifest {
    /// The manifest of this version of hostler, with nothing in it.
    pub(in crate::cli) fn new(taken_at: u64) -> Self {
        Self {
            version: VERSION,
            hostler: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: None,
            taken_at,
            backends: Vec::new(),
            serials: SerialNumbers::Kept,
            host_name: false,
            addresses_removed: 0,
            left_out: Vec::new(),
            unreadable: 0,
        }
    }

    /// The manifest of the tree under `root`; `None` where it has none.
    pub(in crate::cli) fn read(root: &SysRoot) -> Result<Option<Self>, CliFailure> {
        let bytes = root.first_bytes(FILE, MOST_BYTES);
        let bytes = bytes.map_err(|failure| CliFailure::step("read what the capture says of itself", failure))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let failed = |source| CliFailure::step(format!("understand {FILE}"), source);
        let version = serde_json::from_slice::<serde_json::Value>(&bytes).map_err(failed)?["version"].as_u64();
        match version {
            Some(version) if version > u64::from(VERSION) => Err(CliFailure::Said(format!(
                "the capture is of a later version of hostler ({FILE}: version {version})"
            ))),
            _ => serde_json::from_slice(&bytes).map(Some).map_err(failed),
        }
    }

    /// The text of the file.
    pub(in crate::cli) fn to_json(&self) -> Result<String, CliFailure> {
        serde_json::to_string_pretty(self)
            .map(|text| text + "\n")
            .map_err(|source| CliFailure::step(format!("write {FILE}"), source))
    }
}

//! Names that shells complete: devices and claims of the running daemon, bitstreams of the store.
//!
//! Names come from the daemon; one that is away, slow or not ours to ask gives none, and no word on the terminal.

use std::{ffi::OsStr, path::PathBuf, time::Duration};

use clap_complete::engine::CompletionCandidate;
use hostler_cli::completions::{Completions, typed};
use hostler_fpga::store::BitstreamStore;
use serde::de::DeserializeOwned;

use super::{client::DaemonClient, output::Listed};
use crate::{
    admin::types::{AdminClaim, AdminDevice},
    config::DaemonConfig,
};

/// The program as completion scripts know it.
pub(super) const COMPLETIONS: Completions = Completions { program: "hostler", variable: "HOSTLER_COMPLETE" };

/// Short: a user who types waits for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// `backend/device` of every device.
pub(super) fn devices(begun: &OsStr) -> Vec<CompletionCandidate> {
    candidates(begun, asked::<AdminDevice>("/v1/devices").iter().map(Listed::listed_name))
}

/// `namespace/name` of every claim; its UID where the name is lost.
pub(super) fn claims(begun: &OsStr) -> Vec<CompletionCandidate> {
    candidates(begun, asked::<AdminClaim>("/v1/claims").iter().map(Listed::listed_name))
}

/// Names of the bitstreams of the store.
pub(super) fn bitstreams(begun: &OsStr) -> Vec<CompletionCandidate> {
    let store = config().map(|config| BitstreamStore::new(config.backends.fpga.config.bitstreams));
    let all = store.and_then(|store| store.list().ok()).unwrap_or_default();
    candidates(begun, all.into_iter().map(|bitstream| bitstream.name))
}

fn candidates(begun: &OsStr, names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    names.filter(|name| name.starts_with(&*begun)).map(CompletionCandidate::new).collect()
}

fn asked<T: DeserializeOwned>(path: &str) -> Vec<T> {
    let socket = typed("--socket").map(PathBuf::from).or_else(|| config().map(|config| config.admin_socket()));
    let answer = socket.map(|socket| DaemonClient::at(socket).patient(PATIENCE).get(path));
    answer.and_then(Result::ok).unwrap_or_default()
}

fn config() -> Option<DaemonConfig> {
    DaemonConfig::load_or_default(typed("--config").map(PathBuf::from).as_deref()).ok()
}

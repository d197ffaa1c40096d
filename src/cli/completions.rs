//! `hostler completions`: what makes shells complete commands, options, and the devices and claims of the running daemon.
//!
//! The script asks this binary at every Tab, so what it knows is never older than the binary. Names come from the daemon; one that is
//! away, slow or not ours to ask gives none, and no word on the terminal.

use std::{ffi::OsStr, io::Write, path::PathBuf, time::Duration};

use clap::CommandFactory;
use clap_complete::engine::CompletionCandidate;
use hostler_cli::completions::{Completions, typed};
use hostler_fpga::store::BitstreamStore;
use serde::de::DeserializeOwned;

use super::{Cli, CliFailure, CliOutcome, client::DaemonClient, output::Listed};
use crate::{
    admin::types::{AdminClaim, AdminDevice},
    config::DaemonConfig,
};

/// The program as completion scripts know it.
const COMPLETIONS: Completions = Completions { program: "hostler", variable: "HOSTLER_COMPLETE" };

/// Whoever types waits for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Write a completion script for a shell to standard output; it completes devices and claims of the running daemon, too
#[derive(clap::Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

pub(super) fn run(args: &CompletionsArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let script = COMPLETIONS.script(args.shell).map_err(|source| CliFailure::step("write the script", source))?;
    out.write_all(&script)?;
    Ok(CliOutcome::Done)
}

/// Answers a script that asks. False where none does.
pub(super) fn complete() -> bool {
    COMPLETIONS.answer(Cli::command)
}

/// `backend/device` of every device.
pub(super) fn devices(begun: &OsStr) -> Vec<CompletionCandidate> {
    candidates(begun, &asked::<AdminDevice>("/v1/devices"))
}

/// `namespace/name` of every claim; its UID where the name is lost.
pub(super) fn claims(begun: &OsStr) -> Vec<CompletionCandidate> {
    candidates(begun, &asked::<AdminClaim>("/v1/claims"))
}

/// Names of the bitstreams of the store.
pub(super) fn bitstreams(begun: &OsStr) -> Vec<CompletionCandidate> {
    let store = config().map(|config| BitstreamStore::new(config.backends.fpga.config.bitstreams));
    candidates(begun, &store.and_then(|store| store.list().ok()).unwrap_or_default())
}

fn candidates<T: Listed>(begun: &OsStr, listed: &[T]) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let names = listed.iter().map(Listed::listed_name).filter(|name| name.starts_with(&*begun));
    names.map(CompletionCandidate::new).collect()
}

fn asked<T: DeserializeOwned>(path: &str) -> Vec<T> {
    let socket = typed("--socket").map(PathBuf::from).or_else(|| config().map(|config| config.admin_socket()));
    let answer = socket.map(|socket| DaemonClient::at(socket).patient(PATIENCE).get(path));
    answer.and_then(Result::ok).unwrap_or_default()
}

fn config() -> Option<DaemonConfig> {
    DaemonConfig::load_or_default(typed("--config").map(PathBuf::from).as_deref()).ok()
}

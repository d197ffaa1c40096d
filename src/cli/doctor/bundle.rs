//! `hostler doctor --bundle`: facts for a helper who is far away, in one file, and a word on what is not in it.

mod conceal;
mod documents;

use std::path::{Path, PathBuf};

use hostler_linux::archive::TreeSnapshot;
use serde_json::json;

use super::DoctorFinding;
use crate::{
    cli::{
        CliFailure,
        client::DaemonClient,
        machine::OpenedMachine,
        machine_capture::{self, KeptIdentifiers},
        save::save,
    },
    config::DaemonConfig,
};
use conceal::ConcealedWords;

const README: &str = include_str!("bundle/README.txt");

/// The options of a support bundle.
#[derive(clap::Args, Debug)]
pub(super) struct BundleArgs {
    /// Write a support bundle beside the findings, with mode 0600: a capture of this machine, the
    /// configuration, what the daemon answers, claims and CDI files
    #[arg(long, value_name = "FILE.tar.zst", conflicts_with = "root")]
    pub(super) bundle: Option<PathBuf>,
    /// Put claim records and CDI files into the bundle as they are, with whatever users wrote into their claims
    #[arg(long, requires = "bundle")]
    full: bool,
    /// Replace the bundle if it is there
    #[arg(long, requires = "bundle")]
    force: bool,
}

/// Writes the bundle of this host to `path`.
pub(super) fn write(
    args: &BundleArgs,
    path: &Path,
    config: &DaemonConfig,
    findings: &[DoctorFinding],
) -> Result<(), CliFailure> {
    save(path, &bundle(config, findings, args.full)?, args.force)
}

fn bundle(config: &DaemonConfig, findings: &[DoctorFinding], full: bool) -> Result<Vec<u8>, CliFailure> {
    let machine = OpenedMachine::here(config.clone());
    let taken = machine_capture::take(&machine, KeptIdentifiers::default())?;
    let conceal = ConcealedWords::new(taken.replaced, &config.node_name);
    let mut bundle = TreeSnapshot::default();
    bundle.add("README.txt", README);
    bundle.add("machine.tar.zst", taken.archive);
    bundle.add("versions.json", pretty(&json!({ "hostler": taken.manifest.hostler, "kernel": taken.manifest.kernel })));
    bundle.add("doctor.json", pretty(&conceal.json(json!(findings))));
    let toml = toml::to_string(config).map_err(|source| CliFailure::step("write the configuration as TOML", source))?;
    bundle.add("config.toml", conceal.text(&toml));
    let daemon = documents::of_daemon(&DaemonClient::at(config.admin_socket()));
    for (name, document) in daemon.into_iter().chain(documents::of_disk(config, full)) {
        bundle.add(name, pretty(&conceal.json(document)));
    }
    bundle.to_archive().map_err(|source| CliFailure::step("pack the bundle", source))
}

fn pretty(document: &serde_json::Value) -> String {
    format!("{document:#}\n")
}

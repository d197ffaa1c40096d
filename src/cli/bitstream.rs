//! `hostler bitstream`: the store of what FPGAs are programmed with. Works on the folder; no daemon is needed.

use std::{io::Write, path::PathBuf};

use clap_complete::engine::ArgValueCompleter;
use hostler_fpga::{
    bitstream::Guid,
    store::{Bitstream, BitstreamDetails, BitstreamStore, StoreFinding},
};
use serde::Serialize;

use super::{
    CliFailure, CliOutcome, ConfigFileArgs, completions,
    output::{ListFormat, Listed, OutputFormat, write_list, write_object},
    parts::shape,
    table::TextTable,
    watch::{ListArgs, show_list, wait_for_files},
};
use crate::{
    claims::store::{self, LoadedRecord},
    config::DaemonConfig,
    units,
};

#[derive(clap::Args, Debug)]
pub(super) struct BitstreamArgs {
    #[command(subcommand)]
    command: BitstreamCommand,
}

#[derive(clap::Subcommand, Debug)]
enum BitstreamCommand {
    /// Add a copy of a file to the store
    Add(BitstreamAddArgs),
    /// List the bitstreams of the store
    List(BitstreamListArgs),
    /// Take bitstreams out of the store; refused where a claim or the configuration needs them, or that cannot be told
    Remove(BitstreamRemoveArgs),
    /// Check that bitstreams are what they were when they were added
    Verify(BitstreamVerifyArgs),
}

#[derive(clap::Args, Debug)]
struct BitstreamAddArgs {
    /// A green bitstream (.gbs) of OPAE, or an image that is programmed as it is
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How claims call it [default: the file's name without its suffix]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The region's interface that it fits to, as in `compat_id`: 32 hexadecimal digits; a .gbs says it itself
    #[arg(long, value_name = "ID", value_parser = guid)]
    interface_id: Option<Guid>,
    /// The accelerator function in it, as in `afu_id`: 32 hexadecimal digits; a .gbs says it itself
    #[arg(long, value_name = "ID", value_parser = guid)]
    afu_id: Option<Guid>,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<OutputFormat>(), default_value = "table")]
    output: OutputFormat,
    #[command(flatten)]
    config: ConfigFileArgs,
}

#[derive(clap::Args, Debug)]
struct BitstreamRemoveArgs {
    /// Names or digests
    #[arg(value_name = "NAME|DIGEST", required = true, add = ArgValueCompleter::new(completions::bitstreams))]
    references: Vec<String>,
    /// Take it out although a claim or the configuration needs it, or may need it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    config: ConfigFileArgs,
}

#[derive(clap::Args, Debug)]
struct BitstreamVerifyArgs {
    /// Names or digests; without any, everything in the store
    #[arg(value_name = "NAME|DIGEST", add = ArgValueCompleter::new(completions::bitstreams))]
    references: Vec<String>,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<ListFormat>(), default_value = "table")]
    output: ListFormat,
    #[command(flatten)]
    config: ConfigFileArgs,
}

#[derive(clap::Args, Debug)]
struct BitstreamListArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    config: ConfigFileArgs,
}

fn bitstreams(config: &DaemonConfig) -> BitstreamStore {
    BitstreamStore::new(&config.backends.fpga.config.bitstreams)
}

/// A bitstream of the store, as an item of a list.
#[derive(Serialize)]
struct ListedBitstream(Bitstream);

impl Listed for ListedBitstream {
    const KIND: &'static str = "Bitstream";

    fn listed_name(&self) -> String {
        self.0.name.clone()
    }
}

/// The finding about a bitstream, as an item of a list.
#[derive(Serialize)]
struct ListedFinding(StoreFinding);

impl Listed for ListedFinding {
    const KIND: &'static str = "BitstreamFinding";

    fn listed_name(&self) -> String {
        self.0.name.clone()
    }
}

fn guid(text: &str) -> Result<Guid, String> {
    Guid::try_from(text.to_owned())
}

pub(super) fn run(args: &BitstreamArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match &args.command {
        BitstreamCommand::Add(args) => add(args, out),
        BitstreamCommand::List(args) => list(args, out),
        BitstreamCommand::Remove(args) => remove(args, out),
        BitstreamCommand::Verify(args) => verify(args, out),
    }
}

fn add(args: &BitstreamAddArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let store = bitstreams(&args.config.load()?);
    let wish = BitstreamDetails {
        name: args.name.clone(),
        interface_id: args.interface_id.clone(),
        afu_id: args.afu_id.clone(),
    };
    let added = store
        .add(&args.file, &wish)
        .map_err(|source| CliFailure::step(format!("add {}", args.file.display()), source))?;
    let Bitstream { name, digest, interface_id, afu_id, .. } = &added.bitstream;
    let word = if added.already { "is there already" } else { "added" };
    let words = || {
        format!("{name} {word}: {digest}\nit fits regions with interface id {interface_id} and brings AFU {afu_id}\n")
    };
    write_object("Bitstream", &added.bitstream, args.output, out, words)?;
    Ok(CliOutcome::Done)
}

/// All that can be taken out are, or none of them.
fn remove(args: &BitstreamRemoveArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let config = args.config.load()?;
    let bitstreams = bitstreams(&config);
    let failed = |source| CliFailure::step("remove the bitstreams", source);
    let found: Result<Vec<Bitstream>, _> = args.references.iter().map(|reference| bitstreams.find(reference)).collect();
    let found = found.map_err(failed)?;
    if !args.force {
        let records = store::look(&config.paths.state.join("claims")).map_err(|source| {
            CliFailure::step("read which bitstreams claims need; --force removes all the same", source)
        })?;
        found.iter().try_for_each(|bitstream| refuse_needed(bitstream, &config, &records))?;
    }
    for bitstream in &found {
        bitstreams.remove(&bitstream.digest).map_err(failed)?;
        writeln!(out, "{} removed: {}", bitstream.name, bitstream.digest)?;
    }
    Ok(CliOutcome::Done)
}

/// A claim that is on record may be prepared again after a reboot, and regions are made blank when claims end. What
/// a record needs that cannot be understood is not known, so it may be this.
fn refuse_needed(bitstream: &Bitstream, config: &DaemonConfig, records: &[LoadedRecord]) -> Result<(), CliFailure> {
    let (name, digest) = (&bitstream.name, bitstream.digest.to_string());
    let blank = &config.backends.fpga.config.blank;
    let refused =
        |by: String| Err(CliFailure::Said(format!("{name} is needed by {by}; --force removes it all the same")));
    if let Some((interface, _)) = blank.iter().find(|(_, meant)| *meant == name || **meant == digest) {
        return refused(format!("backends.fpga.blank of the configuration, for interface {interface}"));
    }
    if let Some(record) = records.iter().find(|record| String::from_utf8_lossy(&record.bytes).contains(&digest)) {
        return refused(format!("claim {} of record {}", record.uid, record.path.display()));
    }
    match records.iter().find_map(|loaded| Some((&loaded.path, loaded.record.as_ref().err()?))) {
        Some((path, why)) => Err(CliFailure::Said(format!(
            "{name} may be needed by the claim of record {}: {why}; --force removes it all the same",
            path.display()
        ))),
        None => Ok(()),
    }
}

fn list(args: &BitstreamListArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let store = bitstreams(&args.config.load()?);
    let fetch = || {
        let all = store.list().map_err(|source| CliFailure::step("list the bitstreams", source))?;
        Ok(all.into_iter().map(ListedBitstream).collect())
    };
    show_list(args.list, wait_for_files, out, fetch, |all, _| table(all))?;
    Ok(CliOutcome::Done)
}

fn table(all: &[ListedBitstream]) -> String {
    let mut table = TextTable::new(&["NAME", "FORMAT", "SIZE", "INTERFACE", "AFU", "DIGEST"]);
    for ListedBitstream(Bitstream { name, digest, format, size_bytes, interface_id, afu_id, .. }) in all {
        let (size, ids) = (units::bytes(*size_bytes), [interface_id.to_string(), afu_id.to_string()]);
        table.row([name.clone(), format.to_string(), size].into_iter().chain(ids).chain([digest.to_string()]));
    }
    table.to_string()
}

fn verify(args: &BitstreamVerifyArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let store = bitstreams(&args.config.load()?);
    let findings = store.verify(&args.references).map_err(|source| CliFailure::step("check the bitstreams", source))?;
    let findings: Vec<ListedFinding> = findings.into_iter().map(ListedFinding).collect();
    let bad = findings.iter().filter(|ListedFinding(finding)| finding.problem.is_some()).count();
    let line = |ListedFinding(finding): &ListedFinding| {
        format!("{}: {}\n", finding.name, finding.problem.as_deref().unwrap_or("in order"))
    };
    let words = |_| {
        findings.iter().map(line).collect::<String>() + &format!("{} checked, {bad} not in order\n", findings.len())
    };
    write_list(&findings, args.output, out, words)?;
    let in_order = bad == 0;
    Ok(if in_order { CliOutcome::Done } else { CliOutcome::NotInOrder })
}

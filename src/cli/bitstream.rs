//! `hostler bitstream`: the store of what FPGAs are programmed with. Works on the folder; no daemon is needed.

use std::{io::Write, path::PathBuf};

use hostler_fpga::{
    bitstream::Guid,
    store::{Bitstream, BitstreamDetails, BitstreamStore, StoreFinding},
};

use super::{CliFailure, CliOutcome, ConfigFileArgs, OutputFormat, table::TextTable, write_json};
use crate::units;

/// Keep the bitstreams that claims may name for FPGAs
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
    List(BitstreamCommonArgs),
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
    #[command(flatten)]
    common: BitstreamCommonArgs,
}

#[derive(clap::Args, Debug)]
struct BitstreamVerifyArgs {
    /// Names or digests; without any, everything in the store
    #[arg(value_name = "NAME|DIGEST")]
    references: Vec<String>,
    #[command(flatten)]
    common: BitstreamCommonArgs,
}

#[derive(clap::Args, Debug)]
struct BitstreamCommonArgs {
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    config: ConfigFileArgs,
}

impl BitstreamCommonArgs {
    fn store(&self) -> Result<BitstreamStore, CliFailure> {
        Ok(BitstreamStore::new(self.config.load()?.backends.fpga.config.bitstreams))
    }
}

fn guid(text: &str) -> Result<Guid, String> {
    Guid::try_from(text.to_owned())
}

pub(super) fn run(args: &BitstreamArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match &args.command {
        BitstreamCommand::Add(args) => add(args, out),
        BitstreamCommand::List(args) => list(args, out),
        BitstreamCommand::Verify(args) => verify(args, out),
    }
}

fn add(args: &BitstreamAddArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let store = args.common.store()?;
    let wish = BitstreamDetails {
        name: args.name.clone(),
        interface_id: args.interface_id.clone(),
        afu_id: args.afu_id.clone(),
    };
    let added = store
        .add(&args.file, &wish)
        .map_err(|source| CliFailure::step(format!("add {}", args.file.display()), source))?;
    let Bitstream { name, digest, interface_id, afu_id, .. } = &added.bitstream;
    match args.common.output {
        OutputFormat::Json => write_json(&added.bitstream, out)?,
        OutputFormat::Table => {
            let word = if added.already { "is there already" } else { "added" };
            writeln!(out, "{name} {word}: {digest}")?;
            writeln!(out, "it fits regions with interface id {interface_id} and brings AFU {afu_id}")?;
        }
    }
    Ok(CliOutcome::Done)
}

fn list(args: &BitstreamCommonArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let all = args.store()?.list().map_err(|source| CliFailure::step("list the bitstreams", source))?;
    match args.output {
        OutputFormat::Json => write_json(&all, out)?,
        OutputFormat::Table => {
            let mut table = TextTable::new(&["NAME", "FORMAT", "SIZE", "INTERFACE", "AFU", "DIGEST"]);
            for Bitstream { name, digest, format, size_bytes, interface_id, afu_id, .. } in all {
                let (size, digest) = (units::bytes(size_bytes), digest.to_string());
                table.row([name, format.to_string(), size, interface_id.to_string(), afu_id.to_string(), digest]);
            }
            write!(out, "{table}")?;
        }
    }
    Ok(CliOutcome::Done)
}

fn verify(args: &BitstreamVerifyArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let store = args.common.store()?;
    let findings = store.verify(&args.references).map_err(|source| CliFailure::step("check the bitstreams", source))?;
    match args.common.output {
        OutputFormat::Json => write_json(&findings, out)?,
        OutputFormat::Table => {
            for StoreFinding { name, problem, .. } in &findings {
                writeln!(out, "{name}: {}", problem.as_deref().unwrap_or("in order"))?;
            }
            let bad = findings.iter().filter(|finding| finding.problem.is_some()).count();
            writeln!(out, "{} checked, {bad} not in order", findings.len())?;
        }
    }
    let in_order = findings.iter().all(|finding| finding.problem.is_none());
    Ok(if in_order { CliOutcome::Done } else { CliOutcome::NotInOrder })
}

//! `hostler bitstream`: the store of what FPGAs are programmed with. Works on the folder; no daemon is needed.

use std::{io::Write, path::PathBuf};

use hostler_fpga::{
    bitstream::Guid,
    store::{Bitstream, BitstreamDetails, BitstreamStore, StoreFinding},
};

use super::{ConfigArgs, Failure, Format, Outcome, table::Table, units, write_json};

/// Keep the bitstreams that claims may name for FPGAs
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Add a copy of a file to the store
    Add(AddArgs),
    /// List the bitstreams of the store
    List(CommonArgs),
    /// Check that bitstreams are what they were when they were added
    Verify(VerifyArgs),
}

#[derive(clap::Args, Debug)]
struct AddArgs {
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
    common: CommonArgs,
}

#[derive(clap::Args, Debug)]
struct VerifyArgs {
    /// Names or digests; without any, everything in the store
    #[arg(value_name = "NAME|DIGEST")]
    references: Vec<String>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args, Debug)]
struct CommonArgs {
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    config: ConfigArgs,
}

impl CommonArgs {
    fn store(&self) -> Result<BitstreamStore, Failure> {
        Ok(BitstreamStore::new(self.config.load()?.backends.fpga.config.bitstreams))
    }
}

fn guid(text: &str) -> Result<Guid, String> {
    Guid::try_from(text.to_owned())
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    match &args.command {
        Command::Add(args) => add(args, out),
        Command::List(args) => list(args, out),
        Command::Verify(args) => verify(args, out),
    }
}

fn add(args: &AddArgs, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let store = args.common.store()?;
    let details = BitstreamDetails {
        name: args.name.clone(),
        interface_id: args.interface_id.clone(),
        afu_id: args.afu_id.clone(),
    };
    let added = store
        .add(&args.file, &details)
        .map_err(|source| Failure::step(format!("add {}", args.file.display()), source))?;
    let Bitstream { name, digest, interface_id, afu_id, .. } = &added.bitstream;
    match args.common.output {
        Format::Json => write_json(&added.bitstream, out)?,
        Format::Table => {
            let word = if added.already { "is there already" } else { "added" };
            writeln!(out, "{name} {word}: {digest}")?;
            writeln!(out, "it fits regions with interface id {interface_id} and brings AFU {afu_id}")?;
        }
    }
    Ok(Outcome::Done)
}

fn list(args: &CommonArgs, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let all = args.store()?.list().map_err(|source| Failure::step("list the bitstreams", source))?;
    match args.output {
        Format::Json => write_json(&all, out)?,
        Format::Table => {
            let mut table = Table::new(&["NAME", "FORMAT", "SIZE", "INTERFACE", "AFU", "DIGEST"]);
            for Bitstream { name, digest, format, size_bytes, interface_id, afu_id, .. } in all {
                let (size, digest) = (units::bytes(size_bytes), digest.to_string());
                table.row([name, format.to_string(), size, interface_id.to_string(), afu_id.to_string(), digest]);
            }
            write!(out, "{table}")?;
        }
    }
    Ok(Outcome::Done)
}

fn verify(args: &VerifyArgs, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let store = args.common.store()?;
    let findings = store.verify(&args.references).map_err(|source| Failure::step("check the bitstreams", source))?;
    match args.common.output {
        Format::Json => write_json(&findings, out)?,
        Format::Table => {
            for StoreFinding { name, problem, .. } in &findings {
                writeln!(out, "{name}: {}", problem.as_deref().unwrap_or("in order"))?;
            }
            let bad = findings.iter().filter(|finding| finding.problem.is_some()).count();
            writeln!(out, "{} checked, {bad} not in order", findings.len())?;
        }
    }
    let in_order = findings.iter().all(|finding| finding.problem.is_none());
    Ok(if in_order { Outcome::Done } else { Outcome::NotInOrder })
}

//! `hostler diff`: what is different between two machines, or two moments of one.

mod change;
mod compare;
mod facts;
mod words;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use hostler_linux::archive;
use serde::Serialize;

use super::{
    CliFailure, CliOutcome, ConfigFileArgs,
    capture_manifest::SerialNumbers,
    inventory::scan,
    machine::OpenedMachine,
    machine_capture::{self, KeptIdentifiers},
    output::{OutputFormat, write_document},
    parts::shape,
};
use crate::config::DaemonConfig;
use compare::SubjectDifference;

/// Raised when a field of the JSON answer changes its meaning or goes away.
const VERSION: u32 = 1;

const AFTER_HELP: &str = "Exit codes: 0 the same, 1 different, 2 could not compare, 78 the configuration is wrong.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct DiffArgs {
    /// Capture, or folder that holds sys/ and proc/; - for this machine
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The machine to compare with; this machine where absent
    #[arg(value_name = "AFTER", default_value = "-")]
    after: PathBuf,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<OutputFormat>(), default_value = "table")]
    output: OutputFormat,
    #[command(flatten)]
    config: ConfigFileArgs,
}

/// The whole answer; docs/capture.md describes every field.
#[derive(Debug, Serialize)]
struct DiffDocument {
    version: u32,
    before: DiffSide,
    after: DiffSide,
    /// Facts that the comparison cannot see.
    notes: Vec<String>,
    differences: Vec<SubjectDifference>,
}

/// One of the machines.
#[derive(Debug, Serialize)]
struct DiffSide {
    name: String,
    /// Seconds since 1970; absent where it was not noted.
    taken_at: Option<u64>,
}

pub(super) fn run(args: &DiffArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let document = compared(args).map_err(|failure| match failure {
        CliFailure::Config(errors) => CliFailure::Config(errors),
        other => CliFailure::Incomparable(Box::new(other)),
    })?;
    write_document(&document, args.output.into(), out, |_| words::in_words(&document))?;
    Ok(if document.differences.is_empty() { CliOutcome::Done } else { CliOutcome::NotInOrder })
}

fn compared(args: &DiffArgs) -> Result<DiffDocument, CliFailure> {
    let (before, after) = (open(&args.before, &args.config)?, open(&args.after, &args.config)?);
    let sides = [(&args.before, &before), (&args.after, &after)].map(|(path, opened)| side(path, opened));
    let (before, after) = alike(before, after, &args.config)?;
    let (seen_before, seen_after) = (seen(&before)?, seen(&after)?);
    let differences =
        compare::differences(&facts::of(&seen_before, &seen_after), &facts::of(&seen_after, &seen_before));
    let [before_side, after_side] = sides;
    let notes = note_on_serials(&before, &after).into_iter().collect();
    Ok(DiffDocument { version: VERSION, before: before_side, after: after_side, notes, differences })
}

fn seen(side: &OpenedMachine) -> Result<facts::ComparedMachine, CliFailure> {
    let mut seen = scan::scan_machine(&side.config, &side.root, None).complete()?;
    seen.warn(side.warnings.clone());
    let kernel = hostler_linux::boot::kernel_release(&side.root);
    let kernel = kernel.map_err(|failure| CliFailure::step("read the machine", failure))?;
    Ok(facts::ComparedMachine { kernel, seen })
}

/// Both sides have one configuration: what one host reserves is no difference of hardware.
fn open(path: &Path, config: &ConfigFileArgs) -> Result<OpenedMachine, CliFailure> {
    if path != Path::new("-") {
        return OpenedMachine::captured(path, config);
    }
    Ok(OpenedMachine::here(match config.config {
        Some(_) => config.load()?,
        None => DaemonConfig::default(),
    }))
}

fn side(path: &Path, opened: &OpenedMachine) -> DiffSide {
    let name = if path == Path::new("-") { "this machine".to_owned() } else { path.display().to_string() };
    DiffSide { name, taken_at: opened.manifest.as_ref().map(|manifest| manifest.taken_at) }
}

/// Gives the other side pseudonyms too where one has them for serial numbers: devices are named by them.
fn alike(
    before: OpenedMachine,
    after: OpenedMachine,
    config: &ConfigFileArgs,
) -> Result<(OpenedMachine, OpenedMachine), CliFailure> {
    match (pseudonyms(&before), pseudonyms(&after)) {
        (Some(_), None) => Ok((before, redacted(&after, config)?)),
        (None, Some(_)) => Ok((redacted(&before, config)?, after)),
        _ => Ok((before, after)),
    }
}

/// The key of the pseudonyms, if there are any.
fn pseudonyms(opened: &OpenedMachine) -> Option<&Option<String>> {
    match &opened.manifest.as_ref()?.serials {
        SerialNumbers::Kept => None,
        SerialNumbers::Replaced { key, .. } => Some(key),
    }
}

/// The machine as a capture of it shows it.
fn redacted(machine: &OpenedMachine, config: &ConfigFileArgs) -> Result<OpenedMachine, CliFailure> {
    let failed = |source| CliFailure::step("capture a machine for the comparison", source);
    let taken = machine_capture::take(machine, KeptIdentifiers::default())?;
    let folder = archive::private_folder().map_err(failed)?;
    let file = folder.path().join("machine.tar.zst");
    fs::write(&file, &taken.archive).map_err(failed)?;
    OpenedMachine::captured(&file, config)
}

/// Pseudonyms of different keys tell nothing about each other.
fn note_on_serials(before: &OpenedMachine, after: &OpenedMachine) -> Option<String> {
    let (before, after) = (pseudonyms(before)?, pseudonyms(after)?);
    (before.is_none() || before != after).then(|| {
        "serial numbers were replaced with different keys: devices that are named by them cannot be matched".to_owned()
    })
}

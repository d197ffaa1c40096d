//! `hostler inventory`: what hardware is here, without the daemon and without root.

mod document;
pub(super) mod scan;
mod shares;
mod table;
mod text_tree;
mod tree;
mod usage;

use std::io::Write;

use clap::ValueEnum;
use hostler_backend::BackendWarning;

use super::{
    CliFailure, CliOutcome,
    machine::MachineArgs,
    output::{write_json, write_yaml},
    parts::{DocumentParts, PartsShape, shape},
    picture,
    plain::for_people,
};
use scan::ScannedMachine;
use shares::KnownShares;

/// Warnings shown beside an output for people; the rest is counted. A damaged tree can have thousands.
const SHOWN_WARNINGS: usize = 8;

#[derive(clap::Args, Debug)]
pub(super) struct InventoryArgs {
    /// Only the devices of this backend
    #[arg(long)]
    backend: Option<String>,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<InventoryFormat>(), default_value = "table")]
    output: InventoryFormat,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
enum InventoryFormat {
    /// One line per device
    #[default]
    Table,
    /// One line per device, with its attributes
    Wide,
    /// The machine: packages, NUMA nodes, caches, cores, and the devices where they are
    Tree,
    /// Everything, as JSON (stable; see docs/inventory-json.md)
    Json,
    /// Everything, as YAML
    Yaml,
    /// BACKEND/DEVICE of each device, as other commands take it
    Name,
    /// A drawing of the machine, with devices, distances and, where the daemon runs, holders
    Svg,
    /// Chosen parts of everything
    #[value(skip)]
    Parts(&'static DocumentParts),
}

impl PartsShape for InventoryFormat {
    fn of_parts(parts: &'static DocumentParts) -> Self {
        Self::Parts(parts)
    }
}

pub(super) fn run(args: &InventoryArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let opened = args.machine.open()?;
    let only = args.backend.as_deref();
    let mut machine = scan::scan_machine(&opened.config, &opened.root, only).complete()?;
    if let (Some(name), true) = (only, machine.pools.is_empty()) {
        return Err(CliFailure::Said(format!("no backend {name:?} is enabled; see `hostler config show`")));
    }
    machine.warn(opened.warnings);
    // What the daemon says is about this machine, and not about a captured one.
    if args.machine.root.is_none() {
        match shares::ask(&opened.config.admin_socket()) {
            // The daemon's own view is drawn: it is as of the same machine, and knows the holders of CPUs.
            Ok(Some(usage)) if args.output == InventoryFormat::Svg && only.is_none() => {
                out.write_all(picture::svg(&for_people(usage)).as_bytes())?;
                return Ok(CliOutcome::Done);
            }
            Ok(usage) => machine.shares = usage.as_ref().map(KnownShares::of).unwrap_or_default(),
            Err(warning) => machine.warn(vec![warning]),
        }
    }
    render(&machine, args.output, out)
}

fn render(machine: &ScannedMachine, output: InventoryFormat, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match output {
        InventoryFormat::Table => write!(out, "{}", table::devices(machine))?,
        InventoryFormat::Wide => write!(out, "{}", table::devices_with_attributes(machine))?,
        InventoryFormat::Tree => write!(out, "{}", tree::tree(machine))?,
        InventoryFormat::Svg => out.write_all(picture::svg(&for_people(usage::of(machine))).as_bytes())?,
        InventoryFormat::Json => write_json(&document::InventoryDocument::of(machine), out)?,
        InventoryFormat::Yaml => write_yaml(&document::InventoryDocument::of(machine), out)?,
        InventoryFormat::Parts(parts) => parts.write(&document::InventoryDocument::of(machine), out)?,
        InventoryFormat::Name => {
            for (pool, device) in machine.devices() {
                writeln!(out, "{}", table::device_path(pool, device))?;
            }
        }
    }
    if matches!(output, InventoryFormat::Table | InventoryFormat::Wide | InventoryFormat::Tree) {
        write_warnings(&machine.warnings, out)?;
    }
    Ok(CliOutcome::Done)
}

fn write_warnings(warnings: &[BackendWarning], out: &mut dyn Write) -> Result<(), CliFailure> {
    if warnings.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nwarnings:")?;
    for BackendWarning { path, reason } in warnings.iter().take(SHOWN_WARNINGS) {
        writeln!(out, "  {path}: {reason}")?;
    }
    if let Some(more @ 1..) = warnings.len().checked_sub(SHOWN_WARNINGS) {
        writeln!(out, "  and {more} more: see -o json")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! `hostler inventory`: what hardware is here, without the daemon and without root.

mod document;
pub(super) mod gather;
mod outline;
mod table;
mod tree;

use std::io::Write;

use clap::ValueEnum;
use hostler_backend::Warning;

use super::{Failure, Outcome, machine::MachineArgs, write_json};
use gather::Machine;

/// Warnings shown beside an output for people; the rest is counted. A damaged tree can have thousands.
const SHOWN_WARNINGS: usize = 8;

/// Show the hardware that hostler finds, here or in a captured tree; needs neither the daemon nor root
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Only the devices of this backend
    #[arg(long)]
    backend: Option<String>,
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
enum Output {
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
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let opened = args.machine.open()?;
    let only = args.backend.as_deref();
    let mut machine = gather::gather(&opened.config, &opened.root, only);
    if let (Some(name), true) = (only, machine.pools.is_empty()) {
        return Err(Failure::Said(format!("no backend {name:?} is enabled; see `hostler config show`")));
    }
    machine.warn(opened.warnings);
    render(&machine, args.output, out)
}

fn render(machine: &Machine, output: Output, out: &mut dyn Write) -> Result<Outcome, Failure> {
    match output {
        Output::Table => write!(out, "{}", table::devices(machine))?,
        Output::Wide => write!(out, "{}", table::devices_with_attributes(machine))?,
        Output::Tree => write!(out, "{}", tree::tree(machine))?,
        Output::Json => write_json(&document::Document::of(machine), out)?,
        Output::Yaml => {
            let text = serde_saphyr::to_string(&document::Document::of(machine));
            out.write_all(text.map_err(|source| Failure::step("write YAML", source))?.as_bytes())?;
        }
    }
    if !matches!(output, Output::Json | Output::Yaml) {
        write_warnings(&machine.warnings, out)?;
    }
    Ok(Outcome::Done)
}

fn write_warnings(warnings: &[Warning], out: &mut dyn Write) -> Result<(), Failure> {
    if warnings.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nwarnings:")?;
    for Warning { path, reason } in warnings.iter().take(SHOWN_WARNINGS) {
        writeln!(out, "  {path}: {reason}")?;
    }
    if let Some(more @ 1..) = warnings.len().checked_sub(SHOWN_WARNINGS) {
        writeln!(out, "  and {more} more: see -o json")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

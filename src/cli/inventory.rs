//! `hostler inventory`: what hardware is here, without the daemon and without root.

mod document;
mod gather;
mod outline;
mod table;
mod tree;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use hostler_backend::Warning;
use hostler_linux::{SysRoot, archive::Capture};

use super::{ConfigArgs, Failure, Outcome, write_json};
use crate::config::Config;
use gather::Machine;

/// Warnings shown beside an output for people; the rest is counted. A damaged tree can have thousands.
const SHOWN_WARNINGS: usize = 8;

/// Show the hardware that hostler finds, here or in a captured tree; needs neither the daemon nor root
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Folder that holds sys/ and proc/, or such a folder as a .tar.zst file; without it the root of the configuration
    #[arg(long, value_name = "DIR|FILE.tar.zst")]
    root: Option<PathBuf>,
    /// Only the devices of this backend
    #[arg(long)]
    backend: Option<String>,
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    config: ConfigArgs,
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
    let config = config(args)?;
    // The unpacked capture goes when this value does.
    let capture = match &args.root {
        Some(root) if root.is_file() => Some(open(root)?),
        _ => None,
    };
    let root = match (&capture, &args.root) {
        (Some(capture), _) => capture.root(),
        (None, Some(path)) => folder(path)?,
        (None, None) => SysRoot::new(&config.paths.root),
    };
    let only = args.backend.as_deref();
    let mut machine = gather::gather(&config, &root, only);
    if let (Some(name), true) = (only, machine.pools.is_empty()) {
        return Err(Failure::Said(format!("no backend {name:?} is enabled; see `hostler config show`")));
    }
    if let Some(capture) = &capture {
        machine.warn(capture.warnings().iter().map(gather::own_warning).collect());
    }
    render(&machine, args.output, out)
}

/// What this host reserves means nothing on a captured machine: there, only a configuration that is named counts.
fn config(args: &Args) -> Result<Config, Failure> {
    if args.root.is_some() && args.config.config.is_none() {
        return Ok(Config { node_name: String::new(), ..Config::default() });
    }
    Ok(args.config.load()?)
}

fn open(path: &Path) -> Result<Capture, Failure> {
    Capture::open(path).map_err(|source| Failure::step(format!("unpack {}", path.display()), source))
}

fn folder(path: &Path) -> Result<SysRoot, Failure> {
    fs::read_dir(path).map_err(|source| Failure::step(format!("read {}", path.display()), source))?;
    Ok(SysRoot::new(path))
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

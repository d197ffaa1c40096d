//! `hostler capture`: what hostler reads of this machine, in a file that can be looked at elsewhere.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    CliFailure, CliOutcome,
    capture_manifest::{CaptureManifest, SerialNumbers},
    machine::MachineArgs,
    machine_capture::{self, KeptIdentifiers},
    save::save,
    screen,
};
use crate::units;

#[derive(clap::Args, Debug)]
pub(super) struct CaptureArgs {
    /// File to write, with mode 0600; - for standard output
    #[arg(short, long, value_name = "FILE.tar.zst")]
    output: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    kept: KeptIdentifiers,
    #[command(flatten)]
    machine: MachineArgs,
}

impl CaptureArgs {
    /// True if the archive itself goes to standard output.
    pub(super) fn is_to_stdout(&self) -> bool {
        self.output == Path::new("-")
    }
}

pub(super) fn run(args: &CaptureArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    if args.is_to_stdout() && screen::is_terminal() {
        return Err(CliFailure::Usage("standard output is a terminal: name a file with -o, or redirect it".to_owned()));
    }
    let taken = machine_capture::take(&args.machine.open()?, args.kept)?;
    if args.is_to_stdout() {
        out.write_all(&taken.archive)?;
        return Ok(CliOutcome::Done);
    }
    save(&args.output, &taken.archive, args.force)?;
    let size = units::bytes(taken.archive.len() as u64);
    writeln!(out, "{}: {size}, {}", args.output.display(), in_words(&taken.manifest))?;
    if args.machine.root.is_none() && !nix::unistd::geteuid().is_root() {
        writeln!(out, "not root: what root alone can read is missing, such as what tells CXL devices from others")?;
    }
    Ok(CliOutcome::Done)
}

fn in_words(manifest: &CaptureManifest) -> String {
    let kernel =
        manifest.kernel.as_ref().map_or_else(|| "unknown kernel".to_owned(), |kernel| format!("kernel {kernel}"));
    let mut parts = vec![kernel];
    match &manifest.serials {
        SerialNumbers::Kept => parts.push("serial numbers are in it".to_owned()),
        SerialNumbers::Replaced { count: 0, .. } => {}
        SerialNumbers::Replaced { count, .. } => {
            parts.push(format!("{} replaced", units::count(*count, "serial number")))
        }
    }
    if manifest.host_name {
        parts.push("the host's name is in it".to_owned());
    }
    if manifest.addresses_removed > 0 {
        let some = if manifest.addresses_removed == 1 { "address" } else { "addresses" };
        parts.push(format!("{} network {some} removed", manifest.addresses_removed));
    }
    if manifest.unreadable > 0 {
        parts.push(format!("{} could not be read", units::count(manifest.unreadable, "file")));
    }
    if !manifest.left_out.is_empty() {
        parts.push(format!("left out: {}", manifest.left_out.join(", ")));
    }
    parts.join("; ")
}

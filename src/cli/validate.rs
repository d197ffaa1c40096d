//! `hostler validate`: checks the configuration of devices in manifests.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use hostler_api::plain_line;
use hostler_files::{read_argument, read_stream};

use super::{CliFailure, CliOutcome};
use crate::{
    config::DaemonConfig,
    units::count,
    validate::{ValidationReport, ValidationTarget, check},
};

/// All manifests of a large cluster in one file have less.
const MOST_BYTES: u64 = 64 << 20;

#[derive(clap::Args, Debug)]
pub(super) struct ValidateArgs {
    /// Manifests in YAML or JSON, with any number of documents; - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Name of the driver whose configuration is checked [default: that of the node, else hostler.dev]
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// Configuration file of the node that the manifests are for: what it forbids is a problem
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) fn run(args: &ValidateArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let node = args.config.as_deref().map(DaemonConfig::load).transpose()?;
    let allow_l3_exclusive = node.as_ref().map(|node| node.backends.cpu.config.allow_l3_exclusive);
    let driver = args.driver.clone().unwrap_or_else(|| node.unwrap_or_default().driver);
    let target = ValidationTarget { driver: &driver, allow_l3_exclusive };
    let (mut checked, mut problems) = (0, 0);
    for file in &args.files {
        let name = if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() };
        match read(file) {
            Ok(text) => {
                let found = check(&text, target);
                show(&name, &found, out)?;
                checked += found.checked;
                problems += found.problems.len();
            }
            // The others are checked all the same.
            Err(error) => {
                writeln!(out, "{name}: it cannot be read: {error}")?;
                problems += 1;
            }
        }
    }
    writeln!(out, "{} checked, {}", count(checked, "object"), count(problems, "problem"))?;
    Ok(if problems == 0 { CliOutcome::Done } else { CliOutcome::NotInOrder })
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn read(file: &Path) -> io::Result<String> {
    if is_stdin(file) {
        let bytes = read_stream(io::stdin().lock(), MOST_BYTES)?;
        return String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into());
    }
    read_argument(file, MOST_BYTES).map_err(|error| error.source)
}

fn show(name: &str, found: &ValidationReport, out: &mut dyn Write) -> io::Result<()> {
    found
        .problems
        .iter()
        .chain(&found.notes)
        .try_for_each(|finding| writeln!(out, "{}", plain_line(&format!("{name}: {finding}"))))
}

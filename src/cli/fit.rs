//! Claims that are not allocated: read from files, and what they would be given here.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use hostler_api::{Chain, resource::DeviceRequestAllocationResult};
use hostler_files::{read_argument, read_stream};

use super::{
    CliFailure, CliOutcome,
    client::DaemonArgs,
    output::{OutputFormat, write_object},
    parts::shape,
};
use crate::{
    admin::types::{ClaimFit, UnallocatedClaim},
    standalone::{DocumentError, parse_unallocated},
};

/// Some hundred times the most that the API server takes of one object.
const MOST_BYTES: u64 = 64 << 20;

#[derive(clap::Args, Debug)]
pub(super) struct ExplainFitArgs {
    /// Claims or templates of claims, and classes beside those of hostler's deployment, in YAML or JSON; - for
    /// standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<OutputFormat>(), default_value = "table")]
    output: OutputFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// The claims of a file, each with the classes that stand there.
pub(super) fn unallocated(file: &Path) -> Result<Vec<UnallocatedClaim>, CliFailure> {
    let is_stdin = file.as_os_str() == "-";
    let name = if is_stdin { "standard input".to_owned() } else { file.display().to_string() };
    let text = read(file, is_stdin).map_err(|source| CliFailure::step(format!("read {name}"), source))?;
    let claims = parse_unallocated(&text).map_err(|errors| CliFailure::Said(all_of(&name, &errors)))?;
    if claims.is_empty() {
        return Err(CliFailure::Said(format!("{name} has no claim: write a ResourceClaim or a ResourceClaimTemplate")));
    }
    Ok(claims)
}

fn all_of(name: &str, errors: &[DocumentError]) -> String {
    let line = |error: &DocumentError| match error.document {
        0 => format!("{name}: {}", Chain(&error.source)),
        _ => format!("{name}: {}", Chain(error)),
    };
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn read(file: &Path, is_stdin: bool) -> io::Result<String> {
    if is_stdin {
        let bytes = read_stream(io::stdin().lock(), MOST_BYTES)?;
        return String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into());
    }
    read_argument(file, MOST_BYTES).map_err(|error| error.source)
}

/// Says of each claim how often it fits; that one does not fit at all is "not in order".
pub(super) fn run(args: &ExplainFitArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let client = args.daemon.client()?;
    let mut outcome = CliOutcome::Done;
    for asked in unallocated(&args.file)? {
        let fit: ClaimFit = client.post("/v1/fits", &asked)?;
        if fit.times == 0 {
            outcome = CliOutcome::NotInOrder;
        }
        let fit = args.output.for_reader(fit);
        write_object("ClaimFit", &fit, args.output, out, || in_words(&fit))?;
    }
    Ok(outcome)
}

fn in_words(fit: &ClaimFit) -> String {
    let times = match (fit.times, fit.at_least) {
        (0, _) => "does not fit here now".to_owned(),
        (1, false) => "fits here once".to_owned(),
        (times, false) => format!("fits here {times} times"),
        (times, true) => format!("fits here {times} times and more"),
    };
    let mut text = format!("claim {} {times}\n", fit.claim);
    if !fit.devices.is_empty() {
        text.push_str("\nthe first of them would get:\n");
        fit.devices.iter().for_each(|device| text.push_str(&format!("  - {}\n", device_in_words(device))));
    }
    if !fit.notes.is_empty() {
        text.push_str("\nwhat is given otherwise than it was asked for:\n");
        fit.notes.iter().for_each(|note| text.push_str(&format!("  - {note}\n")));
    }
    if let Some(refusal) = &fit.refusal {
        text.push_str(&format!("\n{}:\n  - {refusal}\n", if fit.times == 0 { "why not" } else { "why not more" }));
    }
    if !fit.unknown.is_empty() {
        text.push_str("\nwhat is offered to nobody:\n");
        fit.unknown.iter().for_each(|what| text.push_str(&format!("  - {what}\n")));
    }
    text
}

fn device_in_words(device: &DeviceRequestAllocationResult) -> String {
    let mut text = format!("{}: {}/{}", device.request, device.pool, device.device);
    for (name, amount) in &device.consumed_capacity {
        text.push_str(&format!(", {name} {}", amount.as_str().unwrap_or_default()));
    }
    if device.admin_access == Some(true) {
        text.push_str(", to look after");
    }
    text
}

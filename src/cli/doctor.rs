//! `hostler doctor`: what is missing or wrong on this host, each with the fix.
//!
//! Facts are gathered once ([`host_facts`](super::host_facts)); every check is a pure function over them ([`host`], [`services`]).

mod bundle;
mod host;
mod services;

use std::io::Write;

use hostler_cli::doctor::{DoctorFinding, in_words, outcome};
use hostler_linux::SysRoot;

use super::{
    CliFailure, CliOutcome,
    host_facts::HostFacts,
    machine::{MachineArgs, OpenedMachine},
    output::{ListFormat, write_list},
    parts::shape,
};
use crate::config::{ConfigErrors, DaemonConfig};
use bundle::BundleArgs;

#[derive(clap::Args, Debug)]
pub(super) struct DoctorArgs {
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<ListFormat>(), default_value = "table")]
    output: ListFormat,
    #[command(flatten)]
    bundle: BundleArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

pub(super) fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let findings = match &args.machine.root {
        Some(path) => of_capture(&OpenedMachine::captured(path, &args.machine.config)?),
        None => {
            let (config, findings) = of_host(args.machine.config.load());
            if let Some(path) = &args.bundle.bundle {
                bundle::write(&args.bundle, path, &config, &findings)?;
            }
            findings
        }
    };
    let words = |_| format!("{}{}", in_words(&findings), bundled(&args.bundle));
    write_list(&findings, args.output, out, words)?;
    Ok(outcome(&findings))
}

/// All checks, of this host, and the configuration that they were made with.
fn of_host(loaded: Result<DaemonConfig, ConfigErrors>) -> (DaemonConfig, Vec<DoctorFinding>) {
    let (config, mut findings) = configuration(loaded);
    let facts = HostFacts::gather(&config, &SysRoot::host());
    findings.extend(host::checks(&facts));
    findings.extend(services::checks(&facts, &config));
    (config, findings)
}

/// A captured machine has a kernel and hardware, and no daemon, runtime or kubelet.
fn of_capture(capture: &OpenedMachine) -> Vec<DoctorFinding> {
    host::machine_checks(&HostFacts::of_machine(&capture.root))
}

/// A wrong configuration is one more thing that is wrong; the rest is checked with the defaults.
fn configuration(loaded: Result<DaemonConfig, ConfigErrors>) -> (DaemonConfig, Vec<DoctorFinding>) {
    match loaded {
        Ok(config) => (config, vec![DoctorFinding::ok("configuration", "in order")]),
        Err(errors) => {
            let place = errors.path.as_ref().map_or_else(|| "defaults".to_owned(), |path| path.display().to_string());
            let finding = |problem: &crate::config::ConfigMistake| {
                let line = problem.line.map(|line| format!(":{line}")).unwrap_or_default();
                let key = if problem.key.is_empty() { String::new() } else { format!("{}: ", problem.key) };
                DoctorFinding::fail(
                    "configuration",
                    format!("{place}{line}: {key}{}", problem.what),
                    problem.fix.clone(),
                )
            };
            (DaemonConfig::default(), errors.problems.iter().map(finding).collect())
        }
    }
}

/// The way on, where a bundle was written.
fn bundled(args: &BundleArgs) -> String {
    let path = args.bundle.as_ref();
    path.map(|path| format!("\n{}: its README.txt says what is in it and what is not\n", path.display()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;

//! `hostler doctor`: what is missing or wrong on this host, each with the fix.
//!
//! Facts are gathered once ([`host_facts`](super::host_facts)); every check is a pure function over them ([`host`], [`services`]).

mod bundle;
mod host;
mod services;

use std::io::Write;

use hostler_linux::SysRoot;
use serde::Serialize;

use super::{
    CliFailure, CliOutcome,
    host_facts::HostFacts,
    machine::{MachineArgs, OpenedMachine},
    output::{ListFormat, Listed, write_list},
    parts::shape,
};
use crate::config::{ConfigErrors, DaemonConfig};
use bundle::BundleArgs;

/// Say what is missing or wrong on this host for hostler, each with the fix
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

/// How bad it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
enum FindingLevel {
    /// All is as it should be.
    Ok,
    /// Something works, but not all of it, or not as well as it could.
    Warn,
    /// Something does not work.
    Fail,
}

/// The result of a check.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
struct DoctorFinding {
    /// The subject of the check.
    check: &'static str,
    /// How bad it is.
    level: FindingLevel,
    /// The result in words.
    found: String,
    /// The way to repair it; empty where nothing needs to be done.
    fix: String,
}

impl Listed for DoctorFinding {
    const KIND: &'static str = "Finding";

    fn listed_name(&self) -> String {
        self.check.to_owned()
    }
}

impl DoctorFinding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: FindingLevel::Ok, found: found.into(), fix: String::new() }
    }

    fn warn(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: FindingLevel::Warn, found: found.into(), fix: fix.into() }
    }

    fn fail(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, level: FindingLevel::Fail, found: found.into(), fix: fix.into() }
    }
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
    let failed = findings.iter().any(|finding| finding.level == FindingLevel::Fail);
    Ok(if failed { CliOutcome::NotInOrder } else { CliOutcome::Done })
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

fn in_words(findings: &[DoctorFinding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for DoctorFinding { check, level, found, fix } in findings {
        let mark = match level {
            FindingLevel::Ok => "ok  ",
            FindingLevel::Warn => "warn",
            FindingLevel::Fail => "FAIL",
        };
        text.push_str(&format!("{mark}  {check:<width$}  {found}\n"));
        if !fix.is_empty() {
            text.push_str(&format!("{:indent$}→ {fix}\n", "", indent = width + 8));
        }
    }
    let number = |level| findings.iter().filter(|finding| finding.level == level).count();
    text.push_str(&format!(
        "\n{} ok, {} to look at, {} failed\n",
        number(FindingLevel::Ok),
        number(FindingLevel::Warn),
        number(FindingLevel::Fail)
    ));
    text
}

#[cfg(test)]
mod tests;

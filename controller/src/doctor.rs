//! `hostler-controller doctor`: what is missing or wrong in a cluster for hostler, each with the fix. Changes nothing.
//!
//! ```text
//!   API server ──► gather: objects, rights, versions, as far as the user may ──► checks ──► findings ──► table, JSON, YAML
//! ```
//!
//! Facts are gathered once ([`gather`]); every check is a pure function over them.

mod certificate;
mod cluster;
mod controller;
mod daemons;
mod facts;
mod gather;
mod rights;
mod webhook;

use std::{io::Write, path::PathBuf};

use hostler_cli::{
    doctor::{DoctorFinding, in_words, outcome},
    exit::CliOutcome,
    output::{ListFormat, write_list},
    parts::shape,
};

use self::facts::DoctorFacts;
use crate::{
    cluster_args::ClusterArgs,
    plan::{QuestionError, runtime},
};

const EXAMPLES: &str = "\
Levels:
  ok    all is as it should be
  warn  something works, but not all of it, or it could not be checked with these rights
  FAIL  something does not work

Exit codes: 0 nothing fails, 1 something fails, 2 wrong usage, or no answer.";

/// Say what is missing or wrong in a cluster for hostler, each with the fix
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Configuration of the controller [default: the one that its Deployment mounts, else
    /// /etc/hostler/controller.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    access: ClusterArgs,
    /// How the answer looks
    #[arg(short, long, value_parser = shape::<ListFormat>(), default_value = "table")]
    output: ListFormat,
}

/// Checks a cluster; answers on `out`.
pub(crate) fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<CliOutcome, QuestionError> {
    let gathered = runtime()?.block_on(gather::gather(&args.access, args.config.as_deref()))?;
    let findings = gathered.map_or_else(|silence| vec![silence], |facts| checks(&facts));
    write_list(&findings, args.output, out, |_| in_words(&findings))?;
    Ok(outcome(&findings))
}

/// All checks, in the order in which one needs the other.
fn checks(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    let mut findings = cluster::checks(facts);
    findings.extend(controller::checks(facts));
    findings.extend(rights::checks(facts));
    findings.push(webhook::check(facts));
    findings.extend(daemons::checks(facts));
    findings
}

#[cfg(test)]
mod tests;

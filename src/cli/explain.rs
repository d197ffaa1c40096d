//! `hostler explain`: why something is as it is, in words.

use std::io::Write;

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;

use super::{
    CliFailure, CliOutcome,
    client::DaemonArgs,
    completions,
    fit::{self, ExplainFitArgs},
    names::{NamedClaim, NamespaceArgs},
    output::{OutputFormat, write_object},
    parts::shape,
};
use crate::explain::Explanation;

#[derive(clap::Args, Debug)]
pub(super) struct ExplainArgs {
    #[command(subcommand)]
    what: ExplainCommand,
}

#[derive(Debug, Subcommand)]
enum ExplainCommand {
    /// Say why a claim failed, what it waits for, or what it holds
    Claim(ExplainClaimArgs),
    /// Say how often a claim would fit on this host now, what it would be given, and why no more
    Fit(ExplainFitArgs),
}

#[derive(clap::Args, Debug)]
struct ExplainClaimArgs {
    /// NAMESPACE/NAME, NAME or UID of the claim
    #[arg(add = ArgValueCompleter::new(completions::claims))]
    claim: String,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<OutputFormat>(), default_value = "table")]
    output: OutputFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match &args.what {
        ExplainCommand::Claim(args) => claim(args, out),
        ExplainCommand::Fit(args) => fit::run(args, out),
    }
}

fn claim(args: &ExplainClaimArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let path = NamedClaim::new(&args.claim, &args.namespace)?.path("/explain");
    let explanation: Explanation = args.daemon.client()?.get(&path)?;
    let explanation = args.output.for_reader(explanation);
    write_object("Explanation", &explanation, args.output, out, || in_words(&explanation))?;
    Ok(CliOutcome::Done)
}

fn in_words(explanation: &Explanation) -> String {
    let Explanation { claim, uid, state, summary, facts, next, .. } = explanation;
    let uid = uid.as_ref().map(|uid| format!(", uid {uid}")).unwrap_or_default();
    let mut text = format!("claim {claim}{uid}: {state}\n{summary}\n");
    for (title, lines) in [("what is known", facts), ("what to do", next)] {
        if !lines.is_empty() {
            text.push_str(&format!("\n{title}:\n"));
            lines.iter().for_each(|line| text.push_str(&format!("  - {line}\n")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_comes_first_and_empty_lists_have_no_title() {
        let explanation = Explanation {
            claim: "ml/train".to_owned(),
            uid: Some("u1".to_owned()),
            state: hostler_api::ClaimState::Prepared.into(),
            summary: "it is prepared and holds 1 device".to_owned(),
            facts: vec!["on record".to_owned()],
            next: Vec::new(),
            failure: None,
        };
        assert_eq!(
            in_words(&explanation),
            "claim ml/train, uid u1: prepared\nit is prepared and holds 1 device\n\nwhat is known:\n  - on record\n"
        );
    }
}

//! `hostler explain`: why something is as it is, in words.

use std::io::Write;

use clap::Subcommand;

use super::{
    Failure, Format, Outcome,
    client::{DaemonArgs, segment},
    write_json,
};
use crate::explain::Explanation;

/// Say why a claim failed, what it waits for, or what it holds
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say why a claim failed, what it waits for, or what it holds
    Claim(ClaimArgs),
}

#[derive(clap::Args, Debug)]
struct ClaimArgs {
    /// NAMESPACE/NAME, NAME or UID of the claim
    claim: String,
    /// Namespace of a claim that is named without one
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Shape of the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let What::Claim(args) = &args.what;
    let (namespace, name) = args.claim.split_once('/').unwrap_or((&args.namespace, &args.claim));
    let path = format!("/v1/claims/{}/explain?namespace={}", segment(name), segment(namespace));
    let explanation: Explanation = args.daemon.client()?.get(&path)?;
    match args.output {
        Format::Table => write!(out, "{}", in_words(&explanation))?,
        Format::Json => write_json(&explanation, out)?,
    }
    Ok(Outcome::Done)
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
            state: "prepared".to_owned(),
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

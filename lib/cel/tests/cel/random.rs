//! Random expressions, compared with what a program says that links Kubernetes' own evaluator.

use std::{collections::BTreeMap, env};

use hostler_api::KubernetesVersion;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Device, Outcome, devices,
    generate::{Question, question},
    ours,
    program::Program,
};

/// Disagreements that are printed, the shortest first.
const ENOUGH: usize = 30;
/// So often an expression is asked again: what depends on the order of a map changes.
const REPETITIONS: usize = 16;

#[derive(Deserialize)]
struct Reply {
    version: KubernetesVersion,
    #[serde(flatten)]
    outcome: Outcome,
}

/// How many answers there were, by kind.
#[derive(Debug, Default)]
struct Tally {
    matches: u64,
    runtime: u64,
    compile: u64,
    /// We do not know, and say so.
    unsupported: u64,
    /// Kubernetes says now this, now that.
    undecided: u64,
    differ: u64,
}

#[test]
#[ignore = "needs programs that answer for upstream, see tests/cel/README.md"]
fn random_expressions_are_answered_as_kubernetes_answers_them() {
    let number = |name: &str, default| env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let first: u64 = number("HOSTLER_RANDOM_SEED", 0);
    let mut programs = Program::all(&["cel"]);
    let (objects, texts) = (devices::<Device>(), devices::<Value>());
    let mut tallies: BTreeMap<KubernetesVersion, Tally> = BTreeMap::new();
    let mut found = Vec::new();
    for seed in first..first + number("HOSTLER_RANDOM_CASES", 1000) {
        let question = question(seed);
        for program in &mut programs {
            let reply = ask(program, &question, &texts);
            let tally = tallies.entry(reply.version).or_default();
            let ours = ours(&question.expression, &question.features, reply.version, &objects[question.device]);
            let counter = match &ours {
                None => &mut tally.unsupported,
                Some(ours) if *ours == sized(ours, &reply.outcome) => match &reply.outcome {
                    Outcome { compile: true, .. } => &mut tally.compile,
                    Outcome { runtime: true, .. } => &mut tally.runtime,
                    _ => &mut tally.matches,
                },
                Some(_) if !is_certain(program, &question, &texts, &reply.outcome) => &mut tally.undecided,
                Some(ours) => {
                    found.push((question.expression.len(), line(&question, &reply, ours)));
                    &mut tally.differ
                }
            };
            *counter += 1;
        }
    }
    println!("{tallies:#?}");
    found.sort();
    found.iter().take(ENOUGH).for_each(|(_, line)| println!("{line}"));
    assert_eq!(found.len(), 0, "answers that differ");
}

fn ask(program: &mut Program, question: &Question, devices: &BTreeMap<String, Value>) -> Reply {
    let Question { expression, device, features } = question;
    program.ask(&json!({"expression": expression, "features": features, "device": devices[*device]}))
}

/// What Kubernetes said; what does not compile costs nothing.
fn sized(ours: &Outcome, theirs: &Outcome) -> Outcome {
    Outcome { cost: if theirs.compile { ours.cost } else { theirs.cost }, ..theirs.clone() }
}

fn is_certain(program: &mut Program, question: &Question, devices: &BTreeMap<String, Value>, first: &Outcome) -> bool {
    (0..REPETITIONS).all(|_| ask(program, question, devices).outcome == *first)
}

fn line(question: &Question, reply: &Reply, ours: &Outcome) -> String {
    let Question { expression, device, features } = question;
    format!("{} {device} {features:?} {expression}\n  ours   {ours:?}\n  theirs {:?}", reply.version, reply.outcome)
}

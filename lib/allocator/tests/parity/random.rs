//! Random cases, compared with what a program says that links upstream's code.

use std::{collections::BTreeMap, env, fs};

use serde_json::json;

use crate::{
    case::{Case, Implementation, Outcome},
    generate, hostler,
    minimise::minimised,
    oracle::{self, Oracle},
};

/// Most searches take less than one of these; of those that do not, most take longer than anybody waits.
const DEADLINE_MS: u32 = 25;
/// Disagreements after which there is enough to do.
const ENOUGH: usize = 20;

/// How many answers there were, by kind.
#[derive(Debug, Default)]
struct Tally {
    fits: u64,
    misfits: u64,
    fatal: u64,
    unfinished: u64,
    differ: u64,
}

/// How two answers compare.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Comparison {
    Same,
    Unfinished,
    Different,
}

#[test]
#[ignore = "needs programs that answer for upstream, see tests/cases/README.md"]
fn random_cases_are_answered_as_upstream_answers_them() {
    let number = |name: &str, default| env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let first: u64 = number("HOSTLER_RANDOM_SEED", 0);
    compare((first..first + number("HOSTLER_RANDOM_CASES", 1000)).map(generate::case));
}

/// For cases that are not ours to keep.
#[test]
#[ignore = "needs a file of cases and programs that answer for upstream, see tests/cases/README.md"]
fn cases_of_a_file_are_answered_as_upstream_answers_them() {
    let path = env::var("HOSTLER_CASES").expect("HOSTLER_CASES names a file of cases");
    let text = fs::read_to_string(path).expect("the file can be read");
    compare(text.lines().map(|line| serde_json::from_str(line).expect("each line is a case")));
}

fn compare(cases: impl Iterator<Item = Case>) {
    let mut oracles = oracle::all(DEADLINE_MS);
    let mut tallies: BTreeMap<Implementation, Tally> = BTreeMap::new();
    let mut found = 0;
    for case in cases {
        for oracle in &mut oracles {
            for answer in oracle.ask(&case) {
                let of = *answer.of.first().unwrap();
                let ours = hostler::outcome(&case, of);
                let comparison = compared(&ours, &answer.outcome);
                count(tallies.entry(of).or_default(), &answer.outcome, comparison);
                if comparison == Comparison::Different {
                    found += 1;
                    report(oracle, &case, of);
                }
            }
        }
        if found > ENOUGH {
            break;
        }
    }
    println!("{tallies:#?}");
    assert_eq!(found, 0, "answers that differ");
}

fn compared(ours: &Outcome, theirs: &Outcome) -> Comparison {
    let unfinished = |outcome: &Outcome| *outcome == Outcome::Fatal("interrupted".to_owned());
    match (ours, theirs) {
        (ours, theirs) if unfinished(ours) || unfinished(theirs) => Comparison::Unfinished,
        (ours, theirs) if ours == theirs => Comparison::Same,
        _ => Comparison::Different,
    }
}

fn count(tally: &mut Tally, theirs: &Outcome, comparison: Comparison) {
    let counter = match (comparison, theirs) {
        (Comparison::Different, _) => &mut tally.differ,
        (Comparison::Unfinished, _) => &mut tally.unfinished,
        (Comparison::Same, Outcome::Fit(_)) => &mut tally.fits,
        (Comparison::Same, Outcome::NoFit(_)) => &mut tally.misfits,
        (Comparison::Same, Outcome::Fatal(_)) => &mut tally.fatal,
    };
    *counter += 1;
}

/// Prints the smallest case with the same two kinds of answers, and the answers.
fn report(oracle: &mut Oracle, case: &Case, of: Implementation) {
    let answers = |oracle: &mut Oracle, case: &Case| {
        let theirs = oracle.ask(case).into_iter().find(|answer| answer.of.contains(&of))?.outcome;
        Some((hostler::outcome(case, of), theirs))
    };
    let first = answers(oracle, case).map(kinds);
    let small = minimised(case, |case| {
        let answers = answers(oracle, case);
        answers.clone().map(kinds) == first && answers.is_some_and(|(ours, theirs)| ours != theirs)
    });
    println!("{}", json!(small));
    if let Some((ours, theirs)) = answers(oracle, &small) {
        println!("  {of}\n  ours   {}\n  theirs {}", json!(ours), json!(theirs));
    }
}

fn kinds((ours, theirs): (Outcome, Outcome)) -> (String, String) {
    (kind(&ours).to_owned(), kind(&theirs).to_owned())
}

fn kind(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Fit(_) => "fit",
        Outcome::NoFit(_) => "nofit",
        Outcome::Fatal(why) => why,
    }
}

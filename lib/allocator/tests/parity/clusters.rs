//! What upstream's filters say of pods that must run near or far from others, or be spread, said by the planner as well:
//! small clusters with upstream's answers, and random ones against a program that links upstream's code.

mod case;
mod generate;

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use serde_json::json;

use crate::program::Program;
use case::{ClusterAnswer, ClusterCase};

/// Disagreements after which there is enough to do.
const ENOUGH: usize = 10;
/// Random cases that are kept.
const KEPT: u64 = 70;

fn asked(oracle: &mut Program, case: &ClusterCase) -> ClusterAnswer {
    let reply: case::ClusterReply = oracle.ask(case);
    assert_eq!(reply.error, "", "{}", case.name);
    reply.answer
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clusters")
}

fn committed(file: &str) -> Vec<ClusterCase> {
    let text = fs::read_to_string(folder().join(file)).expect("the file can be read");
    let parse = |(number, line)| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{file} line {}: {error}", number + 1))
    };
    text.lines().enumerate().map(parse).collect()
}

const FILES: [&str; 2] = ["written.jsonl", "random.jsonl"];

#[test]
fn committed_clusters_are_filled_as_upstream_fills_them() {
    let (mut wrong, mut names, mut compared) = (Vec::new(), BTreeSet::new(), 0);
    for case in FILES.into_iter().flat_map(committed) {
        assert!(names.insert(case.name.clone()), "{} is there twice", case.name);
        let theirs = case.answer.clone().unwrap_or_else(|| panic!("{} has no answer", case.name));
        let ours = case.ours();
        compared += 1;
        if ours != theirs {
            wrong.push(format!("{}:\n  ours   {}\n  theirs {}", case.name, json!(ours), json!(theirs)));
        }
    }
    assert!(compared > 100, "only {compared} clusters were compared");
    assert!(wrong.is_empty(), "{} of {compared} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn pods_that_are_planned_together_are_placed_as_one_by_one() {
    for case in FILES.into_iter().flat_map(committed) {
        let placed = case.answer.as_ref().map_or(0, |answer| answer.placed.len());
        let together = case.together();
        match case.may_begin_anywhere() {
            // The first pod decides, and the planner looks for the place from where most follow.
            true => assert!(together.len() >= placed, "{}: {together:?}", case.name),
            false => assert_eq!(together, case.sorted_places(), "{}", case.name),
        }
    }
}

#[test]
#[ignore = "needs a program that answers for upstream's filters, see tests/cases/README.md"]
fn random_clusters_are_filled_as_upstream_fills_them() {
    let number = |name: &str, default| env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let first: u64 = number("HOSTLER_RANDOM_SEED", 0);
    let mut oracles = Program::all(&[]);
    let (mut placed, mut refused, mut different) = (0, 0, 0);
    for seed in first..first + number("HOSTLER_RANDOM_CASES", 1000) {
        let case = generate::cluster(seed);
        for oracle in &mut oracles {
            let (ours, theirs) = (case.ours(), asked(oracle, &case));
            placed += theirs.placed.len();
            refused += theirs.refusals.len();
            if ours != theirs {
                different += 1;
                println!("{}\n  ours   {}\n  theirs {}", json!(case), json!(ours), json!(theirs));
            }
        }
        if different > ENOUGH {
            break;
        }
    }
    println!("{placed} pods placed, {refused} nodes refused, {different} clusters differ");
    assert_eq!(different, 0, "clusters that differ");
}

/// Writes upstream's answers into the cases, and the random cases anew.
#[test]
#[ignore = "needs a program that answers for upstream's filters, see tests/cases/README.md"]
fn clusters_get_their_answers() {
    let mut oracle = Program::all(&[]).remove(0);
    let random: Vec<ClusterCase> = (0..KEPT).map(generate::cluster).collect();
    for (file, cases) in [("written.jsonl", committed("written.jsonl")), ("random.jsonl", random)] {
        let mut text = String::new();
        for mut case in cases {
            case.answer = None;
            case.answer = Some(asked(&mut oracle, &case));
            text += &serde_json::to_string(&case).unwrap();
            text.push('\n');
        }
        fs::write(folder().join(file), text).unwrap();
    }
}

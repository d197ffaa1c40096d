//! The cases in `tests/cases`, and which of them are answered differently, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use serde_json::json;

use crate::{
    case::{Case, Implementation, grouped},
    hostler, oracle,
};

/// Cases that are answered differently by choice: the name, who says otherwise (all, where it is empty), and the reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("limits/a huge count among alternatives, behind another request", "", FALLS),
    ("limits/two huge counts", "", FALLS),
    ("limits/two huge counts, exactly", "", FALLS),
    ("limits/a huge count behind another, exactly", "", FALLS),
];
/// Counts that add up to more than 64 bits hold.
const FALLS: &str = "upstream panics, which ends kube-scheduler; here the claim asks for too many devices";

#[test]
fn committed_cases_are_answered_as_upstream_answered_them() {
    let mut wrong = Vec::new();
    let mut expected: BTreeSet<&str> = DIFFERENCES.iter().map(|(name, _, _)| *name).collect();
    let mut compared = 0;
    for case in files().into_values().flatten() {
        for answer in &case.answers {
            for of in &answer.of {
                compared += 1;
                let ours = hostler::outcome(&case, *of);
                match (ours == answer.outcome, differs(&case.name, *of)) {
                    (true, false) => {}
                    (false, true) => _ = expected.remove(&*case.name),
                    (true, true) => {
                        wrong.push(format!("{} of {of} is in the table of differences, and is the same", case.name))
                    }
                    (false, false) => wrong.push(format!(
                        "{} of {of}:\n  ours   {}\n  theirs {}",
                        case.name,
                        json!(ours),
                        json!(answer.outcome)
                    )),
                }
            }
        }
    }
    assert!(compared > 2000, "only {compared} answers were compared");
    wrong.extend(
        expected.iter().map(|name| format!("{name}: it is in the table of differences, and no case has that name")),
    );
    assert!(wrong.is_empty(), "{} of {compared} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn names_of_cases_are_unique_and_every_case_has_answers() {
    let mut names = BTreeSet::new();
    for (path, cases) in files() {
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        for case in cases {
            assert_eq!(case.name.split_once('/').map(|(start, _)| start), Some(&*file));
            assert!(!case.answers.is_empty(), "{} has no answers", case.name);
            assert!(names.insert(case.name.clone()), "{} is there twice", case.name);
        }
    }
}

/// Writes upstream's answers into the cases.
#[test]
#[ignore = "needs programs that answer for upstream, see tests/cases/README.md"]
fn cases_get_their_answers() {
    let mut oracles = oracle::all(10_000);
    for (path, cases) in files() {
        let mut text = String::new();
        for mut case in cases {
            case.answers.clear();
            case.answers = grouped(oracles.iter_mut().flat_map(|oracle| oracle.ask(&case)));
            text += &serde_json::to_string(&case).unwrap();
            text.push('\n');
        }
        fs::write(&path, text).unwrap();
    }
}

fn differs(name: &str, of: Implementation) -> bool {
    let of = of.to_string();
    DIFFERENCES.iter().any(|(case, who, _)| *case == name && of.starts_with(who))
}

fn files() -> BTreeMap<PathBuf, Vec<Case>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.map(|path| (path.clone(), cases(&path))).collect()
}

fn cases(path: &PathBuf) -> Vec<Case> {
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{} line {}: {error}", path.display(), number + 1))
    };
    fs::read_to_string(path).unwrap().lines().enumerate().map(parse).collect()
}

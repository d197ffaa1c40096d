//! Alerts: each selects figures that there are, leads to a section of the runbooks, and is raised in the cluster that it is
//! about and in no other.

use std::{collections::BTreeSet, fs, path::Path};

use hostler_testing::exposition::{SampleLabels, metric_table};
use serde_json::Value;

use super::{all_rules, checked, figures_of_a_daemon, metric_of, page, promtool, rule_file, rules, selectors, text};

/// The file in which no alert is raised.
const CORRECT: &str = "correct-cluster.yaml";

fn names() -> BTreeSet<String> {
    all_rules().iter().map(|rule| text(rule, "alert").to_owned()).collect()
}

#[test]
fn every_alert_leads_to_a_section_that_says_what_it_means_what_to_look_at_and_what_to_do() {
    let runbooks = page("runbooks.md");
    let sections: Vec<(&str, &str)> =
        runbooks.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap()).collect();
    let titles: BTreeSet<String> = sections.iter().map(|(title, _)| (*title).to_owned()).collect();
    assert_eq!(titles, names(), "sections and alerts");
    for (title, section) in sections {
        for part in ["**Meaning.** ", "**Check.** ", "**Fix.** "] {
            assert_eq!(section.matches(part).count(), 1, "{title} has no {part}");
        }
    }
    for rule in all_rules() {
        let (name, link) = (text(&rule, "alert"), text(&rule["annotations"], "runbook_url"));
        assert!(link.ends_with(&format!("/docs/runbooks.md#{}", name.to_lowercase())), "{name}: {link}");
        for annotation in ["summary", "description"] {
            assert!(!text(&rule["annotations"], annotation).is_empty(), "{name}");
        }
        assert!(["critical", "warning", "info"].contains(&text(&rule["labels"], "severity")), "{name}");
    }
}

#[test]
fn alerts_select_figures_of_the_table_by_labels_that_these_have() {
    let table = metric_table();
    for rule in all_rules() {
        let (alert, expression) = (text(&rule, "alert"), text(&rule, "expr"));
        let selectors = selectors(expression);
        // The scraper itself tells whether a program answers at all.
        assert!(!selectors.is_empty() || expression.contains("up{job=~"), "{alert} is about nothing");
        for (name, wanted) in selectors {
            let row = table.get(metric_of(&name)).unwrap_or_else(|| panic!("{alert}: {name} is no figure"));
            assert!(wanted.keys().all(|label| row.labels.contains(label)), "{alert}: {name} has no {wanted:?}");
        }
    }
}

#[test]
fn alerts_select_what_the_daemon_gives_from_its_start() {
    let given = figures_of_a_daemon();
    for rule in rules("hostler") {
        for (name, wanted) in selectors(text(&rule, "expr")) {
            let fits = |(found, labels): &(String, SampleLabels)| {
                *found == name && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
            };
            assert!(given.samples.iter().any(fits), "{}: nothing is {name} with {wanted:?}", text(&rule, "alert"));
        }
    }
}

#[test]
fn promtool_understands_the_alerts() {
    let Some(promtool) = promtool() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), rule_file(&all_rules())).unwrap();
    let said = checked(&promtool, &["check", "rules", file.path().to_str().unwrap()], "");
    assert!(said.contains(&format!("SUCCESS: {} rules found", names().len())), "{said}");
}

/// Returns the files with clusters for promtool.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/deploy/monitoring/rules");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .collect()
}

/// Returns the alerts that a file asks about, in clusters where they are raised and where they are not.
fn asked_about(text: &str) -> [BTreeSet<String>; 2] {
    let file: Value = serde_saphyr::from_str(text).unwrap();
    let checks = file["tests"].as_array().unwrap().iter().flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let (raised, quiet): (Vec<&Value>, Vec<&Value>) =
        checks.partition(|check| check["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty()));
    [raised, quiet].map(|checks| checks.iter().map(|check| check["alertname"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn every_alert_is_raised_in_one_cluster_and_not_in_another_and_none_in_a_correct_one() {
    let (names, files) = (names(), files());
    for (name, text) in &files {
        let [raised, quiet] = asked_about(text);
        if name == CORRECT {
            assert_eq!((raised, quiet), (BTreeSet::new(), names.clone()));
            continue;
        }
        let own: BTreeSet<String> = [name.trim_end_matches(".yaml").to_owned()].into();
        assert!(own.is_subset(&names), "{name} is about an alert that is gone");
        assert_eq!((raised, quiet), (own.clone(), own), "{name}");
    }
    assert_eq!(files.len(), names.len() + 1, "an alert without a file");
    let Some(promtool) = promtool() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Annotations are texts for people: this test is about which alerts there are.
    let mut bare = all_rules();
    bare.iter_mut().for_each(|rule| drop(rule.as_object_mut().unwrap().remove("annotations")));
    fs::write(folder.path().join("rules.yaml"), rule_file(&bare)).unwrap();
    let mut arguments = vec!["test".to_owned(), "rules".to_owned()];
    for (name, text) in &files {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        arguments.push(path.to_str().unwrap().to_owned());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = checked(&promtool, &arguments, "");
    assert_eq!(said.matches("SUCCESS").count(), files.len(), "{said}");
}

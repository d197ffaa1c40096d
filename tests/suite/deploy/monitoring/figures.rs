//! Figures of the daemon, the table that explains them, and the pages that name them.

use std::os::unix::net::UnixStream;

use hostler_testing::{
    exposition::{asked_for_format, assert_formats, metric_table},
    host::{Host, http},
};

use super::{checked, figures_of_a_daemon, metric_of, page, promtool, selectors};

#[test]
fn the_table_has_every_figure_of_the_daemon_with_its_type_labels_and_meaning() {
    let given = figures_of_a_daemon();
    let differences = given.differences("hostler");
    assert!(differences.is_empty(), "docs/metrics.md differs:\n{}", differences.join("\n"));
    // An event that has not happened yet is there too, as a zero.
    assert_eq!(given.missing("hostler"), Vec::<String>::new());
}

#[test]
fn every_figure_that_a_page_names_is_in_the_table() {
    let table = metric_table();
    let mut named = 0;
    let pages = ["availability", "classic-dra", "controller", "kubernetes", "metrics", "operations", "pod-resources"];
    for name in pages.into_iter().chain(["reservations", "runbooks", "threat-model"]) {
        let text = page(&format!("{name}.md"));
        for quoted in text.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("hostler_")) {
            if let Some(start) = quoted.strip_suffix('*') {
                assert!(table.keys().any(|metric| metric.starts_with(start)), "{name}: nothing is {quoted}");
                continue;
            }
            for (metric, labels) in selectors(quoted) {
                let row = table.get(metric_of(&metric)).unwrap_or_else(|| panic!("{name}: {metric} is not explained"));
                assert!(labels.keys().all(|label| row.labels.contains(label)), "{name}: {metric} has no {labels:?}");
                named += 1;
            }
        }
    }
    assert!(named >= 70, "only {named}");
}

#[test]
fn a_prepare_that_is_refused_is_counted_with_its_reason() {
    let given = figures_of_a_daemon();
    for (series, value) in [
        ("hostler_claim_operations_total{operation=\"Prepare\",outcome=\"ok\"}", 1.0),
        ("hostler_claim_operations_total{operation=\"Prepare\",outcome=\"error\"}", 1.0),
        ("hostler_claim_operations_total{operation=\"Unprepare\",outcome=\"error\"}", 0.0),
        ("hostler_claim_failures_total{operation=\"Prepare\",reason=\"held\"}", 1.0),
        ("hostler_claim_failures_total{operation=\"Prepare\",reason=\"storage\"}", 0.0),
    ] {
        assert_eq!(given.value(series), Some(value), "{series} in\n{}", given.text);
    }
}

#[test]
fn the_daemon_answers_in_the_format_that_its_reader_prefers() {
    let mut host = Host::bare("");
    host.start();
    let socket = host.path("run/metrics.sock");
    assert_formats(|accept| asked_for_format(UnixStream::connect(&socket).unwrap(), accept));
    assert_eq!(http(&socket, "GET", "/healthz", "").unwrap(), (200, "ok\n".to_owned()));
}

#[test]
fn promtool_has_nothing_to_say_about_the_figures() {
    let Some(promtool) = promtool() else { return };
    let given = figures_of_a_daemon();
    assert_eq!(checked(&promtool, &["check", "metrics"], &given.text), "", "{}", given.text);
    // promtool does complain of a wrong input.
    let wrong = "# TYPE hostler_claims counter\nhostler_claims 1\n";
    assert!(checked(&promtool, &["check", "metrics"], wrong).contains("no help text"));
}

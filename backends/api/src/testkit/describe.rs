//! Rules on what `enumerate` says.

use std::collections::BTreeSet;

use hostler_api::DeviceName;

use super::Run;
use crate::{ContainerEdits, CounterSet, Device, DeviceProblem, Enumeration, edits_problems};

/// Checks the enumeration and returns its counter sets and devices.
pub(super) fn check(run: &Run<'_>) -> (Vec<CounterSet>, Vec<Device>) {
    let before = run.observe();
    let (first_sets, first) = parts(run.enumerate());
    let (second_sets, second) = parts(run.enumerate());
    run.same_state("enumerate has no side effects", None, &before);
    if first.is_empty() {
        run.broken("there is something to test", None, "no device was found; use a tree that holds some");
    }
    let names = |devices: &[Device]| devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>();
    let (first_names, second_names) = (names(&first), names(&second));
    if first_names != second_names {
        let seen = format!("{} first, then {}", list(&first_names), list(&second_names));
        run.broken("enumerate gives the same devices in the same order", None, seen);
    }
    check_unique(run, &first_names);
    if first_sets != second_sets {
        let seen = format!("{first_sets:?} first, then {second_sets:?}");
        run.broken("enumerate gives the same counter sets in the same order", None, seen);
    }
    check_sets(run, &first_sets);
    for device in &first {
        broken_by(run, "the API server and runtimes accept the device", device, &device.problems());
        broken_by(run, "counters that a device takes are there", device, &device.counter_problems(&first_sets));
    }
    (second_sets, second)
}

fn parts(found: Enumeration) -> (Vec<CounterSet>, Vec<Device>) {
    (found.counter_sets, found.devices)
}

fn check_sets(run: &Run<'_>, sets: &[CounterSet]) {
    let mut seen = BTreeSet::new();
    for set in sets {
        if !seen.insert(&set.name) {
            run.broken("names of counter sets are unique", None, format!("{} occurs twice", set.name));
        }
        let problems: Vec<String> = set.problems().iter().map(ToString::to_string).collect();
        if !problems.is_empty() {
            run.broken(
                "the API server accepts the counter set",
                None,
                format!("{}: {}", set.name, problems.join("; ")),
            );
        }
    }
}

fn check_unique(run: &Run<'_>, names: &[DeviceName]) {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            run.broken("names are unique", Some(name), "the name occurs twice");
        }
    }
}

/// The edits of a claim, as [`Device::problems`] checks those of a device.
pub(super) fn check_edits(run: &Run<'_>, device: &Device, edits: &ContainerEdits) {
    broken_by(run, "edits are valid CDI", device, &edits_problems(edits));
}

fn broken_by(run: &Run<'_>, rule: &str, device: &Device, problems: &[DeviceProblem]) {
    if !problems.is_empty() {
        let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
        run.broken(rule, Some(&device.name), text.join("; "));
    }
}

fn list(names: &[DeviceName]) -> String {
    names.iter().map(DeviceName::as_str).collect::<Vec<_>>().join(", ")
}

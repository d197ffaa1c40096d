//! Rules on what `enumerate` says.

use std::collections::BTreeSet;

use super::Run;
use crate::{ContainerEdits, Device, DeviceName, DeviceProblem, edits_problems};

/// Checks the enumeration and returns its devices.
pub(super) fn check(run: &Run<'_>) -> Vec<Device> {
    let before = run.observe();
    let first = run.enumerate().devices;
    let second = run.enumerate().devices;
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
    for device in &first {
        check_device(run, device);
    }
    second
}

fn check_unique(run: &Run<'_>, names: &[DeviceName]) {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            run.broken("names are unique", Some(name), "the name occurs twice");
        }
    }
}

fn check_device(run: &Run<'_>, device: &Device) {
    broken_by(run, "the API server and runtimes accept the device", device, &device.problems());
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

//! Questions to an authorizer. No selector has an authorizer, so no argument is one.

use super::{Body, mismatch};

pub(super) const ALL: &[(&str, Body)] = &[
    ("path", |arguments, _| mismatch(arguments)),
    ("group", |arguments, _| mismatch(arguments)),
    ("serviceAccount", |arguments, _| mismatch(arguments)),
    ("resource", |arguments, _| mismatch(arguments)),
    ("subresource", |arguments, _| mismatch(arguments)),
    ("namespace", |arguments, _| mismatch(arguments)),
    ("name", |arguments, _| mismatch(arguments)),
    ("check", |arguments, _| mismatch(arguments)),
    ("errored", |arguments, _| mismatch(arguments)),
    ("error", |arguments, _| mismatch(arguments)),
    ("allowed", |arguments, _| mismatch(arguments)),
    ("reason", |arguments, _| mismatch(arguments)),
    ("fieldSelector", |arguments, _| mismatch(arguments)),
    ("labelSelector", |arguments, _| mismatch(arguments)),
];

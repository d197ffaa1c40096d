//! `hostler-controller convert`: writes Koordinator's objects as hostler's, and says what has no counterpart. The
//! conversion is pure; the command reads and writes.
//!
//! ```text
//!   files, standard input ─► objects ─┬─ Reservation of Koordinator ─► reservation ─┐
//!                                     ├─ pods, and objects with templates ─► pod ───┼─► YAML, JSON; notes on standard error
//!                                     └─ other objects, as they are ────────────────┘
//! ```

mod command;
mod keys;
mod manifest;
mod owners;
mod pod;
mod reservation;
mod template;

use std::fmt;

pub(crate) use self::{
    command::{ConvertArgs, run},
    pod::own_keys,
    reservation::of_koordinator,
};

/// Name of Koordinator's scheduler.
const KOORDINATOR_SCHEDULER: &str = "koord-scheduler";

/// A field of an object of Koordinator that hostler's object does not have in the same way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ConvertNote {
    /// Path of the field; empty for the object as a whole.
    pub(crate) field: String,
    /// The difference.
    pub(crate) difference: Difference,
    /// Description of the difference, and what to do.
    pub(crate) reason: String,
}

/// A difference between a field of Koordinator and its counterpart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Difference {
    /// The counterpart means something a little different.
    Differs,
    /// There is no counterpart: the field is left out.
    Missing,
}

/// A field that cannot be understood, or cannot be written as one of hostler's.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ConvertProblem {
    /// Path of the field; empty for the object as a whole.
    pub(crate) field: String,
    /// The mistake, and the fix.
    pub(crate) reason: String,
}

impl ConvertNote {
    fn differs(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), difference: Difference::Differs, reason: reason.into() }
    }

    fn missing(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { difference: Difference::Missing, ..Self::differs(field, reason) }
    }
}

impl ConvertProblem {
    fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// Makes the problem of a text that is no JSON of a kind.
    fn of_json(field: impl Into<String>, error: &serde_json::Error, example: &str) -> Self {
        Self::new(field, format!("it cannot be understood: {error}; write {example}"))
    }
}

impl fmt::Display for ConvertProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.is_empty() {
            true => f.write_str(&self.reason),
            false => write!(f, "{}: {}", self.field, self.reason),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Differs => "is a little different",
            Self::Missing => "has no counterpart",
        })
    }
}

#[cfg(test)]
mod tests;

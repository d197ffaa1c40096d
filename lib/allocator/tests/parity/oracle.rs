//! Upstream's allocator, asked through a program that reads cases and writes answers, a line each.

use hostler_allocator::structured::Variant;
use hostler_api::KubernetesVersion;
use serde::Deserialize;

use crate::{
    case::{Answer, Case, Implementation, Outcome},
    program::Program,
};

/// A running program.
#[derive(Debug)]
pub(crate) struct Oracle(Program);

#[derive(Deserialize)]
struct Reply {
    answers: Vec<Single>,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Single {
    kubernetes: KubernetesVersion,
    variant: Variant,
    outcome: Outcome,
    #[serde(default)]
    invocations: Option<u64>,
}

/// Starts all programs that the environment names; a search that takes longer than `deadline_ms` is given up.
pub(crate) fn all(deadline_ms: u32) -> Vec<Oracle> {
    Program::all(&["answer", "-deadline", &deadline_ms.to_string()]).into_iter().map(Oracle).collect()
}

impl Oracle {
    /// What each of the program's implementations says.
    pub(crate) fn ask(&mut self, case: &Case) -> Vec<Answer> {
        let reply: Reply = self.0.ask(case);
        assert_eq!(reply.error, "", "{}", case.name);
        reply.answers.into_iter().map(answer).collect()
    }
}

fn answer(single: Single) -> Answer {
    let of = Implementation { version: single.kubernetes, variant: single.variant };
    let invocations = single.invocations.filter(|number| *number > 0);
    Answer { of: [of].into(), outcome: single.outcome.normalised(), invocations }
}

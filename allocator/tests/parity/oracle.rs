//! Upstream's allocator, asked through a program that reads cases and writes answers, a line each.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use hostler_allocator::structured::{KubernetesVersion, Variant};
use serde::Deserialize;
use serde_json::json;

use crate::case::{Answer, Case, Implementation, Outcome};

/// Programs to ask, with a colon between them.
const PROGRAMS: &str = "HOSTLER_ORACLES";

/// A running program.
#[derive(Debug)]
pub(crate) struct Oracle {
    child: Child,
    cases: ChildStdin,
    replies: BufReader<ChildStdout>,
}

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
    let programs = env::var(PROGRAMS).unwrap_or_else(|_| panic!("{PROGRAMS} names the programs to ask"));
    programs.split(':').map(|program| Oracle::start(program, deadline_ms)).collect()
}

impl Oracle {
    fn start(program: &str, deadline_ms: u32) -> Self {
        let mut child = Command::new(program)
            .args(["answer", "-deadline", &deadline_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let cases = child.stdin.take().expect("it is piped");
        let replies = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, cases, replies }
    }

    /// What each of the program's implementations says.
    pub(crate) fn ask(&mut self, case: &Case) -> Vec<Answer> {
        writeln!(self.cases, "{}", json!(case)).expect("the program reads");
        self.cases.flush().expect("the program reads");
        let mut text = String::new();
        self.replies.read_line(&mut text).expect("the program answers");
        let reply: Reply = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(reply.error, "", "{}", case.name);
        reply.answers.into_iter().map(answer).collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn answer(single: Single) -> Answer {
    let of = Implementation { version: single.kubernetes, variant: single.variant };
    let invocations = single.invocations.filter(|number| *number > 0);
    Answer { of: [of].into(), outcome: single.outcome.normalised(), invocations }
}

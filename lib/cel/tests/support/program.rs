//! Programs that answer for upstream: a question is a line, and so is the answer.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::{Serialize, de::DeserializeOwned};

/// Programs to ask, with a colon between them.
const PROGRAMS: &str = "HOSTLER_ORACLES";

/// A running program.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Program {
    /// Starts all programs that the environment names.
    pub(crate) fn all(arguments: &[&str]) -> Vec<Self> {
        let programs = env::var(PROGRAMS).unwrap_or_else(|_| panic!("{PROGRAMS} names the programs to ask"));
        programs.split(':').map(|program| Self::start(program, arguments)).collect()
    }

    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let questions = child.stdin.take().expect("it is piped");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, questions, answers }
    }

    /// What it says.
    pub(crate) fn ask<A: DeserializeOwned>(&mut self, question: &impl Serialize) -> A {
        let question = serde_json::to_string(question).expect("a question can be written");
        writeln!(self.questions, "{question}").expect("the program reads");
        self.questions.flush().expect("the program reads");
        let mut text = String::new();
        self.answers.read_line(&mut text).expect("the program answers");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

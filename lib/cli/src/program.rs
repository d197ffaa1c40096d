//! A program's command line, from its arguments to its exit code.

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;

use crate::{
    completions::Completions,
    exit::{CliOutcome, report},
    output,
    plain::PlainWriter,
    screen::{self, Screen},
};

/// The parts of a command line.
#[derive(Clone, Copy, Debug)]
pub struct CommandLine<A, E> {
    /// The program's name, and how shells complete its command line.
    pub completions: Completions,
    /// Tells if the output of a command is for programs that want it byte for byte.
    pub writes_bytes: fn(&A) -> bool,
    /// Does what a command asks for.
    pub dispatch: fn(A, &mut dyn Write) -> Result<CliOutcome, E>,
    /// Returns the end that a failure is.
    pub outcome: fn(&E) -> CliOutcome,
}

impl<A: Parser, E: Error + From<io::Error> + 'static> CommandLine<A, E> {
    /// Reads the arguments of the process, does what they ask for and returns the exit code.
    pub fn main(&self) -> ExitCode {
        if self.completions.answer(A::command) {
            return ExitCode::SUCCESS;
        }
        let args = match A::try_parse() {
            Ok(args) => args,
            Err(error) => {
                // Help and version come this way too. A closed pipe is no reason to fail.
                let _ = error.print();
                return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(CliOutcome::NoAnswer.code()));
            }
        };
        screen::set(Screen::of_stdout());
        let mut out = output::stdout((self.writes_bytes)(&args));
        let result = (self.dispatch)(args, &mut out).and_then(|outcome| {
            out.flush()?;
            Ok(outcome)
        });
        let outcome = result.unwrap_or_else(|error| {
            let outcome = (self.outcome)(&error);
            // Standard error is not locked before there is something to say: a log without a reader keeps the lock.
            report(self.completions.program, &error, outcome, &mut PlainWriter::new(io::stderr(), false));
            outcome
        });
        ExitCode::from(outcome.code())
    }
}

//! `hostler hook`: what container runtimes call while a container is made.
//!
//! It stands beside the other subcommands, not among them: every start of a container waits for it, and the parser of
//! the command line alone would take longer than the work. It is not for people and has no help.

use std::{
    env::ArgsOs,
    io::{self, Write},
    process::ExitCode,
};

use hostler_api::Chain;
use hostler_linux::SysRoot;

use crate::hook::{self, record::RecordOutcome};

/// Runs a hook; `args` is what follows `hook` on the command line. What goes wrong goes to standard error, which the
/// runtime shows as the reason why the container was not started.
pub fn main(args: ArgsOs) -> ExitCode {
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let complaint = match args.split_first() {
        Some((name, args)) if name == "cpuset" => match hook::run(&SysRoot::host(), args, io::stdin().lock()) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => Chain(&error).to_string(),
        },
        Some((name, args)) if name == "record" => {
            match hook::record::run(&SysRoot::host(), args, io::stdin().lock()) {
                Ok(RecordOutcome::Yes) => return ExitCode::SUCCESS,
                Ok(RecordOutcome::NotAllowed(error)) => {
                    say(&format!("the container starts, and the daemon does not see it: {}", Chain(&error)));
                    return ExitCode::SUCCESS;
                }
                Err(error) => Chain(&error).to_string(),
            }
        }
        _ => "the hooks are `hostler hook cpuset` and `hostler hook record`; CDI files written by `hostler run` call them"
            .to_owned(),
    };
    say(&complaint);
    ExitCode::FAILURE
}

fn say(text: &str) {
    // A closed standard error has no reader.
    let _ = writeln!(io::stderr(), "hostler: {text}");
}

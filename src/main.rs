//! The `hostler` binary.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let mut args = env::args_os();
    // Containers wait for hooks: they get by without the parser of the command line.
    if args.nth(1).is_some_and(|first| first == "hook") { hostler::cli::hook::main(args) } else { hostler::cli::main() }
}

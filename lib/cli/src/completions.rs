//! Scripts that make shells complete a program's command line. A script asks the program itself at every Tab, with
//! a variable set, so what it knows is never older than the program.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::unix::ffi::OsStrExt,
};

use clap::Command;
use clap_complete::{CompleteEnv, Shell, engine::complete, env::Shells};

/// A program that completes its own command line.
#[derive(Clone, Copy, Debug)]
pub struct Completions {
    /// The name that is typed.
    pub program: &'static str,
    /// The variable that scripts set when they ask.
    pub variable: &'static str,
}

/// The arguments of `completions`.
#[derive(clap::Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Writes the script for the shell that the arguments name.
    pub fn write(&self, args: &CompletionsArgs, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.script(args.shell)?)
    }

    fn script(&self, shell: Shell) -> io::Result<Vec<u8>> {
        let Self { program, variable } = *self;
        let name = shell.to_string();
        let shells = Shells::builtins();
        let completer =
            shells.completer(&name).ok_or_else(|| io::Error::other(format!("there is no script for {name}")))?;
        let mut script = Vec::new();
        completer.write_registration(variable, program, program, program, &mut script)?;
        if shell == Shell::Zsh {
            script.extend_from_slice(zsh_autoload(program).as_bytes());
        }
        Ok(script)
    }

    /// Answers a script that asks. False where none does.
    pub fn answer(&self, command: fn() -> Command) -> bool {
        if env::var_os(self.variable).is_none() {
            return false;
        }
        let folder = env::current_dir().ok();
        // What cannot be completed is not completed; a word about it would land in the middle of a command line.
        CompleteEnv::with_factory(command)
            .var(self.variable)
            .try_complete(env::args_os(), folder.as_deref())
            .unwrap_or(true)
    }
}

/// The directive by which kubectl completes with nothing but the answer: not with names of files.
const NO_FILES: &str = ":4";

/// Completes a plugin's command line as kubectl asks for it: the last word is the one to complete. Each line is a word,
/// with its explanation behind a tab; the last line is a directive.
pub fn write_for_kubectl(mut command: Command, words: Vec<OsString>, out: &mut dyn Write) -> io::Result<()> {
    let (at, folder) = (words.len(), env::current_dir().ok());
    let line = std::iter::once(OsString::from(command.get_name())).chain(words).collect();
    for word in complete(&mut command, line, at, folder.as_deref())? {
        let help = word.get_help().map(|help| format!("\t{}", help.to_string().lines().next().unwrap_or_default()));
        writeln!(out, "{}{}", word.get_value().to_string_lossy(), help.unwrap_or_default())?;
    }
    writeln!(out, "{NO_FILES}")
}

/// Zsh runs an installed script as a function when it is first needed, and expects an answer from it.
fn zsh_autoload(program: &str) -> String {
    let function = program.replace('-', "_");
    format!("if [ \"$funcstack[1]\" = \"_{program}\" ]; then\n    _clap_dynamic_completer_{function} \"$@\"\nfi\n")
}

/// The value of an option on the command line that is being typed.
pub fn typed(option: &str) -> Option<OsString> {
    value_in(env::args_os(), option)
}

/// The word after the option, or what stands in the same word behind `=`.
fn value_in(mut words: impl Iterator<Item = OsString>, option: &str) -> Option<OsString> {
    while let Some(word) = words.next() {
        match word.as_bytes().strip_prefix(option.as_bytes()) {
            Some(b"") => return words.next(),
            Some([b'=', value @ ..]) => return Some(OsStr::from_bytes(value).to_owned()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn options_are_understood_however_they_are_typed() {
        for (line, expected) in [
            ("hostler --socket /a m", Some("/a")),
            ("hostler --socket=/a m", Some("/a")),
            ("hostler --sockets /b --socket=/a=b", Some("/a=b")),
            ("hostler --socket", None),
            ("hostler m", None),
        ] {
            let words = line.split(' ').map(OsString::from);
            assert_eq!(value_in(words, "--socket"), expected.map(OsString::from), "{line}");
        }
    }

    #[test]
    fn every_shell_gets_a_script_that_asks_the_program() {
        for (program, function) in [("hostler", "hostler"), ("hostler-controller", "hostler_controller")] {
            let completions = Completions { program, variable: "ASKED" };
            for shell in Shell::value_variants() {
                let script = String::from_utf8(completions.script(*shell).unwrap()).unwrap();
                // What the last lines of the script for zsh call.
                let defined = script.contains(&format!("function _clap_dynamic_completer_{function}()"));
                assert_eq!(defined, *shell == Shell::Zsh, "{script}");
                assert!(script.contains("ASKED") && script.contains(program), "{shell}: {script}");
            }
        }
    }
}

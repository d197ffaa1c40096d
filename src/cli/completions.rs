//! `hostler completions`: what makes shells complete commands, options, and the devices and claims of the running daemon.
//!
//! The script asks this binary at every Tab, with [`VARIABLE`] set, so what it knows is never older than the binary. Names come
//! from the daemon; one that is away, slow or not ours to ask gives none, and no word on the terminal.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    time::Duration,
};

use clap::CommandFactory;
use clap_complete::{CompleteEnv, engine::CompletionCandidate, env::Shells};
use hostler_fpga::store::BitstreamStore;
use serde::de::DeserializeOwned;

use super::{Cli, CliFailure, CliOutcome, client::DaemonClient, output::Listed};
use crate::{
    admin::types::{AdminClaim, AdminDevice},
    config::DaemonConfig,
};

/// Set by the scripts when they ask.
const VARIABLE: &str = "HOSTLER_COMPLETE";

/// Zsh runs an installed script as a function when it is first needed, and expects an answer from it.
const ZSH_AUTOLOAD: &str =
    "if [ \"$funcstack[1]\" = \"_hostler\" ]; then\n    _clap_dynamic_completer_hostler \"$@\"\nfi\n";

/// Whoever types waits for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Write a completion script for a shell to standard output; it completes devices and claims of the running daemon, too
#[derive(clap::Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

pub(super) fn run(args: &CompletionsArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let name = args.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&name).ok_or_else(|| CliFailure::Said(format!("there is no script for {name}")))?;
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "hostler", "hostler", "hostler", &mut script)
        .map_err(|source| CliFailure::step("write the script", source))?;
    out.write_all(&script)?;
    if args.shell == clap_complete::Shell::Zsh {
        out.write_all(ZSH_AUTOLOAD.as_bytes())?;
    }
    Ok(CliOutcome::Done)
}

/// Answers a script that asks. False where none does.
pub(super) fn complete() -> bool {
    if env::var_os(VARIABLE).is_none() {
        return false;
    }
    let folder = env::current_dir().ok();
    // What cannot be completed is not completed; a word about it would land in the middle of a command line.
    CompleteEnv::with_factory(Cli::command)
        .var(VARIABLE)
        .try_complete(env::args_os(), folder.as_deref())
        .unwrap_or(true)
}

/// `backend/device` of every device.
pub(super) fn devices(begun: &OsStr) -> Vec<CompletionCandidate> {
    candidates(begun, &asked::<AdminDevice>("/v1/devices"))
}

/// `namespace/name` of every claim; its UID where the name is lost.
pub(super) fn claims(begun: &OsStr) -> Vec<CompletionCandidate> {
    candidates(begun, &asked::<AdminClaim>("/v1/claims"))
}

/// Names of the bitstreams of the store.
pub(super) fn bitstreams(begun: &OsStr) -> Vec<CompletionCandidate> {
    let store = config().map(|config| BitstreamStore::new(config.backends.fpga.config.bitstreams));
    candidates(begun, &store.and_then(|store| store.list().ok()).unwrap_or_default())
}

fn candidates<T: Listed>(begun: &OsStr, listed: &[T]) -> Vec<CompletionCandidate> {
    let begun = begun.to_string_lossy();
    let names = listed.iter().map(Listed::listed_name).filter(|name| name.starts_with(&*begun));
    names.map(CompletionCandidate::new).collect()
}

fn asked<T: DeserializeOwned>(path: &str) -> Vec<T> {
    let socket = typed("--socket").map(PathBuf::from).or_else(|| config().map(|config| config.admin_socket()));
    let answer = socket.map(|socket| DaemonClient::at(socket).patient(PATIENCE).get(path));
    answer.and_then(Result::ok).unwrap_or_default()
}

fn config() -> Option<DaemonConfig> {
    DaemonConfig::load_or_default(typed("--config").map(PathBuf::from).as_deref()).ok()
}

/// The value of an option on the command line that is being typed.
fn typed(option: &str) -> Option<OsString> {
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
    fn every_shell_gets_a_script_that_asks_this_binary() {
        for shell in clap_complete::Shell::value_variants() {
            let mut out = Vec::new();
            assert_eq!(run(&CompletionsArgs { shell: *shell }, &mut out).unwrap(), CliOutcome::Done);
            let script = String::from_utf8(out).unwrap();
            // What the last lines of the script for zsh call.
            let defined = script.contains("function _clap_dynamic_completer_hostler()");
            assert_eq!(defined, *shell == clap_complete::Shell::Zsh, "{script}");
            assert!(script.contains(VARIABLE) && script.contains("hostler"), "{shell}: {script}");
        }
    }
}

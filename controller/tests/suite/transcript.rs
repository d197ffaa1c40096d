//! Transcripts: what people type and what they see then, in a file of its own or in blocks of a page.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// The command; nothing of this machine's own cluster can be meant.
pub(crate) fn command(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostler-controller"));
    command.args(args).current_dir(folder).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

pub(crate) fn call(args: &[&str], folder: &Path) -> Output {
    command(args, folder).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Compares what a file says with what the commands in it say now; commands run in `folder`.
pub(crate) fn check(file: &Path, folder: &Path) {
    let expected = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let is_page = file.extension().is_some_and(|extension| extension == "md");
    let actual = if is_page { page(&expected, folder) } else { played(&expected, folder) };
    assert!(actual.contains("$ hostler-controller "), "{} has no commands", file.display());
    if actual != expected && std::env::var_os("UPDATE_GOLDEN").is_some() {
        return fs::write(file, actual).unwrap();
    }
    let hint = format!("{} changed; if that is right, run the test with UPDATE_GOLDEN=1", file.display());
    assert!(actual == expected, "{hint}\n{actual}");
}

/// A page in which the blocks of commands are played anew.
fn page(text: &str, folder: &Path) -> String {
    let (mut page, mut block) = (String::new(), None::<String>);
    for line in text.split_inclusive('\n') {
        match (&mut block, line.trim_end()) {
            (None, "```console") => block = Some(String::new()),
            (Some(commands), "```") => {
                page += &format!("```console\n{}```\n", played(commands, folder));
                block = None;
                continue;
            }
            (Some(commands), _) => commands.push_str(line),
            (None, _) => {}
        }
        if block.is_none() {
            page += line;
        }
    }
    page
}

/// Commands with what they say now. Other lines are what they said then, but for remarks between them.
fn played(then: &str, folder: &Path) -> String {
    let (mut now, mut code) = (String::new(), 0);
    for line in then.lines() {
        if line.starts_with('#') {
            now += &format!("{line}\n");
        } else if line == "$ echo $?" {
            now += &format!("{line}\n{code}\n");
        } else if let Some(command) = line.strip_prefix("$ hostler-controller ") {
            let words = words(command);
            let output = call(&words.iter().map(String::as_str).collect::<Vec<_>>(), folder);
            code = output.status.code().unwrap();
            now += &format!("{line}\n{}{}", text(&output.stdout), text(&output.stderr));
        }
    }
    now
}

/// The words of a command; blanks between quotes belong to a word.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in command.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            c => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

//! Starts the program that a kubeconfig names for credentials, as kubectl does: on behalf of the user who calls.

use std::{
    io,
    process::{Command, Stdio},
};

use hostler_cluster::ExecProgram;

/// The variable with the question to the program.
const QUESTION: &str = "KUBERNETES_EXEC_INFO";

/// Starts the program, and returns what it writes. The user sees its own words, and may have to answer it.
pub(super) fn run(program: &ExecProgram, question: &str) -> Result<Vec<u8>, String> {
    let variables = program.env.iter().map(|it| (&it.name, &it.value));
    #[expect(clippy::disallowed_methods, reason = "a command of a user, which has the user's own rights and no more")]
    let started = Command::new(&program.command)
        .args(&program.args)
        .envs(variables)
        .env(QUESTION, question)
        .stderr(Stdio::inherit())
        .stdin(Stdio::inherit())
        .output();
    let named = program.command.display();
    let hint = program.install_hint.as_ref().map(|hint| format!("; {}", hint.trim())).unwrap_or_default();
    match started {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => Err(format!("{named} ended with {}", output.status)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("there is no {named}{hint}")),
        Err(error) => Err(format!("failed to start {named}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use hostler_cluster::ExecVariable;

    use super::*;

    #[test]
    fn the_program_gets_its_question_and_a_failure_is_told() {
        let program = |command: &str, script: &str| ExecProgram {
            command: command.into(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![ExecVariable { name: "A".to_owned(), value: "b".to_owned() }],
            install_hint: Some("install it".to_owned()),
            ..ExecProgram::default()
        };
        let run = |command, script| run(&program(command, script), "{}").map(|it| String::from_utf8(it).unwrap());
        assert_eq!(run("sh", "echo $A$KUBERNETES_EXEC_INFO").unwrap(), "b{}\n");
        assert_eq!(run("sh", "exit 3").unwrap_err(), "sh ended with exit status: 3");
        assert_eq!(run("/absent/login", "").unwrap_err(), "there is no /absent/login; install it");
    }
}

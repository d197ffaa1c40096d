//! Credentials from a program that a kubeconfig names, as `client.authentication.k8s.io` describes them. This crate starts
//! no programs: the caller gives the function that does, or none.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    time::SystemTime,
};

use serde::{Deserialize, Deserializer, Serialize};

use crate::time::from_rfc3339;

/// A program that gives credentials, and its surroundings.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExecProgram {
    /// The version in which the program is asked, and answers.
    pub api_version: String,
    /// The program: a name that is looked for in PATH, or a path.
    pub command: PathBuf,
    /// Arguments of the program.
    #[serde(default, deserialize_with = "or_empty")]
    pub args: Vec<String>,
    /// Variables that it gets beside those of the caller.
    #[serde(default, deserialize_with = "or_empty")]
    pub env: Vec<ExecVariable>,
    /// Advice for people who lack the program.
    #[serde(default)]
    pub install_hint: Option<String>,
    /// True if the program is told which cluster it is asked for.
    #[serde(default)]
    pub provide_cluster_info: bool,
}

/// A variable of a program.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
pub struct ExecVariable {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// Reads `null` as empty: the tools of clouds write it.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Starts a program with a question in `KUBERNETES_EXEC_INFO`; returns what it writes. The error is for people.
pub type ExecRunner = fn(program: &ExecProgram, question: &str) -> Result<Vec<u8>, String>;

/// The question to a program, and its answer: both are an ExecCredential.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecQuestion<'a> {
    api_version: &'a str,
    kind: &'static str,
    spec: ExecQuestionSpec,
}

#[derive(Debug, Serialize)]
struct ExecQuestionSpec {
    interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct ExecAnswer {
    #[serde(default)]
    status: Option<ExecStatus>,
}

/// Credentials that a program gave.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecStatus {
    pub(super) token: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

impl ExecStatus {
    /// Asks a program. The error is for people, and has nothing of the answer, which is a secret.
    pub(super) fn ask(
        program: &ExecProgram,
        cluster: Option<serde_json::Value>,
        run: ExecRunner,
    ) -> Result<Self, String> {
        let cluster = cluster.filter(|_| program.provide_cluster_info);
        let spec = ExecQuestionSpec { interactive: io::stdin().is_terminal(), cluster };
        let question = ExecQuestion { api_version: &program.api_version, kind: "ExecCredential", spec };
        let question = serde_json::to_string(&question).map_err(|error| error.to_string())?;
        let answer = run(program, &question)?;
        let named = program.command.display();
        let answer: ExecAnswer =
            serde_json::from_slice(&answer).map_err(|_| format!("{named} answered no ExecCredential in JSON"))?;
        let given = answer.status.filter(|it| it.token.is_some() || it.client_certificate_data.is_some());
        given.ok_or_else(|| format!("{named} gave neither a token nor a certificate"))
    }

    /// Returns the time at which the credentials end.
    pub(super) fn end(&self) -> Option<SystemTime> {
        from_rfc3339(self.expiration_timestamp.as_deref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(run: ExecRunner) -> Result<ExecStatus, String> {
        let program = ExecProgram { command: "login".into(), ..ExecProgram::default() };
        ExecStatus::ask(&program, None, run)
    }

    #[test]
    fn a_program_gives_a_token_with_its_end_or_says_why_not() {
        let given = asked(|_, question| {
            assert!(question.contains("ExecCredential"), "{question}");
            Ok(br#"{"kind":"ExecCredential","status":{"token":"t","expirationTimestamp":"1970-01-01T00:01:00Z"}}"#
                .into())
        });
        let given = given.unwrap();
        assert_eq!(given.token.as_deref(), Some("t"));
        assert_eq!(given.end(), Some(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(60)));
        assert_eq!(asked(|_, _| Ok(b"hello".into())).unwrap_err(), "login answered no ExecCredential in JSON");
        assert_eq!(asked(|_, _| Ok(b"{}".into())).unwrap_err(), "login gave neither a token nor a certificate");
        assert_eq!(asked(|_, _| Err("it is away".to_owned())).unwrap_err(), "it is away");
    }
}

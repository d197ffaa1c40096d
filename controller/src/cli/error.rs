//! Errors of commands, and the exit codes that they mean.

use std::io;

use hostler_cli::{exit::CliOutcome, man::ManError};
use hostler_process::config::ConfigErrors;

use crate::{plan::QuestionError, ready::ReadyError, run::RunError};

/// The reason why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error("failed to write the answer")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Input(BoxedError),
    #[error(transparent)]
    NoAnswer(BoxedError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Ready(#[from] ReadyError),
    #[error(transparent)]
    Man(#[from] ManError),
}

/// Errors of questions are long: on the heap they take no room in every other answer.
pub(super) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

impl CommandError {
    /// Returns the end of a command that failed so.
    pub(super) fn outcome(&self) -> CliOutcome {
        match self {
            Self::Config(_) => CliOutcome::WrongConfig,
            Self::Output(error) => CliOutcome::of_output(error),
            Self::Input(_) => CliOutcome::WrongInput,
            Self::NoAnswer(_) => CliOutcome::NoAnswer,
            Self::Run(_) | Self::Ready(_) | Self::Man(_) => CliOutcome::Failed,
        }
    }
}

impl From<QuestionError> for CommandError {
    fn from(error: QuestionError) -> Self {
        match error {
            QuestionError::Output(error) => Self::Output(error),
            QuestionError::Config(errors) => Self::Config(errors),
            QuestionError::Input(_) => Self::Input(error.into()),
            other => Self::NoAnswer(other.into()),
        }
    }
}

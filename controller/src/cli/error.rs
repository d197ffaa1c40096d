//! Errors of commands, and the exit codes that they mean.

use std::io;

use hostler_cli::{exit::CliOutcome, man::ManError};
use hostler_process::config::ConfigErrors;

use crate::{
    availability::AvailabilityError, check_upgrade::CheckUpgradeError, explain::ExplainError, held::HoldsError,
    node::NodeError, plan::PlanError, ready::ReadyError, run::RunError, why::WhyError,
};

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

impl From<PlanError> for CommandError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Output(error) => Self::Output(error),
            PlanError::Input(_) => Self::Input(error.into()),
            other => Self::NoAnswer(other.into()),
        }
    }
}

impl From<AvailabilityError> for CommandError {
    fn from(error: AvailabilityError) -> Self {
        match error {
            AvailabilityError::Output(error) => Self::Output(error),
            AvailabilityError::Input(_) => Self::Input(error.into()),
            other => Self::NoAnswer(other.into()),
        }
    }
}

impl From<CheckUpgradeError> for CommandError {
    fn from(error: CheckUpgradeError) -> Self {
        match error {
            CheckUpgradeError::Output(error) => Self::Output(error),
            CheckUpgradeError::Input(_) => Self::Input(error.into()),
            other => Self::NoAnswer(other.into()),
        }
    }
}

impl From<HoldsError> for CommandError {
    fn from(error: HoldsError) -> Self {
        match error {
            HoldsError::Output(error) => Self::Output(error),
            other => Self::NoAnswer(other.into()),
        }
    }
}

impl From<ExplainError> for CommandError {
    fn from(error: ExplainError) -> Self {
        match error {
            ExplainError::Output(error) => Self::Output(error),
            ExplainError::Config(errors) => Self::Config(errors),
            ExplainError::Why(error) => error.into(),
            other => Self::NoAnswer(other.into()),
        }
    }
}

impl From<WhyError> for CommandError {
    fn from(error: WhyError) -> Self {
        match error {
            WhyError::Output(error) => Self::Output(error),
            other => Self::NoAnswer(other.into()),
        }
    }
}

impl From<NodeError> for CommandError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Output(error) => Self::Output(error),
            NodeError::Input(_) => Self::Input(error.into()),
            other => Self::NoAnswer(other.into()),
        }
    }
}

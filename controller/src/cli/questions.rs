//! Commands that answer questions about a cluster, for its tenants and its operators alike. They change nothing, but for
//! `fabric adopt`.

use std::io::Write;

use hostler_cli::exit::CliOutcome;

use super::error::CommandError;
use crate::{
    adopt::{self, AdoptArgs},
    availability::{self, AvailabilityArgs},
    doctor::{self, DoctorArgs},
    explain::{self, ExplainArgs},
    held::{self, HoldsArgs},
    node::{self, NodeArgs, TopArgs},
    plan::{self, PlanArgs},
    pooled::{self, FabricArgs},
    why::{self, WhyArgs},
};

/// A question.
#[derive(Debug, clap::Subcommand)]
pub(super) enum QuestionCommand {
    Plan(PlanArgs),
    Availability(AvailabilityArgs),
    Explain(ExplainArgs),
    Holds(HoldsArgs),
    Fabric(FabricWords),
    Why(WhyArgs),
    Node(NodeArgs),
    Top(TopArgs),
    Doctor(DoctorArgs),
}

/// The question about devices behind switches, or an order about them.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct FabricWords {
    #[command(flatten)]
    question: FabricArgs,
    #[command(subcommand)]
    command: Option<FabricCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum FabricCommand {
    Adopt(Box<AdoptArgs>),
}

impl QuestionCommand {
    /// Answers on `out`.
    pub(super) fn answer(self, out: &mut dyn Write) -> Result<CliOutcome, CommandError> {
        match self {
            Self::Plan(args) => return Ok(plan::run(&args, out)?),
            Self::Doctor(args) => return Ok(doctor::run(&args, out)?),
            Self::Availability(args) => availability::run(&args, out)?,
            Self::Explain(args) => explain::run(&args, out)?,
            Self::Holds(args) => held::run(&args, out)?,
            Self::Fabric(FabricWords { command: Some(FabricCommand::Adopt(args)), .. }) => {
                return Ok(adopt::run(&args, out)?);
            }
            Self::Fabric(FabricWords { question, command: None }) => pooled::run(&question, out)?,
            Self::Why(args) => why::run(&args, out)?,
            Self::Node(args) => node::run(&args, out)?,
            Self::Top(args) => node::top(&args, out)?,
        }
        Ok(CliOutcome::Done)
    }
}

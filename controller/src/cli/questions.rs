//! Commands that answer questions about a cluster, for its tenants and its operators alike. They change nothing.

use std::io::Write;

use hostler_cli::exit::CliOutcome;

use super::error::CommandError;
use crate::{
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
    Fabric(FabricArgs),
    Why(WhyArgs),
    Node(NodeArgs),
    Top(TopArgs),
    Doctor(DoctorArgs),
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
            Self::Fabric(args) => pooled::run(&args, out)?,
            Self::Why(args) => why::run(&args, out)?,
            Self::Node(args) => node::run(&args, out)?,
            Self::Top(args) => node::top(&args, out)?,
        }
        Ok(CliOutcome::Done)
    }
}

//! The command: arguments in, an answer and an exit code out.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use hostler_cli::{
    exit::CliOutcome,
    output::{DocumentFormat, write_document},
};
use tokio::runtime;

use super::{DeployedObjects, FindingUrgency, UpgradeAnswer, read, table};
use crate::{
    cluster_args::ClusterArgs,
    plan::{ClusterReadError, InputProblem},
};

const EXAMPLES: &str = "\
Examples:
  hostler-controller check-upgrade                            the cluster of the current context
  kubectl kustomize my-overlay | hostler-controller check-upgrade -f -
                                                              manifests, before they are applied

Findings:
  first  mend it before the programs are replaced; the command stands behind it
  note   nothing has to be done first

Exit codes: 0 nothing is in the way, 1 something has to be done first, 2 wrong usage or wrong input, or no answer.";

/// Say what has to be done before this version of hostler takes over in a cluster: kinds, roles, objects, versions
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckUpgradeArgs {
    /// Manifests instead of a cluster: definitions, roles, workloads, hostler's objects; a folder is read with all that
    /// is below it; - for standard input. What they do not have is not missed, unless others of its kind are there
    #[arg(short, long = "filename", value_name = "FILE|DIR", conflicts_with_all = ["kubeconfig", "context"])]
    files: Vec<PathBuf>,
    #[command(flatten)]
    access: ClusterArgs,
    /// How the answer looks; wide has the commands in a column of their own
    #[arg(short, long, value_enum, default_value_t)]
    output: DocumentFormat,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckUpgradeError {
    /// The input is wrong.
    #[error("{}", crate::plan::told(.0))]
    Input(Vec<InputProblem>),
    /// The runtime has no threads or no timers.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// The cluster cannot be read.
    #[error(transparent)]
    Cluster(#[from] ClusterReadError),
    /// The answer cannot be written.
    #[error("failed to write the answer")]
    Output(#[from] io::Error),
}

/// Answers on `out`.
pub(crate) fn run(args: &CheckUpgradeArgs, out: &mut dyn Write) -> Result<CliOutcome, CheckUpgradeError> {
    let answer = UpgradeAnswer::of(&args.deployed()?);
    write_document(&answer, args.output, out, |width| table::text(&answer, width))?;
    Ok(if answer.count(FindingUrgency::First) == 0 { CliOutcome::Done } else { CliOutcome::NotInOrder })
}

impl CheckUpgradeArgs {
    fn deployed(&self) -> Result<DeployedObjects, CheckUpgradeError> {
        if !self.files.is_empty() {
            return read::from_files(&self.files).map_err(CheckUpgradeError::Input);
        }
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(CheckUpgradeError::Runtime)?;
        Ok(runtime.block_on(read::from_cluster(&self.access))?)
    }
}

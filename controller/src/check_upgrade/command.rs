//! The command: arguments in, an answer and an exit code out.

use std::{io::Write, path::PathBuf};

use hostler_cli::{
    exit::CliOutcome,
    output::{DocumentFormat, write_document},
    parts::shape,
};

use super::{FindingUrgency, UpgradeAnswer, read, table};
use crate::{
    cluster_args::ClusterArgs,
    deployed::DeployedObjects,
    plan::{QuestionError, runtime},
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
    #[arg(short, long = "filename", value_name = "FILE|DIR", conflicts_with_all = ["kubeconfig", "context", "server"])]
    files: Vec<PathBuf>,
    #[command(flatten)]
    access: ClusterArgs,
    /// How the answer looks; wide has the commands in a column of their own
    #[arg(short, long, value_parser = shape::<DocumentFormat>(), default_value = "table")]
    output: DocumentFormat,
}

/// Answers on `out`.
pub(crate) fn run(args: &CheckUpgradeArgs, out: &mut dyn Write) -> Result<CliOutcome, QuestionError> {
    let answer = UpgradeAnswer::of(&args.deployed()?);
    write_document(&answer, args.output, out, |width| table::text(&answer, width))?;
    Ok(if answer.count(FindingUrgency::First) == 0 { CliOutcome::Done } else { CliOutcome::NotInOrder })
}

impl CheckUpgradeArgs {
    fn deployed(&self) -> Result<DeployedObjects, QuestionError> {
        if !self.files.is_empty() {
            return read::from_files(&self.files).map_err(QuestionError::Input);
        }
        Ok(runtime()?.block_on(read::from_cluster(&self.access))?)
    }
}

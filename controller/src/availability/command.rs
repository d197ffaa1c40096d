//! `hostler-controller availability`: reads a cluster, a controller or manifests, once or continuously.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use hostler_api::plain;
use hostler_cluster::{ConnectError, HttpService};
use tokio::{runtime, time::sleep};

use super::{Availability, AvailabilityBy, table};
use crate::{
    cluster_args::ClusterArgs,
    held::while_read,
    plan::{ClusterReadError, InputLayer, InputProblem, LiveCluster, Manifests, for_each_text},
    remote::{self, RemoteArgs, RemoteError},
    reports::NodeReports,
    run::{self, RunError},
    stock::StockAccount,
};

/// The pause between two questions to a controller.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
States of devices, of which each is in one:
  free        anybody can have it, or a part of it
  allocated   claims have it; one that is shared, so much of it that nobody else can have a part
  held        it is kept for somebody who has it not yet
  blocked     it cannot be had for what others have, or its pool is not complete
  unhealthy, drained, unknown: it does not work, is out of service, or nobody knows how it is

Exit codes: 0 answered, 2 wrong usage, or no answer.";

/// Say how many devices there are and how many are free, by class, node, NUMA node or namespace
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AvailabilityArgs {
    /// What rows are about
    #[arg(long, value_enum, default_value_t)]
    by: AvailabilityBy,
    /// Manifests instead of a cluster: nodes, slices, classes, claims, rules, reports of nodes, Reservations; a folder
    /// is read with all that is below it; - for standard input
    #[arg(short, long = "filename", value_name = "FILE|DIR", conflicts_with_all = ["kubeconfig", "context", "controller"])]
    files: Vec<PathBuf>,
    #[command(flatten)]
    access: ClusterArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Go on, and answer again whenever the answer is another one
    #[arg(long, conflicts_with = "files")]
    watch: bool,
    /// How the answer looks
    #[arg(short, long, value_enum, default_value_t)]
    output: AvailabilityFormat,
}

/// The shape of the answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
enum AvailabilityFormat {
    /// For people
    #[default]
    Table,
    /// For people, with every state, amounts and classes
    Wide,
    /// For programs, as JSON
    Json,
    /// For programs, as YAML
    Yaml,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AvailabilityError {
    /// The input is wrong.
    #[error("{}", crate::plan::told(.0))]
    Input(Vec<InputProblem>),
    /// The runtime has no threads or no timers.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// The cluster cannot be read.
    #[error(transparent)]
    Cluster(#[from] ClusterReadError),
    /// There are no credentials.
    #[error("failed to prepare for talking to the API server")]
    Connect(#[source] ConnectError),
    /// The controller cannot be asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The cluster cannot be watched.
    #[error(transparent)]
    Watch(#[from] RunError),
    /// The answer cannot be written.
    #[error("failed to write the answer")]
    Output(#[from] io::Error),
    /// The answer cannot be put into YAML.
    #[error("failed to write the answer as YAML")]
    Yaml(#[from] serde_saphyr::SerializeError),
}

/// Answers on `out`.
pub(crate) fn run(args: &AvailabilityArgs, out: &mut dyn Write) -> Result<(), AvailabilityError> {
    if !args.files.is_empty() {
        let (mut manifests, mut problems) = (Manifests::default(), Vec::new());
        let mut unreadable = Vec::new();
        for_each_text(&args.files, &mut unreadable, &mut |input| {
            manifests.read(&input, InputLayer::Files, &mut problems);
        });
        problems.extend(unreadable);
        return args.write(&args.answer(manifests, problems)?, out);
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(AvailabilityError::Runtime)?;
    runtime.block_on(while_read(async {
        match (args.remote.is_named(), args.watch) {
            (true, _) => args.ask_controller(&args.remote.service()?, out).await,
            (false, true) => args.follow(out).await,
            (false, false) => args.ask(out).await,
        }
    }))
}

/// Answers that were shown to a watching user.
#[derive(Default)]
struct ShownAnswers {
    last: Option<Availability>,
}

impl ShownAnswers {
    /// Shows an answer if it differs from the last one.
    fn show(
        &mut self,
        args: &AvailabilityArgs,
        answer: Availability,
        out: &mut dyn Write,
    ) -> Result<(), AvailabilityError> {
        if self.last.as_ref() == Some(&answer) {
            return Ok(());
        }
        if self.last.is_some() {
            writeln!(out, "{}", if args.output == AvailabilityFormat::Yaml { "---" } else { "" })?;
        }
        args.write(&answer, out)?;
        out.flush()?;
        self.last = Some(answer);
        Ok(())
    }
}

impl AvailabilityArgs {
    /// Reads the cluster once; the user needs the right to list, and no other.
    async fn ask(&self, out: &mut dyn Write) -> Result<(), AvailabilityError> {
        let cluster = LiveCluster::connect(&self.access).await?;
        let (mut manifests, mut problems) = (Manifests::default(), Vec::new());
        cluster.read_stock(&mut |input| manifests.read(&input, InputLayer::Base, &mut problems)).await?;
        self.write(&self.answer(manifests, problems)?, out)
    }

    /// Asks a controller, once or again and again. A watching user's question without an answer is asked again: the
    /// controller may be about to restart.
    async fn ask_controller(&self, service: &HttpService, out: &mut dyn Write) -> Result<(), AvailabilityError> {
        let path = format!("/v1/availability?by={}", self.by.as_str());
        let mut shown = ShownAnswers::default();
        shown.show(self, remote::get(service, &path).await?, out)?;
        if !self.watch {
            return Ok(());
        }
        loop {
            sleep(BETWEEN_QUESTIONS).await;
            match remote::get(service, &path).await {
                Ok(answer) => shown.show(self, answer, out)?,
                Err(RemoteError::Call(failure)) if failure.is_transient() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Watches the cluster, and answers whenever the answer differs from the last one.
    async fn follow(&self, out: &mut dyn Write) -> Result<(), AvailabilityError> {
        let client = self.access.client().map_err(AvailabilityError::Connect)?;
        let (_tasks, mut view_rx) = run::follow(client).await?;
        let mut shown = ShownAnswers::default();
        while view_rx.changed().await.is_ok() {
            let view = view_rx.borrow_and_update().clone();
            if view.missing().is_empty() {
                shown.show(self, Availability::of(&view.stock, self.by).with_names(&view.reservations), out)?;
            }
        }
        Ok(())
    }

    fn answer(&self, mut manifests: Manifests, problems: Vec<InputProblem>) -> Result<Availability, AvailabilityError> {
        if !problems.is_empty() {
            return Err(AvailabilityError::Input(problems));
        }
        let (now, mut reports) = (Instant::now(), NodeReports::default());
        manifests.reports.iter().for_each(|report| reports.see(now, report));
        let mut account = StockAccount::default();
        let stock = account.update(&mut manifests.facts, &mut reports);
        Ok(Availability::of(stock, self.by).with_names(&manifests.reservations))
    }

    fn write(&self, answer: &Availability, out: &mut dyn Write) -> Result<(), AvailabilityError> {
        match self.output {
            AvailabilityFormat::Table => out.write_all(plain(&table::narrow(answer)).as_bytes())?,
            AvailabilityFormat::Wide => out.write_all(plain(&table::wide(answer)).as_bytes())?,
            AvailabilityFormat::Json => {
                serde_json::to_writer_pretty(&mut *out, answer).map_err(io::Error::from)?;
                writeln!(out)?;
            }
            AvailabilityFormat::Yaml => out.write_all(serde_saphyr::to_string(answer)?.as_bytes())?,
        }
        Ok(())
    }
}

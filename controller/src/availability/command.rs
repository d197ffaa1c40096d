//! `hostler-controller availability`: reads a cluster, a controller or manifests, once or continuously.

use std::{
    io::{self, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use hostler_cli::{
    output::{DocumentFormat, write_document},
    parts::shape,
    watch::{ShownDocument, Watch, WatchArgs},
};
use tokio::runtime::Runtime;

use super::{Availability, AvailabilityBy, table};
use crate::{
    called,
    cluster_args::ClusterArgs,
    held::while_read,
    model_owner::follow,
    plan::{ClusterReadError, InputLayer, InputProblem, Manifests, QuestionError, for_each_text, read_stock, runtime},
    remote::{self, RemoteArgs, RemoteError},
    reports::NodeReports,
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
    #[arg(short, long = "filename", value_name = "FILE|DIR", conflicts_with_all = ["kubeconfig", "context", "server", "controller", "watch"])]
    files: Vec<PathBuf>,
    #[command(flatten)]
    access: ClusterArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// How the answer looks; wide has every state, amounts and classes
    #[arg(short, long, value_parser = shape::<DocumentFormat>(), default_value = "table")]
    output: DocumentFormat,
}

/// Answers on `out`.
pub(crate) fn run(args: &AvailabilityArgs, out: &mut dyn Write) -> Result<(), QuestionError> {
    if !args.files.is_empty() {
        let answer = args.answer(args.read_files().map_err(QuestionError::Input)?);
        return Ok(write_document(&answer, args.output, out, |width| table::text(&answer, width))?);
    }
    let runtime = runtime()?;
    let mut shown = ShownDocument::new(args.output, args.watch);
    let mut show = |answer| shown.show(answer, out, table::text);
    if args.remote.is_named() {
        return args.ask_controller(&runtime, show);
    }
    runtime.block_on(while_read(async {
        match args.watch.watch {
            true => args.follow(show).await,
            false => Ok(show(args.answer(read_stock(&args.access).await?))?),
        }
    }))
}

impl AvailabilityArgs {
    fn read_files(&self) -> Result<Manifests, Vec<InputProblem>> {
        let (mut manifests, mut problems, mut unreadable) = (Manifests::default(), Vec::new(), Vec::new());
        for_each_text(&self.files, &mut unreadable, &mut |input| {
            manifests.read(&input, InputLayer::Files, &mut problems);
        });
        problems.extend(unreadable);
        if problems.is_empty() { Ok(manifests) } else { Err(problems) }
    }

    /// Asks a controller, once or again and again. While it is watched, one that does not answer is asked again: it may
    /// be about to start anew.
    fn ask_controller(
        &self,
        runtime: &Runtime,
        show: impl FnMut(Availability) -> io::Result<()>,
    ) -> Result<(), QuestionError> {
        let service = runtime.block_on(async { self.remote.service(&self.access) })?;
        let path = format!("/v1/availability?by={}", self.by.as_str());
        let fetch = || Ok(runtime.block_on(remote::get(&service, &path))?);
        let is_passing = |error: &QuestionError| match error {
            QuestionError::Remote(error) => matches!(&**error, RemoteError::Call(failure) if failure.is_transient()),
            _ => false,
        };
        let wait = || thread::sleep(BETWEEN_QUESTIONS);
        Watch { program: called::program(), args: self.watch, is_passing }.run(wait, fetch, show)
    }

    /// Watches the cluster, and answers whenever the answer is another one.
    async fn follow(&self, mut show: impl FnMut(Availability) -> io::Result<()>) -> Result<(), QuestionError> {
        let client = self.access.client().map_err(ClusterReadError::connect)?;
        let (_tasks, mut view_rx) = follow(client).await.map_err(ClusterReadError::call)?;
        while view_rx.changed().await.is_ok() {
            let view = view_rx.borrow_and_update().clone();
            if view.missing().is_empty() {
                show(Availability::of(&view.stock, self.by).with_names(&view.reservations))?;
            }
        }
        Ok(())
    }

    fn answer(&self, mut manifests: Manifests) -> Availability {
        let (now, mut reports) = (Instant::now(), NodeReports::default());
        manifests.reports.iter().for_each(|report| reports.see(now, report));
        let mut account = StockAccount::default();
        let stock = account.update(&mut manifests.facts, &mut reports);
        Availability::of(stock, self.by).with_names(&manifests.reservations)
    }
}

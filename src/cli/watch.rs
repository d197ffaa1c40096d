//! `--watch` of lists: where changes come from.

use std::{io::Write, thread, time::Duration};

use hostler_cli::{
    output::{ListFormat, Listed, TableWidth},
    parts::shape,
    watch::{ShownList, Watch, WatchArgs},
};

use super::{
    CliFailure,
    client::{DaemonClient, segment},
    completions::COMPLETIONS,
};
use crate::admin::types::AdminChange;

/// The time for which a question for changes waits. A change that the daemon is not told of, such as a new
/// manifest, is seen when it is over.
pub(super) const WAIT: &str = "10s";
/// Far longer than that: then the daemon hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before a daemon that is away, or has no place for another watcher, is asked again, and between two
/// looks at files.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Changes of what the daemon knows.
#[derive(Debug)]
pub(super) struct DaemonChanges {
    client: DaemonClient,
    version: String,
}

impl DaemonChanges {
    /// Makes the wait for changes that come from now on.
    pub(super) fn of(client: DaemonClient) -> Self {
        Self { client: client.patient(PATIENCE), version: String::new() }
    }

    /// Waits until something has changed or some time is over.
    pub(super) fn wait(&mut self) {
        let path = format!("/v1/changes?after={}&timeout={WAIT}", segment(&self.version));
        match self.client.get::<AdminChange>(&path) {
            Ok(change) => self.version = change.version,
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Waits until files may have changed: no message says when they do.
pub(super) fn wait_for_files() {
    thread::sleep(PAUSE);
}

/// The options of every list.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(super) struct ListArgs {
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<ListFormat>(), default_value = "table")]
    pub(super) output: ListFormat,
    #[command(flatten)]
    pub(super) watch: WatchArgs,
}

/// Shows the list that `fetch` returns, and again after each `wait` where that is wanted. `table` makes lines for people.
pub(super) fn show_list<T: Listed>(
    args: ListArgs,
    wait: impl FnMut(),
    out: &mut dyn Write,
    fetch: impl FnMut() -> Result<Vec<T>, CliFailure>,
    table: impl Fn(&[T], TableWidth) -> String,
) -> Result<(), CliFailure> {
    let mut shown = ShownList::new(args.output, args.watch);
    watched(args.watch).run(wait, fetch, |items| shown.show(items, out, &table))
}

/// A question to the daemon, which may be away for a while.
pub(super) fn watched(args: WatchArgs) -> Watch<CliFailure> {
    let is_passing = |failure: &CliFailure| matches!(failure, CliFailure::Client(error) if error.is_passing());
    Watch { program: COMPLETIONS.program, args, is_passing }
}

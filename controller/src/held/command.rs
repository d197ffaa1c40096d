//! `hostler-controller holds`: reads a cluster, once or continuously.

use std::io::Write;

use hostler_api::{
    hardware::{GROUP, VERSION},
    reservation::{RESERVATION_KIND, RESERVATIONS, Reservation},
};
use hostler_cli::{
    output::DocumentFormat,
    parts::shape,
    watch::{ShownDocument, WatchArgs},
};
use hostler_cluster::Collection;

use super::{HoldsAnswer, table, while_read};
use crate::{
    cluster_args::ClusterArgs,
    followed::FollowedObjects,
    plan::{ClusterReadError, QuestionError, runtime},
};

const EXAMPLES: &str = "\
States of devices:
  Fencing     it is being closed to others, and it is not certain yet that nobody else has got it
  Held        it is kept, and nobody has it yet
  HandedOver  one of those for whom it was kept has it
  Lost        somebody else has it, or it is gone or does not work
  Releasing   it is being opened to others

Exit codes: 0 answered, 2 wrong usage, or no answer.";

/// Say which devices are kept, for whom, until when, and who has them
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HoldsArgs {
    #[command(flatten)]
    access: ClusterArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// How the answer looks: table has a row for each Reservation, wide one for each device
    #[arg(short, long, value_parser = shape::<DocumentFormat>(), default_value = "table")]
    output: DocumentFormat,
}

/// Answers on `out`.
pub(crate) fn run(args: &HoldsArgs, out: &mut dyn Write) -> Result<(), QuestionError> {
    runtime()?.block_on(while_read(args.follow(out)))
}

/// Returns the collection of all Reservations.
pub(crate) fn reservations() -> Collection {
    Collection::custom(GROUP, VERSION, RESERVATION_KIND, RESERVATIONS)
}

impl HoldsArgs {
    async fn follow(&self, out: &mut dyn Write) -> Result<(), QuestionError> {
        let client = self.access.client().map_err(ClusterReadError::connect)?;
        let mut watched: FollowedObjects<Reservation> =
            FollowedObjects::new(&client, reservations()).installed_by("apply deploy/crds");
        let mut shown = ShownDocument::new(self.output, self.watch);
        loop {
            watched.next_change().await?;
            if watched.is_listed {
                shown.show(HoldsAnswer::of(&watched.known), out, table::text)?;
                if !self.watch.watch {
                    return Ok(());
                }
            }
        }
    }
}

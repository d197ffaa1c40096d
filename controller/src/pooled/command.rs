//! `hostler-controller fabric`: reads a cluster, once or continuously.

use std::{collections::BTreeMap, io::Write, time::Duration};

use hostler_api::{
    fabric::{FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS, FabricAttachment},
    hardware::{GROUP, VERSION},
    resource::ResourceSlice,
};
use hostler_cli::{
    output::DocumentFormat,
    parts::shape,
    watch::{ShownDocument, WatchArgs},
};
use hostler_cluster::{ApiClient, Collection, FollowEvent, Follower};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::{FabricAnswer, table};
use crate::{
    cluster_args::ClusterArgs,
    held::while_read,
    plan::{ClusterReadError, QuestionError, runtime},
};

/// The pause between two tries to reach a server that answered before, while a user watches.
const AGAIN: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
States of devices:
  Free        it is offered to claims, and attached to no node
  Hidden      it is not offered, and no FabricAttachment says why: it is in use at the switch, or was just given back
  Pending, Attaching, Attached
              a claim has it: the fabric manager attaches it, and then its node looks for it
  Ready       its node has it, and the claim can be used
  Failed      it was not attached, and the claim is given another device
  Releasing, Detaching
              its node lets go of it and erases it, and then the fabric manager detaches it
  Detached    it is attached to no node; it is offered again later, or erased first

Exit codes: 0 answered, 2 wrong usage, or no answer.";

/// Show devices behind switches: which node has them, for which claim, and what is under way
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FabricArgs {
    #[command(flatten)]
    access: ClusterArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// How the answer looks: a table has a row for each device, wide says more of each
    #[arg(short, long, value_parser = shape::<DocumentFormat>(), default_value = "table")]
    output: DocumentFormat,
}

/// Answers on `out`.
pub(crate) fn run(args: &FabricArgs, out: &mut dyn Write) -> Result<(), QuestionError> {
    runtime()?.block_on(while_read(args.follow(out)))
}

/// Objects of one kind that a watching user sees.
struct Watched<T> {
    all: Collection,
    follower: Follower,
    known: BTreeMap<String, T>,
    is_listed: bool,
}

impl FabricArgs {
    async fn follow(&self, out: &mut dyn Write) -> Result<(), QuestionError> {
        let client = self.access.client().map_err(ClusterReadError::connect)?;
        let version = client.version().await.map_err(ClusterReadError::call)?;
        let slices = Collection::resource(version, "ResourceSlice", "resourceslices");
        let attachments = Collection::custom(GROUP, VERSION, FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS);
        let mut slices: Watched<ResourceSlice> = Watched::new(&client, slices);
        let mut attachments: Watched<FabricAttachment> = Watched::new(&client, attachments);
        let mut shown = ShownDocument::new(self.output, self.watch);
        loop {
            // Both are cancel safe.
            let (collection, next) = tokio::select! {
                next = slices.follower.next() => (slices.all.clone(), next.map(|event| slices.take(event))),
                next = attachments.follower.next() => {
                    (attachments.all.clone(), next.map(|event| attachments.take(event)))
                }
            };
            match next {
                Ok(()) => {}
                Err(failure) if failure.is_unknown_resource() && collection == attachments.all => {
                    let resource = format!("{FABRIC_ATTACHMENTS}.{GROUP}");
                    return Err(QuestionError::NotServed { resource, source: failure.into() });
                }
                Err(failure) if shown.has_any() && failure.is_transient() => sleep(AGAIN).await,
                Err(failure) => return Err(ClusterReadError::of("list", &collection, failure).into()),
            }
            if slices.is_listed && attachments.is_listed {
                let slices = slices.known.values().cloned().map(ResourceSlice::unwrapped).collect::<Vec<_>>();
                shown.show(FabricAnswer::of(attachments.known.values(), &slices), out, table::text)?;
                if !self.watch.watch {
                    return Ok(());
                }
            }
        }
    }
}

impl<T: DeserializeOwned> Watched<T> {
    fn new(client: &ApiClient, all: Collection) -> Self {
        let follower = Follower::new(client.clone(), all.clone());
        Self { all, follower, known: BTreeMap::new(), is_listed: false }
    }

    fn take(&mut self, event: FollowEvent) {
        match event {
            FollowEvent::ListStarted => (self.is_listed, self.known) = (false, BTreeMap::new()),
            FollowEvent::Listed(object) | FollowEvent::Applied(object) => {
                // The controller's log names an object that cannot be understood.
                match object.read::<T>() {
                    Ok(read) => drop(self.known.insert(object.name().to_owned(), read)),
                    Err(_) => drop(self.known.remove(object.name())),
                }
            }
            FollowEvent::Deleted(object) => drop(self.known.remove(object.name())),
            FollowEvent::ListEnded => self.is_listed = true,
            FollowEvent::UpToDate => {}
        }
    }
}

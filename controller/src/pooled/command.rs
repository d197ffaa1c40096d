//! `hostler-controller fabric`: reads a cluster, once or continuously.

use std::io::Write;

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
use hostler_cluster::Collection;

use super::{FabricAnswer, table};
use crate::{
    cluster_args::ClusterArgs,
    followed::FollowedObjects,
    held::while_read,
    observed::PooledSlice,
    plan::{ClusterReadError, QuestionError, runtime},
};

/// The step that brings FabricAttachments.
pub(crate) const INSTALL_ATTACHMENTS: &str = "apply deploy/crds/fabric, which deploy/fabric brings along";

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

impl FabricArgs {
    async fn follow(&self, out: &mut dyn Write) -> Result<(), QuestionError> {
        let client = self.access.client().map_err(ClusterReadError::connect)?;
        let version = client.version().await.map_err(ClusterReadError::call)?;
        let slices = Collection::resource(version, "ResourceSlice", "resourceslices");
        let attachments = Collection::custom(GROUP, VERSION, FABRIC_ATTACHMENT_KIND, FABRIC_ATTACHMENTS);
        let mut slices: FollowedObjects<ResourceSlice> = FollowedObjects::new(&client, slices);
        let mut attachments: FollowedObjects<FabricAttachment> =
            FollowedObjects::new(&client, attachments).installed_by(INSTALL_ATTACHMENTS);
        let mut shown = ShownDocument::new(self.output, self.watch);
        loop {
            tokio::select! {
                // Both are cancel safe: see there.
                changed = slices.next_change() => changed?,
                changed = attachments.next_change() => changed?,
            }
            if slices.is_listed && attachments.is_listed {
                let unwrapped = slices.known.values().cloned().map(ResourceSlice::unwrapped);
                let slices: Vec<PooledSlice> = unwrapped.filter_map(|slice| PooledSlice::of(&slice)).collect();
                shown.show(FabricAnswer::of(attachments.known.values(), &slices), out, table::text)?;
                if !self.watch.watch {
                    return Ok(());
                }
            }
        }
    }
}

//! `hostler-controller node` and `top`: the nodes of a cluster, with their devices and who holds them; one node in
//! detail, or all of them as long as a user watches. The commands change nothing.

mod detail;
mod detail_table;
mod rows;
mod rows_table;

use std::{io::Write, sync::Arc, time::SystemTime};

use hostler_api::{did_you_mean, hardware::NodeHardware};
use hostler_cli::{
    output::{DocumentFormat, write_document},
    watch::{ShownDocument, WatchArgs},
};

use self::{detail::NodeDetail, rows::NodeRows};
use crate::{
    cluster_args::ClusterArgs,
    held::while_read,
    model_owner::follow,
    observed::ObservedKind,
    plan::{ClusterReadError, Manifests, QuestionError, read_stock, runtime},
    serve::machine_of,
    view::ClusterView,
};

/// The kinds that tell of devices.
const KINDS: [ObservedKind; 7] = [
    ObservedKind::Node,
    ObservedKind::DeviceClass,
    ObservedKind::ResourceSlice,
    ObservedKind::ResourceClaim,
    ObservedKind::DeviceTaintRule,
    ObservedKind::NodeHardware,
    ObservedKind::Reservation,
];

/// Show what a node has, how it is, and who holds it; without a name all nodes
#[derive(clap::Args, Debug)]
pub(crate) struct NodeArgs {
    /// Name of the node
    name: Option<String>,
    #[command(flatten)]
    access: ClusterArgs,
    /// How the answer looks; wide has every device
    #[arg(short, long, value_enum, default_value_t)]
    output: DocumentFormat,
}

/// Show all nodes and their holders, and again whenever anything changes, until interrupted
#[derive(clap::Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    access: ClusterArgs,
    /// Only nodes with devices of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Show it once
    #[arg(long)]
    once: bool,
    /// How the answer looks
    #[arg(short, long, value_enum, default_value_t)]
    output: DocumentFormat,
}

/// Answers about nodes on `out`.
pub(crate) fn run(args: &NodeArgs, out: &mut dyn Write) -> Result<(), QuestionError> {
    let (view, reports) = runtime()?.block_on(read(&args.access))?;
    let Some(name) = &args.name else {
        let rows = NodeRows::of(&view, None);
        return Ok(write_document(&rows, args.output, out, |width| rows_table::text(&rows, width))?);
    };
    let machine = machine_of(&view, name).ok_or_else(|| {
        let known = view.stock.nodes.keys().map(ToString::to_string);
        QuestionError::no_object("node", name, did_you_mean(name, known))
    })?;
    let report = reports.iter().find(|report| report.metadata.name == *name);
    let detail = NodeDetail::new(machine, report);
    Ok(write_document(&detail, args.output, out, |width| detail_table::text(&detail, width, SystemTime::now()))?)
}

/// Shows all nodes on `out`, again and again.
pub(crate) fn top(args: &TopArgs, out: &mut dyn Write) -> Result<(), QuestionError> {
    runtime()?.block_on(while_read(args.show(out)))
}

impl TopArgs {
    async fn show(&self, out: &mut dyn Write) -> Result<(), QuestionError> {
        // What may not be read is told at once; a watch would wait for the right to it.
        let (view, _) = read(&self.access).await?;
        if let Some(class) = self.class.as_ref().filter(|class| !view.facts.class_names().any(|it| it == **class)) {
            let hint = did_you_mean(class, view.facts.class_names().map(str::to_owned));
            return Err(QuestionError::no_object("DeviceClass", class, hint));
        }
        let mut shown = ShownDocument::new(self.output, WatchArgs { watch: !self.once });
        shown.show(NodeRows::of(&view, self.class.as_deref()), out, rows_table::text)?;
        if self.once {
            return Ok(());
        }
        let client = self.access.client().map_err(ClusterReadError::Connect)?;
        let (_tasks, mut view_rx) = follow(client).await.map_err(ClusterReadError::call)?;
        while view_rx.changed().await.is_ok() {
            let view = view_rx.borrow_and_update().clone();
            if view.missing().iter().all(|kind| !KINDS.contains(kind)) {
                shown.show(NodeRows::of(&view, self.class.as_deref()), out, rows_table::text)?;
            }
        }
        Ok(())
    }
}

/// Reads the cluster once, with the reports of nodes.
async fn read(access: &ClusterArgs) -> Result<(ClusterView, Vec<NodeHardware>), QuestionError> {
    let manifests = read_stock(access).await?;
    let stock = manifests.stock(SystemTime::now());
    let Manifests { facts, reservations, reports, .. } = manifests;
    Ok((ClusterView { facts, stock, reservations: Arc::new(reservations), ..ClusterView::default() }, reports))
}

//! `hostler-controller node` and `top`: the nodes of a cluster, with their devices and who holds them; one node in
//! detail, or all of them as long as a user watches. The commands change nothing.

mod detail;
mod detail_table;
mod keys;
mod rows;
mod rows_table;

use std::{future, io::Write, sync::Arc, time::SystemTime};

use hostler_api::{did_you_mean, hardware::NodeHardware};
use hostler_cli::{
    output::{DocumentFormat, TableWidth, write_document},
    parts::shape,
    screen,
    watch::{ShownDocument, WatchArgs},
};

use self::{
    detail::NodeDetail,
    keys::{KEYS, WatchKey, WatchKeyboard},
    rows::NodeRows,
};
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
    #[arg(short, long, value_parser = shape::<DocumentFormat>(), default_value = "table")]
    output: DocumentFormat,
}

/// Show all nodes and their holders, and again whenever anything changes, until q or an interruption
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
    #[arg(short, long, value_parser = shape::<DocumentFormat>(), default_value = "table")]
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
        if self.once {
            return Ok(self.shown().show(self.rows(&view), out, rows_table::text)?);
        }
        // Before anything is shown: a user answers what is seen.
        let mut keyboard = if screen::is_terminal() { WatchKeyboard::open()? } else { None };
        let (mut shown, mut has_help) = (self.shown(), false);
        shown.show(self.rows(&view), out, |rows, width| Self::text(rows, width, keyboard.is_some(), has_help))?;
        let client = self.access.client().map_err(ClusterReadError::connect)?;
        let (_tasks, mut view_rx) = follow(client).await.map_err(ClusterReadError::call)?;
        let mut view = Arc::new(view);
        loop {
            tokio::select! {
                // Cancel safe: a change that was not taken is seen by the next call.
                changed = view_rx.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let newest = view_rx.borrow_and_update().clone();
                    if newest.missing().iter().any(|kind| KINDS.contains(kind)) {
                        continue;
                    }
                    view = newest;
                }
                // Cancel safe: a key that was not read stays in the terminal.
                key = next_key(&mut keyboard) => match key {
                    WatchKey::End => return Ok(()),
                    WatchKey::Help => {
                        has_help = !has_help;
                        // The document is the same, and is shown again.
                        shown = self.shown();
                    }
                },
            }
            shown.show(self.rows(&view), out, |rows, width| Self::text(rows, width, keyboard.is_some(), has_help))?;
        }
    }

    fn shown(&self) -> ShownDocument<NodeRows> {
        ShownDocument::new(self.output, WatchArgs { watch: !self.once })
    }

    fn rows(&self, view: &ClusterView) -> NodeRows {
        NodeRows::of(view, self.class.as_deref())
    }

    fn text(rows: &NodeRows, width: TableWidth, has_keys: bool, has_help: bool) -> String {
        let keys = match (has_keys, has_help) {
            (false, _) => "",
            (true, false) => "q ends it, ? shows the keys\n",
            (true, true) => KEYS,
        };
        rows_table::text(rows, width) + keys
    }
}

/// Waits for a key; without a keyboard for ever.
async fn next_key(keyboard: &mut Option<WatchKeyboard>) -> WatchKey {
    match keyboard {
        Some(keyboard) => keyboard.next().await,
        None => future::pending().await,
    }
}

/// Reads the cluster once, with the reports of nodes.
async fn read(access: &ClusterArgs) -> Result<(ClusterView, Vec<NodeHardware>), QuestionError> {
    let manifests = read_stock(access).await?;
    let stock = manifests.stock(SystemTime::now());
    let Manifests { facts, reservations, reports, .. } = manifests;
    Ok((ClusterView { facts, stock, reservations: Arc::new(reservations), ..ClusterView::default() }, reports))
}

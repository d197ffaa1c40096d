//! Exports what is free on each NUMA node as a NodeResourceTopology, for topology-aware schedulers. Off by default.
//!
//! ```text
//!   machine, inventory (watch), claims (watch) ──► object (pure) ── applied once a second at most ──► API server
//! ```
//!
//! The object is *applied*, which makes the server the judge of who writes what: fields that another exporter has
//! written belong to it, and the server refuses to change them (409, with the name of the exporter). So there is no
//! fight, and no record of ours could be wrong about the owner of the object. The Node owns the object, so it goes with
//! the node. A deleted one is made anew at once: [`presence`] watches it.

mod object;
mod presence;

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use hostler_api::Chain;
use hostler_cluster::{ApiFailure, Collection, RetryPauses};
use hostler_linux::{
    SysRoot,
    topology::{NumaNode, Topology},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};
use tracing::{debug, info, warn};

pub use self::object::{
    TopologyAttribute, TopologyContent, TopologyCost, TopologyResource, TopologyZone, topology_content,
};
use super::ClusterNode;
use crate::{
    claims::ClaimTable,
    config::TopologyExportConfig,
    inventory::{Inventory, InventoryReader},
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

const GROUP: &str = "topology.node.k8s.io";
const VERSION: &str = "v1alpha2";
/// As whom fields are owned.
const MANAGER: &str = "hostler";
/// Schedulers look at an object of every node; who changes it more often only makes them read.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);
/// An object that was changed from outside is noticed by then; applying what is there writes nothing.
const RECHECK: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For obstacles that only people remove: a CRD, a role, another exporter.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(300);

/// Sources of the export.
#[derive(Debug)]
pub struct TopologyExportParts {
    /// The API server.
    pub cluster: ClusterNode,
    /// The machine, for distances and capacities.
    pub root: SysRoot,
    /// The devices that can be handed out.
    pub inventory: InventoryReader,
    /// The claims.
    pub table_rx: watch::Receiver<Arc<ClaimTable>>,
    /// Settings of the kubelet that the object names.
    pub settings: TopologyExportConfig,
    /// Counts repeats.
    pub metrics: Metrics,
}

/// State of the export.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum TopologyExport {
    /// Not tried yet.
    #[default]
    Waiting,
    /// The object says what is.
    Exported,
    /// The object does not say what is, for this reason.
    Failing(String),
}

/// Starts the export. It waits for the API server as long as it takes.
pub fn start(parts: TopologyExportParts, tasks: &Tasks) -> watch::Receiver<TopologyExport> {
    let (export_tx, export_rx) = watch::channel(TopologyExport::default());
    let (stop, tasks) = (tasks.stop_token(), tasks.clone());
    let exporter = TopologyExporter { parts, export_tx, tasks: tasks.clone(), nodes: BTreeMap::new(), said: None };
    tasks.service("topology", async move {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            // Dropped in the middle of a write, it leaves an object that the next start makes right.
            outcome = exporter.run() => outcome,
        }
    });
    export_rx
}

struct TopologyExporter {
    parts: TopologyExportParts,
    export_tx: watch::Sender<TopologyExport>,
    tasks: Tasks,
    nodes: BTreeMap<u32, NumaNode>,
    /// Content of the object; absent where that is not known.
    said: Option<TopologyContent>,
}

impl TopologyExporter {
    async fn run(mut self) -> Outcome {
        let mut pauses = RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE);
        let mut inventory_rx = self.parts.inventory.subscribe();
        let mut table_rx = self.parts.table_rx.clone();
        let mut seen: Option<Arc<Inventory>> = None;
        let mut gone_rx = presence::watch_object(&self.parts.cluster, &self.parts.metrics, &self.tasks);
        loop {
            let inventory = inventory_rx.borrow_and_update().clone();
            let claims = table_rx.borrow_and_update().clone();
            if !seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &inventory)) {
                self.read_nodes().await;
            }
            let (driver, settings) = (self.parts.cluster.driver(), &self.parts.settings);
            let content = topology_content(&self.nodes, &inventory, &claims, driver, settings);
            seen = Some(inventory);
            let next = match self.export(content).await {
                Ok(()) => {
                    pauses.reset();
                    sleep_until(Instant::now() + BETWEEN_WRITES).await;
                    Instant::now() + RECHECK
                }
                Err(failure) => {
                    sleep_until(Instant::now() + self.fail(&failure, &mut pauses)).await;
                    continue;
                }
            };
            // All arms are cancel safe: a change that was not taken is still seen as one.
            let changed = async {
                tokio::select! {
                    Ok(()) = inventory_rx.changed() => false,
                    Ok(()) = table_rx.changed() => false,
                    Ok(()) = gone_rx.changed() => true,
                    // All end with the daemon.
                    else => pending().await,
                }
            };
            if timeout_at(next, changed).await.unwrap_or(true) {
                self.said = None;
            }
        }
    }

    /// Distances and capacities change with the hardware only.
    async fn read_nodes(&mut self) {
        let root = self.parts.root.clone();
        match self.tasks.looking(move || Topology::read_nodes(&root)).await {
            Ok(Ok(topology)) => self.nodes = topology.nodes,
            Ok(Err(failure)) => warn!(error = %Chain(&failure), "the export keeps the NUMA nodes that it knew"),
            // The daemon is stopping.
            Err(_) => {}
        }
    }

    async fn export(&mut self, content: TopologyContent) -> Result<(), ApiFailure> {
        if self.said.as_ref() == Some(&content) {
            return Ok(());
        }
        let cluster = &self.parts.cluster;
        let owner = cluster.client().uid(&Collection::core("Node", "nodes"), cluster.node()).await?;
        let all = collection();
        let object = json!({
            "apiVersion": all.api_version(), "kind": all.kind(),
            "metadata": {
                "name": cluster.node(),
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": cluster.node(), "uid": owner }],
            },
            "zones": content.zones, "attributes": content.attributes,
        });
        cluster.client().apply(&all, cluster.node(), MANAGER, &object).await?;
        debug!(zones = content.zones.len(), "the topology is exported");
        self.said = Some(content);
        self.say(TopologyExport::Exported);
        Ok(())
    }

    /// How long to wait before the next try.
    fn fail(&mut self, failure: &ApiFailure, pauses: &mut RetryPauses) -> Duration {
        self.said = None;
        self.parts.metrics.api_retried("topology");
        let is_refusal = matches!(failure.code(), Some(403 | 404 | 409));
        let pause = if is_refusal { pauses.after_refusal(failure) } else { pauses.after_outage(failure) };
        self.say(TopologyExport::Failing(explained(failure, self.parts.cluster.node(), pauses)));
        pause
    }

    fn say(&self, export: TopologyExport) {
        let modified = self.export_tx.send_if_modified(|latest| {
            let modified = *latest != export;
            latest.clone_from(&export);
            modified
        });
        match export {
            TopologyExport::Failing(error) if modified => warn!(error, "the topology of this node is not exported"),
            TopologyExport::Exported if modified => info!("the topology of this node is exported"),
            _ => {}
        }
    }
}

fn collection() -> Collection {
    Collection::custom(GROUP, VERSION, "NodeResourceTopology", "noderesourcetopologies")
}

/// Explains a failure, and says what to do about it.
fn explained(failure: &ApiFailure, node: &str, pauses: &RetryPauses) -> String {
    let said = Chain(failure).to_string();
    match failure.code() {
        Some(404) if failure.is_unknown_resource() => format!(
            "the API server has no NodeResourceTopology ({GROUP}/{VERSION}): install its CRD, or set topology_export.enabled = false"
        ),
        Some(409) => format!(
            "another exporter writes NodeResourceTopology {node}, and is left alone: {said}; stop it and delete the object, or set topology_export.enabled = false"
        ),
        Some(403) => {
            let apply = "apply the component `topology` of deploy/, or set topology_export.enabled = false";
            format!("{said}; {}", pauses.advice(apply))
        }
        _ => said,
    }
}

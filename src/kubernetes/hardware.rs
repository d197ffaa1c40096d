//! Keeps the NodeHardware of this node: what there is, who has it, how it is, and that the daemon lives.
//!
//! ```text
//!   inventory, claims, holds (watch) ───► report (pure) ──► pace (pure): a second after a change, signs of life
//!                                                             └──► apply ──► API server
//! ```
//!
//! The daemon is the only writer, and applies its fields by force. An object that was deleted by hand is made anew at
//! once: the watch of what is held tells. One that was changed by hand is mended with the next report, within five
//! minutes. A daemon that stops writes nothing: its successor comes within seconds, and one that does not come is
//! noticed by its silence, as after a crash. The Node owns the object.

mod conditions;
mod pace;
mod report;
mod slices;
mod sources;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hostler_api::{
    Chain,
    hardware::{
        GROUP, NODE_HARDWARE, NODE_HARDWARE_KIND, NodeHardwareSpec, NodeHardwareStatus, VERSION, until_sign_of_life,
    },
};
use hostler_cluster::{ApiFailure, ApiObject, Collection, RetryPauses, rfc3339};
use hostler_reconcile::WriteOutcome;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};

pub use self::report::{ReportingDaemon, node_report};
use self::{
    conditions::{no_new_claims, says_the_same, stamped},
    pace::ReportPace,
    slices::offered_slices,
    sources::{ReportContent, ReportNews, ReportSources},
};
use super::{ClusterNode, holds::HoldsReaders, publisher::Publication};
use crate::{
    claims::ClaimTable,
    inventory::InventoryReader,
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

/// As whom fields are owned.
const MANAGER: &str = "hostler";
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Thousands of daemons come back after an outage; they share what a server can take.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// For obstacles that only people remove: no CRD, no role.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(300);

/// Sources of the reports.
#[derive(Debug)]
pub struct HardwareReportParts {
    /// The API server.
    pub cluster: ClusterNode,
    /// The daemon itself.
    pub daemon: ReportingDaemon,
    /// The hardware.
    pub inventory: InventoryReader,
    /// The claims that have it.
    pub table_rx: watch::Receiver<Arc<ClaimTable>>,
    /// The devices to be held, and word that the object is gone.
    pub holds: HoldsReaders,
    /// The state of the slices.
    pub publication_rx: watch::Receiver<Publication>,
    /// Counts writes and repeats.
    pub metrics: Metrics,
}

/// State of the reports.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum HardwareReporting {
    /// Not tried yet.
    #[default]
    Waiting,
    /// The object says what is.
    Reported,
    /// The object does not say what is, for this reason.
    Failing(String),
}

/// Starts the reports. They wait for the API server as long as it takes.
pub fn start(parts: HardwareReportParts, tasks: &Tasks) -> watch::Receiver<HardwareReporting> {
    let (reporting_tx, reporting_rx) = watch::channel(HardwareReporting::default());
    let stop = tasks.stop_token();
    let reporter = HardwareReporter {
        parts,
        reporting_tx,
        pace: ReportPace::starting(Instant::now()),
        pauses: RetryPauses::new(FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REFUSED_PAUSE),
        said: None,
    };
    tasks.service("node_hardware", async move {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            // Dropped in the middle of a write, it leaves an object that the next start makes right.
            outcome = reporter.run() => outcome,
        }
    });
    reporting_rx
}

struct HardwareReporter {
    parts: HardwareReportParts,
    reporting_tx: watch::Sender<HardwareReporting>,
    pace: ReportPace,
    pauses: RetryPauses,
    /// Content of the object; absent where the content is not known, or the existence.
    said: Option<NodeHardwareStatus>,
}

impl HardwareReporter {
    async fn run(mut self) -> Outcome {
        let mut sources = ReportSources::of(&self.parts);
        sources.holds_heard().await;
        loop {
            match self.report(sources.latest()).await {
                Ok(()) => self.told(),
                Err(failure) => self.fail(&failure),
            }
            self.until_due(&mut sources).await;
        }
    }

    async fn until_due(&mut self, sources: &mut ReportSources) {
        loop {
            // Both arms are cancel safe: a change that was not taken is still seen as one.
            tokio::select! {
                news = sources.changed() => self.heed(&news),
                () = sleep_until(self.pace.due()) => return,
            }
        }
    }

    fn heed(&mut self, news: &ReportNews) {
        if matches!(news, ReportNews::Gone) {
            // The next report looks, and makes it anew.
            self.said = None;
        }
        self.pace.changed(Instant::now());
    }

    async fn report(&mut self, latest: ReportContent) -> Result<(), ApiFailure> {
        let ReportContent { inventory, claims, holds, holds_generation, unreadable_claims } = latest;
        let mut content = node_report(&self.parts.daemon, &inventory, &claims, &holds);
        content.holds_generation = holds_generation;
        if let Some(fault) = unreadable_claims {
            no_new_claims(&mut content.conditions, &fault);
        }
        if self.offers_slices().await? {
            let settings = &self.parts.daemon.settings;
            content.slices = offered_slices(settings, self.parts.cluster.node(), &inventory, &holds);
        }
        self.tell(content, holds.is_wanted).await
    }

    /// True if the object has to say what ResourceSlices say elsewhere.
    async fn offers_slices(&self) -> Result<bool, ApiFailure> {
        let client = self.parts.cluster.client();
        match client.version().await {
            Err(ApiFailure::NoResourceApi) => Ok(client.classic_version().await.is_ok()),
            version => version.map(|_| false),
        }
    }

    /// Has the object say `content`; writes nothing where it does, unless a sign of life is due.
    async fn tell(&mut self, content: NodeHardwareStatus, are_holds_wanted: bool) -> Result<(), ApiFailure> {
        let is_known = self.said.is_some();
        match self.write(content.clone(), are_holds_wanted).await {
            // Another client has deleted it.
            Err(failure) if is_known && WriteOutcome::of_failure(&failure) == WriteOutcome::Gone => {
                self.said = None;
                self.write(content, are_holds_wanted).await
            }
            done => done,
        }
    }

    async fn write(&mut self, content: NodeHardwareStatus, are_holds_wanted: bool) -> Result<(), ApiFailure> {
        let said = match self.said.take() {
            Some(said) => said,
            None => self.look().await?,
        };
        let holds_generation = generation_to_tell(content.holds_generation, said.holds_generation, are_holds_wanted);
        let content = NodeHardwareStatus { holds_generation, ..content };
        if says_the_same(&content, &said) && !self.pace.is_sign_due(Instant::now()) {
            self.said = Some(said);
            return Ok(());
        }
        let status = stamped(content, Some(&said), &rfc3339(SystemTime::now()));
        let (cluster, all) = (&self.parts.cluster, collection());
        let object = json!({
            "apiVersion": all.api_version(), "kind": all.kind(), "metadata": {"name": cluster.node()}, "status": status,
        });
        cluster.client().apply_status::<IgnoredAny>(&all, cluster.node(), MANAGER, &object).await?;
        self.parts.metrics.node_hardware_written();
        debug!(devices = status.devices.capacity, free = status.devices.free, "the hardware of this node is reported");
        self.said = Some(status);
        Ok(())
    }

    /// Reads the object, and makes it where there is none, or another Node's.
    async fn look(&self) -> Result<NodeHardwareStatus, ApiFailure> {
        let (cluster, all) = (&self.parts.cluster, collection());
        let owner = cluster.client().uid(&Collection::core("Node", "nodes"), cluster.node()).await?;
        let found = cluster.client().find::<StoredReport>(&all, cluster.node()).await?;
        if let Some(found) = found.filter(|found| found.owner("Node") == Some(&*owner)) {
            return Ok(found.status);
        }
        let object = json!({
            "apiVersion": all.api_version(), "kind": all.kind(),
            "metadata": {
                "name": cluster.node(),
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": cluster.node(), "uid": owner }],
            },
            "spec": {"nodeName": cluster.node()},
        });
        cluster.client().apply(&all, cluster.node(), MANAGER, &object).await?;
        self.parts.metrics.node_hardware_written();
        // Times of another Node's report are not this one's.
        Ok(NodeHardwareStatus::default())
    }

    fn told(&mut self) {
        self.pauses.reset();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.pace.told(Instant::now(), until_sign_of_life(self.parts.cluster.node(), since_1970));
        self.say(HardwareReporting::Reported);
    }

    fn fail(&mut self, failure: &ApiFailure) {
        // What became of a write that was not answered, or of the object meanwhile, shows at the next look.
        self.said = None;
        self.parts.metrics.api_retried("node_hardware");
        if matches!(failure.code(), Some(400 | 403 | 422)) || failure.is_unknown_resource() {
            self.pace.refused(Instant::now(), self.pauses.after_refusal(failure));
        } else {
            self.pace.failed(Instant::now(), self.pauses.after_outage(failure));
        }
        self.say(HardwareReporting::Failing(explained(failure, self.parts.cluster.node(), &self.pauses)));
    }

    fn say(&self, reporting: HardwareReporting) {
        let modified = self.reporting_tx.send_if_modified(|latest| {
            let modified = *latest != reporting;
            latest.clone_from(&reporting);
            modified
        });
        match reporting {
            HardwareReporting::Failing(error) if modified => warn!(error, "the hardware of this node is not reported"),
            HardwareReporting::Reported if modified => info!("the hardware of this node is reported"),
            _ => {}
        }
    }
}

/// Returns the generation of holds to report. What was published stays so until there is news: slices outlive a daemon.
/// A node on which nothing was ever to be held reports none: its spec is as it was made.
fn generation_to_tell(published: Option<i64>, said: Option<i64>, are_holds_wanted: bool) -> Option<i64> {
    published.filter(|generation| are_holds_wanted || *generation > 1 || said.is_some()).or(said)
}

/// The object, as it is read.
type StoredReport = ApiObject<NodeHardwareSpec, NodeHardwareStatus>;

fn collection() -> Collection {
    Collection::custom(GROUP, VERSION, NODE_HARDWARE_KIND, NODE_HARDWARE)
}

/// Explains a failure, and says what to do about it.
fn explained(failure: &ApiFailure, node: &str, pauses: &RetryPauses) -> String {
    let said = Chain(failure).to_string();
    let otherwise = "or set cluster.node_hardware = false";
    match failure.code() {
        Some(404) if failure.is_unknown_resource() => {
            format!("the API server has no NodeHardware ({GROUP}/{VERSION}): apply deploy/crds, {otherwise}")
        }
        Some(404) => format!("{said}; the report of node {node} waits for its Node object"),
        // What a policy says is for people already.
        Some(403 | 422) if said.contains("ValidatingAdmissionPolicy") => format!("{said}, {otherwise}"),
        Some(403) => {
            let apply = format!("apply deploy/cluster, whose role allows it, {otherwise}");
            format!("{said}; {}", pauses.advice(&apply))
        }
        Some(400 | 422) => format!("{said}; apply deploy/crds of this version of hostler, {otherwise}"),
        _ => said,
    }
}

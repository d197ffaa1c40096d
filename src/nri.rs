//! The daemon as a plugin of the container runtime (NRI): containers are bound when they are made, stay bound when they
//! are resized, and leave the CPUs that claims get to themselves.
//!
//! ```text
//!   claims (table) ─┐                       ┌── session: what is said (pure) ── known: containers (pure)
//!   inventory ──────┴► facts (pure) ──► task ┤
//!                                           └── link: the runtime's socket
//!        seen containers, status ◄──────────┘
//! ```
//!
//! One task owns the connection and all that is known by it. It answers a call before it reads the next one, so no call
//! is ever held up for another, and reads the claims' table only. Without a runtime, the hooks in the claims' CDI files
//! bind containers all the same; both ask [`pinning`](crate::pinning).

mod facts;
mod known;
mod link;
mod session;
mod shares;
#[cfg(test)]
mod testing;
mod updates;
mod version;

use std::{collections::BTreeMap, convert::Infallible, fmt, path::PathBuf, sync::Arc, time::Duration};

use hostler_api::{Chain, Doubling};
use hostler_linux::{IdSet, ReadFailure, SysRoot};
use hostler_proto::nri::mux::Connection;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, info, warn};

use self::{
    facts::{PinningFacts, PoolRules, UsableMachine},
    link::{LinkError, RuntimeLink},
    session::{PluginIdentity, Session, SessionError, SessionStage},
};
use crate::{
    claims::ClaimTable,
    config::{NriConfig, NriMode, SharedPoolMode},
    containers::seen::{SeenContainers, SeenReader},
    inventory::{Inventory, InventoryReader},
    metrics::Metrics,
    tasks::{Outcome, Tasks},
};

/// First pause after a connection that failed.
/// Pauses after connections that failed: a runtime that comes back is not kept waiting by its containers any longer.
const PAUSES: Doubling = Doubling::new(Duration::from_millis(200), Duration::from_secs(10));
/// Time between two tries to connect to a runtime that has never been there.
const LOOK: Duration = Duration::from_secs(5);

/// Parts that the plugin is made of.
#[derive(Debug)]
pub struct NriParts {
    /// Configuration of the plugin.
    pub config: NriConfig,
    /// Socket on which the runtime listens.
    pub socket: PathBuf,
    /// The qualified class of our CDI devices.
    pub kind: String,
    /// CPUs that stay with the system.
    pub reserved: IdSet,
    /// The machine.
    pub root: SysRoot,
    /// Claims, with what they hold; recovered.
    pub table_rx: watch::Receiver<Arc<ClaimTable>>,
    /// The inventory, which changes when CPUs and nodes may have.
    pub inventory: InventoryReader,
    /// Counters.
    pub metrics: Metrics,
}

/// State of the connection with the runtime.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum NriLink {
    /// The plugin is switched off, or has not been tried yet.
    #[default]
    Off,
    /// There is no listener, and has been none since the start.
    Absent,
    /// The runtime has listed all containers, and reports their events.
    Connected {
        /// Name and version of the runtime.
        runtime: String,
    },
    /// The runtime has gone, or cannot be talked to.
    Lost {
        /// Reason, for people.
        error: String,
    },
}

/// Knowledge of the plugin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NriStatus {
    /// The connection.
    pub link: NriLink,
    /// Time since which the connection is in this state.
    pub since: Instant,
    /// Number of containers that the runtime has told of.
    pub containers: usize,
    /// Containers that are left as they are, by id, with the reason.
    pub quarantined: BTreeMap<String, String>,
    /// The CPUs of containers without a claim for CPUs; absent where these are left alone.
    pub shared_pool: Option<IdSet>,
}

impl Default for NriStatus {
    fn default() -> Self {
        Self {
            link: NriLink::default(),
            since: Instant::now(),
            containers: 0,
            quarantined: BTreeMap::new(),
            shared_pool: None,
        }
    }
}

/// The plugin as others see it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NriSide {
    /// State of the plugin.
    pub status_rx: watch::Receiver<NriStatus>,
    /// The containers.
    pub seen_rx: SeenReader,
    /// True if something is configured that only the plugin can do.
    pub is_required: bool,
    /// Socket on which the runtime listens.
    pub socket: PathBuf,
}

impl NriSide {
    /// Fault of the connection, for people.
    pub fn missing(&self) -> Option<String> {
        let status = self.status_rx.borrow();
        match &status.link {
            _ if !self.is_required => None,
            NriLink::Connected { .. } => None,
            NriLink::Off => Some("the NRI of the container runtime is not connected yet".to_owned()),
            NriLink::Absent => Some(format!("no container runtime serves NRI on {}", self.socket.display())),
            NriLink::Lost { error } => Some(format!("the NRI of the container runtime is lost: {error}")),
        }
    }
}

/// Starts the plugin, if it is not switched off. Waits for no runtime.
pub fn start(parts: NriParts, tasks: &Tasks) -> NriSide {
    let NriConfig { enabled, shared_pool, .. } = parts.config;
    let (status_tx, status_rx) = watch::channel(NriStatus::default());
    let (seen_tx, seen_rx) = watch::channel(SeenContainers::default());
    let is_required = enabled == NriMode::On || enabled == NriMode::Auto && shared_pool != SharedPoolMode::Off;
    let side = NriSide { status_rx, seen_rx, is_required, socket: parts.socket.clone() };
    if enabled != NriMode::Off {
        let rules = PoolRules { mode: shared_pool, reserved: parts.reserved.clone() };
        let plugin = NriPlugin { parts, rules, status_tx, seen_tx, tasks: tasks.clone(), has_been: false };
        tasks.service("nri", plugin.run());
    }
    side
}

/// Reason why a connection has ended.
#[derive(Debug, thiserror::Error)]
enum NriError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("failed to look at the machine's CPUs")]
    Machine(#[source] ReadFailure),
}

/// The task.
struct NriPlugin {
    parts: NriParts,
    rules: PoolRules,
    status_tx: watch::Sender<NriStatus>,
    seen_tx: watch::Sender<SeenContainers>,
    tasks: Tasks,
    /// True if there has been a connection.
    has_been: bool,
}

impl fmt::Debug for NriPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NriPlugin").finish_non_exhaustive()
    }
}

impl NriPlugin {
    async fn run(mut self) -> Outcome {
        let stop = self.tasks.stop_token();
        // Dropped when the daemon stops: the runtime sees the connection end, and hooks bind what starts meanwhile.
        let _ = stop.run_until_cancelled(self.keep_connected()).await;
        Ok(())
    }

    /// Connects for as long as the daemon lives. Failures in a row count only until a connection works.
    async fn keep_connected(&mut self) {
        let mut failures = 0;
        loop {
            let mut is_synchronized = false;
            let Err(error) = self.connection(&mut is_synchronized).await;
            if is_synchronized {
                failures = 0;
                self.parts.metrics.nri_reconnected();
            }
            if matches!(error, NriError::Session(SessionError::Renew)) {
                debug!("connecting anew, so that the runtime takes updates");
                continue;
            }
            self.lost(&error);
            let is_absent = matches!(&error, NriError::Link(link) if link.is_absence()) && !self.has_been;
            sleep(if is_absent { LOOK } else { pause(failures) }).await;
            failures += 1;
        }
    }

    fn lost(&mut self, error: &NriError) {
        let is_absent = matches!(error, NriError::Link(link) if link.is_absence()) && !self.has_been;
        let was = self.status_tx.borrow().link.clone();
        let link = if is_absent { NriLink::Absent } else { NriLink::Lost { error: Chain(error).to_string() } };
        match (&was, is_absent) {
            (NriLink::Connected { .. }, _) => warn!(error = %Chain(error), "the container runtime is lost"),
            (NriLink::Lost { .. } | NriLink::Absent, _) | (_, true) => {
                debug!(error = %Chain(error), "no container runtime");
            }
            _ => {
                warn!(error = %Chain(error), path = %self.parts.socket.display(), "no plugin of the container runtime")
            }
        }
        self.seen_tx.send_replace(SeenContainers::Disconnected);
        let is_same_kind =
            matches!((&was, &link), (NriLink::Lost { .. }, NriLink::Lost { .. }) | (NriLink::Absent, NriLink::Absent));
        self.status_tx.send_modify(|status| {
            let since = if is_same_kind { status.since } else { Instant::now() };
            *status = NriStatus { link, since, ..NriStatus::default() };
        });
    }

    /// Serves one connection, until it ends.
    async fn connection(&mut self, is_synchronized: &mut bool) -> Result<Infallible, NriError> {
        let mut link = RuntimeLink::connect(&self.parts.socket).await?;
        let mut sources = self.sources().await?;
        let mut facts = self.facts(&mut sources);
        let identity = PluginIdentity { index: self.parts.config.index, kind: self.parts.kind.clone() };
        let (mut session, registration) = Session::begin(&identity, Instant::now());
        link.send(Connection::Runtime, &registration).await?;
        loop {
            while let Some(call) = session.next_call(Instant::now()) {
                link.send(Connection::Runtime, &call).await?;
            }
            let deadline = session.deadline(Instant::now());
            tokio::select! {
                biased;
                // Cancel safe, see there. The runtime's messages come first: it waits for answers.
                heard = link.next() => {
                    let (connection, message) = heard?;
                    // The claim may have been prepared a moment ago, and its container be made already.
                    if sources.have_changed() {
                        facts = self.facts(&mut sources);
                        session.consider(&facts);
                    }
                    let answer = session.hear(connection, &message, &facts, Instant::now())?;
                    if let Some(answer) = answer {
                        link.send(connection, &answer).await?;
                    }
                    *is_synchronized |= session.stage == SessionStage::Synchronized;
                    self.tell(&mut session, &facts);
                }
                // Cancel safe, see there.
                changed = sources.change(|| self.look()) => {
                    changed?;
                    facts = self.facts(&mut sources);
                    session.consider(&facts);
                    self.tell(&mut session, &facts);
                }
                // Cancel safe: it only waits.
                () = until(deadline) => session.check(Instant::now())?,
            }
        }
    }

    fn look(&self) -> MachineLook {
        let root = self.parts.root.clone();
        self.tasks.looking(move || UsableMachine::read(&root))
    }

    async fn sources(&self) -> Result<FactSources, NriError> {
        let (table_rx, mut inventory_rx) = (self.parts.table_rx.clone(), self.parts.inventory.subscribe());
        inventory_rx.mark_unchanged();
        let machine = seen(self.look().await)?;
        Ok(FactSources { table_rx, inventory_rx, machine, looking: None })
    }

    fn facts(&self, sources: &mut FactSources) -> PinningFacts {
        let table = sources.table_rx.borrow_and_update().clone();
        let facts = PinningFacts::new(table, sources.machine.clone(), &self.rules);
        if facts.pool.as_ref().is_some_and(IdSet::is_empty) {
            let was = self.status_tx.borrow().shared_pool.clone();
            if was.is_none_or(|was| !was.is_empty()) {
                warn!("the shared pool is empty: containers without a claim for CPUs are refused");
            }
        }
        facts
    }

    /// Publishes the status and the containers.
    fn tell(&mut self, session: &mut Session, facts: &PinningFacts) {
        let counts = std::mem::take(&mut session.counts);
        self.parts.metrics.nri_counted(counts.updates_failed, counts.refused);
        if session.stage != SessionStage::Synchronized {
            return;
        }
        let link = NriLink::Connected { runtime: session.runtime.clone() };
        self.status_tx.send_if_modified(|status| {
            let is_new = status.link != link;
            if is_new && !self.has_been {
                info!(runtime = session.runtime, "plugged into the container runtime");
            }
            let since = if is_new { Instant::now() } else { status.since };
            let quarantined = session.known.quarantined().map(|(id, reason)| (id.to_owned(), reason)).collect();
            let now = NriStatus {
                link,
                since,
                containers: session.known.len(),
                quarantined,
                shared_pool: facts.pool.clone(),
            };
            let differs = *status != now;
            *status = now;
            differs
        });
        self.has_been = true;
        let seen = session.known.seen();
        self.seen_tx.send_if_modified(|known| {
            let differs = *known != seen;
            *known = seen;
            differs
        });
    }
}

/// A read of the machine, on a thread that may block.
type MachineLook = JoinHandle<Result<UsableMachine, ReadFailure>>;

/// Sources from which facts are made.
struct FactSources {
    table_rx: watch::Receiver<Arc<ClaimTable>>,
    inventory_rx: watch::Receiver<Arc<Inventory>>,
    machine: Arc<UsableMachine>,
    looking: Option<MachineLook>,
}

impl FactSources {
    /// True if claims have changed since facts were made.
    fn have_changed(&self) -> bool {
        self.table_rx.has_changed().unwrap_or_default()
    }

    /// Waits for a change. Cancel safe: a look that was begun is kept. A machine that does not answer holds up nothing.
    async fn change(&mut self, look: impl Fn() -> MachineLook) -> Result<(), NriError> {
        tokio::select! {
            // Cancel safe: a change that was not taken is still seen as one. An owner that has ended ends the daemon.
            Ok(()) = self.table_rx.changed() => {}
            // Cancel safe, as above.
            Ok(()) = self.inventory_rx.changed(), if self.looking.is_none() => self.looking = Some(look()),
            // Cancel safe: the look goes on.
            looked = finished(&mut self.looking) => {
                self.looking = None;
                self.machine = seen(looked)?;
            }
        }
        Ok(())
    }
}

async fn finished(looking: &mut Option<MachineLook>) -> <MachineLook as Future>::Output {
    match looking {
        Some(looking) => looking.await,
        None => std::future::pending().await,
    }
}

fn seen(looked: <MachineLook as Future>::Output) -> Result<Arc<UsableMachine>, NriError> {
    // The look's thread fails only where the process ends.
    looked.map_or_else(|_| Ok(Arc::default()), |read| read.map(Arc::new).map_err(NriError::Machine))
}

/// Pause after a failure: twice as long after each, and never the same on two nodes.
fn pause(failures: u32) -> Duration {
    PAUSES.after(failures).mul_f64(0.5 + fastrand::f64() / 2.0)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;

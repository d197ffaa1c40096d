//! `hostler-controller run`: starts the parts, and stops them.
//!
//! ```text
//!   config ► log ► HTTP ► model's task ► a watch for each kind ┐
//!                                      ► findings              ├► SIGTERM ► the lease is given back ► all stop
//!                                      ► lease ► sums          ┘
//! ```
//!
//! The API server may come later, go, and come again. Meanwhile the last view is served, with the time since which
//! nothing was heard.

mod capabilities;
mod findings;
mod life;

use std::{env, io, time::Duration};

use hostler_api::Chain;
use hostler_cluster::{ApiClient, ApiPatience, ConnectError, pod_namespace};
use hostler_process::{
    EndedService, StopSignals, Tasks,
    log::{LogEnd, LogError, ProcessLog},
    notify,
    serve::{CertificateError, bind_private},
};
use hostler_reconcile::{LeaderElection, Leadership, campaign};
use tokio::{
    net::{TcpListener, UnixListener},
    runtime,
    sync::watch,
    time::sleep,
};
use tracing::{error, info};
use uuid::Uuid;

use self::{capabilities::CapabilityStarts, findings::FindingSources};
use crate::{
    classic::adapter::ClassicStatus,
    conditions::SumsOutcome,
    config::{ControllerConfig, LeaseConfig, ListenAddress, SwitchMode},
    fabric::FabricStatus,
    hold::adapter::HoldStatus,
    model_owner,
    observe::Watches,
    pod_gates::{GatesPhase, WaitRules, watch_switch},
    provision::adapter::ProvisionStatus,
    serve::{self, CountedFigures, ServeState},
    webhook::{self, WebhookParts},
    webhook_status::WebhookStatus,
};

/// The default namespace of the Lease: where `deploy/controller` has it.
const NAMESPACE: &str = "hostler-controller";

/// Time after which free memory is given back to the kernel again. Lists, documents and plans come and go, and pieces that
/// stay lie among theirs: only whole pages at the end of all go back by themselves.
const GIVE_BACK: Duration = Duration::from_secs(30);

/// The reason why the controller does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// There is no log.
    #[error("failed to start the log")]
    Log(#[source] LogError),
    /// The runtime has no threads or no timers.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// Signals could not be waited for.
    #[error("failed to listen to signals")]
    Signals(#[source] io::Error),
    /// There are no credentials.
    #[error("failed to prepare for talking to the API server")]
    Connect(#[source] ConnectError),
    /// The address could not be bound.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The webhook's address could not be bound.
    #[error("failed to listen on {address} (webhook.listen)")]
    ListenWebhook {
        /// The address.
        address: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// There is no certificate to serve others with.
    #[error("failed to make a certificate")]
    Certificate(#[source] CertificateError),
    /// A second signal came while the controller was stopping.
    #[error("stopped by a second signal before everything was finished")]
    Impatient,
    /// A part has ended.
    #[error("{name} ended")]
    Ended {
        /// The part.
        name: &'static str,
        /// The reason.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// Runs until a signal or the end of a part.
pub(crate) fn run(config: &ControllerConfig) -> Result<(), RunError> {
    // Before there are threads: plans and questions are worked on by some that come and go.
    hostler_heap::keep_little();
    let log = ProcessLog::start(&config.log).map_err(RunError::Log)?;
    // One thread: nothing here blocks, and long work has threads of its own.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Runtime)?;
    let result = runtime.block_on(live(config));
    match (result, log.end()) {
        // If the log has no reader, a message about the failure would wait for ever.
        (Err(_), LogEnd::Stalled) => Ok(()),
        (result, _) => result,
    }
}

async fn live(config: &ControllerConfig) -> Result<(), RunError> {
    let mut signals = StopSignals::new().map_err(RunError::Signals)?;
    let (tasks, mut ended_rx) = Tasks::new();
    give_back_memory(&tasks);
    start(config, &tasks).await?;
    let result = tokio::select! {
        // Cancel safe: a message that was not taken stays in the channel.
        Some(EndedService { name, outcome }) = ended_rx.recv() => {
            Err(RunError::Ended { name, source: outcome.err() })
        }
        // Cancel safe: a signal is remembered.
        () = signals.recv() => Ok(()),
    };
    match &result {
        Ok(()) => info!("stopping"),
        Err(error) => error!(error = %Chain(error), "stopping, since the controller cannot go on"),
    }
    notify::stopping();
    tasks.stop_token().cancel();
    tokio::select! {
        // Cancel safe: `drain` only waits.
        () = tasks.drain() => result,
        // Cancel safe: a signal that was not taken is still pending.
        () = signals.recv() => Err(RunError::Impatient),
    }
}

fn give_back_memory(tasks: &Tasks) {
    let (stop, jobs) = (tasks.stop_token(), tasks.clone());
    tasks.service("free memory", async move {
        while stop.run_until_cancelled(sleep(GIVE_BACK)).await.is_some() {
            jobs.looking(hostler_heap::trim).await?;
        }
        Ok(())
    });
}

async fn start(config: &ControllerConfig, tasks: &Tasks) -> Result<(), RunError> {
    let connect =
        |patience| ApiClient::with_patience(config.kubeconfig.as_deref(), patience).map_err(RunError::Connect);
    // In a busy process watches fill their connection: calls that must not wait have another one.
    let (watching, calling) = (connect(ApiPatience::BULK)?, connect(ApiPatience::PROMPT)?);
    let listener = self::listener(config.listen, |address, source| RunError::Listen { address, source }).await?;
    let probes = probe_listener(config)?;
    let refused = |address, source| RunError::ListenWebhook { address, source };
    let webhook = self::listener(config.webhook.listen, refused).await?;
    let modes = config.capabilities;
    let watches = Watches::start(&watching, tasks);
    let (view_rx, pulse) = model_owner::start(watching.clone(), watches.clone(), modes, tasks);
    let (outcome_tx, outcome_rx) = watch::channel(SumsOutcome::default());
    let (classic_tx, classic_rx) = watch::channel(ClassicStatus::default());
    let (provision_tx, provision_rx) = watch::channel(ProvisionStatus::default());
    let (holds_tx, holds_rx) = watch::channel(HoldStatus::default());
    let (fabric_tx, fabric_rx) = watch::channel(FabricStatus::default());
    let (webhook_tx, webhook_rx) = watch::channel(WebhookStatus::default());
    let webhook_rx = webhook.as_ref().map(|_| webhook_rx);
    let gates_rx = watch_switch(config.webhook.gates, calling.clone(), tasks);
    let sources = FindingSources {
        modes,
        view_rx: view_rx.clone(),
        outcome_rx,
        classic_rx: classic_rx.clone(),
        provision_rx: provision_rx.clone(),
        holds_rx: holds_rx.clone(),
        fabric_rx: fabric_rx.clone(),
        webhook_rx: webhook_rx.clone(),
        gates_rx: gates_rx.clone(),
    };
    let findings_rx = findings::start(sources, tasks);
    let leadership_rx = leadership(config, &calling, tasks);
    let state = ServeState {
        view_rx,
        findings_rx,
        classic_rx,
        provision_rx,
        holds_rx,
        fabric_rx,
        leadership_rx,
        figures: CountedFigures::default(),
        client: calling,
        tasks: tasks.clone(),
    };
    let capabilities =
        CapabilityStarts { config, watching, watches, state: state.clone(), gates_rx: gates_rx.clone(), webhook_rx };
    capabilities.start_fabric(fabric_tx);
    capabilities.start(outcome_tx, classic_tx, provision_tx, holds_tx);
    if let Some(listener) = listener {
        serve::start(state.clone(), listener, tasks).map_err(RunError::Certificate)?;
    }
    if let Some(listener) = probes {
        serve::start_probes(state.clone(), listener, tasks);
    }
    if let Some(listener) = webhook {
        serve_webhook(config, &state, (webhook_tx, gates_rx), listener).map_err(RunError::Certificate)?;
    }
    life::ready(state, pulse, tasks);
    Ok(())
}

/// Follows who leads; competes for it, if the configuration has work for a leader.
fn leadership(config: &ControllerConfig, client: &ApiClient, tasks: &Tasks) -> watch::Receiver<Leadership> {
    let leads = config.capabilities.leads() || config.webhook.leads();
    if leads { lead(&config.lease, client, tasks) } else { watch::channel(Leadership::default()).1 }
}

fn probe_listener(config: &ControllerConfig) -> Result<Option<UnixListener>, RunError> {
    let path = config.probe_socket();
    let probes = config.has_probes().then(|| bind_private(path)).transpose();
    probes.map_err(|source| RunError::Listen { address: path.display().to_string(), source })
}

/// Starts the webhook that lets pods use kept devices.
fn serve_webhook(
    config: &ControllerConfig,
    state: &ServeState,
    (status_tx, gates_rx): (watch::Sender<WebhookStatus>, watch::Receiver<GatesPhase>),
    listener: TcpListener,
) -> Result<(), CertificateError> {
    let ServeState { view_rx, leadership_rx, figures, client, tasks, .. } = state.clone();
    let parts = WebhookParts {
        client,
        config: config.webhook.clone(),
        namespace: namespace(&config.lease),
        driver: config.driver.clone(),
        view_rx,
        leadership_rx,
        status_tx,
        gates_rx,
        rules: wait_rules(config),
        figures: figures.webhook,
        tasks,
    };
    webhook::start(parts, listener)
}

async fn listener(
    address: ListenAddress,
    refused: impl FnOnce(String, io::Error) -> RunError,
) -> Result<Option<TcpListener>, RunError> {
    let ListenAddress::Tcp(address) = address else { return Ok(None) };
    TcpListener::bind(address).await.map(Some).map_err(|source| refused(address.to_string(), source))
}

/// Returns what pods can wait for.
fn wait_rules(config: &ControllerConfig) -> WaitRules {
    let modes = config.capabilities;
    WaitRules {
        places: modes.reservations.is_wanted() && config.reservations.places != SwitchMode::Off,
        requests: modes.provisioning.is_wanted().then(|| config.provisioning.classes()),
        own_namespace: namespace(&config.lease),
    }
}

/// Returns the controller's own namespace.
fn namespace(config: &LeaseConfig) -> String {
    config.namespace.clone().or_else(pod_namespace).unwrap_or_else(|| NAMESPACE.to_owned())
}

/// Competes for the Lease, under a name that no other process has or had.
fn lead(config: &LeaseConfig, client: &ApiClient, tasks: &Tasks) -> watch::Receiver<Leadership> {
    let namespace = namespace(config);
    // In a pod, the host's name is the pod's name, which leads people to the pod.
    let host = env::var("HOSTNAME").unwrap_or_else(|_| "controller".to_owned());
    let identity = format!("{host}_{}", Uuid::new_v4());
    campaign(LeaderElection { client: client.clone(), namespace, name: config.name.clone(), identity }, tasks)
}

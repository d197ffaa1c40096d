//! `hostler-controller run`: starts the parts, and stops them.
//!
//! ```text
//!   config ► API server ► model's task ► a watch for each kind ► HTTP ► SIGTERM ► all stop
//! ```

mod owner;

use std::{io, sync::Arc};

use hostler_allocator::{plan::PlanOptions, structured::KubernetesVersion};
use hostler_cluster::{ApiClient, ApiFailure, ConnectError};
use hostler_process::{EndedService, Tasks};
use tokio::{
    net::TcpListener,
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
};
use tracing::info;

use crate::{
    config::ControllerConfig,
    model::{ClusterModel, ObservedKind},
    observe,
    serve::{ServeState, router},
    view::ClusterView,
};

/// Events that wait for the model. Enough that none of the watches waits for another one; few enough that a storm of
/// changes waits on the server, where it costs nothing.
const EVENTS: usize = 256;

/// Why the controller does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// No threads, no timers.
    #[error("failed to start the runtime")]
    Runtime(#[source] io::Error),
    /// Signals could not be waited for.
    #[error("failed to listen to signals")]
    Signals(#[source] io::Error),
    /// There are no credentials.
    #[error("failed to prepare for talking to the API server")]
    Connect(#[source] ConnectError),
    /// The API server cannot be asked, or has nothing to work on.
    #[error("failed to find out what the cluster serves")]
    Cluster(#[source] ApiFailure),
    /// The address could not be bound.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A part has ended.
    #[error("{name} ended")]
    Ended {
        /// The part.
        name: &'static str,
        /// Why.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// Runs until a signal or the end of a part.
pub(crate) fn run(config: &ControllerConfig) -> Result<(), RunError> {
    // Whoever runs it has set up no other log.
    let _ = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).try_init();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Runtime)?;
    runtime.block_on(async {
        let mut signals = StopSignals::new().map_err(RunError::Signals)?;
        let (tasks, mut ended_rx) = Tasks::new();
        start(config, &tasks).await?;
        let result = tokio::select! {
            // Cancel safe: a message that was not taken stays in the channel.
            Some(EndedService { name, outcome }) = ended_rx.recv() => {
                Err(RunError::Ended { name, source: outcome.err() })
            }
            // Cancel safe: a signal is remembered.
            () = signals.recv() => Ok(()),
        };
        info!("stopping");
        tasks.stop_token().cancel();
        tasks.drain().await;
        result
    })
}

async fn start(config: &ControllerConfig, tasks: &Tasks) -> Result<(), RunError> {
    let client = ApiClient::new(config.kubeconfig.as_deref()).map_err(RunError::Connect)?;
    let view_rx = watch_all(&client, tasks).await?;
    let address = config.listen.clone();
    let failed = |source| RunError::Listen { address: address.clone(), source };
    let listener = TcpListener::bind(&address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    info!(%address, "serving");
    let state = ServeState { view_rx, client, tasks: tasks.clone() };
    let (routes, stop) = (router(state), tasks.stop_token());
    tasks.service("http", async move {
        axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await?;
        Ok(())
    });
    Ok(())
}

/// Watches a cluster for somebody who only looks; as long as the tasks are there.
pub(crate) async fn follow(client: ApiClient) -> Result<(Tasks, watch::Receiver<Arc<ClusterView>>), RunError> {
    let (tasks, _) = Tasks::new();
    let view_rx = watch_all(&client, &tasks).await?;
    Ok((tasks, view_rx))
}

/// Watches everything, and gives what is seen.
async fn watch_all(client: &ApiClient, tasks: &Tasks) -> Result<watch::Receiver<Arc<ClusterView>>, RunError> {
    let version = client.version().await.map_err(RunError::Cluster)?;
    info!(serves = version.group_version(), "the API server answers");
    let options = PlanOptions { version: scheduler(client).await?, ..PlanOptions::default() };
    let (events_tx, events_rx) = mpsc::channel(EVENTS);
    let view_rx = owner::start(ClusterModel::new(options), events_rx, tasks);
    for kind in ObservedKind::ALL {
        observe::start(client.clone(), kind, version, events_tx.clone(), tasks);
    }
    Ok(view_rx)
}

/// The scheduler that the cluster has, or of those that are known the one that is most like it.
async fn scheduler(client: &ApiClient) -> Result<KubernetesVersion, RunError> {
    let minor = client.minor_release().await.map_err(RunError::Cluster)?;
    let is_older = |version: &&KubernetesVersion| {
        let known = version.as_str().split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
        known.is_some_and(|known| known <= minor)
    };
    let [oldest, ..] = KubernetesVersion::ALL;
    Ok(KubernetesVersion::ALL.iter().rfind(is_older).copied().unwrap_or(oldest))
}

/// SIGTERM and SIGINT.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn recv(&mut self) {
        tokio::select! {
            // Cancel safe: a signal that was not taken is still pending.
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

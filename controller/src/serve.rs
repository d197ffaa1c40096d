//! The controller's HTTP server: liveness, readiness, figures, the page for people, and answers to questions of the
//! page and the command line.
//!
//! ```text
//!   /healthz, /readyz                live and ready or not, for every client; why not, on this host only
//!   /metrics            figures      for clients on this host; others need a token that may `get /metrics`
//!   /, /main.js, …      page         the same for all: nothing of the cluster is in it
//!   /v1/…               api          token ──► access: user and rights ──► places ──► answer
//! ```

mod access;
mod api;
mod changes;
mod figures;
mod fits;
mod grid;
mod labels;
mod machine;
mod metrics;
mod page;
mod places;
mod plans;
mod problem;
mod read_right;
mod revisions;

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    middleware::from_fn,
    response::{IntoResponse, Response},
    routing::get,
};
use hostler_cluster::ApiClient;
use hostler_process::{
    Tasks,
    serve::{self, CertificateError, ConnectionServer, OwnCertificate},
};
use hostler_reconcile::Leadership;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::{Semaphore, watch},
};
use tracing::info;

use crate::{
    classic::adapter::ClassicStatus,
    conditions::ClusterFinding,
    fabric::{FabricFigures, FabricStatus},
    hold::adapter::HoldStatus,
    provision::adapter::ProvisionStatus,
    view::ClusterView,
    webhook_status::WebhookFigures,
};

pub(crate) use self::machine::{DeviceAnswer, MachineAnswer, machine_of};

/// The most connections at once. A page has a few; probes and scrapers have one for a moment.
const CONNECTIONS: usize = 256;
/// The longest age of a connection. An open page keeps one, and makes another when that ends.
const OLDEST: Duration = Duration::from_secs(600);
/// The name in the certificate, which no authority signs.
const NAME: &str = "hostler-controller";

/// Parts that routes answer from.
#[derive(Clone, Debug)]
pub(crate) struct ServeState {
    /// The current view of the cluster.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// Findings about the work that the controller can do, and that it cannot.
    pub(crate) findings_rx: watch::Receiver<Arc<[ClusterFinding]>>,
    /// State of allocating claims of classic DRA, where the controller does that.
    pub(crate) classic_rx: watch::Receiver<ClassicStatus>,
    /// State of answering ProvisioningRequests.
    pub(crate) provision_rx: watch::Receiver<ProvisionStatus>,
    /// State of keeping devices.
    pub(crate) holds_rx: watch::Receiver<HoldStatus>,
    /// State of the offer of devices behind switches.
    pub(crate) fabric_rx: watch::Receiver<FabricStatus>,
    /// Figures that parts of the controller count themselves.
    pub(crate) figures: CountedFigures,
    /// Leadership of this process.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// The client for questions that only the API server can answer.
    pub(crate) client: ApiClient,
    /// The tasks in which answers that take time run.
    pub(crate) tasks: Tasks,
}

/// Figures that parts of the controller count themselves: each part has its own, and `/metrics` reads all.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountedFigures {
    /// Counts of the webhook's answers.
    pub(crate) webhook: Arc<WebhookFigures>,
    /// Number of pods whose gate the API server refuses to remove.
    pub(crate) stuck_pods: Arc<AtomicUsize>,
    /// Figures of devices behind switches.
    pub(crate) fabric: watch::Sender<FabricFigures>,
}

impl ServeState {
    /// Returns the reasons why the controller is not ready; none if it is.
    pub(crate) fn not_ready(&self) -> Vec<String> {
        let findings = self.findings_rx.borrow();
        findings.iter().filter(|finding| finding.is_needed).map(ClusterFinding::line).collect()
    }

    /// Returns the leader's state, for people.
    pub(crate) fn leader(&self) -> String {
        let leadership = self.leadership_rx.borrow();
        match (&leadership.holder, &leadership.trouble) {
            _ if leadership.is_ours(std::time::Instant::now()) => "leading".to_owned(),
            (_, Some(trouble)) => format!("not leading: {trouble}"),
            (Some(holder), None) => format!("{holder} leads"),
            (None, None) => "nobody leads".to_owned(),
        }
    }
}

/// Serves until the process stops: clients on this host in the clear, others over TLS.
pub(crate) fn start(state: ServeState, listener: TcpListener, tasks: &Tasks) -> Result<(), CertificateError> {
    let address = listener.local_addr().ok();
    let is_local = address.is_some_and(|address| address.ip().is_loopback());
    if let Some(address) = address {
        info!(%address, tls = !is_local, "serving");
    }
    let audience = if is_local { Audience::ThisHost } else { Audience::Network };
    let server = ConnectionServer::new(router(state, audience), OLDEST, tasks);
    let (places, own_tasks) = (Arc::new(Semaphore::new(CONNECTIONS)), tasks.clone());
    if is_local {
        tasks.service("http", async move {
            serve::accept(listener, places, server, &own_tasks).await;
            Ok(())
        });
        return Ok(());
    }
    let tls = serve::own_tls(Arc::new(OwnCertificate::new(NAME.to_owned())))?;
    tasks.service("https", async move {
        serve::accept_tls(listener, tls, places, server, &own_tasks).await;
        Ok(())
    });
    Ok(())
}

/// Serves probes on a socket with connections of their own, until the process stops.
pub(crate) fn start_probes(state: ServeState, listener: UnixListener, tasks: &Tasks) {
    let server = ConnectionServer::new(probe_routes(state, Audience::ThisHost), OLDEST, tasks);
    let own_tasks = tasks.clone();
    tasks.service("probes", async move {
        serve::accept_private(listener, server, &own_tasks).await;
        Ok(())
    });
}

/// The clients that can connect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Audience {
    /// Programs on this host.
    ThisHost,
    /// Every client in the network.
    Network,
}

/// All routes.
pub(crate) fn router(state: ServeState, audience: Audience) -> Router {
    let api = api::routes(&state);
    probe_routes(state.clone(), audience)
        .merge(figures::routes(state, audience))
        .merge(page::routes())
        .merge(api)
        .fallback(async || (StatusCode::NOT_FOUND, "there is nothing here\n"))
        .layer(from_fn(page::secured))
}

fn probe_routes(state: ServeState, audience: Audience) -> Router {
    Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(readyz)).with_state((state, audience))
}

/// Ready once all needed kinds were listed. If the API server does not answer now, the last view is served: that is an
/// answer still, and another controller knows no more.
async fn readyz(State((state, audience)): State<(ServeState, Audience)>) -> Response {
    let code = if state.not_ready().is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if code == StatusCode::OK { "ok" } else { "not ready" };
    // The reasons name objects, and a kubelet that probes shows no token.
    if audience == Audience::Network {
        return (code, format!("{word}\n")).into_response();
    }
    let mut lines: Vec<String> = vec![word.to_owned(), state.leader()];
    lines.extend(state.findings_rx.borrow().iter().map(ClusterFinding::line));
    let view = state.view_rx.borrow().clone();
    let silent = view.kinds.iter().filter_map(|(kind, status)| Some((kind, status.silent.as_ref()?.0)));
    lines.extend(
        silent.map(|(kind, since)| format!("{}: last heard of {} s ago", kind.plural(), since.elapsed().as_secs())),
    );
    (code, format!("{}\n", lines.join("\n"))).into_response()
}

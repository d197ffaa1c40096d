//! Interfaces for people and their tools: the admin socket of the command line, and the address of metrics and probes.
//!
//! Both speak HTTP/1.1. The admin socket changes things and belongs to root alone (mode 0600); the other one only
//! tells. No state of its own: every answer comes from the owners.

mod changes;
mod claims;
mod devices;
mod events;
mod explain;
mod failures;
mod fit;
mod hardware;
mod metrics;
mod nri;
mod orders;
mod pod_usage;
mod pods;
mod scrape;
mod serve;
mod topology;
pub mod types;
mod usage;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::to_bytes,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::{delete, get, post, put},
};
use tokio::{sync::watch, time::timeout};

pub use changes::ChangeWatchers;
pub use events::EventLog;
pub use failures::RecentFailures;
pub use metrics::{MetricsSnapshot, render as render_metrics};
pub use scrape::{ScrapeParts, serve_scrapes};
pub use serve::{ServeError, serve_admin, serve_metrics, serve_probes};
pub use usage::MachineReader;

use hostler_api::{BackendName, Chain, ClaimState};
use hostler_process::{ProcessFigures, figures_response};

use self::types::{AdminBackend, AdminClaimCounts, AdminError, AdminKubelet, AdminPublication, AdminStatus};
use crate::{
    audit::AuditReader,
    claims::ClaimsHandle,
    inventory::{Inventory, InventoryReader, LostDrains, Pool, task::InventoryHandle, view},
    kubelet::{KubeletConnections, RegistrationState},
    kubernetes::{
        claim_reader::ClaimReader,
        hardware::HardwareReporting,
        publisher::{Publication, PublicationState},
        slices::SliceSettings,
        topology::TopologyExport,
    },
    metrics::Metrics,
    nri::NriSide,
    pods::PodsReader,
    standalone::ManifestFolder,
    tasks::Tasks,
    usage::{holders, pods::PodUsageReader},
};

/// State that answers are made from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminService(Arc<AdminParts>);

/// Stage of the daemon, for metrics and probes: it stands by, or it works and there is an [`AdminService`]. Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub struct DaemonStage(Arc<OnceLock<AdminService>>);

/// Answer of a daemon that waits for another one to end. It has scanned its hardware and could work at once, so a
/// rollout that replaces daemons one by one may go on.
const STANDING_BY: &str = "standing by\n";

impl DaemonStage {
    /// Notes that the daemon works from now on. Only the first call counts.
    pub fn live(&self, admin: AdminService) {
        let _ = self.0.set(admin);
    }

    /// Routes of the address of metrics and probes.
    fn routes(self) -> Router {
        Router::new().route("/metrics", get(metrics)).with_state(self.clone()).merge(self.probe_routes())
    }

    /// Routes of the socket for probes.
    fn probe_routes(self) -> Router {
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(self)
    }
}

/// The parts of an [`AdminService`].
#[derive(Debug)]
pub struct AdminParts {
    /// Name of the node.
    pub node: String,
    /// Id of this boot.
    pub boot_id: String,
    /// Time at which the daemon started.
    pub started: Instant,
    /// Reader of the machine's layout.
    pub machine: MachineReader,
    /// Callers that wait for changes.
    pub watchers: ChangeWatchers,
    /// The latest changes.
    pub events: EventLog,
    /// Claim state.
    pub claims: ClaimsHandle,
    /// Folder of claim records.
    pub records: PathBuf,
    /// Folder of CDI files.
    pub cdi: PathBuf,
    /// Reader of the audit, which tells if containers are bound as their claims say.
    pub audit_rx: AuditReader,
    /// Hardware state.
    pub inventory: InventoryHandle,
    /// Hardware that is the node's own, and not a fabric manager's.
    pub own: InventoryReader,
    /// Manifests of claims; `None` where the API server has the claims.
    pub manifests: Option<ManifestFolder>,
    /// State of the slices; `None` where nothing is published.
    pub publication_rx: Option<watch::Receiver<Publication>>,
    /// Knowledge of this node's pods.
    pub pods_rx: PodsReader,
    /// State of the topology's export; `None` where it is switched off.
    pub topology_rx: Option<watch::Receiver<TopologyExport>>,
    /// State of the hardware's report; absent where it is switched off.
    pub hardware_rx: Option<watch::Receiver<HardwareReporting>>,
    /// Reader of claims of the API server; `None` where manifests are the claims.
    pub claim_reader: Option<ClaimReader>,
    /// The latest failures.
    pub failures: RecentFailures,
    /// Counters.
    pub metrics: Metrics,
    /// Faults, in words, of what the daemon needs and others keep.
    pub necessities_rx: watch::Receiver<Vec<String>>,
    /// The kubelet's side; `None` where it is switched off.
    pub kubelet: Option<KubeletSide>,
    /// The container runtime's side.
    pub nri: NriSide,
    /// Holders of devices, by pod.
    pub pod_usage: PodUsageReader,
    /// Settings of slices, published or not.
    pub slices: SliceSettings,
    /// Tasks for long work.
    pub tasks: Tasks,
}

/// State of the kubelet.
#[derive(Clone, Debug)]
pub struct KubeletSide {
    /// The kubelet's last answer to the registration.
    pub registration_rx: watch::Receiver<RegistrationState>,
    /// Number of the kubelet's connections to the service socket.
    pub connections_rx: watch::Receiver<KubeletConnections>,
    /// The registration socket, which the kubelet finds by itself.
    pub registration_socket: PathBuf,
    /// The service socket, which the kubelet calls.
    pub service_socket: PathBuf,
    /// The folder that every kubelet makes in its root, and nothing else does.
    pub pods: PathBuf,
}

impl KubeletSide {
    /// Time without a connection, if that is worth a word. A kubelet keeps one for as long as it lives.
    fn silence(&self) -> Option<Duration> {
        let connections = *self.connections_rx.borrow();
        let silence = connections.since.elapsed();
        (connections.open == 0 && connections.kept && silence > SILENCE).then_some(silence)
    }

    /// Fault of the kubelet's side. A host on which no kubelet has ever worked has none.
    fn missing(&self) -> Option<String> {
        match &*self.registration_rx.borrow() {
            RegistrationState::Registered => self.silence().map(|silence| {
                format!("the kubelet has hung up {} s ago and did not come back: is it running?", silence.as_secs())
            }),
            RegistrationState::Waiting if !self.pods.exists() => None,
            RegistrationState::Waiting => Some("the kubelet has not registered the driver yet".to_owned()),
            RegistrationState::Refused { error } => Some(format!("the kubelet refused the driver: {error}")),
        }
    }
}

/// Silence that is no fault: a kubelet that starts anew, or loses its connection, is back within seconds.
const SILENCE: Duration = Duration::from_secs(10);

/// An answer that is not a success.
#[derive(Debug)]
pub(crate) struct AdminFailure(StatusCode, String);

impl AdminFailure {
    fn new(status: StatusCode, error: &(dyn std::error::Error + 'static)) -> Self {
        Self(status, Chain(error).to_string())
    }
}

impl IntoResponse for AdminFailure {
    fn into_response(self) -> Response {
        (self.0, Json(AdminError { error: self.1 })).into_response()
    }
}

/// Size limit of a reason of the framework: the longest is a line.
const LONGEST_REASON_BYTES: usize = 64 << 10;

/// Puts refusals of the framework itself (a body of another shape, a path that does not exist) into the shape of
/// every other failure.
async fn in_one_shape(request: Request, next: Next) -> Response {
    let asked = format!("{} {}", request.method(), request.uri().path());
    let response = next.run(request).await;
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if response.status().is_success() || is_json {
        return response;
    }
    let status = response.status();
    let reason = to_bytes(response.into_body(), LONGEST_REASON_BYTES).await.unwrap_or_default();
    match String::from_utf8_lossy(&reason).trim() {
        "" => AdminFailure(status, format!("{asked}: {status}")).into_response(),
        reason => AdminFailure(status, reason.to_owned()).into_response(),
    }
}

impl AdminService {
    /// Puts the parts together.
    pub fn new(parts: AdminParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Routes of the admin socket.
    fn admin_routes(self) -> Router {
        Router::new()
            .route("/v1/status", get(status))
            .route("/v1/inventory", get(inventory))
            .route("/v1/usage", get(usage::usage))
            .route("/v1/changes", get(changes::changes))
            .route("/v1/events", get(events::events))
            .route("/v1/rescan", post(rescan))
            .route("/v1/devices", get(devices::list))
            .route("/v1/devices/{device}", get(devices::show))
            .route("/v1/devices/{device}/drain", put(devices::drain).delete(devices::undrain))
            .route("/v1/devices/{device}/operate", post(orders::operate))
            .route("/v1/devices/{device}/rehearse", post(orders::rehearse))
            .route("/v1/lost-drains", delete(devices::forget))
            .route("/v1/claims", get(claims::list).post(claims::create))
            .route("/v1/unallocated-claims", post(fit::create))
            .route("/v1/fits", post(fit::fit))
            .route("/v1/claims/{claim}", get(claims::show).delete(claims::delete))
            .route("/v1/claims/{claim}/prepare", post(claims::prepare))
            .route("/v1/claims/{claim}/explain", get(explain::explain))
            .route("/v1/claims/{claim}/forget", post(claims::forget))
            .route("/v1/pods", get(pod_usage::list))
            .layer(from_fn(in_one_shape))
            // For `hostler ready --socket`: probes speak lines, not JSON.
            .route("/healthz", get(alive))
            .route("/readyz", get(ready))
            .with_state(self)
    }

    /// Reasons why the daemon does not serve all that it should; empty when ready.
    pub fn not_ready(&self) -> Vec<String> {
        let inventory = self.0.inventory.reader().latest();
        let mut missing = inventory.doubts();
        missing.extend(inventory.lost_drains.as_ref().map(LostDrains::explain));
        missing.extend(self.0.necessities_rx.borrow().iter().cloned());
        missing.extend(self.0.kubelet.as_ref().and_then(KubeletSide::missing));
        missing.extend(self.0.nri.missing());
        let fault = self.0.claim_reader.as_ref().and_then(ClaimReader::fault);
        missing.extend(fault.map(|fault| format!("new claims cannot be prepared: {fault}")));
        missing.extend(self.0.publication_rx.as_ref().and_then(|publication_rx| publication_rx.borrow().missing()));
        missing
    }

    /// Returns when the owner of the claims answers: never, if it is stuck.
    pub async fn ping(&self) {
        self.0.claims.ping().await;
    }

    /// The state in one line.
    pub fn summary(&self) -> String {
        let devices = self.0.inventory.reader().latest().devices().count();
        let AdminClaimCounts { prepared, preparing, quarantined } = self.claim_counts();
        format!("{devices} devices; claims: {prepared} prepared, {preparing} preparing, {quarantined} quarantined")
    }

    fn status(&self) -> AdminStatus {
        let parts = &self.0;
        let inventory = parts.inventory.reader().latest();
        AdminStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: parts.node.clone(),
            driver: parts.slices.driver.clone(),
            mode: if parts.manifests.is_some() { "standalone" } else { "kubernetes" }.to_owned(),
            uptime_seconds: parts.started.elapsed().as_secs(),
            boot_id: parts.boot_id.clone(),
            rss_bytes: ProcessFigures::now().resident_bytes,
            not_ready: self.not_ready(),
            kubelet: parts.kubelet.as_ref().map(kubelet_status),
            nri: nri::status(&parts.nri),
            publication: parts.publication_rx.as_ref().map(|it| publication_status(it.borrow().clone())),
            pods: pods::status(&parts.pods_rx.borrow()),
            hardware: parts.hardware_rx.as_ref().map(|hardware_rx| hardware::status(&hardware_rx.borrow())),
            topology: parts.topology_rx.as_ref().map(|topology_rx| topology::status(&topology_rx.borrow())),
            backends: backend_status(&inventory),
            claims: self.claim_counts(),
            warnings: warnings(&inventory),
        }
    }

    fn claim_counts(&self) -> AdminClaimCounts {
        let mut counts = AdminClaimCounts::default();
        for view in self.0.claims.table().borrow().claims.values() {
            match view.state() {
                ClaimState::Prepared => counts.prepared += 1,
                ClaimState::Preparing => counts.preparing += 1,
                ClaimState::Quarantined => counts.quarantined += 1,
            }
        }
        counts
    }
}

fn kubelet_status(kubelet: &KubeletSide) -> AdminKubelet {
    let (registered, error) = match &*kubelet.registration_rx.borrow() {
        RegistrationState::Waiting => (None, None),
        RegistrationState::Registered => (Some(true), None),
        RegistrationState::Refused { error } => (Some(false), Some(error.clone())),
    };
    AdminKubelet {
        registered,
        connected: is_connected(*kubelet.connections_rx.borrow()),
        error,
        registration_socket: kubelet.registration_socket.clone(),
        service_socket: kubelet.service_socket.clone(),
    }
}

/// True if a kubelet has a connection, or makes them for its calls only, which is as much as it needs.
fn is_connected(connections: KubeletConnections) -> bool {
    connections.open > 0 || !connections.kept
}

fn publication_status(publication: Publication) -> AdminPublication {
    let error = match publication.state {
        PublicationState::Waiting | PublicationState::Synced | PublicationState::NotNeeded => None,
        PublicationState::Failing { ref error } => Some(error.clone()),
    };
    AdminPublication {
        synced: matches!(publication.state, PublicationState::Synced | PublicationState::NotNeeded),
        error,
        slices: publication.slices,
        dropped: publication.dropped,
        left_out: publication.left_out,
    }
}

fn backend_status(inventory: &Inventory) -> Vec<AdminBackend> {
    let status = |(name, pool): (&BackendName, &Arc<Pool>)| AdminBackend {
        name: name.to_string(),
        pool: pool.name.clone(),
        devices: pool.devices.len(),
        drained: inventory.drains.keys().filter(|(backend, _)| backend == name).count(),
        healthy: pool.devices.iter().filter(|device| device.health == hostler_backend::Health::Healthy).count(),
        stale: pool.stale.clone(),
        unknown: false,
        unanswered_since: unanswered_since(inventory, name),
    };
    let mut all: Vec<AdminBackend> = inventory.pools.iter().map(status).collect();
    all.extend(inventory.unknown.iter().map(|(name, pool)| AdminBackend {
        name: name.to_string(),
        pool: pool.name.clone(),
        devices: 0,
        drained: 0,
        healthy: 0,
        stale: Some(pool.reason.clone()),
        unknown: true,
        unanswered_since: unanswered_since(inventory, name),
    }));
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn unanswered_since(inventory: &Inventory, backend: &BackendName) -> Option<u64> {
    inventory.unanswered.get(backend).map(|since| since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

fn warnings(inventory: &Inventory) -> Vec<String> {
    let all = inventory.pools.values().flat_map(|pool| &pool.warnings);
    let mut all: Vec<String> = all.map(|warning| format!("{}: {}", warning.path, warning.reason)).collect();
    // Two backends that read the same file say the same of it.
    all.sort_unstable();
    all.dedup();
    all
}

async fn status(State(admin): State<AdminService>) -> Json<AdminStatus> {
    Json(admin.status())
}

/// The devices, in the shape of `hostler inventory -o json`.
async fn inventory(State(admin): State<AdminService>) -> Json<serde_json::Value> {
    let inventory = admin.0.inventory.reader().latest();
    let claims = admin.0.claims.table().borrow().clone();
    let (holders, devices) = holders::usage(&inventory, &claims);
    let shares = holders::shares(&holders, &devices);
    let devices =
        view::devices(&inventory, |backend, device| shares.get(&(backend.to_string(), device.to_string())).cloned());
    Json(serde_json::json!({ "devices": devices, "warnings": warnings(&inventory) }))
}

async fn rescan(State(admin): State<AdminService>) -> StatusCode {
    admin.0.inventory.rescan().await;
    StatusCode::NO_CONTENT
}

async fn metrics(State(stage): State<DaemonStage>, headers: HeaderMap) -> Result<Response, AdminFailure> {
    let Some(admin) = stage.0.get() else {
        return Err(AdminFailure(StatusCode::SERVICE_UNAVAILABLE, STANDING_BY.trim_end().to_owned()));
    };
    let inventory = admin.0.inventory.reader().latest();
    let claims = admin.0.claims.table().borrow().clone();
    let ready = admin.not_ready().is_empty();
    let nri = admin.0.nri.status_rx.borrow().clone();
    let now =
        MetricsSnapshot { inventory: &inventory, claims: &claims, nri: &nri, ready, process: ProcessFigures::now() };
    let failed = |error| AdminFailure::new(StatusCode::INTERNAL_SERVER_ERROR, &error);
    let figures = render_metrics(&admin.0.metrics, &now).map_err(failed)?;
    Ok(figures_response(&headers, figures))
}

/// Time for the owner of the claims to answer. It takes microseconds, whatever hardware and API server do.
const OWNER_PATIENCE: Duration = Duration::from_secs(10);

/// Checks, as the watchdog of systemd does, that the runtime turns and the owner of the claims answers. Neither waits
/// for hardware, for the API server or for the daemon before this one.
async fn healthz(State(stage): State<DaemonStage>) -> (StatusCode, String) {
    let Some(admin) = stage.0.get() else { return (StatusCode::OK, STANDING_BY.to_owned()) };
    alive(State(admin.clone())).await
}

async fn alive(State(admin): State<AdminService>) -> (StatusCode, String) {
    match timeout(OWNER_PATIENCE, admin.ping()).await {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(_) => {
            let stuck = format!("the owner of the claims has not answered for {} s\n", OWNER_PATIENCE.as_secs());
            (StatusCode::SERVICE_UNAVAILABLE, stuck)
        }
    }
}

async fn readyz(State(stage): State<DaemonStage>) -> (StatusCode, String) {
    let Some(admin) = stage.0.get() else { return (StatusCode::OK, STANDING_BY.to_owned()) };
    ready(State(admin.clone())).await
}

async fn ready(State(admin): State<AdminService>) -> (StatusCode, String) {
    let missing = admin.not_ready();
    if missing.is_empty() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(registration: RegistrationState, open: usize, silence: Duration) -> Option<String> {
        let since = Instant::now().checked_sub(silence).unwrap();
        let (_registration_tx, registration_rx) = watch::channel(registration);
        let (_connections_tx, connections_rx) = watch::channel(KubeletConnections { open, since, kept: true });
        let pods = std::env::temp_dir();
        let (registration_socket, service_socket) = ("/r".into(), "/s".into());
        KubeletSide { registration_rx, connections_rx, registration_socket, service_socket, pods }.missing()
    }

    #[test]
    fn a_kubelet_that_registered_us_and_hung_up_is_missed_after_a_while() {
        let registered = || RegistrationState::Registered;
        assert_eq!(missing(registered(), 1, Duration::from_secs(60)), None);
        assert_eq!(missing(registered(), 0, Duration::from_secs(5)), None, "it may be starting anew");
        let said = missing(registered(), 0, Duration::from_secs(11)).unwrap();
        assert_eq!(said, "the kubelet has hung up 11 s ago and did not come back: is it running?");
        let waiting = missing(RegistrationState::Waiting, 0, Duration::ZERO).unwrap();
        assert_eq!(waiting, "the kubelet has not registered the driver yet");
    }
}

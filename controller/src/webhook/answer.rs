//! Answers the API server, over TLS, within its time limit. Every client that can connect may ask: questions are
//! limited in bytes, in time and in number, and an object whose question gets no answer is made as it is.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Request, State},
    http::{StatusCode, header::CONTENT_LENGTH},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::post,
};
use hostler_api::{Chain, core::Pod};
use hostler_cluster::ApiClient;
use hostler_process::{
    Tasks,
    serve::{self, CertificateError, ConnectionServer, GivenCertificate},
};
use hostler_reconcile::Leadership;
use serde::de::DeserializeOwned;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    time::timeout,
};
use tracing::{debug, info, warn};

use super::{
    decide::WebhookFacts,
    gates::GateFacts,
    installer::CertificateKeeper,
    koordinator::translate,
    pod::pod_of,
    repair::adapter::Repairer,
    review::{AdmissionRequest, AdmissionReview, ReviewedClaim, WebhookAnswer},
};
use crate::{
    config::WebhookConfig,
    pod_gates::{GatesPhase, WaitRules},
    view::ClusterView,
    webhook_status::{WebhookFigures, WebhookStatus},
};

/// The most open connections: each API server has a few.
const CONNECTIONS: usize = 64;
/// The longest age of a connection.
const OLDEST: Duration = Duration::from_secs(600);
/// The most bytes of a question: far more than claims that people write; all connections together have 32 MiB. A claim
/// with dozens of selectors of 10 KiB each is not read, and is made as it is.
const MOST_BYTES: usize = 512 << 10;
/// Time for reading a question and answering it.
const WHOLE_TIME: Duration = Duration::from_secs(2);
/// Time for an answer: the API server waits for a second, part of which the network takes.
const ANSWER_TIME: Duration = Duration::from_millis(700);
/// The most pods that are read at once.
const CALLS: usize = 32;

/// Parts that the webhook is made of.
#[derive(Debug)]
pub(crate) struct WebhookParts {
    /// A client whose connection no watch can hold up.
    pub(crate) client: ApiClient,
    /// The webhook's settings.
    pub(crate) config: WebhookConfig,
    /// The controller's own namespace.
    pub(crate) namespace: String,
    /// The driver whose daemons publish for which Reservation devices are kept.
    pub(crate) driver: String,
    /// The current view of the cluster.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// Leadership of this process: only a leader may write.
    pub(crate) leadership_rx: watch::Receiver<Leadership>,
    /// The status of the webhook, for its readers.
    pub(crate) status_tx: watch::Sender<WebhookStatus>,
    /// State of the switch that has pods gated.
    pub(crate) gates_rx: watch::Receiver<GatesPhase>,
    /// Rules for what pods can wait for.
    pub(crate) rules: WaitRules,
    /// Counts of answers by kind.
    pub(crate) figures: Arc<WebhookFigures>,
    /// The tasks that run the webhook.
    pub(crate) tasks: Tasks,
}

/// Parts that answers are made of.
#[derive(Clone)]
struct WebhookState {
    client: ApiClient,
    driver: Arc<str>,
    view_rx: watch::Receiver<Arc<ClusterView>>,
    leadership_rx: watch::Receiver<Leadership>,
    gates_rx: watch::Receiver<GatesPhase>,
    rules: Arc<WaitRules>,
    figures: Arc<WebhookFigures>,
    calls: Arc<Semaphore>,
}

/// Answers until the process stops, with or without the leader term.
pub(crate) fn start(parts: WebhookParts, listener: TcpListener) -> Result<(), CertificateError> {
    let WebhookParts { client, config, namespace, driver, view_rx, leadership_rx, status_tx, tasks, .. } = parts;
    let WebhookParts { gates_rx, rules, figures, .. } = parts;
    if let Ok(address) = listener.local_addr() {
        info!(webhook = %address, "the webhook listens");
    }
    let certificate = Arc::new(GivenCertificate::default());
    let tls = serve::given_tls(certificate.clone())?;
    let calls = Arc::new(Semaphore::new(CALLS));
    let repairer = Repairer {
        client: client.clone(),
        driver: driver.as_str().into(),
        view_rx: view_rx.clone(),
        leadership_rx: leadership_rx.clone(),
        replaces: config.repair,
        status_rx: status_tx.subscribe(),
        recorder: Repairer::recorder(&client),
    };
    let state = WebhookState {
        client: client.clone(),
        driver: driver.into(),
        view_rx,
        leadership_rx: leadership_rx.clone(),
        gates_rx: gates_rx.clone(),
        rules: rules.into(),
        figures,
        calls,
    };
    let server = ConnectionServer::new(router(state), OLDEST, &tasks);
    let (places, own_tasks) = (Arc::new(Semaphore::new(CONNECTIONS)), tasks.clone());
    tasks.service("webhook", async move {
        serve::accept_tls(listener, tls, places, server, &own_tasks).await;
        Ok(())
    });
    let keeper = CertificateKeeper {
        client,
        config,
        namespace,
        certificate,
        leadership_rx,
        gates_rx,
        status_tx,
        tasks: tasks.clone(),
        shown: None,
    };
    until_stop(&tasks, "webhook certificate", keeper.run());
    until_stop(&tasks, "webhook repair", repairer.run());
    Ok(())
}

/// Runs a service until the process stops. A write that is in flight then has its effect or not; the next leader reads
/// it from the server.
fn until_stop(tasks: &Tasks, name: &'static str, service: impl Future<Output = ()> + Send + 'static) {
    let stop = tasks.stop_token();
    tasks.service(name, async move {
        tokio::select! {
            // Dropped at the end only.
            () = service => {}
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => {}
        }
        Ok(())
    });
}

fn router(state: WebhookState) -> Router {
    Router::new()
        .route("/claims", post(claims))
        .route("/pods", post(pods))
        .with_state(state)
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(from_fn(within_time))
}

/// Limits requests: a slow client loses its place, and a request that announces too many bytes is not read.
async fn within_time(request: Request, next: Next) -> Response {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MOST_BYTES) {
        return (StatusCode::PAYLOAD_TOO_LARGE, "no object is so large\n").into_response();
    }
    let late = |_| (StatusCode::REQUEST_TIMEOUT, "it took too long\n").into_response();
    timeout(WHOLE_TIME, next.run(request)).await.unwrap_or_else(late)
}

/// Reads a question.
fn request_of<T: DeserializeOwned>(body: &[u8]) -> Result<AdmissionRequest<T>, (StatusCode, &'static str)> {
    let review = serde_json::from_slice::<AdmissionReview<T>>(body);
    review.map(|review| review.request).map_err(|error| {
        debug!(error = %error, "a question that is none");
        (StatusCode::BAD_REQUEST, "that is no AdmissionReview of admission.k8s.io/v1\n")
    })
}

async fn pods(State(state): State<WebhookState>, body: Bytes) -> Response {
    let request = match request_of::<Pod>(&body) {
        Ok(request) => request,
        Err(refusal) => return refusal.into_response(),
    };
    let uid = request.uid.clone();
    let answer = request.created_pod().map(|pod| state.answer_about(pod)).unwrap_or_default();
    Json(answer.review(&uid)).into_response()
}

async fn claims(State(state): State<WebhookState>, body: Bytes) -> Response {
    let request = match request_of::<ReviewedClaim>(&body) {
        Ok(request) => request,
        Err(refusal) => return refusal.into_response(),
    };
    let uid = request.uid.clone();
    let answer = timeout(ANSWER_TIME, state.answer(request))
        .await
        .unwrap_or_else(|_| state.unanswered("the API server did not say in time which pod the claim is for"));
    Json(answer.review(&uid)).into_response()
}

impl WebhookState {
    /// Answers about a pod, without a call: the API server waits, and every pod is asked about.
    fn answer_about(&self, mut pod: Pod) -> WebhookAnswer {
        let (view, leadership) = (self.view_rx.borrow().clone(), self.leadership_rx.borrow().clone());
        let phase = *self.gates_rx.borrow();
        let mut answer = translate(&view, &mut pod);
        let gate = GateFacts { view: &view, rules: &self.rules, phase, leadership: &leadership }.answer(&pod);
        if !gate.patch.is_empty() {
            self.figures.gated.fetch_add(1, Ordering::Relaxed);
            debug!(namespace = %pod.metadata.namespace, pod = %pod.metadata.name, "a pod is made with a gate");
        }
        answer.patch.extend(gate.patch);
        answer.warnings.extend(gate.warnings);
        answer
    }

    async fn answer(&self, request: AdmissionRequest<ReviewedClaim>) -> WebhookAnswer {
        let Some(claim) = request.generated_claim() else { return WebhookAnswer::default() };
        let view = self.view_rx.borrow().clone();
        let facts = WebhookFacts { view: &view, own_driver: &self.driver };
        if !facts.concern(&claim) {
            self.figures.untouched.fetch_add(1, Ordering::Relaxed);
            return WebhookAnswer::default();
        }
        // The semaphore is never closed.
        let Ok(_place) = self.calls.acquire().await else { return WebhookAnswer::default() };
        let answer = match pod_of(&self.client, &claim).await {
            Ok(Some(pod)) => facts.answer(&claim, &pod),
            Ok(None) => WebhookAnswer::default(),
            Err(failure) => return self.unanswered(&Chain(&failure).to_string()),
        };
        let is_led = !answer.patch.is_empty();
        let figure = if is_led { &self.figures.led } else { &self.figures.untouched };
        figure.fetch_add(1, Ordering::Relaxed);
        let (namespace, pod) = (&claim.namespace, &claim.pod.name);
        debug!(%namespace, %pod, is_led, warnings = ?answer.warnings, "a claim is made");
        answer
    }

    fn unanswered(&self, error: &str) -> WebhookAnswer {
        self.figures.unanswered.fetch_add(1, Ordering::Relaxed);
        warn!(error, "a claim is made as it is, since it could not be found out whether something is kept for it");
        WebhookAnswer::warning(
            "it could not be found out whether devices are kept for the pod; its claim stays as it is",
        )
    }
}

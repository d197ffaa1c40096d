//! What the controller answers over HTTP: whether it lives, whether it is ready, and figures. Others add their routes to
//! [`router`].

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use hostler_cluster::ApiClient;
use tokio::sync::watch;

use crate::{
    metrics,
    model::{KindStatus, ObservedKind},
    view::ClusterView,
};

/// What routes answer from.
#[derive(Clone, Debug)]
pub(crate) struct ServeState {
    /// What is known of the cluster.
    pub(crate) view_rx: watch::Receiver<Arc<ClusterView>>,
    /// For those who must be asked about.
    #[expect(dead_code, reason = "routes for people with a token ask with it")]
    pub(crate) client: ApiClient,
}

/// All routes.
pub(crate) fn router(state: ServeState) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(figures))
        .with_state(state)
}

async fn readyz(State(state): State<ServeState>) -> Response {
    let view = state.view_rx.borrow().clone();
    let missing: Vec<&str> = view.missing().into_iter().map(ObservedKind::plural).collect();
    let mut lines: Vec<String> = view.kinds.iter().filter_map(|(kind, status)| silence(*kind, status)).collect();
    if missing.is_empty() {
        lines.insert(0, "ok".to_owned());
        return format!("{}\n", lines.join("\n")).into_response();
    }
    lines.insert(0, format!("not listed yet: {}", missing.join(", ")));
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", lines.join("\n"))).into_response()
}

/// What is shown of a kind may not be so any more.
fn silence(kind: ObservedKind, status: &KindStatus) -> Option<String> {
    let (since, why) = status.silent.as_ref()?;
    Some(format!("{}: not heard of for {} s: {why}", kind.plural(), since.elapsed().as_secs()))
}

async fn figures(State(state): State<ServeState>) -> Response {
    let view = state.view_rx.borrow().clone();
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::exposition(&view)).into_response()
}

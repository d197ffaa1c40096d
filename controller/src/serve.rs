//! What the controller answers over HTTP: whether it lives, whether it is ready, figures, the page for people, and the
//! questions that it and the command line put.
//!
//! ```text
//!   /healthz, /readyz, /metrics      for whoever can connect
//!   /, /main.js, …      page         the same for everybody: nothing of the cluster is in it
//!   /v1/…               api          token ──► access: who, and what he may ──► places ──► answer
//! ```

mod access;
mod api;
mod changes;
mod fits;
mod grid;
mod labels;
mod machine;
mod page;
mod places;
mod plans;
mod problem;
mod revisions;

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::from_fn,
    response::{IntoResponse, Response},
    routing::get,
};
use hostler_cluster::ApiClient;
use hostler_process::Tasks;
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
    pub(crate) client: ApiClient,
    /// What answers take time run in.
    pub(crate) tasks: Tasks,
}

/// All routes.
pub(crate) fn router(state: ServeState) -> Router {
    let api = api::routes(&state);
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(figures))
        .with_state(state)
        .merge(page::routes())
        .merge(api)
        .fallback(async || (StatusCode::NOT_FOUND, "there is nothing here\n"))
        .layer(from_fn(page::secured))
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

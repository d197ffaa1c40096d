//! Metrics: for programs on this host, and for clients with a token that the API server lets read them.

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::WWW_AUTHENTICATE},
    response::{IntoResponse, Response},
    routing::get,
};
use hostler_cluster::{FigureReaders, ReaderVerdict};
use hostler_process::figures_response;

use super::{Audience, ServeState, access::bearer, metrics::exposition};

/// The route.
pub(super) fn routes(state: ServeState, audience: Audience) -> Router {
    let route = match audience {
        Audience::ThisHost => get(figures),
        Audience::Network => get(reviewed),
    };
    let readers = FigureReaders::new(state.client.clone());
    Router::new().route("/metrics", route).with_state((state, readers))
}

async fn figures(State((state, _)): State<(ServeState, FigureReaders)>, headers: HeaderMap) -> Response {
    figures_response(&headers, exposition(&state))
}

async fn reviewed(State((state, readers)): State<(ServeState, FigureReaders)>, headers: HeaderMap) -> Response {
    let Some(token) = bearer(&headers) else {
        return unauthorized("a token is needed: Authorization: Bearer TOKEN\n");
    };
    match readers.judge(token).await {
        Ok(ReaderVerdict::Allowed) => figures_response(&headers, exposition(&state)),
        Ok(ReaderVerdict::Forbidden) => (StatusCode::FORBIDDEN, "this token may not get /metrics\n").into_response(),
        Ok(ReaderVerdict::Unknown) => unauthorized("the API server does not know this token\n"),
        // The API server's answer is in the log, and not for strangers.
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "tokens cannot be reviewed now\n").into_response(),
    }
}

fn unauthorized(why: &'static str) -> Response {
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], why).into_response()
}

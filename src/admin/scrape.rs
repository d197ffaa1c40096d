//! Metrics for readers on other hosts: over TLS, and only with a token that the API server knows and that may read
//! them.
//!
//! ```text
//!   TCP ──► TLS, with a certificate of our own ──► token ──► FigureReaders ──► figures
//!                                                    └► 401        └► 401, 403; 503 if the API server cannot be asked
//! ```

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use hostler_api::Chain;
use hostler_process::serve::{self, ConnectionServer, OwnCertificate};
use tokio::{net::TcpListener, time::sleep};
use tracing::{info, warn};

use super::{DaemonStage, metrics, serve::OLDEST};
use crate::{
    descriptors::ServedSocket,
    kubernetes::readers::{FigureReaders, ReaderVerdict, bearer_token},
    tasks::Tasks,
};

/// Pause before the port is tried again. Another process has it, perhaps the daemon that this one replaces.
const BIND_PAUSE: Duration = Duration::from_secs(2);

/// Parts for serving other hosts.
#[derive(Debug)]
pub struct ScrapeParts {
    /// Stage of the daemon whose metrics are served.
    pub stage: DaemonStage,
    /// Address to listen on.
    pub address: SocketAddr,
    /// Readers that may have the metrics.
    pub readers: FigureReaders,
    /// The name in the certificate.
    pub node: String,
}

/// Serves metrics to other hosts until the daemon stops. The daemon does not end if it cannot serve them: its work
/// for pods does not depend on those that look on.
pub fn serve_scrapes(parts: ScrapeParts, tasks: &Tasks) {
    let own_tasks = tasks.clone();
    tasks.job(async move {
        let tls = match serve::own_tls(Arc::new(OwnCertificate::new(parts.node))) {
            Ok(tls) => tls,
            Err(error) => return warn!(error = %Chain(&error), "no figures over the network"),
        };
        let stop = own_tasks.stop_token();
        let listener = tokio::select! {
            // Dropped at the end only.
            listener = bind(parts.address) => listener,
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => return,
        };
        let address = listener.local_addr().unwrap_or(parts.address);
        info!(%address, "figures are served over the network, to readers with a token");
        let routes = Router::new().route("/metrics", get(scrape)).with_state((parts.stage, parts.readers));
        let server = ConnectionServer::new(routes, OLDEST, &own_tasks);
        serve::accept_tls(listener, tls, ServedSocket::Scrapes.connections(), server, &own_tasks).await;
    });
}

/// Binds the address, and tries until it works.
async fn bind(address: SocketAddr) -> TcpListener {
    let mut told = None;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => {
                let error = error.to_string();
                if told.as_ref() != Some(&error) {
                    warn!(%address, error, "no figures over the network yet");
                    told = Some(error);
                }
            }
        }
        sleep(BIND_PAUSE).await;
    }
}

async fn scrape(State((stage, readers)): State<(DaemonStage, FigureReaders)>, headers: HeaderMap) -> Response {
    let Some(token) = bearer(&headers) else { return unauthorized("a token is needed: Authorization: Bearer TOKEN\n") };
    match readers.judge(token).await {
        Ok(ReaderVerdict::Allowed) => metrics(State(stage), headers).await.into_response(),
        Ok(ReaderVerdict::Forbidden) => (StatusCode::FORBIDDEN, "this token may not get /metrics\n").into_response(),
        Ok(ReaderVerdict::Unknown) => unauthorized("the API server does not know this token\n"),
        // The API server's words are in the log; they are nothing for strangers.
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "tokens cannot be reviewed now\n").into_response(),
    }
}

fn unauthorized(why: &'static str) -> Response {
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], why).into_response()
}

/// Returns the token, if the header holds one that is well-formed.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    bearer_token(headers.get(AUTHORIZATION)?.to_str().ok()?)
}

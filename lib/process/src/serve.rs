//! Serves HTTP so that no client keeps others out for long by connecting: places are limited, and a silent client
//! loses its place.
//!
//! ```text
//!   unix socket, of one's own user alone ──► ConnectionServer ──► routes
//!   TCP ──► a place ──► (TLS, our own certificate) ─┘
//! ```

mod certificate;
mod given;
mod private;
mod tcp;

use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::OwnedSemaphorePermit,
    time::{sleep, timeout},
};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::Tasks;

pub use self::{
    certificate::{BACKDATED, CertificateError, OwnCertificate, own_tls},
    given::{GivenCertificate, MadeCertificate, given_tls},
    private::{accept_private, bind_private},
    tcp::{accept, accept_tls},
};

/// Time for the last answer to leave the process.
const LINGER: Duration = Duration::from_millis(500);

/// Time for the head of a request to arrive, the first one or another on the same connection.
const SILENCE: Duration = Duration::from_secs(10);

/// Bytes of a request's head. Names of objects and a token are in it, and nothing longer.
const HEAD_BYTES: usize = 16 << 10;

/// Held by an answer that goes on after it has begun: the stop waits for it as for one that has not begun.
#[derive(Clone, Debug)]
pub struct CallInFlight {
    _token: TaskTrackerToken,
}

/// Serves connections, until the program stops and every request has its answer. A client that has connected and asks
/// for nothing, or has sent half a request, is not waited for, then or before. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionServer {
    routes: Router,
    oldest: Duration,
    /// Requests that are being answered.
    calls: TaskTracker,
    tasks: Tasks,
}

impl ConnectionServer {
    /// A server of `routes` whose connections live for at most `oldest`: a client that does not read an answer would
    /// keep its place for ever.
    pub fn new(routes: Router, oldest: Duration, tasks: &Tasks) -> Self {
        let calls = TaskTracker::new();
        let tracked = calls.clone();
        let routes = routes.layer(from_fn(move |mut request: Request, next: Next| {
            request.extensions_mut().insert(CallInFlight { _token: tracked.token() });
            tracked.track_future(next.run(request))
        }));
        Self { routes, oldest, calls, tasks: tasks.clone() }
    }

    /// Serves one connection for as long as it lives, and keeps its place that long.
    pub fn serve<S>(&self, stream: S, place: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(SILENCE)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(self.routes.clone()));
        let (oldest, calls, stop) = (self.oldest, self.calls.clone(), self.tasks.stop_token());
        let overtime = async move {
            stop.cancelled().await;
            calls.close();
            calls.wait().await;
            sleep(LINGER).await;
        };
        self.tasks.job(async move {
            tokio::select! {
                // Not cancel safe, and dropped only when no client waits for an answer. A failure of a connection is
                // the business of its client.
                _ = timeout(oldest, connection) => {}
                // Cancel safe: it only waits.
                () = overtime => {}
            }
            drop(place);
        });
    }
}

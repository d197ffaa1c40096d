//! Serves routes on a unix socket or a loopback address. Nobody can keep others out for long by connecting: places are
//! limited, and who says nothing loses his.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    serve::Listener,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{AcquireError, OwnedSemaphorePermit, mpsc},
    time::{sleep, timeout},
};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use super::{AdminService, DaemonStage};
use crate::{
    config::ListenAddress,
    descriptors::ServedSocket,
    socket::{AcceptedConnection, ListeningSocket, SocketAccess, SocketError},
    tasks::Tasks,
};

/// For the last answer to leave the process.
const LINGER: Duration = Duration::from_millis(500);

/// How long the head of a request may take to come, the first one or another on the same connection. Every client here is
/// on the same machine.
const SILENCE: Duration = Duration::from_secs(10);

/// How old a connection to figures and probes can get: many answers, and none that takes half as long.
const OLDEST: Duration = Duration::from_secs(60);

/// Bytes of a request's head. Names of claims and devices are in it, and nothing longer.
const HEAD_BYTES: usize = 16 << 10;

/// Why the command line or Prometheus cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket could not be made.
    #[error("failed to listen on {path}")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The failed step.
        #[source]
        source: SocketError,
    },
    /// The address could not be bound.
    #[error("failed to listen on {address}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl ServeError {
    /// Whether another process serves there.
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Socket { source, .. } => matches!(source, SocketError::InUse { .. }),
            Self::Address { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
        }
    }
}

/// Serves the command line on a unix socket until the daemon stops.
///
/// # Errors
/// When the socket cannot be made.
pub async fn serve_admin(admin: AdminService, path: PathBuf, tasks: &Tasks) -> Result<(), ServeError> {
    serve_unix(admin.admin_routes(), path, SocketAccess::Owner, ServedSocket::Admin, tasks).await
}

/// Serves figures and probes until the daemon stops.
///
/// # Errors
/// When the socket cannot be made or the address is taken.
pub async fn serve_metrics(stage: DaemonStage, listen: ListenAddress, tasks: &Tasks) -> Result<(), ServeError> {
    let routes = stage.routes();
    match listen {
        ListenAddress::Off => Ok(()),
        // Figures may be read by the group that the unit names; nothing can be changed here.
        ListenAddress::Unix(path) => serve_unix(routes, path, SocketAccess::Group, ServedSocket::Metrics, tasks).await,
        ListenAddress::Tcp(address) => {
            let listener =
                TcpListener::bind(address).await.map_err(|source| ServeError::Address { address, source })?;
            serve_tcp(routes, listener, tasks);
            Ok(())
        }
    }
}

async fn serve_unix(
    routes: Router,
    path: PathBuf,
    access: SocketAccess,
    served: ServedSocket,
    tasks: &Tasks,
) -> Result<(), ServeError> {
    let socket =
        ListeningSocket::bind_for(path.clone(), access).await.map_err(|source| ServeError::Socket { path, source })?;
    let (connections_tx, mut connections_rx) = mpsc::channel(1);
    tasks.job(socket.accept(connections_tx, served.connections(), tasks.stop_token()));
    let server = ConnectionServer::new(routes, served, tasks);
    tasks.service(server.name(), async move {
        // Ends with the socket, which ends when the daemon stops.
        while let Some(accepted) = connections_rx.recv().await {
            // Whoever accepts tells of failures itself.
            if let Ok(AcceptedConnection { stream, place }) = accepted {
                server.serve(stream, place);
            }
        }
        Ok(())
    });
    Ok(())
}

/// Held by an answer that goes on after it has begun: the stop waits for it as for one that has not.
#[derive(Clone, Debug)]
pub(super) struct CallInFlight {
    _token: TaskTrackerToken,
}

fn serve_tcp(routes: Router, mut listener: TcpListener, tasks: &Tasks) {
    let server = ConnectionServer::new(routes, ServedSocket::Metrics, tasks);
    let (places, stop) = (ServedSocket::Metrics.connections(), tasks.stop_token());
    tasks.service(server.name(), async move {
        loop {
            let accepted = async {
                let place = places.clone().acquire_owned().await?;
                // Waits by itself where the kernel has no descriptor to give.
                Ok::<_, AcquireError>((Listener::accept(&mut listener).await.0, place))
            };
            tokio::select! {
                // Cancel safe: a connection that was not taken stays in the backlog, and a place that was is given back.
                accepted = accepted => {
                    let (stream, place) = accepted?;
                    server.serve(stream, place);
                }
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => return Ok(()),
            }
        }
    });
}

/// Serves connections, until the daemon stops and every request has its answer. Somebody who has connected and asks for
/// nothing, or has sent half a request, is not waited for, then or before.
pub(super) struct ConnectionServer {
    routes: Router,
    served: ServedSocket,
    /// Requests that are being answered.
    calls: TaskTracker,
    tasks: Tasks,
}

impl ConnectionServer {
    pub(super) fn new(routes: Router, served: ServedSocket, tasks: &Tasks) -> Self {
        let calls = TaskTracker::new();
        let tracked = calls.clone();
        let routes = routes.layer(from_fn(move |mut request: Request, next: Next| {
            request.extensions_mut().insert(CallInFlight { _token: tracked.token() });
            tracked.track_future(next.run(request))
        }));
        Self { routes, served, calls, tasks: tasks.clone() }
    }

    fn name(&self) -> &'static str {
        match self.served {
            ServedSocket::Admin => "admin",
            _ => "metrics",
        }
    }

    /// Serves one connection for as long as it lives, and keeps its place that long.
    pub(super) fn serve<S>(&self, stream: S, place: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(SILENCE)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(self.routes.clone()));
        // Whoever does not read an answer would keep it for ever. An order may take its time.
        let age = if self.served == ServedSocket::Admin { Duration::MAX } else { OLDEST };
        let (calls, stop) = (self.calls.clone(), self.tasks.stop_token());
        let overtime = async move {
            stop.cancelled().await;
            calls.close();
            calls.wait().await;
            sleep(LINGER).await;
        };
        self.tasks.job(async move {
            tokio::select! {
                // Not cancel safe, and dropped only when nobody waits for an answer. What goes wrong with a connection is
                // the business of whoever made it.
                _ = timeout(age, connection) => {}
                // Cancel safe: it only waits.
                () = overtime => {}
            }
            drop(place);
        });
    }
}

//! Serves routes on a unix socket or a loopback address.

use std::{future::IntoFuture, io, net::SocketAddr, path::PathBuf, time::Duration};

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    serve::Listener,
};
use tokio::{
    net::{TcpListener, UnixStream},
    sync::mpsc,
    time::sleep,
};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use super::{AdminService, DaemonStage};
use crate::{
    config::ListenAddress,
    socket::{ListeningSocket, SocketAccess, SocketError},
    tasks::Tasks,
};

/// For the last answer to leave the process.
const LINGER: Duration = Duration::from_millis(500);

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
    serve_unix("admin", admin.admin_routes(), path, SocketAccess::Owner, tasks).await
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
        ListenAddress::Unix(path) => serve_unix("metrics", routes, path, SocketAccess::Group, tasks).await,
        ListenAddress::Tcp(address) => {
            let listener =
                TcpListener::bind(address).await.map_err(|source| ServeError::Address { address, source })?;
            serve("metrics", routes, listener, tasks);
            Ok(())
        }
    }
}

async fn serve_unix(
    name: &'static str,
    routes: Router,
    path: PathBuf,
    access: SocketAccess,
    tasks: &Tasks,
) -> Result<(), ServeError> {
    let socket =
        ListeningSocket::bind_for(path.clone(), access).await.map_err(|source| ServeError::Socket { path, source })?;
    let (connections_tx, connections_rx) = mpsc::channel(1);
    let stop = tasks.stop_token();
    tasks.job(socket.accept(connections_tx, stop));
    serve(name, routes, AxumListener(connections_rx), tasks);
    Ok(())
}

/// Held by an answer that goes on after it has begun: the stop waits for it as for one that has not.
#[derive(Clone, Debug)]
pub(super) struct CallInFlight {
    _token: TaskTrackerToken,
}

/// Serves until the daemon stops and every request has its answer. Somebody who has connected and asks for nothing, or
/// has sent half a request, is not waited for.
fn serve<L: Listener<Addr: std::fmt::Debug>>(name: &'static str, routes: Router, listener: L, tasks: &Tasks) {
    let calls = TaskTracker::new();
    let tracked = calls.clone();
    let routes = routes.layer(from_fn(move |mut request: Request, next: Next| {
        request.extensions_mut().insert(CallInFlight { _token: tracked.token() });
        tracked.track_future(next.run(request))
    }));
    let stop = tasks.stop_token();
    let server = axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned()).into_future();
    let overtime = async move {
        stop.cancelled().await;
        calls.close();
        calls.wait().await;
        sleep(LINGER).await;
    };
    tasks.service(name, async move {
        tokio::select! {
            // Not cancel safe, and dropped only when nobody waits for an answer.
            served = server => Ok(served?),
            // Cancel safe: it only waits.
            () = overtime => Ok(()),
        }
    });
}

/// The connections of a [`ListeningSocket`], for axum.
struct AxumListener(mpsc::Receiver<io::Result<UnixStream>>);

impl Listener for AxumListener {
    type Io = UnixStream;
    type Addr = ();

    async fn accept(&mut self) -> (UnixStream, ()) {
        loop {
            match self.0.recv().await {
                Some(Ok(connection)) => return (connection, ()),
                Some(Err(_)) => {}
                // The socket has stopped, and so will the server, which waits for the same token.
                None => std::future::pending().await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

//! Serves routes on a unix socket or a loopback address. No client can keep others out for long by connecting: places
//! are limited, and a client that says nothing loses its place.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use axum::Router;
use hostler_process::serve::{self, ConnectionServer};
use tokio::{net::TcpListener, sync::mpsc};

use super::{AdminService, DaemonStage};
use crate::{
    config::ListenAddress,
    descriptors::ServedSocket,
    socket::{AcceptedConnection, ListeningSocket, SocketAccess, SocketError},
    tasks::Tasks,
};

/// Greatest age of a connection to metrics and probes: many answers, and none that takes half as long.
pub(super) const OLDEST: Duration = Duration::from_secs(60);

/// Reason why the command line or Prometheus cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket could not be made.
    #[error("failed to listen on {path}")]
    Socket {
        /// Path of the socket.
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
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
}

impl ServeError {
    /// True if another process serves there.
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

/// Serves probes on a socket of their own until the daemon stops. The address of metrics is for others too, who may
/// take every place there; a daemon must not be killed for that.
///
/// # Errors
/// When the socket cannot be made.
pub async fn serve_probes(stage: DaemonStage, path: PathBuf, tasks: &Tasks) -> Result<(), ServeError> {
    serve_unix(stage.probe_routes(), path, SocketAccess::Owner, ServedSocket::Probes, tasks).await
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
            let server = ConnectionServer::new(routes, OLDEST, tasks);
            let (places, own_tasks) = (ServedSocket::Metrics.connections(), tasks.clone());
            tasks.service("metrics", async move {
                serve::accept(listener, places, server, &own_tasks).await;
                Ok(())
            });
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
    let (name, oldest) = match served {
        // An order may take its time.
        ServedSocket::Admin => ("admin", Duration::MAX),
        ServedSocket::Probes => ("probes", OLDEST),
        _ => ("metrics", OLDEST),
    };
    let server = ConnectionServer::new(routes, oldest, tasks);
    tasks.service(name, async move {
        // Ends with the socket, which ends when the daemon stops.
        while let Some(accepted) = connections_rx.recv().await {
            // The accepting job tells of failures itself.
            if let Ok(AcceptedConnection { stream, place }) = accepted {
                server.serve(stream, place);
            }
        }
        Ok(())
    });
    Ok(())
}

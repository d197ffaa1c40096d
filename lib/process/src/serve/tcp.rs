//! Connections over TCP, plain or behind TLS.

use std::{sync::Arc, time::Duration};

use hostler_api::Chain;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};
use tracing::warn;

use super::ConnectionServer;
use crate::Tasks;

/// Out of descriptors does not pass within microseconds.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Time for a TLS handshake, which needs three messages.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);

/// Serves connections as they come, as long as there are `places`, until the program stops.
pub async fn accept(listener: TcpListener, places: Arc<Semaphore>, server: ConnectionServer, tasks: &Tasks) {
    let stop = tasks.stop_token();
    loop {
        tokio::select! {
            // Cancel safe: a connection that was not taken stays in the backlog, and a place that was is given back.
            accepted = next(&listener, &places) => match accepted {
                Ok((connection, place)) => server.serve(connection, place),
                // The semaphore is never closed.
                Err(_) => return,
            },
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => return,
        }
    }
}

/// Serves connections like [`accept`], once they speak TLS.
pub async fn accept_tls(
    listener: TcpListener,
    tls: ServerConfig,
    places: Arc<Semaphore>,
    server: ConnectionServer,
    tasks: &Tasks,
) {
    let (acceptor, stop) = (TlsAcceptor::from(Arc::new(tls)), tasks.stop_token());
    loop {
        let accepted = tokio::select! {
            // Cancel safe: a connection that was not taken stays in the backlog, and a place that was is given back.
            accepted = next(&listener, &places) => accepted,
            // Cancel safe: the token stays cancelled.
            () = stop.cancelled() => return,
        };
        // The semaphore is never closed.
        let Ok((connection, place)) = accepted else { return };
        let (acceptor, server, stop) = (acceptor.clone(), server.clone(), stop.clone());
        tasks.job(async move {
            let greeted = async {
                // A client that does not speak TLS is not worth a log line: any host can connect.
                if let Ok(Ok(connection)) = timeout(HANDSHAKE_TIME, acceptor.accept(connection)).await {
                    server.serve(connection, place);
                }
            };
            tokio::select! {
                // Dropped at the end only.
                () = greeted => {}
                // Cancel safe: the token stays cancelled.
                () = stop.cancelled() => {}
            }
        });
    }
}

/// The next connection, when there is a place for it.
async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Result<(TcpStream, OwnedSemaphorePermit), AcquireError> {
    let place = places.clone().acquire_owned().await?;
    loop {
        match listener.accept().await {
            Ok((connection, _)) => return Ok((connection, place)),
            Err(error) => {
                warn!(error = %Chain(&error), "failed to accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

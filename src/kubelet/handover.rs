//! How one daemon follows another without a moment in which the kubelet has none of them.
//!
//! ```text
//!   the one that works                          the one that stands by
//!   told to stop ────── `?` ──────────────────► opens its sockets, is registered and connected
//!   ◄────────────────── `!` ─────────────────── calls reach it now, and wait
//!   sockets go, calls in flight end, lock ────► recovers, answers
//! ```
//!
//! Until that answer the first one works as ever, so nothing waits for the kubelet's pace. Nobody's word is needed: where
//! nobody stands by, or it is not registered in time, the first one goes as it would alone.

use std::{io, path::Path, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{Semaphore, mpsc},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    config::{KubeletSocketPaths, sockets::SUCCESSOR_SUFFIX},
    socket::{self, AcceptedConnection, ListeningSocket, SocketError},
};

/// The kubelet looks for new sockets once a second and needs three calls; a kubelet that is away must not keep the
/// daemon from its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// For calls that the kubelet had begun to make to this daemon when it got to know the next one.
const LAST_CALLS: Duration = Duration::from_millis(200);

/// Connections at once: the daemon that goes makes one.
const CONNECTIONS: usize = 2;

const FOLLOW: &[u8] = b"?";
const REGISTERED: &[u8] = b"!";

/// Has whoever stands by take its place in front of the kubelet, as far as somebody does.
pub async fn hand_over(paths: &KubeletSocketPaths) {
    for path in paths.successor_sockets() {
        match timeout(PATIENCE, registered(&path)).await {
            Ok(Ok(())) => {
                info!("the next daemon is registered with the kubelet");
                sleep(LAST_CALLS).await;
                return;
            }
            Ok(Err(error)) => debug!(path = %path.display(), error = %error, "nobody stands by here"),
            Err(_) => {
                warn!("the next daemon is not registered with the kubelet; going all the same");
                return;
            }
        }
    }
}

async fn registered(path: &Path) -> io::Result<()> {
    let mut connection = UnixStream::connect(path).await?;
    connection.write_all(FOLLOW).await?;
    connection.read_exact(&mut [0]).await.map(drop)
}

/// On which a daemon that stands by is told to follow.
#[derive(Debug)]
pub struct SuccessorSocket(ListeningSocket);

impl SuccessorSocket {
    /// Listens. From now on the daemon that works finds this one, and waits for its answer.
    ///
    /// # Errors
    /// As for every socket.
    pub async fn bind(paths: &KubeletSocketPaths) -> Result<Self, SocketError> {
        socket::remove_dead(&paths.plugin_dir, |name| KubeletSocketPaths::is_ours(name, SUCCESSOR_SUFFIX)).await?;
        ListeningSocket::bind(paths.successor_socket()).await.map(Self)
    }

    /// Answers when the kubelet knows this daemon: `register` sees to that, and ends with it. A kubelet up to 1.31 knows no
    /// second one: then the other need not wait.
    ///
    /// # Errors
    /// What `register` says.
    pub async fn answer(self, mut register: impl AsyncFnMut() -> Result<bool, SocketError>) -> Result<(), SocketError> {
        let (connections_tx, mut connections_rx) = mpsc::channel::<io::Result<AcceptedConnection>>(1);
        let answering = async {
            while let Some(connection) = connections_rx.recv().await {
                let Ok(AcceptedConnection { stream: mut connection, .. }) = connection else { continue };
                // Who only looks whether somebody listens has nothing to say.
                let has_asked = matches!(timeout(PATIENCE, connection.read_exact(&mut [0])).await, Ok(Ok(_)));
                if has_asked && register().await? {
                    // Whoever has gone needs no answer.
                    let _ = connection.write_all(REGISTERED).await;
                }
            }
            Ok(())
        };
        tokio::select! {
            // Cancel safe: it only accepts, and ends with the other.
            () = self.0.accept(connections_tx, Arc::new(Semaphore::new(CONNECTIONS)), CancellationToken::new()) => Ok(()),
            answered = answering => answered,
        }
    }
}

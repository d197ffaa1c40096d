//! Handover from one daemon to the next without a moment in which the kubelet has none of them.
//!
//! ```text
//!   the one that works                          the one that stands by
//!   told to stop ────── `?` ──────────────────► opens its sockets, is registered and connected
//!   ◄────────────────── `!` ─────────────────── calls reach it now, and wait
//!   sockets go, calls in flight end, lock ────► recovers, answers
//! ```
//!
//! Until that answer the first daemon works as ever, so nothing waits for the kubelet's pace. The handover needs no
//! answer: if no daemon stands by, or it is not registered in time, the first daemon ends as it would alone.

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

/// Time for the other daemon's registration. The kubelet looks for new sockets once a second and needs three calls; a
/// kubelet that is away must not keep the daemon from its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for calls that the kubelet had begun to make to this daemon when it got to know the next one.
const LAST_CALLS: Duration = Duration::from_millis(200);

/// Connections at once: the daemon that goes makes one.
const CONNECTIONS: usize = 2;

const FOLLOW: &[u8] = b"?";
const REGISTERED: &[u8] = b"!";

/// Has a daemon that stands by, if there is one, take this daemon's place at the kubelet.
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

/// True if no more bytes can come over the connection. A client asks once.
fn has_hung_up(connection: &UnixStream) -> bool {
    !matches!(connection.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// The socket on which a daemon that stands by is told to follow.
#[derive(Debug)]
pub struct SuccessorSocket(ListeningSocket);

impl SuccessorSocket {
    /// Listens. From now on the working daemon finds this one, and waits for its answer.
    ///
    /// # Errors
    /// As for every socket.
    pub async fn bind(paths: &KubeletSocketPaths) -> Result<Self, SocketError> {
        socket::remove_dead(&paths.plugin_dir, |name| KubeletSocketPaths::is_ours(name, SUCCESSOR_SUFFIX)).await?;
        ListeningSocket::bind(paths.successor_socket()).await.map(Self)
    }

    /// Answers when the kubelet knows this daemon: `register` waits for that. A kubelet up to 1.31 knows no second
    /// daemon of a driver: then the other daemon need not wait.
    ///
    /// # Errors
    /// The errors of `register`.
    pub async fn answer(self, mut register: impl AsyncFnMut() -> Result<bool, SocketError>) -> Result<(), SocketError> {
        let (connections_tx, mut connections_rx) = mpsc::channel::<io::Result<AcceptedConnection>>(1);
        let answering = async {
            while let Some(connection) = connections_rx.recv().await {
                let Ok(AcceptedConnection { stream: mut connection, .. }) = connection else { continue };
                // A client that only tries the socket sends nothing, and one that has hung up waits for no answer any
                // more: the question may have waited for as long as this daemon could not read, and another daemon has
                // followed since.
                let has_asked = matches!(timeout(PATIENCE, connection.read_exact(&mut [0])).await, Ok(Ok(_)));
                if has_asked && !has_hung_up(&connection) && register().await? {
                    // A client that has gone needs no answer.
                    let _ = connection.write_all(REGISTERED).await;
                }
            }
            Ok(())
        };
        tokio::select! {
            // Cancel safe: the future only accepts, and ends with the other.
            () = self.0.accept(connections_tx, Arc::new(Semaphore::new(CONNECTIONS)), CancellationToken::new()) => Ok(()),
            answered = answering => answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        io::{Read, Write},
        os::unix::net::UnixStream as BlockingStream,
    };

    use super::*;

    #[tokio::test]
    async fn a_question_whose_asker_has_gone_is_no_order() {
        let root = tempfile::tempdir().unwrap();
        let paths = KubeletSocketPaths::new("hostler.dev", root.path()).of_new_instance();
        let socket = SuccessorSocket::bind(&paths).await.unwrap();
        // The daemon that stands by is kept from reading: the asker gives up before.
        let ask = || {
            let mut asker = BlockingStream::connect(paths.successor_socket()).unwrap();
            asker.write_all(FOLLOW).unwrap();
            asker
        };
        drop(ask());
        let mut waiting = ask();
        let registered = Cell::new(0);
        let answered = tokio::task::spawn_blocking(move || waiting.read_exact(&mut [0]));
        tokio::select! {
            ended = socket.answer(async || {
                registered.set(registered.get() + 1);
                Ok(true)
            }) => ended.unwrap(),
            answer = answered => answer.unwrap().unwrap(),
        }
        assert_eq!(registered.get(), 1, "only who waits is answered");
    }
}

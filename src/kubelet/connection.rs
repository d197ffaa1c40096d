//! Counts the connections to a socket: the kubelet keeps one for as long as it lives.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
    sync::{OwnedSemaphorePermit, watch},
};
use tonic::transport::server::Connected;

use crate::socket::AcceptedConnection;

/// How many connections there are. Writer: the connections themselves, as they come and go. Readers: status, readiness.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KubeletConnections {
    /// Open now.
    pub open: usize,
    /// When that last changed.
    pub since: Instant,
}

impl Default for KubeletConnections {
    fn default() -> Self {
        Self { open: 0, since: Instant::now() }
    }
}

/// A connection that is counted until it is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    stream: UnixStream,
    count: watch::Sender<KubeletConnections>,
    _place: OwnedSemaphorePermit,
}

impl CountedConnection {
    pub(super) fn new(accepted: AcceptedConnection, count: watch::Sender<KubeletConnections>) -> Self {
        count.send_modify(|now| *now = KubeletConnections { open: now.open + 1, since: Instant::now() });
        Self { stream: accepted.stream, count, _place: accepted.place }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.count
            .send_modify(|now| *now = KubeletConnections { open: now.open.saturating_sub(1), since: Instant::now() });
    }
}

impl Connected for CountedConnection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for CountedConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_connection_counts_until_it_is_dropped() {
        let count = watch::Sender::new(KubeletConnections::default());
        let (one, _other) = UnixStream::pair().unwrap();
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let connection = CountedConnection::new(AcceptedConnection { stream: one, place }, count.clone());
        assert_eq!(count.borrow().open, 1);
        let since = count.borrow().since;
        drop(connection);
        assert_eq!(count.borrow().open, 0);
        assert!(count.borrow().since >= since);
    }
}

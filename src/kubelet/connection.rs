//! Counts the connections to a socket, and rewrites their calls so that every client is served: a kubelet keeps one
//! connection for as long as it lives, and a kubelet before 1.30 makes one for each call.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
    sync::{OwnedSemaphorePermit, watch},
};
use tonic::transport::server::Connected;

use super::authority::AuthorityMender;
use crate::socket::AcceptedConnection;

/// Bytes that are read at once: calls have fewer.
const READ: usize = 4 << 10;

/// Age from which a connection is a kept one, not made for a single call: kubelets wait 45 s for a call at most.
const KEPT: Duration = Duration::from_secs(60);

/// Number of connections. Writer: the connections themselves, as they come and go. Readers: status, readiness.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KubeletConnections {
    /// Number of open connections.
    pub open: usize,
    /// Time of the last change of that number.
    pub since: Instant,
    /// True if the kubelet has kept a connection since it last registered the plugin. Kubelets before 1.34 connect when
    /// they call, and some of them for each call: no connection then means nothing.
    pub kept: bool,
}

impl Default for KubeletConnections {
    fn default() -> Self {
        Self { open: 0, since: Instant::now(), kept: false }
    }
}

/// A connection that is counted until it is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    stream: UnixStream,
    mender: AuthorityMender,
    /// Bytes that were read and not handed on yet.
    mended: Vec<u8>,
    opened: Instant,
    count: watch::Sender<KubeletConnections>,
    _place: OwnedSemaphorePermit,
}

impl CountedConnection {
    pub(super) fn new(accepted: AcceptedConnection, count: watch::Sender<KubeletConnections>) -> Self {
        let opened = Instant::now();
        count.send_modify(|now| *now = KubeletConnections { open: now.open + 1, since: opened, ..*now });
        let (mender, mended) = (AuthorityMender::default(), Vec::new());
        Self { stream: accepted.stream, mender, mended, opened, count, _place: accepted.place }
    }

    /// Reads until there are bytes to hand on, or the connection has ended.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.mended.is_empty() {
            let mut room = [0; READ];
            let mut read = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                break;
            }
            self.mender.take_in(read.filled(), &mut self.mended);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let was_kept = self.opened.elapsed() >= KEPT;
        self.count.send_modify(|now| {
            let (open, kept) = (now.open.saturating_sub(1), now.kept || was_kept);
            *now = KubeletConnections { open, since: Instant::now(), kept };
        });
    }
}

impl Connected for CountedConnection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for CountedConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_fill(cx))?;
        let now = self.mended.len().min(buf.remaining());
        buf.put_slice(&self.mended[..now]);
        self.mended.drain(..now);
        Poll::Ready(Ok(()))
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
        assert_eq!((count.borrow().open, count.borrow().kept), (0, false));
        assert!(count.borrow().since >= since);
    }
}

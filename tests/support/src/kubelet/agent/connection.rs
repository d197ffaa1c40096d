//! The one connection that the kubelet keeps to a driver's service: watched, and made anew as soon as it breaks.

use std::{
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
    sync::{oneshot, watch},
    time::{sleep, timeout},
};
use tonic::transport::{Channel, Endpoint, Uri};

use super::times::{Backoff, KubeletTimes};
use crate::kubelet::{DIAL, KubeletComplaint, KubeletResult, complain};

/// The state of a connection.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionState {
    /// The first dial has not ended.
    Connecting,
    /// Calls can be made.
    Ready(Channel),
    /// There is no answer; the next dial comes later.
    Down,
}

/// A stream that tells when it is let go.
struct WatchedStream {
    stream: UnixStream,
    /// Dropped with the stream; the other end notices.
    _closed_tx: oneshot::Sender<()>,
}

impl AsyncRead for WatchedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connection that ends for good when the other side ends it, and then resolves `closed_rx`.
async fn dial(path: &Path, authority: &str) -> KubeletResult<(Channel, oneshot::Receiver<()>)> {
    let fail = |error: &dyn std::fmt::Display| KubeletComplaint(format!("failed to dial {}: {error}", path.display()));
    let uri: Uri = format!("http://{authority}").parse().map_err(|error| fail(&error))?;
    let stream = UnixStream::connect(path).await.map_err(|error| fail(&error))?;
    let (closed_tx, closed_rx) = oneshot::channel();
    let once = Arc::new(Mutex::new(Some(WatchedStream { stream, _closed_tx: closed_tx })));
    let connect = tower::service_fn(move |_: Uri| {
        // The library would reconnect with each call; the kubelet decides that itself.
        let stream = once.lock().expect("nothing panics here").take();
        async move { stream.map(TokioIo::new).ok_or_else(|| io::Error::other("the connection has ended")) }
    });
    match timeout(DIAL, Endpoint::from(uri).connect_with_connector(connect)).await {
        Ok(Ok(channel)) => Ok((channel, closed_rx)),
        Ok(Err(error)) => Err(fail(&error)),
        Err(_) => complain(format!("{} did not answer the dial in {DIAL:?}", path.display())),
    }
}

/// Keeps a connection until it is dropped; every change of state stands in `state_tx`.
pub(crate) async fn keep(
    endpoint: PathBuf,
    authority: String,
    times: KubeletTimes,
    state_tx: watch::Sender<ConnectionState>,
) {
    let fresh = || Backoff::dialling(times.redial_first, times.redial_last);
    let mut backoff = fresh();
    loop {
        match dial(&endpoint, &authority).await {
            Ok((channel, closed_rx)) => {
                state_tx.send_replace(ConnectionState::Ready(channel));
                // It never gets a message: this is the end of the stream.
                let _ = closed_rx.await;
                state_tx.send_replace(ConnectionState::Down);
                backoff = fresh();
            }
            Err(_) => {
                state_tx.send_replace(ConnectionState::Down);
                sleep(backoff.next()).await;
            }
        }
    }
}

/// The channel for a call: waits for a dial that is under way, as gRPC does, and for nothing else.
pub(crate) async fn channel(mut state_rx: watch::Receiver<ConnectionState>) -> KubeletResult<Channel> {
    let settled = state_rx.wait_for(|state| !matches!(state, ConnectionState::Connecting)).await;
    match settled.as_deref() {
        Ok(ConnectionState::Ready(channel)) => Ok(channel.clone()),
        _ => complain("Unavailable: the driver's service is not connected"),
    }
}

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

use super::{
    kubelet::{Checked, Complaint, DIAL, complain},
    times::{Backoff, Times},
};

/// Where a connection stands.
#[derive(Clone, Debug)]
pub enum State {
    /// The first dial has not ended.
    Connecting,
    /// Calls can be made.
    Ready(Channel),
    /// Nobody answers; the next dial comes later.
    Down,
}

/// A stream that tells when it is let go.
struct Watched {
    stream: UnixStream,
    /// Dropped with the stream; the other end notices.
    _closed_tx: oneshot::Sender<()>,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Watched {
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
async fn dial(path: &Path, authority: &str) -> Checked<(Channel, oneshot::Receiver<()>)> {
    let fail = |error: &dyn std::fmt::Display| Complaint(format!("failed to dial {}: {error}", path.display()));
    let uri: Uri = format!("http://{authority}").parse().map_err(|error| fail(&error))?;
    let stream = UnixStream::connect(path).await.map_err(|error| fail(&error))?;
    let (closed_tx, closed_rx) = oneshot::channel();
    let once = Arc::new(Mutex::new(Some(Watched { stream, _closed_tx: closed_tx })));
    let connect = tower::service_fn(move |_: Uri| {
        // The library would reconnect whenever somebody calls; the kubelet decides that itself.
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
pub async fn keep(endpoint: PathBuf, authority: String, times: Times, state_tx: watch::Sender<State>) {
    let fresh = || Backoff::dialling(times.redial_first, times.redial_last);
    let mut backoff = fresh();
    loop {
        match dial(&endpoint, &authority).await {
            Ok((channel, closed_rx)) => {
                state_tx.send_replace(State::Ready(channel));
                // It never gets a message: this is the end of the stream.
                let _ = closed_rx.await;
                state_tx.send_replace(State::Down);
                backoff = fresh();
            }
            Err(_) => {
                state_tx.send_replace(State::Down);
                sleep(backoff.next()).await;
            }
        }
    }
}

/// The channel for a call: waits for a dial that is under way, as gRPC does, and for nothing else.
pub async fn channel(mut state_rx: watch::Receiver<State>) -> Checked<Channel> {
    let settled = state_rx.wait_for(|state| !matches!(state, State::Connecting)).await;
    match settled.as_deref() {
        Ok(State::Ready(channel)) => Ok(channel.clone()),
        _ => complain("Unavailable: the driver's service is not connected"),
    }
}

//! The socket of a runtime: messages in, messages out.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use hostler_proto::nri::{
    mux::{self, Connection, Demultiplexer, FrameError},
    ttrpc::{Message, MessageError},
};
use tokio::{io::AsyncWriteExt, net::UnixStream, time::timeout};

/// Time for the runtime to read a message. It reads all the time; one that does not is stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that are read at once.
const PIECE_BYTES: usize = 16 << 10;

/// Error that makes a connection useless.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// There is no listener.
    #[error("failed to connect to {path}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// The other side has gone.
    #[error("the runtime has hung up")]
    Closed,
    /// The runtime does not keep to the protocol.
    #[error("the runtime does not speak NRI")]
    Frame(#[source] FrameError),
    /// The message cannot be encoded.
    #[error("failed to encode a message")]
    Encode(#[source] MessageError),
    /// The kernel does not take or give a message.
    #[error("failed to talk to the runtime")]
    Io(#[source] io::Error),
    /// The runtime does not read any more.
    #[error("the runtime has not read for {} s", PATIENCE.as_secs())]
    Stalled,
}

impl LinkError {
    /// True if there is no runtime that could be talked to.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::Connect { source, .. }
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused))
    }
}

/// A connection with a runtime.
#[derive(Debug)]
pub(super) struct RuntimeLink {
    stream: UnixStream,
    demultiplexer: Demultiplexer,
}

impl RuntimeLink {
    pub(super) async fn connect(path: &Path) -> Result<Self, LinkError> {
        let stream = UnixStream::connect(path).await;
        let stream = stream.map_err(|source| LinkError::Connect { path: path.to_owned(), source })?;
        Ok(Self { stream, demultiplexer: Demultiplexer::default() })
    }

    /// The next message. Cancel safe: bytes that were read are kept, and nothing is read and not kept.
    pub(super) async fn next(&mut self) -> Result<(Connection, Message), LinkError> {
        loop {
            if let Some(next) = self.demultiplexer.next_message().map_err(LinkError::Frame)? {
                return Ok(next);
            }
            self.stream.readable().await.map_err(LinkError::Io)?;
            self.read()?;
        }
    }

    fn read(&mut self) -> Result<(), LinkError> {
        let mut piece = [0; PIECE_BYTES];
        match self.stream.try_read(&mut piece) {
            Ok(0) => Err(LinkError::Closed),
            Ok(bytes) => {
                self.demultiplexer.push(&piece[..bytes]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(LinkError::Closed),
            Err(error) => Err(LinkError::Io(error)),
        }
    }

    /// Sends a message. Not cancel safe: half of a message would be the end of the connection.
    pub(super) async fn send(&mut self, connection: Connection, message: &Message) -> Result<(), LinkError> {
        let frames = mux::encode(connection, message).map_err(LinkError::Encode)?;
        match timeout(PATIENCE, self.stream.write_all(&frames)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(LinkError::Closed),
            Ok(Err(error)) => Err(LinkError::Io(error)),
            Err(_) => Err(LinkError::Stalled),
        }
    }
}

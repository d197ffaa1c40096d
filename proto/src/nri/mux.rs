//! Two connections on one Unix socket: frames of `connection, u32 │ length, u32 │ payload`, big-endian. Pure.
//!
//! A frame carries any piece of a connection's bytes, so readers put pieces together. Writers have to be more
//! careful: a runtime hands the payload of one frame to one read of its ttrpc, and fails when it is longer than the
//! buffer of that read. See [`encode`].

use std::fmt;

use super::ttrpc::{self, Message, MessageError};

/// Bytes in front of a frame's payload.
pub const HEADER_BYTES: usize = 8;

/// The most that one frame carries: one whole message of ttrpc.
pub const MOST_PAYLOAD_BYTES: usize = ttrpc::HEADER_BYTES + ttrpc::MOST_DATA_BYTES;

/// Bytes that a runtime's ttrpc reads at once while it does not know the length of a message.
const FIRST_PAYLOAD_BYTES: usize = 4096;

/// One of the two connections.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Connection {
    /// The runtime calls the plugin.
    Plugin,
    /// The plugin calls the runtime.
    Runtime,
}

/// Reason why the bytes of a socket are not frames. Nothing after them can be understood.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FrameError {
    /// Longer than any message.
    TooLong {
        /// Bytes of payload.
        bytes: usize,
    },
    /// A connection does not carry messages.
    Message(MessageError),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => {
                write!(f, "a frame of {bytes} bytes, more than the {MOST_PAYLOAD_BYTES} that are allowed")
            }
            Self::Message(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FrameError {}

impl Connection {
    /// Number of the connection in frames.
    pub fn id(self) -> u32 {
        match self {
            Self::Plugin => 1,
            Self::Runtime => 2,
        }
    }
}

/// The frames of one message.
///
/// A runtime reads 4096 bytes first, then exactly what the message still lacks. So the first frame carries no more
/// than that, the second one all the rest, and no frame carries two messages.
///
/// # Errors
/// When the message is too long for ttrpc.
pub fn encode(connection: Connection, message: &Message) -> Result<Vec<u8>, MessageError> {
    let bytes = message.encode()?;
    let (first, rest) = bytes.split_at(bytes.len().min(FIRST_PAYLOAD_BYTES));
    let mut frames = Vec::with_capacity(bytes.len() + 2 * HEADER_BYTES);
    for payload in [first, rest].into_iter().filter(|payload| !payload.is_empty()) {
        frames.extend(connection.id().to_be_bytes());
        frames.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
        frames.extend(payload);
    }
    Ok(frames)
}

/// Puts together the bytes of a socket. Holds one frame and, of each connection, one message at most.
#[derive(Debug, Default)]
pub struct Demultiplexer {
    trunk: Vec<u8>,
    plugin: Vec<u8>,
    runtime: Vec<u8>,
}

impl Demultiplexer {
    /// Takes bytes that were read. Take messages out before reading on: that keeps the buffers small.
    pub fn push(&mut self, bytes: &[u8]) {
        self.trunk.extend_from_slice(bytes);
    }

    /// The next message that is there whole, and its connection.
    ///
    /// # Errors
    /// When the other side does not keep to the protocol. The socket is then of no use any more.
    pub fn next_message(&mut self) -> Result<Option<(Connection, Message)>, FrameError> {
        loop {
            for connection in [Connection::Plugin, Connection::Runtime] {
                if let Some(message) = Message::take(self.bytes_of(connection)).map_err(FrameError::Message)? {
                    return Ok(Some((connection, message)));
                }
            }
            if !self.take_frame()? {
                return Ok(None);
            }
        }
    }

    fn bytes_of(&mut self, connection: Connection) -> &mut Vec<u8> {
        match connection {
            Connection::Plugin => &mut self.plugin,
            Connection::Runtime => &mut self.runtime,
        }
    }

    /// Takes one frame; returns false while none is there whole. Frames of other connections are skipped: those are
    /// for later versions.
    fn take_frame(&mut self) -> Result<bool, FrameError> {
        let &[c0, c1, c2, c3, l0, l1, l2, l3, ref rest @ ..] = self.trunk.as_slice() else { return Ok(false) };
        let bytes = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if bytes > MOST_PAYLOAD_BYTES {
            return Err(FrameError::TooLong { bytes });
        }
        let Some(payload) = rest.get(..bytes) else { return Ok(false) };
        match u32::from_be_bytes([c0, c1, c2, c3]) {
            1 => self.plugin.extend_from_slice(payload),
            2 => self.runtime.extend_from_slice(payload),
            _ => {}
        }
        self.trunk.drain(..HEADER_BYTES + bytes);
        self.trunk.shrink_to(ttrpc::KEPT_BYTES);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nri::ttrpc::MessageKind;

    fn message(stream: u32, bytes: usize) -> Message {
        Message { stream, kind: MessageKind::Request, data: vec![5; bytes] }
    }

    /// What the frames in `bytes` carry, by length.
    fn payloads(mut bytes: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while let [_, _, _, _, l0, l1, l2, l3, rest @ ..] = bytes {
            let length = u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize;
            lengths.push(length);
            bytes = &rest[length..];
        }
        lengths
    }

    #[test]
    fn a_frame_names_its_connection_and_its_length() {
        let frames = encode(Connection::Runtime, &message(1, 1)).unwrap();
        assert_eq!(frames, [0, 0, 0, 2, 0, 0, 0, 11, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 5]);
    }

    #[test]
    fn a_long_message_comes_in_the_two_pieces_that_a_runtime_reads() {
        for (data, expected) in [
            (0, vec![10]),
            (4086, vec![4096]),
            (4087, vec![4096, 1]),
            (20_000, vec![4096, 15_914]),
            (ttrpc::MOST_DATA_BYTES, vec![4096, MOST_PAYLOAD_BYTES - 4096]),
        ] {
            assert_eq!(payloads(&encode(Connection::Plugin, &message(1, data)).unwrap()), expected, "{data}");
        }
    }

    #[test]
    fn pieces_of_any_size_become_the_messages_that_were_sent() {
        let sent = [
            (Connection::Plugin, message(1, 3)),
            (Connection::Runtime, message(3, 9000)),
            (Connection::Plugin, message(5, 0)),
            (Connection::Runtime, message(7, 5000)),
        ];
        let bytes: Vec<u8> =
            sent.iter().flat_map(|(connection, message)| encode(*connection, message).unwrap()).collect();
        for size in [1, 7, 4096, bytes.len()] {
            let (mut demultiplexer, mut found) = (Demultiplexer::default(), Vec::new());
            for piece in bytes.chunks(size) {
                demultiplexer.push(piece);
                while let Some(next) = demultiplexer.next_message().unwrap() {
                    found.push(next);
                }
            }
            assert_eq!(found, sent, "{size}");
        }
    }

    #[test]
    fn connections_of_later_versions_are_skipped() {
        let mut demultiplexer = Demultiplexer::default();
        demultiplexer.push(&[0, 0, 0, 9, 0, 0, 0, 3, 1, 2, 3]);
        demultiplexer.push(&encode(Connection::Plugin, &message(1, 2)).unwrap());
        assert_eq!(demultiplexer.next_message(), Ok(Some((Connection::Plugin, message(1, 2)))));
        assert_eq!(demultiplexer.next_message(), Ok(None));
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_its_payload_is_there() {
        let mut demultiplexer = Demultiplexer::default();
        demultiplexer.push(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(demultiplexer.next_message(), Err(FrameError::TooLong { bytes: u32::MAX as usize }));
        let mut demultiplexer = Demultiplexer::default();
        demultiplexer.push(&[0, 0, 0, 1, 0, 0, 0, 10, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]);
        assert!(matches!(demultiplexer.next_message(), Err(FrameError::Message(MessageError::TooLong { .. }))));
    }
}

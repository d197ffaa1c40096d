//! The two layers under NRI, each as strict as the runtimes' own: logical connections over one socket, and ttrpc's
//! messages in them. Written for the tests alone: the product's own framing cannot lend it its mistakes.
//!
//! ```text
//!   trunk:    connection id (4) | length (4) | bytes                                 one frame
//!   message:  length (4) | stream id (4) | type (1) | flags (1) | protobuf           in one frame or more
//! ```

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
};

use prost::Message;

/// The connection on which the plugin serves, and the runtime calls.
pub const PLUGIN_SERVICE: u32 = 1;
/// The connection on which the runtime serves, and the plugin calls.
pub const RUNTIME_SERVICE: u32 = 2;
/// More than this is no message.
pub(super) const LARGEST_MESSAGE: usize = 4 << 20;
/// Bytes that runtimes read and write at once.
const BUFFER: usize = 4096;
/// Frames of one connection that a runtime keeps for its reader; one more, and it hangs up.
const QUEUE: usize = 256;
const HEADER: usize = 10;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;

/// A call, as ttrpc carries it.
#[derive(Clone, PartialEq, Message)]
pub struct RpcRequest {
    /// The service, with its package.
    #[prost(string, tag = "1")]
    pub service: String,
    /// The method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The encoded argument.
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    /// The caller's deadline.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

/// The answer to a call.
#[derive(Clone, PartialEq, Message)]
pub struct RpcResponse {
    /// The error; absent after success.
    #[prost(message, optional, tag = "1")]
    pub status: Option<RpcStatus>,
    /// The encoded result.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// The status of a call, as in gRPC.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    /// gRPC's code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The message of the error.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// A message, without what is in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RawMessage {
    /// The stream of the call.
    pub stream: u32,
    /// True for a request.
    pub is_request: bool,
    /// The rest.
    pub payload: Vec<u8>,
}

/// The socket, with the frames of all logical connections.
pub struct Trunk {
    stream: UnixStream,
    writing: Mutex<()>,
    closed: AtomicBool,
}

impl Trunk {
    /// The trunk of an accepted connection.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, writing: Mutex::new(()), closed: AtomicBool::new(false) }
    }

    /// Ends all connections; the other side notices.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Returns true if it has ended, for any reason.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Writes bytes that need be no frames.
    pub fn write_raw(&self, bytes: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap();
        (&self.stream).write_all(bytes)
    }

    /// Returns a frame of a logical connection.
    pub fn frame(connection: u32, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap();
        [&connection.to_be_bytes()[..], &length.to_be_bytes()[..], bytes].concat()
    }

    /// A message as the runtimes cut it: what fits their buffer, and the rest.
    pub fn write_message(&self, connection: u32, message: &RawMessage) -> io::Result<()> {
        let bytes = message.encode();
        let (first, rest) = bytes.split_at(bytes.len().min(BUFFER));
        let mut frames = Self::frame(connection, first);
        if !rest.is_empty() {
            frames.extend(Self::frame(connection, rest));
        }
        self.write_raw(&frames)
    }

    /// Hands out messages until the socket ends. Frames of connections that were not opened are dropped.
    pub fn pump(&self, connections: Vec<(u32, SyncSender<Vec<u8>>)>) -> Result<(), String> {
        let ended = self.pump_frames(&connections);
        self.close();
        ended
    }

    fn pump_frames(&self, connections: &[(u32, SyncSender<Vec<u8>>)]) -> Result<(), String> {
        let mut header = [0; 8];
        while (&self.stream).read_exact(&mut header).is_ok() {
            let (id, length) = header.split_at(4);
            let [id, length] = [id, length].map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
            if length as usize > LARGEST_MESSAGE + HEADER {
                return Err(format!("a frame of {length} bytes"));
            }
            let mut frame = vec![0; length as usize];
            if (&self.stream).read_exact(&mut frame).is_err() {
                return Ok(());
            }
            let Some((_, frames)) = connections.iter().find(|(known, _)| *known == id) else { continue };
            match frames.try_send(frame) {
                Ok(()) => {}
                Err(TrySendError::Disconnected(_)) => return Ok(()),
                Err(TrySendError::Full(_)) => return Err(format!("more than {QUEUE} frames wait on connection {id}")),
            }
        }
        Ok(())
    }
}

/// A queue of frames that is as long as a runtime's.
pub(super) fn frame_queue() -> (SyncSender<Vec<u8>>, Receiver<Vec<u8>>) {
    sync_channel(QUEUE)
}

/// Reads messages from frames as the runtimes do: into a buffer, or straight into the message. A frame that fits
/// neither is an error there, so one has to know what they read next: a frame ends no later than the buffer or the
/// message.
pub(super) struct MessageReader {
    frames: Receiver<Vec<u8>>,
    buffer: Vec<u8>,
}

impl MessageReader {
    /// A reader of a logical connection.
    pub(super) fn new(frames: Receiver<Vec<u8>>) -> Self {
        Self { frames, buffer: Vec::new() }
    }

    /// The next message; `None` where the connection has ended.
    ///
    /// # Errors
    /// What a runtime would have to complain of.
    pub(super) fn next(&mut self) -> Result<Option<RawMessage>, String> {
        let Some(header) = self.read(HEADER)? else { return Ok(None) };
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let (length, stream) = (number(0) as usize, number(4));
        if length > LARGEST_MESSAGE {
            return Err(format!("a message of {length} bytes"));
        }
        let is_request = match header[8] {
            REQUEST => true,
            RESPONSE => false,
            other => return Err(format!("a message of type {other}")),
        };
        Ok(self.read(length)?.map(|payload| RawMessage { stream, is_request, payload }))
    }

    fn read(&mut self, wanted: usize) -> Result<Option<Vec<u8>>, String> {
        let mut read = Vec::with_capacity(wanted);
        while read.len() < wanted {
            if self.buffer.is_empty() {
                let room = BUFFER.max(wanted - read.len());
                let Ok(frame) = self.frames.recv() else { return Ok(None) };
                if frame.len() > room {
                    return Err(format!("a frame of {} bytes where {room} are read", frame.len()));
                }
                self.buffer = frame;
            }
            let taken = self.buffer.len().min(wanted - read.len());
            read.extend(self.buffer.drain(..taken));
        }
        Ok(Some(read))
    }
}

impl RawMessage {
    /// A call.
    pub fn request(stream: u32, request: &RpcRequest) -> Self {
        Self { stream, is_request: true, payload: request.encode_to_vec() }
    }

    /// An answer.
    pub fn response(stream: u32, response: &RpcResponse) -> Self {
        Self { stream, is_request: false, payload: response.encode_to_vec() }
    }

    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).unwrap();
        let kind = if self.is_request { REQUEST } else { RESPONSE };
        [&length.to_be_bytes()[..], &self.stream.to_be_bytes()[..], &[kind, 0], &self.payload].concat()
    }
}

impl RpcResponse {
    /// A failure, with gRPC's code.
    pub fn failure(code: i32, message: impl Into<String>) -> Self {
        Self { status: Some(RpcStatus { code, message: message.into() }), payload: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(frames: &[&[u8]]) -> Result<Option<RawMessage>, String> {
        let (frames_tx, frames_rx) = frame_queue();
        frames.iter().for_each(|frame| frames_tx.send(frame.to_vec()).unwrap());
        drop(frames_tx);
        MessageReader::new(frames_rx).next()
    }

    #[test]
    fn a_message_may_be_cut_anywhere_and_a_frame_must_fit_what_is_read() {
        let message = RawMessage { stream: 3, is_request: true, payload: vec![7; 10_000] };
        let bytes = message.encode();
        for (first, second) in [(4096, 10_010), (10, 10_010), (1, 4096)] {
            let frames = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            assert_eq!(read(&frames).unwrap().as_ref(), Some(&message), "{first}, {second}");
        }
        // Header and message at once are more than the buffer, and the header is read first.
        assert!(read(&[&bytes]).unwrap_err().contains("where 4096 are read"));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert!(read(&[&[0xff; 10]]).unwrap_err().contains("a message of 4294967295 bytes"));
        assert!(read(&[&[0, 0, 0, 0, 0, 0, 0, 1, 9, 0]]).unwrap_err().contains("type 9"));
        assert_eq!(read(&[&[0; 5]]).unwrap(), None);
    }
}

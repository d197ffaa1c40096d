//! ttrpc: messages on a stream of bytes, and calls in messages. Pure: reading and writing are left to the caller.
//!
//! ```text
//!   length of the data, u32 │ stream, u32 │ kind, u8 │ flags, u8 │ data          all numbers big-endian
//! ```
//!
//! A call is one request and one response on a stream with an odd number that the caller chooses. Streams of data are
//! part of ttrpc and not of NRI.

use prost::Message as _;

#[allow(clippy::all, clippy::pedantic, missing_docs, missing_debug_implementations, unreachable_pub)]
mod messages {
    include!("../gen/ttrpc.rs");
}

pub use messages::{KeyValue, Request, Response, Status};

/// Bytes in front of a message's data.
pub const HEADER_BYTES: usize = 10;

/// The most data of one message; ttrpc's own limit, which the other side keeps too.
pub const MOST_DATA_BYTES: usize = 4 << 20;

/// Capacity that a buffer keeps when it is empty.
pub(super) const KEPT_BYTES: usize = 64 << 10;

/// gRPC's status codes, as far as they are told apart here.
pub mod code {
    /// Nothing is wrong.
    pub const OK: i32 = 0;
    /// The call failed, for a reason in words.
    pub const UNKNOWN: i32 = 2;
    /// The call took too long.
    pub const DEADLINE_EXCEEDED: i32 = 4;
    /// A message was too long.
    pub const RESOURCE_EXHAUSTED: i32 = 8;
    /// The state of things does not allow it.
    pub const FAILED_PRECONDITION: i32 = 9;
    /// There is no such method.
    pub const UNIMPLEMENTED: i32 = 12;
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MessageKind {
    /// Begins a call.
    Request,
    /// Ends a call.
    Response,
}

/// One message of a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// Call that the message belongs to.
    pub stream: u32,
    /// Kind of the message.
    pub kind: MessageKind,
    /// An encoded [`Request`] or [`Response`].
    pub data: Vec<u8>,
}

/// Reason why bytes are not a message. Nothing after them can be understood.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MessageError {
    /// Longer than ttrpc allows.
    TooLong {
        /// Bytes of data.
        bytes: usize,
    },
    /// Neither a request nor a response.
    UnknownKind {
        /// Kind that was found.
        kind: u8,
    },
}

impl std::fmt::Display for MessageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { bytes } => {
                write!(f, "a ttrpc message of {bytes} bytes, more than the {MOST_DATA_BYTES} that are allowed")
            }
            Self::UnknownKind { kind } => write!(f, "a ttrpc message of the unknown kind {kind}"),
        }
    }
}

impl std::error::Error for MessageError {}

impl Message {
    /// A call of `method` of `service` on `stream`.
    pub fn request(stream: u32, service: &str, method: &str, payload: &impl prost::Message) -> Self {
        let request = Request {
            service: service.to_owned(),
            method: method.to_owned(),
            payload: payload.encode_to_vec(),
            ..Request::default()
        };
        Self { stream, kind: MessageKind::Request, data: request.encode_to_vec() }
    }

    /// The answer to the call on `stream`.
    pub fn response(stream: u32, payload: &impl prost::Message) -> Self {
        Self::answer(stream, Ok(payload.encode_to_vec()))
    }

    /// The refusal of the call on `stream`.
    pub fn refusal(stream: u32, code: i32, message: impl Into<String>) -> Self {
        Self::answer(stream, Err(Status { code, message: message.into() }))
    }

    /// The encoded answer to the call on `stream`, or its refusal.
    pub fn answer(stream: u32, outcome: Result<Vec<u8>, Status>) -> Self {
        let response = match outcome {
            // Without a status, as others send it.
            Ok(payload) => Response { status: None, payload },
            Err(status) => Response { status: Some(status), payload: Vec::new() },
        };
        Self { stream, kind: MessageKind::Response, data: response.encode_to_vec() }
    }

    /// Header and data.
    ///
    /// # Errors
    /// When there is more data than the other side takes.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        let length = self.data.len();
        if length > MOST_DATA_BYTES {
            return Err(MessageError::TooLong { bytes: length });
        }
        let kind = match self.kind {
            MessageKind::Request => 1,
            MessageKind::Response => 2,
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + length);
        bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend([kind, 0]);
        bytes.extend(&self.data);
        Ok(bytes)
    }

    /// Takes the first message out of the bytes of a connection; `None` as long as it is not there whole.
    ///
    /// # Errors
    /// When the bytes cannot become a message.
    pub fn take(bytes: &mut Vec<u8>) -> Result<Option<Self>, MessageError> {
        let &[l0, l1, l2, l3, s0, s1, s2, s3, kind, _flags, ref rest @ ..] = bytes.as_slice() else { return Ok(None) };
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length > MOST_DATA_BYTES {
            return Err(MessageError::TooLong { bytes: length });
        }
        let kind = match kind {
            1 => MessageKind::Request,
            2 => MessageKind::Response,
            kind => return Err(MessageError::UnknownKind { kind }),
        };
        let Some(data) = rest.get(..length) else { return Ok(None) };
        let message = Self { stream: u32::from_be_bytes([s0, s1, s2, s3]), kind, data: data.to_vec() };
        bytes.drain(..HEADER_BYTES + length);
        // After a long message: the next one will be short.
        bytes.shrink_to(KEPT_BYTES);
        Ok(Some(message))
    }
}

impl Response {
    /// Returns the answer, or the reason why there is none.
    ///
    /// # Errors
    /// The status of a call that failed.
    pub fn into_payload(self) -> Result<Vec<u8>, Status> {
        match self.status {
            Some(status) if status.code != code::OK => Err(status),
            _ => Ok(self.payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_header_of_ten_bytes_and_its_data() {
        let message = Message { stream: 3, kind: MessageKind::Response, data: vec![7, 8] };
        let bytes = message.encode().unwrap();
        assert_eq!(bytes, [0, 0, 0, 2, 0, 0, 0, 3, 2, 0, 7, 8]);
        let mut twice = [&bytes[..], &bytes[..11]].concat();
        assert_eq!(Message::take(&mut twice), Ok(Some(message.clone())));
        assert_eq!(Message::take(&mut twice), Ok(None), "the second is not there whole");
        twice.push(8);
        assert_eq!(Message::take(&mut twice), Ok(Some(message)));
        assert!(twice.is_empty());
    }

    #[test]
    fn a_message_that_nobody_may_send_is_refused_before_its_data_is_there() {
        let mut long = vec![0, 0x40, 0, 1, 0, 0, 0, 1, 1, 0];
        assert_eq!(Message::take(&mut long), Err(MessageError::TooLong { bytes: MOST_DATA_BYTES + 1 }));
        let mut streamed = vec![0, 0, 0, 9, 0, 0, 0, 1, 3, 0];
        assert_eq!(Message::take(&mut streamed), Err(MessageError::UnknownKind { kind: 3 }));
        let own = Message { stream: 1, kind: MessageKind::Request, data: vec![0; MOST_DATA_BYTES + 1] };
        assert_eq!(own.encode(), Err(MessageError::TooLong { bytes: MOST_DATA_BYTES + 1 }));
    }

    #[test]
    fn only_a_status_with_a_code_is_a_failure() {
        let decoded = |message: Message| Response::decode(&*message.data).unwrap().into_payload();
        assert_eq!(decoded(Message::response(1, &KeyValue::default())), Ok(Vec::new()));
        let success = Response { status: Some(Status::default()), payload: vec![1] };
        assert_eq!(success.into_payload(), Ok(vec![1]));
        let status = decoded(Message::refusal(1, code::UNIMPLEMENTED, "no such method")).unwrap_err();
        assert_eq!((status.code, &*status.message), (code::UNIMPLEMENTED, "no such method"));
    }
}

//! A gRPC call in HTTP/2 frames made by hand, to send what a client library would refuse to.

use std::{io, path::Path};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

/// The error of a stream that is one too many.
const REFUSED_STREAM: u32 = 7;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The first stream of a client.
const STREAM: u32 = 1;

/// The end of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GrpcOutcome {
    /// A gRPC message, with these bytes.
    Answer(Vec<u8>),
    /// The stream, or the connection, was cut with this error.
    Reset(u32),
    /// Headers and no message.
    Nothing,
}

/// Sends an empty gRPC message to `path` under `authority`, over the socket.
pub async fn call(socket: &Path, authority: &str, path: &str) -> GrpcOutcome {
    let mut connection = UnixStream::connect(socket).await.expect("the socket is served");
    connection.write_all(&request(authority, path)).await.expect("the request is sent");
    outcome(&mut connection).await.expect("frames come back")
}

/// Sends what a client library has sent to another socket, byte for byte, up to the end of its first call.
pub async fn replay(socket: &Path, sent: &[u8]) -> GrpcOutcome {
    let mut connection = UnixStream::connect(socket).await.expect("the socket is served");
    connection.write_all(sent).await.expect("the request is sent");
    outcome(&mut connection).await.expect("frames come back")
}

/// The result of calls that were begun all at once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FloodOutcome {
    /// Streams that were refused.
    pub refused: usize,
    /// True if the connection was given up.
    pub gone: bool,
}

/// Begins so many calls of `path` on one connection without ending any, and says what came of it. The connection stays
/// open as long as what is given back with it.
pub async fn flood(socket: &Path, authority: &str, path: &str, calls: u32) -> (FloodOutcome, UnixStream) {
    let connection = UnixStream::connect(socket).await.expect("the socket is served");
    let (mut reading, mut writing) = connection.into_split();
    let block = headers(authority, path);
    let frames = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].into_iter();
    let frames = frames.chain((0..calls).map(move |call| frame(HEADERS, END_HEADERS, 2 * call + 1, &block)));
    let begin = async {
        for frame in frames.chain([frame(PING, 0, 0, &[7; 8])]) {
            // A connection that is given up takes no more.
            if writing.write_all(&frame).await.is_err() {
                break;
            }
        }
    };
    let count = async {
        let mut outcome = FloodOutcome::default();
        while let Ok((kind, flags, payload)) = next_frame(&mut reading).await {
            match kind {
                RST_STREAM if number(&payload) == REFUSED_STREAM => outcome.refused += 1,
                GOAWAY => outcome.gone = true,
                // Everything before the ping has been read.
                PING if flags == ACK => return outcome,
                _ => {}
            }
        }
        FloodOutcome { gone: true, ..outcome }
    };
    let ((), outcome) = tokio::join!(begin, count);
    (outcome, reading.reunite(writing).expect("two halves of one connection"))
}

async fn next_frame(connection: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    connection.read_exact(&mut head).await?;
    let [l0, l1, l2, kind, flags, ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
    connection.read_exact(&mut payload).await?;
    Ok((kind, flags, payload))
}

fn request(authority: &str, path: &str) -> Vec<u8> {
    // Not compressed, and no byte long.
    let message = [0; 5];
    [
        PREFACE.to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, STREAM, &headers(authority, path)),
        frame(DATA, END_STREAM, STREAM, &message),
    ]
    .concat()
}

fn headers(authority: &str, path: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    fields.iter().flat_map(|(name, value)| field(name, value)).collect()
}

/// A literal header field, never indexed, without compression of any kind.
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short text");
        [&[length], text.as_bytes()].concat()
    };
    [vec![0x10], text(name), text(value)].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

async fn outcome(connection: &mut UnixStream) -> io::Result<GrpcOutcome> {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await?;
        let [l0, l1, l2, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
        connection.read_exact(&mut payload).await?;
        let ours = u32::from_be_bytes(stream) == STREAM;
        match kind {
            RST_STREAM if ours => return Ok(GrpcOutcome::Reset(number(&payload))),
            GOAWAY => return Ok(GrpcOutcome::Reset(number(&payload[4..]))),
            DATA if ours => message.extend(payload),
            _ => {}
        }
        if ours && matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            // Five bytes say how long the gRPC message is.
            return Ok(if message.len() > 5 {
                GrpcOutcome::Answer(message.split_off(5))
            } else {
                GrpcOutcome::Nothing
            });
        }
    }
}

fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

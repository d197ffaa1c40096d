//! Dials a socket as gRPC libraries did until 1.56, whose calls have the socket's path for an `:authority`, as it is.
//!
//! Client libraries of today refuse to send that. So they send the path with `-` for each `/`, and the bytes are
//! changed on their way: both letters have codes of the same length, so nothing else changes.

use std::{
    io,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tonic::transport::{Channel, Endpoint, Uri};

use super::{DIAL, KubeletResult, complain};

/// Connects to a socket, for calls under its path.
///
/// # Errors
/// Fails if there is no answer.
pub(super) async fn dial_by_path(socket: &Path) -> KubeletResult<Channel> {
    let path = socket.to_str().expect("a path of a test").to_owned();
    let stand_in = path.replace('/', "-");
    let uri: Uri = format!("http://{stand_in}").parse().expect("the path has what a host can have");
    let (from, to) = (packed(&stand_in), packed(&path));
    let connect = tower::service_fn(move |_: Uri| {
        let (path, from, to) = (path.clone(), from.clone(), to.clone());
        async move { UnixStream::connect(path).await.map(|stream| TokioIo::new(ChangedWrites { stream, from, to })) }
    });
    match tokio::time::timeout(DIAL, Endpoint::from(uri).connect_with_connector(connect)).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => complain(format!("failed to dial {}: {error:?}", socket.display())),
        Err(_) => complain(format!("{} did not answer the dial in {DIAL:?}", socket.display())),
    }
}

/// Letters by the length of their code in HTTP/2 (RFC 7541, appendix B), in the order of the codes.
const CODED: [(u32, &str); 5] = [
    (5, "012aceiost"),
    (6, " %-./3456789=A_bdfghlmnpru"),
    (7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, "&*,;XZ"),
    (13, "\0$@[]~"),
];

/// A text as HTTP/2 packs it.
fn packed(text: &str) -> Vec<u8> {
    let bits: String = text.chars().map(code).collect();
    let filled = format!("{bits:1<width$}", width = bits.len().next_multiple_of(8));
    let byte = |bits: &[u8]| bits.iter().fold(0, |byte, bit| (byte << 1) | (bit - b'0'));
    filled.as_bytes().chunks(8).map(byte).collect()
}

fn code(letter: char) -> String {
    // The first code of each of these lengths.
    let firsts = [0b00000, 0b010100, 0b1011100, 0b11111000, 0b1111111111000];
    let of_length = CODED.iter().zip(firsts);
    let mut found = of_length.filter_map(|((length, letters), first)| {
        let at = letters.chars().position(|other| other == letter)?;
        Some(format!("{:0width$b}", first + at, width = *length as usize))
    });
    found.next().unwrap_or_else(|| panic!("no path of a test has {letter:?}"))
}

struct ChangedWrites {
    stream: UnixStream,
    from: Vec<u8>,
    to: Vec<u8>,
}

impl AsyncRead for ChangedWrites {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ChangedWrites {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut changed = bytes.to_owned();
        if let Some(at) = changed.windows(self.from.len()).position(|window| window == self.from) {
            changed[at..at + self.from.len()].copy_from_slice(&self.to);
        }
        Pin::new(&mut self.stream).poll_write(cx, &changed)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

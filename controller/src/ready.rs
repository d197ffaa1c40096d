//! `hostler-controller ready`: tells whether the running controller lives and is ready, for probes that run a command.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// The time after which a controller that does not answer counts as dead.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer: it names what is missing, in lines.
const MOST_BYTES: u64 = 1 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("the controller does not answer on {}: is it running, and does its configuration name this probe_socket?", path.display())]
pub(crate) struct ReadyError {
    /// The socket.
    path: PathBuf,
    source: io::Error,
}

/// The controller's answer.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct ProbeAnswer {
    pub(crate) is_yes: bool,
    pub(crate) text: String,
}

/// Asks `/healthz` or `/readyz`.
pub(crate) fn ask(socket: &Path, path: &str) -> Result<ProbeAnswer, ReadyError> {
    exchange(socket, path).map_err(|source| ReadyError { path: socket.to_owned(), source })
}

fn exchange(socket: &Path, path: &str) -> io::Result<ProbeAnswer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: hostler-controller\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(ProbeAnswer { is_yes: head.starts_with("HTTP/1.1 200 "), text: text.to_owned() })
}

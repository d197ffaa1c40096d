//! Talks to the running daemon: HTTP over its admin socket.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::Duration,
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    runtime, time,
};

use super::{CliFailure, ConfigFileArgs};
use crate::{
    admin::types::{AdminError, ORDER_LINES},
    config::{ListenAddress, duration},
};

/// Preparing waits for hardware; a daemon that needs longer than this has lost the request.
const PATIENCE: Duration = Duration::from_secs(60);

/// The options of every subcommand that asks the daemon.
#[derive(clap::Args, Debug, Default)]
pub(super) struct DaemonArgs {
    /// Admin socket of the daemon; without it admin.sock in the paths.run of the configuration
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFileArgs,
}

impl DaemonArgs {
    /// A client of the daemon that is meant.
    pub(super) fn client(&self) -> Result<DaemonClient, CliFailure> {
        let socket = match &self.socket {
            Some(socket) => socket.clone(),
            None => self.config.load()?.admin_socket(),
        };
        Ok(DaemonClient::at(socket))
    }

    /// The options that mean the same daemon to a command that another program runs later, from another folder.
    pub(super) fn options(&self) -> Result<String, CliFailure> {
        let mut options = String::new();
        for (option, path) in [("--socket", &self.socket), ("--config", &self.config.config)] {
            let Some(path) = path else { continue };
            let path = std::path::absolute(path)
                .map_err(|source| CliFailure::step(format!("find out where {} is", path.display()), source))?;
            options.push_str(&format!(" {option} {}", systemd_word(&path.display().to_string())));
        }
        Ok(options)
    }
}

/// A word of a command line in a unit of systemd, which reads blanks, quotes, backslashes, `%` and `$` in its own way.
fn systemd_word(text: &str) -> String {
    let escaped = text.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@,%$".contains(c);
    if escaped.chars().all(is_plain) { escaped } else { format!("\"{escaped}\"") }
}

/// A client of one daemon.
#[derive(Debug)]
pub(super) struct DaemonClient {
    socket: PathBuf,
    patience: Duration,
}

/// Why the daemon gave no good answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// There is no socket.
    #[error("no daemon listens on {}: start it (systemctl start hostler), or name its socket with --socket", .0.display())]
    NotRunning(PathBuf),
    /// The socket is there, and no daemon behind it.
    #[error("the daemon behind {} is gone: start it again (systemctl start hostler)", .0.display())]
    Gone(PathBuf),
    /// A file that is no socket was named.
    #[error("{} is no socket: name that of the daemon with --socket", .0.display())]
    NoSocket(PathBuf),
    /// The socket is not for us.
    #[error("only root may talk to the daemon on {}: try again with sudo", .0.display())]
    NotAllowed(PathBuf),
    /// The socket does not work otherwise.
    #[error("failed to connect to {}", socket.display())]
    Connect {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    /// No daemon answers there.
    #[error("no daemon listens on {address}: start it (systemctl start hostler)")]
    Unreachable {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// There is nothing to ask.
    #[error("metrics.listen is \"off\", and with it the answer: give it an address")]
    Off,
    /// This side could not be set up.
    #[error("failed to set up the connection")]
    SetUp(#[source] io::Error),
    /// The connection broke.
    #[error("the daemon broke the connection")]
    Exchange(#[source] hyper::Error),
    /// The request cannot be written.
    #[error("failed to make the request")]
    Request(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer in time.
    #[error("the daemon gave no answer within {}", duration::format(*.0))]
    TimedOut(Duration),
    /// The daemon said no.
    #[error("{0}")]
    Refused(String),
    /// The answer ends too early.
    #[error("the daemon ended before it said what became of the order; `hostler device list` shows how it is now")]
    Cut,
    /// The answer has another shape.
    #[error("the daemon's answer is not understood; is it of the same version?")]
    Answer(#[source] serde_json::Error),
}

impl ClientError {
    /// True if a daemon that comes back, or is done with something else, would answer.
    pub(super) fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::NotRunning(_) | Self::Gone(_) | Self::Connect { .. } | Self::Exchange(_) | Self::TimedOut(_)
        )
    }
}

impl DaemonClient {
    /// A client of the daemon that listens on `socket`.
    pub(super) fn at(socket: PathBuf) -> Self {
        Self { socket, patience: PATIENCE }
    }

    /// Waits for so long for each answer.
    pub(super) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Asks for something.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.answer(Method::GET, path, Bytes::new())
    }

    /// Asks to do something.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Request(source.into()))?;
        self.answer(Method::POST, path, body.into())
    }

    /// Asks to make something so.
    pub(super) fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Request(source.into()))?;
        self.answer(Method::PUT, path, body.into())
    }

    /// Asks to take something away.
    pub(super) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.answer(Method::DELETE, path, Bytes::new())
    }

    /// Asks to do something whose only answer is that it was done.
    pub(super) fn order(&self, method: Method, path: &str) -> Result<(), ClientError> {
        self.exchange(method, path, Bytes::new()).map(drop)
    }

    /// Asks to do something that takes its time, and passes on what is told of it, line by line.
    pub(super) fn follow<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        each: impl FnMut(T) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Request(source.into()))?;
        let mut request = request(Method::POST, path, body.into())?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(ORDER_LINES));
        patiently(self.patience, async {
            let stream =
                UnixStream::connect(&self.socket).await.map_err(|source| connect_error(&self.socket, source))?;
            talk(stream, request, async |response| line_by_line(response, each).await).await
        })
    }

    fn answer<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, ClientError> {
        let bytes = self.exchange(method, path, body)?;
        serde_json::from_slice(&bytes).map_err(ClientError::Answer)
    }

    fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        let request = request(method, path, body)?;
        let (status, bytes) = patiently(self.patience, send(&self.socket, request))?;
        if status.is_success() { Ok(bytes) } else { Err(refusal(status, &bytes)) }
    }
}

/// Asks the address of figures and probes.
pub(super) fn probe(listen: &ListenAddress, path: &str) -> Result<(StatusCode, Bytes), ClientError> {
    let request = request(Method::GET, path, Bytes::new())?;
    match listen {
        ListenAddress::Off => Err(ClientError::Off),
        ListenAddress::Unix(socket) => patiently(PATIENCE, send(socket, request)),
        ListenAddress::Tcp(address) => patiently(PATIENCE, async {
            let failed = |source| ClientError::Unreachable { address: *address, source };
            converse(TcpStream::connect(address).await.map_err(failed)?, request).await
        }),
    }
}

fn request(method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "hostler")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body));
    request.map_err(|source| ClientError::Request(source.into()))
}

/// Waits for an exchange, on a runtime of its own.
fn patiently<T>(patience: Duration, exchange: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(ClientError::SetUp)?;
    runtime.block_on(async { time::timeout(patience, exchange).await.map_err(|_| ClientError::TimedOut(patience))? })
}

async fn send(socket: &Path, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), ClientError> {
    converse(UnixStream::connect(socket).await.map_err(|source| connect_error(socket, source))?, request).await
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), ClientError> {
    talk(stream, request, whole).await
}

/// Sends a request, and has `read` see to its answer.
async fn talk<T>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::Exchange)?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(ClientError::Exchange)?;
        // The sender goes at the end of this block, and with it the connection below.
        read(response).await
    };
    let (answer, _closed) = tokio::join!(exchange, connection);
    answer
}

async fn whole(response: Response<Incoming>) -> Result<(StatusCode, Bytes), ClientError> {
    let status = response.status();
    let body = response.into_body().collect().await.map_err(ClientError::Exchange)?;
    Ok((status, body.to_bytes()))
}

/// Passes on each line of an answer as soon as it is there.
async fn line_by_line<T: DeserializeOwned>(
    response: Response<Incoming>,
    mut each: impl FnMut(T) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    if !response.status().is_success() {
        let (status, body) = whole(response).await?;
        return Err(refusal(status, &body));
    }
    let (mut body, mut begun) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        begun.extend_from_slice(&frame.map_err(ClientError::Exchange)?.into_data().unwrap_or_default());
        while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = begun.drain(..=end).collect();
            each(serde_json::from_slice(&line).map_err(ClientError::Answer)?)?;
        }
    }
    Ok(())
}

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

fn connect_error(socket: &Path, source: io::Error) -> ClientError {
    let socket = socket.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => ClientError::NotRunning(socket),
        io::ErrorKind::ConnectionRefused if !is_socket(&socket) => ClientError::NoSocket(socket),
        io::ErrorKind::ConnectionRefused => ClientError::Gone(socket),
        io::ErrorKind::PermissionDenied => ClientError::NotAllowed(socket),
        _ => ClientError::Connect { socket, source },
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    let said = serde_json::from_slice::<AdminError>(body).map(|body| body.error);
    ClientError::Refused(said.unwrap_or_else(|_| format!("the daemon answered {status}")))
}

/// `text` as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixListener,
        thread,
    };

    use hostler_api::Chain;

    use super::*;

    /// Answers one request with `answer` and gives what was asked.
    fn daemon(answer: &'static str) -> (tempfile::TempDir, DaemonClient, thread::JoinHandle<String>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("admin.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            // Until the client has what it wants, or gives up.
            let _ = stream.read(&mut [0]);
            String::from_utf8(request[..length].to_vec()).unwrap()
        });
        (dir, DaemonClient { socket, patience: PATIENCE }, served)
    }

    #[test]
    fn an_answer_is_read_as_its_type() {
        let (_dir, client, served) = daemon("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n[1,2,3]");
        assert_eq!(client.get::<Vec<u32>>("/v1/claims").unwrap(), [1, 2, 3]);
        let request = served.join().unwrap();
        assert!(request.starts_with("GET /v1/claims HTTP/1.1\r\nhost: hostler\r\n"), "{request}");
    }

    #[test]
    fn lines_are_passed_on_one_by_one_and_a_refusal_is_still_an_error() {
        let lines = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n1\n2\r\n4\r\n0\n3\n\r\n0\r\n\r\n";
        let (_dir, client, served) = daemon(lines);
        let mut told = Vec::new();
        let tell = |line: u32| {
            told.push(line);
            Ok(())
        };
        client.follow("/v1/devices/a/operate", &1, tell).unwrap();
        assert_eq!(told, [1, 20, 3]);
        assert!(served.join().unwrap().contains("accept: application/x-ndjson\r\n"));
        let (_dir, client, _served) =
            daemon("HTTP/1.1 404 Not Found\r\ncontent-length: 18\r\n\r\n{\"error\":\"no such\"}");
        let error = client.follow("/v1/devices/a/operate", &1, |_: u32| Ok(())).unwrap_err();
        assert!(matches!(error, ClientError::Refused(_)), "{error:?}");
    }

    #[test]
    fn whoever_waits_in_vain_is_told_how_long_that_was() {
        let (_dir, client, _served) = daemon("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n");
        let error = client.patient(Duration::from_millis(50)).get::<u32>("/v1/claims").unwrap_err();
        assert_eq!(error.to_string(), "the daemon gave no answer within 50ms");
        assert_eq!(ClientError::TimedOut(Duration::from_secs(960)).to_string(), "the daemon gave no answer within 16m");
    }

    #[test]
    fn the_daemons_own_words_are_the_error() {
        let (_dir, client, _served) =
            daemon("HTTP/1.1 409 Conflict\r\ncontent-length: 29\r\n\r\n{\"error\":\"held by default/a\"}");
        let error = client.order(Method::DELETE, "/v1/claims/x").unwrap_err();
        assert_eq!(error.to_string(), "held by default/a");
    }

    #[test]
    fn an_answer_of_another_shape_is_an_error_and_not_a_guess() {
        let (_dir, client, _served) = daemon("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
        let error = client.get::<Vec<u32>>("/v1/claims").unwrap_err();
        assert!(Chain(&error).to_string().contains("expected a sequence"), "{}", Chain(&error));
    }

    #[test]
    fn a_daemon_that_does_not_run_is_told_from_one_that_died() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("admin.sock");
        let client = DaemonClient { patience: PATIENCE, socket: socket.clone() };
        assert!(matches!(client.order(Method::GET, "/").unwrap_err(), ClientError::NotRunning(path) if path == socket));
        drop(UnixListener::bind(&socket).unwrap());
        assert!(matches!(client.order(Method::GET, "/").unwrap_err(), ClientError::Gone(path) if path == socket));
    }

    #[test]
    fn probes_are_asked_for_wherever_they_are_served() {
        let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nno!\n";
        let (_dir, client, _served) = daemon(answer);
        let said = probe(&ListenAddress::Unix(client.socket), "/readyz").unwrap();
        assert_eq!((said.0.as_u16(), &*said.1), (503, &b"no!\n"[..]));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n").unwrap();
        });
        assert_eq!(probe(&ListenAddress::Tcp(address), "/readyz").unwrap().0.as_u16(), 200);
        served.join().unwrap();
        assert!(matches!(probe(&ListenAddress::Tcp(address), "/readyz").unwrap_err(), ClientError::Unreachable { .. }));
        assert!(matches!(probe(&ListenAddress::Off, "/readyz").unwrap_err(), ClientError::Off));
    }

    #[test]
    fn the_same_daemon_is_meant_by_whoever_runs_the_command_later() {
        let args = |socket: Option<&str>, config: Option<&str>| DaemonArgs {
            socket: socket.map(PathBuf::from),
            config: ConfigFileArgs { config: config.map(PathBuf::from) },
        };
        assert_eq!(args(None, None).options().unwrap(), "");
        assert_eq!(args(Some("/run/b.sock"), None).options().unwrap(), " --socket /run/b.sock");
        let here = std::env::current_dir().unwrap().join("h.toml");
        let expected = format!(" --config {}", systemd_word(here.to_str().unwrap()));
        assert_eq!(args(None, Some("h.toml")).options().unwrap(), expected);
        assert_eq!(systemd_word("/a b/50%\"$x\\"), r#""/a b/50%%\"$$x\\""#);
    }

    #[test]
    fn names_cannot_leave_their_segment() {
        assert_eq!(segment("default/../a b"), "default%2F..%2Fa%20b");
    }
}

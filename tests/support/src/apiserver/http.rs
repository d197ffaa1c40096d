//! The wire: TLS connections with HTTP/1.1 and HTTP/2, requests into calls, and answers out.

use std::{convert::Infallible, io, os::fd::OwnedFd, sync::Arc, time::Instant};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use nix::{
    libc::linger,
    sys::socket::{setsockopt, sockopt::Linger},
};
use serde_json::Value;
use std::os::fd::AsFd;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

use super::{
    LoggedRequest, SharedServerState, discovery,
    faults::{self, FaultEffect},
    opaque, protobuf,
    refusal::StatusError,
    resources::{ApiRoute, RequestTarget, route},
    state::ServerState,
    verbs::{self, ApiRequest},
    watch::ObjectWatch,
    webhooks,
};

/// Limit of a request's body, as in the real server.
const MOST_BYTES_OF_A_REQUEST: usize = 3 * 1024 * 1024;

type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;

/// One connection of a client.
#[derive(Clone, Debug)]
pub(crate) struct ClientConnection {
    pub id: u64,
    cut: CancellationToken,
}

/// Accepts until it is dropped; with it, all connections end.
pub(crate) async fn serve(shared: Arc<SharedServerState>, listener: TcpListener, acceptor: TlsAcceptor) {
    let mut connections = JoinSet::new();
    loop {
        // Both arms are cancel safe: a connection that waits is accepted in the next round.
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let connection = ClientConnection { id: shared.next_connection(), cut: CancellationToken::new() };
                connections.spawn(serve_connection(Arc::clone(&shared), stream, acceptor.clone(), connection));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(
    shared: Arc<SharedServerState>,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    connection: ClientConnection,
) {
    let _ = stream.set_nodelay(true);
    // A connection is reset when its last descriptor is closed with nothing to linger for.
    let descriptor: Option<OwnedFd> = stream.as_fd().try_clone_to_owned().ok();
    let cut = connection.cut.clone();
    let serve = async {
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let service = service_fn(move |request| handle(Arc::clone(&shared), connection.clone(), request));
        // An error is the client's, or ours on purpose.
        let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
    };
    // Whichever ends first ends the connection; nothing of it is used again.
    tokio::select! {
        () = serve => {}
        () = cut.cancelled() => {
            if let Some(descriptor) = &descriptor {
                let _ = setsockopt(descriptor, Linger, &linger { l_onoff: 1, l_linger: 0 });
            }
        }
    }
}

/// The head of a request, before it is carried out.
struct RequestHead {
    version: hyper::Version,
    token: String,
    user_agent: String,
    content_type: String,
    accept: String,
    method: String,
    path: String,
    query: String,
}

impl RequestHead {
    fn of(request: &Request<Incoming>) -> Self {
        let header = |name| {
            request
                .headers()
                .get(name)
                .and_then(|value: &hyper::header::HeaderValue| value.to_str().ok())
                .unwrap_or_default()
        };
        Self {
            version: request.version(),
            token: header(AUTHORIZATION).strip_prefix("Bearer ").unwrap_or_default().to_owned(),
            user_agent: header(USER_AGENT).to_owned(),
            content_type: header(CONTENT_TYPE).to_owned(),
            accept: header(ACCEPT).to_owned(),
            method: request.method().to_string(),
            path: percent_decoded(request.uri().path()),
            query: request.uri().query().unwrap_or_default().to_owned(),
        }
    }
}

/// The response to a request.
enum ApiResponse {
    Json(u16, Value),
    Text(&'static str),
    Watch(Box<ObjectWatch>),
}

async fn handle(
    shared: Arc<SharedServerState>,
    connection: ClientConnection,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let started = Instant::now();
    let seen = RequestHead::of(&request);
    let body = Limited::new(request.into_body(), MOST_BYTES_OF_A_REQUEST).collect().await;
    let (body, bytes) = match body {
        Ok(body) => {
            let body = body.to_bytes().to_vec();
            let bytes = body.len();
            (Ok(body), bytes)
        }
        Err(error) if error.is::<LengthLimitError>() => {
            (Err(StatusError::too_large(MOST_BYTES_OF_A_REQUEST)), MOST_BYTES_OF_A_REQUEST)
        }
        Err(_) => (Err(StatusError::bad_request("the body did not arrive")), 0),
    };
    let mut logged = LoggedRequest::new(&connection, seen.version, &seen.user_agent, bytes);
    let (answer, fault) = answered(&shared, &connection, &seen, body, &mut logged).await;
    logged.status = match &answer {
        Ok(ApiResponse::Json(code, _)) => *code,
        Ok(_) => 200,
        Err(refusal) => refusal.code,
    };
    logged.took = started.elapsed();
    shared.write(|state| state.log.push(logged));
    if fault == Some(FaultEffect::LoseAnswer) {
        connection.cut.cancel();
        std::future::pending::<()>().await;
    }
    Ok(response(&shared, &seen, answer, fault == Some(FaultEffect::CutBody)))
}

async fn answered(
    shared: &Arc<SharedServerState>,
    connection: &ClientConnection,
    seen: &RequestHead,
    body: Result<Vec<u8>, StatusError>,
    logged: &mut LoggedRequest,
) -> (Result<ApiResponse, StatusError>, Option<FaultEffect>) {
    let Some(route) = shared.read(|state| route(&state.catalog, &seen.path)) else {
        return (Err(StatusError::no_such_path()), None);
    };
    let Some(user) = shared.read(|state| state.users.get(&seen.token).cloned()) else {
        return (Err(StatusError::unauthorized()), None);
    };
    user.name.clone_into(&mut logged.user);
    let target = match route {
        ApiRoute::Objects(target) => target,
        ApiRoute::Health => return (Ok(ApiResponse::Text("ok")), None),
        other => return (Ok(ApiResponse::Json(200, discovered(shared, &other))), None),
    };
    let query = parse_query(&seen.query);
    let verb = match verb(&seen.method, &target, &query) {
        Ok(verb) => verb,
        Err(refusal) => return (Err(refusal), None),
    };
    logged.about(verb, &target);
    let fault = shared.write(|state| faults::take(&mut state.faults, verb, &target));
    match fault {
        Some(FaultEffect::Status(code, retry_after)) => return (Err(StatusError::trouble(code, retry_after)), fault),
        Some(FaultEffect::Latency(time)) => tokio::time::sleep(time).await,
        Some(FaultEffect::Hang) => std::future::pending().await,
        Some(FaultEffect::Reset) => {
            connection.cut.cancel();
            std::future::pending().await
        }
        _ => {}
    }
    let answer = user.authorize(verb, &target).and(body).and_then(|body| {
        let (user_agent, content_type) = (seen.user_agent.clone(), seen.content_type.clone());
        carry_out(shared, ApiRequest { verb, target, query, content_type, body, user, user_agent })
    });
    (answer, fault)
}

fn carry_out(shared: &Arc<SharedServerState>, call: ApiRequest) -> Result<ApiResponse, StatusError> {
    if call.verb != "watch" {
        let call = webhooks::mutated(shared, call)?;
        let (code, object) = shared.write(|state| verbs::answer(state, &shared.settings, &call))?;
        return Ok(ApiResponse::Json(code, object));
    }
    let (changed, signals) = (shared.changed(), shared.signals.subscribe());
    let watch = shared.read(|state| ObjectWatch::start(&state.store, &shared.settings, &call, changed, signals))?;
    Ok(ApiResponse::Watch(Box::new(watch)))
}

fn discovered(shared: &SharedServerState, route: &ApiRoute) -> Value {
    shared.read(|ServerState { catalog, .. }| match route {
        ApiRoute::Version => discovery::version(shared.settings.release),
        ApiRoute::CoreVersions => discovery::core_versions(),
        ApiRoute::Groups => discovery::group_list(catalog),
        // It can be gone since the path was looked up.
        ApiRoute::Group(name) => discovery::group(catalog, name),
        ApiRoute::Resources(api) => discovery::resources(catalog, *api),
        ApiRoute::Health | ApiRoute::Objects(_) => Value::Null,
    })
}

fn verb(
    method: &str,
    target: &RequestTarget,
    query: &std::collections::BTreeMap<String, String>,
) -> Result<&'static str, StatusError> {
    let watches = query.get("watch").is_some_and(|value| matches!(value.as_str(), "true" | "1" | "True"));
    let plain = target.subresource.is_none();
    match (method, target.name.is_some()) {
        ("GET", _) if watches && plain => Ok("watch"),
        ("GET", true) => Ok("get"),
        ("GET", false) => Ok("list"),
        ("POST", false) if target.namespace.is_some() == target.resource.namespaced => Ok("create"),
        ("POST", true) if matches!(target.subresource.as_deref(), Some("binding" | "eviction")) => Ok("create"),
        ("PUT", true) => Ok("update"),
        ("PATCH", true) => Ok("patch"),
        ("DELETE", true) if plain => Ok("delete"),
        ("DELETE", false) if plain => Ok("deletecollection"),
        _ => Err(StatusError::method()),
    }
}

fn response(
    shared: &Arc<SharedServerState>,
    seen: &RequestHead,
    answer: Result<ApiResponse, StatusError>,
    cut: bool,
) -> Response<ResponseBody> {
    let json = |code: u16, value: &Value| {
        // No client asks for that form of other kinds.
        let is_binary = seen.accept == protobuf::MEDIA_TYPE;
        let content_type = if is_binary { protobuf::MEDIA_TYPE } else { "application/json" };
        let builder = Response::builder().status(code).header(CONTENT_TYPE, content_type);
        let bytes = if is_binary { protobuf::encode(value) } else { opaque::shown(value).to_string().into_bytes() };
        if !cut {
            return builder.body(whole(bytes)).expect("a valid response");
        }
        let half = Bytes::from(bytes[..bytes.len() / 2].to_vec());
        let frames = [Ok(Frame::data(half)), Err(io::Error::from(io::ErrorKind::ConnectionReset))];
        let body = StreamBody::new(tokio_stream::iter(frames)).boxed_unsync();
        builder.header("content-length", bytes.len()).body(body).expect("a valid response")
    };
    match answer {
        Ok(ApiResponse::Json(code, value)) => json(code, &metadata_only(&seen.accept, value)),
        Ok(ApiResponse::Text(text)) => Response::new(whole(text.as_bytes().to_vec())),
        Ok(ApiResponse::Watch(watch)) => {
            let builder = Response::builder().header(CONTENT_TYPE, "application/json");
            builder.body(stream(Arc::clone(shared), watch, cut)).expect("a valid response")
        }
        Err(refusal) => {
            let mut response = json(refusal.code, &refusal.status());
            if let Some(seconds) = refusal.retry_after {
                response.headers_mut().insert(RETRY_AFTER, seconds.get().into());
            }
            response
        }
    }
}

fn whole(bytes: Vec<u8>) -> ResponseBody {
    Full::from(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// The events of a watch, one in a line. One that is cut ends in the middle of its first.
fn stream(shared: Arc<SharedServerState>, watch: Box<ObjectWatch>, cut: bool) -> ResponseBody {
    let (frames_tx, frames_rx) = tokio::sync::mpsc::channel(1);
    shared.clone().spawn(feed(shared, watch, cut, frames_tx));
    StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(frames_rx).map(|frame| frame)).boxed_unsync()
}

async fn feed(
    shared: Arc<SharedServerState>,
    mut watch: Box<ObjectWatch>,
    cut: bool,
    frames_tx: tokio::sync::mpsc::Sender<Result<Frame<Bytes>, io::Error>>,
) {
    loop {
        // A client that hangs up needs no more events.
        let event = tokio::select! {
            event = watch.next(&shared) => event,
            () = frames_tx.closed() => None,
        };
        let Some(event) = event else { return };
        let mut line = event.to_string().into_bytes();
        line.push(b'\n');
        if cut {
            line.truncate(line.len() / 2);
        }
        let sent = frames_tx.send(Ok(Frame::data(Bytes::from(line)))).await;
        if cut {
            let _ = frames_tx.send(Err(io::Error::from(io::ErrorKind::ConnectionReset))).await;
        }
        if cut || sent.is_err() {
            return;
        }
    }
}

/// Returns only the metadata of objects, for clients that accept nothing else.
fn metadata_only(accept: &str, value: Value) -> Value {
    if !accept.contains("as=PartialObjectMetadata") || value["kind"] == "Status" {
        return value;
    }
    let partial = |object: &Value| {
        serde_json::json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
        })
    };
    match value["items"].as_array() {
        Some(items) => serde_json::json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"],
            "items": items.iter().map(partial).collect::<Vec<_>>(),
        }),
        None => partial(&value),
    }
}

fn parse_query(query: &str) -> std::collections::BTreeMap<String, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (percent_decoded(name), percent_decoded(&value.replace('+', " "))))
        .collect()
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = text_of(after).filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes.get(..2)?).ok()
}

//! An HTTP client of a server, with a token or without: one request to a connection, and streams of events.

use std::net::SocketAddr;

use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{AUTHORIZATION, HOST, HeaderMap},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinHandle};

/// An HTTP client.
#[derive(Clone, Debug)]
pub struct Visitor {
    address: SocketAddr,
    token: Option<String>,
}

/// The answer of a server.
#[derive(Clone, Debug)]
pub struct VisitAnswer {
    /// The HTTP status.
    pub code: u16,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The answer.
    pub body: String,
}

/// Events that a server sends for as long as it likes.
#[derive(Debug)]
pub struct EventStream {
    response: Response<Incoming>,
    text: String,
    connection: JoinHandle<()>,
}

/// An event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SentEvent {
    /// The type of the event.
    pub event: String,
    /// The id to continue after.
    pub id: String,
    /// The data of the event.
    pub data: String,
}

impl Visitor {
    /// Returns a client without a token.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, token: None }
    }

    /// Returns a client with this token.
    pub fn with_token(address: SocketAddr, token: impl Into<String>) -> Self {
        Self { address, token: Some(token.into()) }
    }

    /// Asks for a path.
    pub async fn get(&self, path: &str) -> VisitAnswer {
        self.send(Method::GET, path, &[], "").await
    }

    /// Sends something to a path.
    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> VisitAnswer {
        self.send(Method::POST, path, &[], body).await
    }

    /// Asks in any way.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> VisitAnswer {
        let (response, connection) = self.open(method, path, headers, body).await.expect("the server answers");
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.expect("the answer comes whole").to_bytes();
        connection.abort();
        VisitAnswer { code, headers, body: String::from_utf8_lossy(&body).into_owned() }
    }

    /// Follows a stream of events; the status and what is said where there is none.
    ///
    /// # Errors
    /// When the answer is not 200.
    pub async fn follow(&self, path: &str, headers: &[(&str, &str)]) -> Result<EventStream, VisitAnswer> {
        let (response, connection) = self.open(Method::GET, path, headers, "").await.expect("the server answers");
        if response.status().is_success() {
            return Ok(EventStream { response, text: String::new(), connection });
        }
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.expect("the answer comes whole").to_bytes();
        Err(VisitAnswer { code, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<(Response<Incoming>, JoinHandle<()>), String> {
        let stream = TcpStream::connect(self.address).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // A connection ends in many ways; what counts is the answer.
        let connection = tokio::spawn(async move { drop(connection.await) });
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.address.to_string());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).map_err(|error| error.to_string())?;
        Ok((sender.send_request(request).await.map_err(|error| error.to_string())?, connection))
    }
}

impl VisitAnswer {
    /// The answer as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {}: {}", self.code, self.body))
    }

    /// A header's value; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl EventStream {
    /// Returns the headers of the answer with the events.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The next event; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<SentEvent> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (SentEvent::parse(block), rest.to_owned());
                self.text = rest;
                if event.is_some() {
                    return event;
                }
            }
            let frame = self.response.frame().await?.ok()?;
            self.text.push_str(&String::from_utf8_lossy(frame.data_ref()?));
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl SentEvent {
    /// Comments are none.
    fn parse(block: &str) -> Option<Self> {
        let field = |name: &str| {
            let values = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            values.collect::<Vec<_>>().join("\n")
        };
        let data = field("data");
        (!data.is_empty()).then(|| Self { event: field("event"), id: field("id"), data })
    }

    /// Returns the data, as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).expect("events are JSON")
    }
}

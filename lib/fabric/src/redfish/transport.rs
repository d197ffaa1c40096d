//! One HTTP exchange with a service: bounded in time and size, and a connection of its own for each write.

use std::{error::Error, io, path::Path, time::Duration};

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, Response, Uri,
    body::{Body, Bytes, Incoming},
    header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde_json::Value;
use tokio::time::timeout;

use super::{RedfishError, RedfishSettings, RedfishSetupError, settings::ServiceAddress, tls};

/// The largest document: a collection of 100,000 members has 8 MiB.
pub(super) const MOST_BODY: usize = 16 << 20;

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The connections to one service.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    pub(super) service: String,
    reads: HttpClient,
    /// An idle connection may be closed while a write is sent over it, and nothing would tell whether the service has
    /// seen the write. So each write has a new one.
    writes: HttpClient,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct HttpCall<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Option<&'a Value>,
    pub(super) time: Duration,
}

/// An answer, whatever its status is.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    pub(super) etag: Option<HeaderValue>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Transport {
    pub(super) fn new(address: &ServiceAddress, settings: &RedfishSettings) -> Result<Self, RedfishSetupError> {
        let service = address.to_string();
        let authority = settings.authority.as_deref().filter(|_| address.is_tls);
        let client = |idle| {
            let https = connector(&service, authority, settings)?;
            Ok(Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_max_idle_per_host(idle)
                .retry_canceled_requests(false)
                .build(https))
        };
        let (reads, writes) = (client(usize::from(settings.parallel_reads))?, client(0)?);
        Ok(Self { service, reads, writes })
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn exchange(&self, call: &HttpCall<'_>) -> Result<HttpAnswer, RedfishError> {
        let request = self.request(call)?;
        let client = if call.method == Method::GET { &self.reads } else { &self.writes };
        let exchanged = timeout(call.time, async {
            let response = client.request(request).await.map_err(|source| {
                let (service, path) = (self.service.clone(), call.path.to_owned());
                let source = Box::new(source);
                if source.is_connect() {
                    RedfishError::Connect { service, path, source }
                } else {
                    RedfishError::Lost { service, method: method_name(&call.method), path, source }
                }
            })?;
            self.answer(call, response).await
        });
        exchanged.await.unwrap_or_else(|_| {
            Err(RedfishError::TimedOut {
                service: self.service.clone(),
                method: method_name(&call.method),
                path: call.path.to_owned(),
                seconds: call.time.as_secs(),
            })
        })
    }

    fn request(&self, call: &HttpCall<'_>) -> Result<Request<Full<Bytes>>, RedfishError> {
        let unusable = || RedfishError::Path { service: self.service.clone(), path: call.path.to_owned() };
        let uri: Uri = format!("{}{}", self.service, escaped(call.path)).parse().map_err(|_| unusable())?;
        let mut request = Request::builder().method(call.method.clone()).uri(uri);
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        let body = match call.body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        request.header("odata-version", "4.0").body(Full::new(body)).map_err(|_| unusable())
    }

    async fn answer(&self, call: &HttpCall<'_>, response: Response<Incoming>) -> Result<HttpAnswer, RedfishError> {
        let too_large =
            || RedfishError::TooLarge { service: self.service.clone(), path: call.path.to_owned(), most: MOST_BODY };
        let (parts, body) = response.into_parts();
        if body.size_hint().lower() > MOST_BODY as u64 {
            return Err(too_large());
        }
        let body = Limited::new(body, MOST_BODY).collect().await.map_err(|error| self.cut(call, error, too_large))?;
        let location = parts.headers.get(LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(HttpAnswer {
            status: parts.status.as_u16(),
            location,
            etag: parts.headers.get(ETAG).cloned(),
            body: body.to_bytes(),
            headers: parts.headers,
        })
    }

    fn cut(
        &self,
        call: &HttpCall<'_>,
        error: Box<dyn Error + Send + Sync>,
        too_large: impl FnOnce() -> RedfishError,
    ) -> RedfishError {
        if error.is::<LengthLimitError>() {
            return too_large();
        }
        let source = io::Error::other(error);
        RedfishError::Body { service: self.service.clone(), path: call.path.to_owned(), source }
    }
}

/// The name of a method, of those that are used here.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        _ => "DELETE",
    }
}

/// A path as a request may have it: names of objects may have blanks and any letters.
fn escaped(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
    path.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn connector(
    service: &str,
    authority: Option<&Path>,
    settings: &RedfishSettings,
) -> Result<HttpsConnector<HttpConnector>, RedfishSetupError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(settings.connect_time()));
    let tls = tls::client_config(service, authority)?;
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &settings.server_name {
        let name = name.clone().try_into().map_err(|_| {
            let reason = format!("{name:?} is no host name; write the name in the service's certificate");
            RedfishSetupError::Settings { problems: vec![hostler_api::ConfigProblem::new("server_name", reason)] }
        })?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(https.enable_http1().wrap_connector(http))
}

impl HttpAnswer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as JSON; `None` where it is none.
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The beginning of the answer for a message, with what introduces it. Managers answer in HTML, text or JSON.
    pub(super) fn said(&self) -> String {
        const MOST_CHARACTERS: usize = 200;
        let text = String::from_utf8_lossy(&self.body);
        let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_CHARACTERS).collect();
        let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        if plain.is_empty() { String::new() } else { format!(" ({plain})") }
    }
}

//! One Redfish service: reads that are repeated until they say something, and writes that are sent once.

use std::time::Duration;

use hostler_api::Doubling;
use hyper::{
    Method,
    header::{HeaderName, HeaderValue, IF_MATCH},
};
use serde_json::Value;
use tokio::{sync::Semaphore, time::sleep};

use super::{
    RedfishError, RedfishSettings, RedfishSetupError,
    document::Document,
    login::ServiceLogin,
    settings::ServiceAddress,
    transport::{HttpAnswer, HttpCall, Transport},
};
use crate::ObjectPath;

/// Reads that fail for a moment are repeated so often.
const MOST_TRIES: u32 = 4;
/// A document that is being rewritten is whole again after milliseconds; a service that starts takes longer.
const PAUSES: Doubling = Doubling::new(Duration::from_millis(50), Duration::from_millis(800));
/// The root with and without the slash at its end: some services have only one of the two.
const ROOTS: [&str; 2] = ["/redfish/v1/", "/redfish/v1"];

/// A service, with the login there.
#[derive(Debug)]
pub(super) struct RedfishService {
    transport: Transport,
    login: ServiceLogin,
    /// Reads at once, however deep collections lie in each other.
    reads: Semaphore,
    read_time: Duration,
    write_time: Duration,
}

/// A document as it was read, to change it only if it still is the same.
#[derive(Clone, Debug)]
pub(super) struct ReadDocument {
    pub(super) document: Document,
    pub(super) etag: Option<HeaderValue>,
    /// Bytes that the answer had.
    pub(super) bytes: usize,
}

/// A write.
#[derive(Clone, Debug)]
pub(super) struct WriteCall<'a> {
    pub(super) method: Method,
    pub(super) path: &'a ObjectPath,
    pub(super) body: Option<&'a Value>,
    pub(super) etag: Option<HeaderValue>,
}

impl RedfishService {
    pub(super) fn new(address: &ServiceAddress, settings: &RedfishSettings) -> Result<Self, RedfishSetupError> {
        Ok(Self {
            transport: Transport::new(address, settings)?,
            login: ServiceLogin::new(settings),
            reads: Semaphore::new(settings.parallel_reads.into()),
            read_time: Duration::from_secs(settings.read_seconds.into()),
            write_time: Duration::from_secs(settings.write_seconds.into()),
        })
    }

    /// The address, for messages.
    pub(super) fn name(&self) -> &str {
        &self.transport.service
    }

    pub(super) async fn log_out(&self) {
        self.login.log_out(&self.transport).await;
    }

    /// The root document.
    pub(super) async fn root(&self) -> Result<Document, RedfishError> {
        for root in ROOTS {
            if let Some(read) = self.read_text_path(root).await? {
                return Ok(read.document);
            }
        }
        Err(self.missing(&ObjectPath::new(ROOTS[0]), "name the address of a Redfish service"))
    }

    /// The error for a document that must be there.
    pub(super) fn missing(&self, path: &ObjectPath, fix: &'static str) -> RedfishError {
        RedfishError::Status {
            service: self.name().to_owned(),
            method: "GET",
            path: path.as_str().to_owned(),
            status: 404,
            said: String::new(),
            fix,
        }
    }

    /// Reads a document. `None`: the service says that there is none. A failure is never read as that.
    pub(super) async fn read(&self, path: &ObjectPath) -> Result<Option<ReadDocument>, RedfishError> {
        self.read_text_path(path.as_str()).await
    }

    async fn read_text_path(&self, path: &str) -> Result<Option<ReadDocument>, RedfishError> {
        let mut tries = 0;
        loop {
            let failed = match self.read_once(path).await {
                Err(error) if error.is_passing() => error,
                told => return told,
            };
            tries += 1;
            if tries == MOST_TRIES {
                return Err(failed);
            }
            sleep(PAUSES.after(tries - 1)).await;
        }
    }

    async fn read_once(&self, path: &str) -> Result<Option<ReadDocument>, RedfishError> {
        let answer = self.get(path).await?;
        match answer.status {
            // A task that has not ended is answered 202 by services whose tasks are their own monitors.
            200..=299 => {
                let value = serde_json::from_slice(&answer.body).map_err(|source| RedfishError::Json {
                    service: self.name().to_owned(),
                    path: path.to_owned(),
                    source,
                })?;
                let document = Document { path: ObjectPath::new(path), value };
                Ok(Some(ReadDocument { document, bytes: answer.body.len(), etag: answer.etag }))
            }
            404 | 410 => Ok(None),
            _ => Err(self.refused("GET", path, &answer)),
        }
    }

    /// Asks for a path once, whatever the answer is.
    pub(super) async fn get(&self, path: &str) -> Result<HttpAnswer, RedfishError> {
        let _turn = self.reads.acquire().await;
        self.send(HttpCall { method: Method::GET, path, headers: Vec::new(), body: None, time: self.read_time }).await
    }

    /// Sends a write once. An error that [was sent](RedfishError::was_not_sent) tells nothing about what was done.
    pub(super) async fn write(&self, call: WriteCall<'_>) -> Result<HttpAnswer, RedfishError> {
        let WriteCall { method, path, body, etag } = call;
        let headers = etag.map(|etag| (IF_MATCH, etag)).into_iter().collect();
        self.send(HttpCall { method, path: path.as_str(), headers, body, time: self.write_time }).await
    }

    /// Sends a request, and once more after a new login if the service does not know this client: it has done nothing.
    async fn send(&self, mut call: HttpCall<'_>) -> Result<HttpAnswer, RedfishError> {
        let own: Vec<(HeaderName, HeaderValue)> = call.headers.clone();
        let granted = self.login.header(&self.transport).await?;
        call.headers.extend(granted.header.clone());
        let answer = self.transport.exchange(&call).await?;
        if answer.status != 401 || !self.login.forget(&granted) {
            return Ok(answer);
        }
        let granted = self.login.header(&self.transport).await?;
        call.headers = own.into_iter().chain(granted.header.clone()).collect();
        let answer = self.transport.exchange(&call).await?;
        if answer.status == 401 {
            self.login.forget(&granted);
        }
        Ok(answer)
    }

    /// The error for a status that ends a call.
    pub(super) fn refused(&self, method: &'static str, path: &str, answer: &HttpAnswer) -> RedfishError {
        RedfishError::Status {
            service: self.name().to_owned(),
            method,
            path: path.to_owned(),
            status: answer.status,
            said: answer.said(),
            fix: fix_of(answer.status),
        }
    }
}

fn fix_of(status: u16) -> &'static str {
    match status {
        300..=399 => "name the address that it redirects to",
        401 => "check user name and password, and the way to log in",
        403 => "give the user the right to it",
        404 | 405 | 501 => "the service does not offer it",
        409 | 412 => "another client changed the object; try again",
        429 | 503 => "the service is overloaded; try again later",
        400..=499 => "the service does not understand it; report it with the version of the service",
        _ => "look into the log of the service",
    }
}

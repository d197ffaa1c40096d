//! All objects of a kind as the server's own texts: a list, then every change. An object that nobody can read hides no other,
//! and whoever reads them knows at any time whether what he knows is what there is.
//!
//! ```text
//!   Nothing ──► Streaming (one watch tells all) ──► At(version) ──► watch, again and again from the last version
//!      ▲            │ refused                          │ 410, or a line that makes no sense
//!      │            ▼                                  │
//!      │        Paging (pages of 250) ──► At(version)  │
//!      └───────────────────────────────────────────────┘
//! ```

mod position;
mod raw;

use std::{collections::VecDeque, time::Duration};

use http_body_util::BodyExt;
use hyper::Request;
use kube::client::Body;
use tokio::time::{Instant, timeout};

use self::position::{FollowCore, FollowRequest, LineError};
use crate::{ApiClient, ApiFailure, CallError, Collection};

pub use self::raw::RawObject;

/// A watch is asked for this long, so that it comes to an end where somebody between here and there has forgotten it.
const WATCH_TIME: Duration = Duration::from_secs(280);
/// Beyond that, nothing comes any more.
const SILENCE: Duration = Duration::from_secs(310);
/// A watch that ends sooner, and has told nothing, is not worth asking for again at once.
const SHORTEST: Duration = Duration::from_secs(1);
/// The store takes objects of 1.5 MiB, and a text in JSON may be some times as long as what it says.
const LONGEST_LINE_BYTES: usize = 16 << 20;

/// What is seen of the objects of a kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FollowEvent {
    /// A list begins: what is not in it is not there any more. One that was under way is void.
    ListStarted,
    /// An object of the list.
    Listed(RawObject),
    /// The list is complete.
    ListEnded,
    /// An object is new, or another one than before.
    Applied(RawObject),
    /// An object is gone; this is how it last was.
    Deleted(RawObject),
    /// The server says that there is nothing else.
    UpToDate,
}

/// Follows the objects of a kind, for ever.
#[derive(Debug)]
pub struct Follower {
    client: ApiClient,
    all: Collection,
    core: FollowCore,
    ready: VecDeque<FollowEvent>,
    lines: Option<WatchLines>,
}

/// An open watch.
struct WatchLines {
    body: Body,
    read: Vec<u8>,
    begun: Instant,
    is_telling: bool,
}

impl std::fmt::Debug for WatchLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchLines").field("read", &self.read.len()).finish_non_exhaustive()
    }
}

impl Follower {
    /// Follows all objects of a kind, in all namespaces.
    pub fn new(client: ApiClient, all: Collection) -> Self {
        Self { client, all, core: FollowCore::default(), ready: VecDeque::new(), lines: None }
    }

    /// Begins anew with a list.
    pub fn relist(&mut self) {
        self.core.forget();
        self.ready.clear();
        self.lines = None;
    }

    /// What is seen next. Cancelling it loses an answer that is on its way, and no event.
    ///
    /// # Errors
    /// When a call fails, or an answer makes no sense. The next call begins where this one failed, with a new list where that
    /// cannot be; how long to wait until then is for whoever calls.
    pub async fn next(&mut self) -> Result<FollowEvent, ApiFailure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            let done = match self.lines {
                Some(_) => self.read().await,
                None => self.ask().await,
            };
            if let Err(failure) = done {
                self.lines = None;
                let is_news = self.core.failed(&failure);
                if is_news {
                    return Err(failure);
                }
            }
        }
    }

    /// Asks for a page of the list, or opens a watch.
    async fn ask(&mut self) -> Result<(), ApiFailure> {
        match self.core.request() {
            FollowRequest::Page { token } => {
                let page = self.client.list_page(&self.all, &token).await?;
                let events = self.core.page(&page).map_err(|error| self.unreadable("list", error))?;
                self.ready.extend(events);
            }
            FollowRequest::Watch { query } => {
                let (step, uri) = (self.step("watch"), self.watch_uri(&query));
                let body = self.client.open(|| step.clone(), Request::get(uri).body(Vec::new())).await?;
                self.lines = Some(WatchLines { body, read: Vec::new(), begun: Instant::now(), is_telling: false });
                self.ready.push_back(self.core.opened());
            }
        }
        Ok(())
    }

    fn watch_uri(&self, query: &str) -> String {
        let (path, seconds) = (self.all.requests().url_path, WATCH_TIME.as_secs());
        format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}{query}")
    }

    /// Takes what the watch tells next.
    async fn read(&mut self) -> Result<(), ApiFailure> {
        let Some(lines) = &mut self.lines else { return Ok(()) };
        // Cancel safe: a frame that was not taken stays in the body.
        match timeout(SILENCE, lines.body.frame()).await {
            Ok(Some(Ok(frame))) => {
                lines.read.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                lines.is_telling = true;
                self.take_lines()
            }
            Ok(Some(Err(error))) => Err(self.failed(CallError::from(error))),
            Ok(None) => self.ended(),
            Err(_) => Err(ApiFailure::TimedOut { step: self.step("watch"), after: SILENCE }),
        }
    }

    fn take_lines(&mut self) -> Result<(), ApiFailure> {
        let Some(lines) = &mut self.lines else { return Ok(()) };
        let Some(end) = lines.read.iter().rposition(|byte| *byte == b'\n') else {
            return match lines.read.len() {
                0..=LONGEST_LINE_BYTES => Ok(()),
                _ => Err(self.lost("a line is longer than any object can be")),
            };
        };
        let rest = lines.read.split_off(end + 1);
        let whole = std::mem::replace(&mut lines.read, rest);
        for line in whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match self.core.line(line) {
                Ok(event) => self.ready.extend(event),
                Err(error) => return Err(self.misread(error)),
            }
        }
        Ok(())
    }

    /// A server ends every watch after some minutes.
    fn ended(&mut self) -> Result<(), ApiFailure> {
        let Some(lines) = self.lines.take() else { return Ok(()) };
        self.core.ended();
        if !lines.is_telling && lines.begun.elapsed() < SHORTEST {
            return Err(ApiFailure::unusable(self.step("watch"), "the server ended it at once"));
        }
        Ok(())
    }

    fn misread(&mut self, error: LineError) -> ApiFailure {
        match error {
            LineError::Refused(status) => self.failed(CallError::Status(status)),
            LineError::Unreadable(error) => {
                self.core.forget();
                self.unreadable("watch", error)
            }
        }
    }

    fn lost(&mut self, reason: &str) -> ApiFailure {
        self.core.forget();
        ApiFailure::unusable(self.step("watch"), reason)
    }

    fn step(&self, verb: &str) -> String {
        format!("{verb} {}", self.all.plural())
    }

    fn failed(&self, source: CallError) -> ApiFailure {
        ApiFailure::Call { step: self.step("watch"), source }
    }

    fn unreadable(&self, verb: &str, error: serde_json::Error) -> ApiFailure {
        ApiFailure::Call { step: self.step(verb), source: CallError::Answer(error) }
    }
}

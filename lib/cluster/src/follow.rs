//! The only list-and-watch client: objects of a kind as the server's own texts, first a list, then every change. An
//! object that cannot be read hides no other, and readers know at any time if what they know is what the server has.
//!
//! ```text
//!   Nothing ──► Streaming (one watch tells all) ──► At(version) ──► watch, again and again from the last version
//!      ▲            │ refused, or not wanted           │ 410, or a line that makes no sense
//!      │            ▼                                  │
//!      │        Paging (pages of 250) ──► At(version)  │
//!      └───────────────────────────────────────────────┘
//! ```

mod position;
mod raw;

use std::{collections::VecDeque, fmt, future::Future, pin::Pin, time::Duration};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use self::position::{FollowCore, FollowRequest, LineError};
use crate::{ApiClient, ApiFailure, CallError, Collection, collection::encoded};

pub use self::raw::RawObject;

/// Time after which the server ends a watch by itself: one that something on the way has forgotten comes to an end too.
const WATCH_TIME: Duration = Duration::from_secs(280);
/// Silence after which a watch counts as broken.
const SILENCE: Duration = Duration::from_secs(310);
/// A watch that ends sooner without an event is not opened again at once.
const SHORTEST: Duration = Duration::from_secs(1);
/// Bytes of the longest line. The store takes objects of 1.5 MiB, and the JSON of an object may be some times as long.
const LONGEST_LINE_BYTES: usize = 16 << 20;

/// News of the objects of a kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FollowEvent {
    /// A list begins: objects that are not in it are gone. A list that was under way is void.
    ListStarted,
    /// An object of the list.
    Listed(RawObject),
    /// The list is complete.
    ListEnded,
    /// An object is new, or changed.
    Applied(RawObject),
    /// An object is gone; this is its last version.
    Deleted(RawObject),
    /// The server says that there is nothing else.
    UpToDate,
}

/// Age that a first list may have, and the way it comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListFreshness {
    /// As new as the store, in pages.
    Newest,
    /// As new as the store, streamed: one object after the other as changes come, so that the whole list is never in
    /// memory. Servers without `WatchList` (on by default since 1.34) refuse that and give pages.
    Streamed,
    /// As the server has it in memory, which may be some moments old; streamed if possible. For kinds with very many
    /// objects: older servers read all of them from the store to find those of a node.
    Cached,
}

/// Objects that a [`Follower`] follows.
#[derive(Clone, Debug)]
pub struct FollowScope {
    all: Collection,
    fields: String,
    freshness: ListFreshness,
    title: String,
}

impl FollowScope {
    /// All objects of a collection, streamed.
    pub fn all(all: Collection) -> Self {
        let title = all.plural().to_owned();
        Self { all, fields: String::new(), freshness: ListFreshness::Streamed, title }
    }

    /// Objects of a collection that a field selector selects. Failures name them by `title`: `the pods of this node`.
    pub fn selected(all: Collection, fields: &str, freshness: ListFreshness, title: &str) -> Self {
        Self { all, fields: fields.to_owned(), freshness, title: title.to_owned() }
    }

    /// Returns the query with these parameters, for the objects of this scope alone.
    fn query(&self, parameters: &str) -> String {
        match &*self.fields {
            "" => parameters.to_owned(),
            fields => format!("{parameters}&fieldSelector={}", encoded(fields)),
        }
    }
}

impl From<Collection> for FollowScope {
    fn from(all: Collection) -> Self {
        Self::all(all)
    }
}

/// Follows the objects of a kind, for ever.
pub struct Follower {
    client: ApiClient,
    scope: FollowScope,
    core: FollowCore,
    ready: VecDeque<FollowEvent>,
    asking: Option<Asking>,
    lines: Option<WatchLines>,
}

/// A request under way. It is kept, so that a reader with other things to wait for loses no answer.
type Asking = Pin<Box<dyn Future<Output = Result<FollowAnswer, ApiFailure>> + Send>>;

/// Answer to a request.
enum FollowAnswer {
    Page(Vec<u8>),
    Watch(Incoming),
}

/// An open watch.
struct WatchLines {
    body: Incoming,
    read: Vec<u8>,
    begun: Instant,
    is_telling: bool,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("scope", &self.scope).field("core", &self.core).finish_non_exhaustive()
    }
}

impl Follower {
    /// Follows the objects of a scope.
    pub fn new(client: ApiClient, scope: impl Into<FollowScope>) -> Self {
        let scope = scope.into();
        let core = FollowCore::new(scope.freshness);
        Self { client, scope, core, ready: VecDeque::new(), asking: None, lines: None }
    }

    /// Begins anew with a list.
    pub fn relist(&mut self) {
        self.core.forget();
        self.ready.clear();
        (self.asking, self.lines) = (None, None);
    }

    /// Waits for the next event. Cancel safe.
    ///
    /// # Errors
    /// When a call fails, or an answer makes no sense. The next call begins where this one failed, with a new list
    /// where that cannot be; the caller decides how long to wait until then.
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
        let asking = match &mut self.asking {
            Some(asking) => asking,
            None => self.asking.insert(asking(self.client.clone(), self.scope.clone(), self.core.request())),
        };
        // Cancel safe: the request stays, and goes on with the next call.
        let answer = asking.await;
        self.asking = None;
        match answer? {
            FollowAnswer::Page(page) => {
                let events = self.core.page(&page).map_err(|error| self.unreadable("list", error))?;
                self.ready.extend(events);
            }
            FollowAnswer::Watch(body) => {
                self.lines = Some(WatchLines { body, read: Vec::new(), begun: Instant::now(), is_telling: false });
                self.ready.push_back(self.core.opened());
            }
        }
        Ok(())
    }

    /// Takes the next part of the watch.
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
        format!("{verb} {}", self.scope.title)
    }

    fn failed(&self, source: CallError) -> ApiFailure {
        ApiFailure::Call { step: self.step("watch"), source }
    }

    fn unreadable(&self, verb: &str, error: serde_json::Error) -> ApiFailure {
        ApiFailure::Call { step: self.step(verb), source: CallError::Answer(error) }
    }
}

/// Sends a request.
fn asking(client: ApiClient, scope: FollowScope, request: FollowRequest) -> Asking {
    Box::pin(async move {
        match request {
            FollowRequest::Page { query } => {
                let step = || format!("list {}", scope.title);
                client.list_page(step, &scope.all, &scope.query(&query)).await.map(FollowAnswer::Page)
            }
            FollowRequest::Watch { query } => {
                let step = || format!("watch {}", scope.title);
                let seconds = WATCH_TIME.as_secs();
                let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&{query}");
                let uri = format!("{}?{}", scope.all.url_path(), scope.query(&query));
                client.open(step, &uri).await.map(FollowAnswer::Watch)
            }
        }
    })
}

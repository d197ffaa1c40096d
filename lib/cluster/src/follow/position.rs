//! The place at which a kind is followed, and the next request. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{FollowEvent, ListFreshness, RawObject};
use crate::{ApiFailure, StatusError, client::LIST_PAGE, collection::encoded, failure::Status};

/// The next request.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum FollowRequest {
    /// A page of the list.
    Page { query: String },
    /// A watch.
    Watch { query: String },
}

/// Error of a line of a watch.
#[derive(Debug)]
pub(super) enum LineError {
    /// The line is a refusal.
    Refused(StatusError),
    /// The line makes no sense.
    Unreadable(serde_json::Error),
}

#[derive(Debug, Default, Eq, PartialEq)]
enum FollowPosition {
    /// Nothing is known.
    #[default]
    Nothing,
    /// A watch is telling the list.
    Streaming,
    /// Some pages have come.
    Paging { token: String },
    /// Everything up to a version is known.
    At { version: String },
}

/// Decides on the next request, and reads its answer.
#[derive(Debug)]
pub(super) struct FollowCore {
    position: FollowPosition,
    /// True if the list is not streamed: the server refuses that, or the reader does not want it.
    pages_only: bool,
    /// True if the list may come from the server's memory.
    is_cached: bool,
}

#[derive(Deserialize)]
struct WatchLine<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    #[serde(default)]
    metadata: BookmarkMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: String,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ListPage<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    token: String,
}

/// Marks the end of a list that was told as a watch.
const END_OF_LIST: &str = "k8s.io/initial-events-end";

/// Version of a list that the server may make of what it has in memory.
const ANY_VERSION: &str = "resourceVersion=0";

impl FollowCore {
    pub(super) fn new(freshness: ListFreshness) -> Self {
        let (pages_only, is_cached) = (freshness == ListFreshness::Newest, freshness == ListFreshness::Cached);
        Self { position: FollowPosition::default(), pages_only, is_cached }
    }

    pub(super) fn request(&self) -> FollowRequest {
        match &self.position {
            FollowPosition::Nothing | FollowPosition::Streaming if !self.pages_only => {
                let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
                let query = if self.is_cached { format!("{query}&{ANY_VERSION}") } else { query.to_owned() };
                FollowRequest::Watch { query }
            }
            // Servers heed no limit of such a list.
            FollowPosition::Nothing | FollowPosition::Streaming if self.is_cached => {
                FollowRequest::Page { query: ANY_VERSION.to_owned() }
            }
            FollowPosition::Nothing | FollowPosition::Streaming => {
                FollowRequest::Page { query: format!("limit={LIST_PAGE}") }
            }
            FollowPosition::Paging { token } => {
                FollowRequest::Page { query: format!("limit={LIST_PAGE}&continue={}", encoded(token)) }
            }
            FollowPosition::At { version } => FollowRequest::Watch { query: format!("resourceVersion={version}") },
        }
    }

    /// A watch was opened.
    pub(super) fn opened(&mut self) -> FollowEvent {
        if self.has_list() {
            return FollowEvent::UpToDate;
        }
        self.position = FollowPosition::Streaming;
        FollowEvent::ListStarted
    }

    /// A page of the list has come.
    pub(super) fn page(&mut self, page: &[u8]) -> Result<Vec<FollowEvent>, serde_json::Error> {
        let page: ListPage<'_> = serde_json::from_slice(page)?;
        let is_first = !matches!(self.position, FollowPosition::Paging { .. });
        let mut events: Vec<FollowEvent> = is_first.then_some(FollowEvent::ListStarted).into_iter().collect();
        let items = page.items.unwrap_or_default();
        events.extend(items.into_iter().map(|item| FollowEvent::Listed(RawObject::new(item))));
        self.position = if page.metadata.token.is_empty() {
            events.push(FollowEvent::ListEnded);
            FollowPosition::At { version: page.metadata.resource_version }
        } else {
            FollowPosition::Paging { token: page.metadata.token }
        };
        Ok(events)
    }

    /// A line of the watch has come.
    pub(super) fn line(&mut self, line: &[u8]) -> Result<Option<FollowEvent>, LineError> {
        let line: WatchLine<'_> = serde_json::from_slice(line).map_err(LineError::Unreadable)?;
        match line.kind.as_str() {
            "BOOKMARK" => return self.bookmark(line.object).map_err(LineError::Unreadable),
            "ERROR" => {
                let said: Status = serde_json::from_str(line.object.get()).map_err(LineError::Unreadable)?;
                return Err(LineError::Refused(StatusError::new(said.code, None, said)));
            }
            _ => {}
        }
        let object = RawObject::new(line.object);
        if self.position == FollowPosition::Streaming {
            return Ok(Some(FollowEvent::Listed(object)));
        }
        self.is_at(object.version().resource_version);
        Ok(Some(if line.kind == "DELETED" { FollowEvent::Deleted(object) } else { FollowEvent::Applied(object) }))
    }

    fn bookmark(&mut self, object: &RawValue) -> Result<Option<FollowEvent>, serde_json::Error> {
        let BookmarkMetadata { resource_version, annotations } =
            serde_json::from_str::<Bookmark>(object.get())?.metadata;
        if self.position != FollowPosition::Streaming {
            self.is_at(resource_version);
            return Ok(Some(FollowEvent::UpToDate));
        }
        // One before the end says how far the server's memory is, and nothing of the list.
        if !annotations.contains_key(END_OF_LIST) {
            return Ok(None);
        }
        self.position = FollowPosition::At { version: resource_version };
        Ok(Some(FollowEvent::ListEnded))
    }

    fn is_at(&mut self, version: String) {
        // An object whose version cannot be read moves nothing: what follows it is told again.
        if !version.is_empty() {
            self.position = FollowPosition::At { version };
        }
    }

    /// The watch has come to its end.
    pub(super) fn ended(&mut self) {
        if self.position == FollowPosition::Streaming {
            self.forget();
        }
    }

    /// A call or a watch has failed. False if the reader need not know: a server that streams no lists has just said
    /// so.
    pub(super) fn failed(&mut self, failure: &ApiFailure) -> bool {
        let is_refused = !self.pages_only && !self.has_list() && failure.is_refused_stream();
        self.pages_only |= is_refused;
        if failure.code() == Some(410) || self.position == FollowPosition::Streaming {
            self.forget();
        }
        !is_refused
    }

    fn has_list(&self) -> bool {
        matches!(self.position, FollowPosition::At { .. })
    }

    /// The next request begins with a list.
    pub(super) fn forget(&mut self) {
        self.position = FollowPosition::Nothing;
    }
}

#[cfg(test)]
mod tests;

//! All objects of a kind: first a list, then every change. When the connection breaks, a list comes again.

use std::{fmt::Debug, pin::Pin};

use futures_core::Stream;
use kube::{
    Api, Resource,
    core::ApiResource,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio_stream::StreamExt;

use crate::{ApiClient, ApiFailure, CallError, Collection};

/// What is seen of objects.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WatchEvent<T> {
    /// A list begins: what is not in it is not there any more.
    ListStarted,
    /// An object of the list.
    Listed(T),
    /// The list is complete.
    ListEnded,
    /// An object is new, or another one than before.
    Applied(T),
    /// An object is gone; this is how it last was.
    Deleted(T),
}

impl<T> WatchEvent<T> {
    /// The event about something that is made of its object; `None` if nothing can be made of it.
    pub fn filter_map<U>(self, make: impl FnOnce(T) -> Option<U>) -> Option<WatchEvent<U>> {
        Some(match self {
            Self::ListStarted => WatchEvent::ListStarted,
            Self::Listed(object) => WatchEvent::Listed(make(object)?),
            Self::ListEnded => WatchEvent::ListEnded,
            Self::Applied(object) => WatchEvent::Applied(make(object)?),
            Self::Deleted(object) => WatchEvent::Deleted(make(object)?),
        })
    }
}

/// A stream of events that ends only when it is dropped. After an error it begins anew with a list; how long to wait
/// before it is asked for the next event is for whoever reads it.
pub type Watching<O> = Pin<Box<dyn Stream<Item = Result<WatchEvent<O>, ApiFailure>> + Send>>;

/// How new the list must be that a watch begins with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListFreshness {
    /// As new as the store.
    Newest,
    /// As the server has it in memory, which may be some moments old; the watch tells the rest. For kinds of which there
    /// are very many: older servers read all of them from their store to find a node's.
    Cached,
    /// The same, one object after the other as changes come, so that nobody ever holds the whole list in memory. Servers
    /// without `WatchList` (on by default since 1.34) refuse it, see [`ApiFailure::is_refused_stream`].
    Streamed,
}

impl ApiClient {
    /// Watches the objects that `fields`, a field selector, selects. `what` says for people which these are.
    pub fn watch<O>(&self, all: &Collection, fields: &str, freshness: ListFreshness, what: &str) -> Watching<O>
    where
        O: Resource<DynamicType = ApiResource> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let api: Api<O> = Api::all_with(self.kube(), &all.api_resource());
        let step = format!("watch {what}");
        let config = watcher::Config::default().fields(fields);
        let config = match freshness {
            ListFreshness::Newest => config,
            ListFreshness::Cached => config.any_semantic(),
            ListFreshness::Streamed => config.streaming_lists(),
        };
        Box::pin(watcher(api, config).map(move |event| match event {
            Ok(event) => Ok(translated(event)),
            Err(error) => Err(ApiFailure::Call { step: step.clone(), source: cause(error) }),
        }))
    }
}

fn translated<T>(event: Event<T>) -> WatchEvent<T> {
    match event {
        Event::Init => WatchEvent::ListStarted,
        Event::InitApply(object) => WatchEvent::Listed(object),
        Event::InitDone => WatchEvent::ListEnded,
        Event::Apply(object) => WatchEvent::Applied(object),
        Event::Delete(object) => WatchEvent::Deleted(object),
    }
}

fn cause(error: watcher::Error) -> CallError {
    match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => source,
        watcher::Error::WatchError(status) => kube::Error::Api(status),
        error @ watcher::Error::NoResourceVersion => kube::Error::Service(Box::new(error)),
    }
    .into()
}

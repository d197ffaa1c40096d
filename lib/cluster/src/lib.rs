//! The client of the Kubernetes API server, for a node daemon and a controller: connection, calls, lists and watches.
//!
//! ```text
//!   credentials ──► connection ──► ApiClient ──► get, create, replace, patch, delete   (one time limit, one failure)
//!                                      ├───────► identify, allows   identity and rights of a token's bearer
//!                                      └───────► Follower           objects of a kind, as texts: a list, then changes
//!                                                WritePace, Backoff              times of writes
//!                                                EventRecorder                   Events, without a flood of them
//!                                                RetryPauses, LastingRefusals    refusals of a server that starts
//! ```
//!
//! Nothing here knows the meaning of the objects, and nothing is repeated without the caller.

mod access;
mod backoff;
mod client;
mod collection;
mod connection;
mod credentials;
pub mod events;
mod failure;
mod follow;
mod object;
mod pace;
mod patience;
mod protobuf;
mod refusals;
mod release;
mod retry;
mod service;
mod time;

pub use access::{
    ApiIdentity, AskedDeed, FigureReaders, ReaderVerdict, ReviewError, TokenReviews, TokenVerdict, bearer_token,
};
pub use backoff::Backoff;
pub use client::{ApiClient, ListSelector};
pub use collection::Collection;
pub use connection::ConnectError;
pub use credentials::{
    ActedUser, BearerToken, CredentialsError, CredentialsSource, ExecProgram, ExecRunner, ExecVariable, pod_namespace,
};
pub use failure::{ApiFailure, CallError, StatusError};
pub use follow::{FollowEvent, FollowScope, Follower, ListFreshness, RawObject};
pub use object::{ApiObject, ObjectVersion, is_older};
pub use pace::WritePace;
pub use patience::ApiPatience;
pub use protobuf::{ProtobufField, ProtobufObject, protobuf_fields};
pub use refusals::LastingRefusals;
pub use retry::RetryPauses;
pub use service::HttpService;
pub use time::{from_rfc3339, rfc3339, rfc3339_micros, since_1970, written_at};

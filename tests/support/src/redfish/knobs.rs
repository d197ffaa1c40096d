//! The ways in which a Redfish service fails.

use std::{collections::VecDeque, time::Duration};

/// The knobs. By default everything works, and nothing is more than the standard demands.
#[derive(Clone, Debug, Default)]
pub struct RedfishKnobs {
    /// Every read takes so long.
    pub slow_reads: Duration,
    /// Every write takes so long, before the work is done.
    pub slow_writes: Duration,
    /// The next reads answer this status.
    pub read_failures: VecDeque<u16>,
    /// Each of the next writes goes like this; later ones work.
    pub writes: VecDeque<PlayedWrite>,
    /// The root that answers.
    pub root: RootPath,
    /// Links to collections below an object lead to the root of the service, where there is nothing.
    pub flat_links: bool,
    /// Writes are answered 201 with a `Location`, instead of 200 with a body.
    pub location: bool,
    /// The service chooses Ids by itself.
    pub own_ids: bool,
    /// Documents have an ETag, and a removal must name it.
    pub etags: bool,
    /// Documents that were removed are shown all the same.
    pub zombies: bool,
    /// Another device is connected than was asked for: the endpoint that the service takes instead.
    pub wrong_target: Option<String>,
    /// Chunks are made with this size in MiB, whatever was asked for.
    pub chunk_mib: Option<u64>,
    /// Devices do not name the chunks that are made for them.
    pub no_back_links: bool,
    /// Chunks are made without the names that they were given.
    pub drops_names: bool,
    /// Chunks are made for no device.
    pub drops_devices: bool,
    /// User name and password that a session, or each request, needs.
    pub login: Option<(String, String)>,
    /// User name and password go with each request; there are no sessions.
    pub is_basic: bool,
    /// The body of the root collection `Fabrics`.
    pub fabrics: PlayedBody,
}

/// The fate of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlayedWrite {
    /// The work is done, and the connection ends without an answer.
    EndAfter,
    /// Nothing is done, and the connection ends without an answer.
    EndBefore,
    /// The work is done, and the answer is this status.
    StatusAfter(u16),
    /// Nothing is done, and the answer is this status.
    StatusBefore(u16),
    /// The work is done when its task ends; the answer is 202 with a `Location`.
    Task,
    /// Like [`Task`](Self::Task), but the answer names the task in its body only.
    TaskInBody,
    /// Nothing is ever answered, and nothing done.
    Hang,
}

/// The root that answers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RootPath {
    /// Both.
    #[default]
    Both,
    /// `/redfish/v1/` only.
    WithSlash,
    /// `/redfish/v1` only.
    WithoutSlash,
}

/// A body that is sent instead of a document.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PlayedBody {
    /// The document.
    #[default]
    Document,
    /// So many bytes of JSON.
    Large(usize),
    /// JSON without an end, and without a length.
    Endless,
    /// One byte now and then, without an end.
    Trickle,
    /// Pages that follow each other without an end.
    Pages,
    /// The first half of the document under a length for all of it.
    Half,
    /// Text that is no JSON.
    Text,
}

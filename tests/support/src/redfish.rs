//! A Redfish service of a fabric for tests, in the test's own process: a rack of hosts and pooled memory, and every way
//! to fail that managers were seen with.
//!
//! ```text
//!   http (one request a connection, bytes by hand) ──► login ──► verbs ──► tree of documents
//!                        └── what the knobs spoil ◄──────────────┘
//! ```

mod http;
mod knobs;
mod login;
mod tree;
mod verbs;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

pub use self::{
    knobs::{PlayedBody, PlayedWrite, RedfishKnobs, RootPath},
    tree::{FABRIC, device_text, host_uuid},
};

/// A Redfish service. It ends when this is dropped.
#[derive(Debug)]
pub struct PlayedRedfish {
    address: SocketAddr,
    /// The certificate that vouches for the service; `None`: it speaks plain HTTP.
    pub authority: Option<String>,
    state: Arc<Mutex<PlayedState>>,
    server: JoinHandle<()>,
}

/// A request as the service has seen it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SeenRequest {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The header `If-Match`.
    pub if_match: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct PlayedState {
    documents: BTreeMap<String, Value>,
    knobs: RedfishKnobs,
    seen: Vec<SeenRequest>,
    tokens: Vec<String>,
    logins: u32,
    /// Writes that wait for the end of their task: method, path and body, by the path of the task.
    tasks: BTreeMap<String, (String, String, Value)>,
    writing: u32,
    most_writing: u32,
    reading: u32,
    most_reading: u32,
}

impl PlayedRedfish {
    /// A rack with these numbers of hosts and devices, over plain HTTP.
    pub async fn rack(hosts: u32, devices: u32) -> Self {
        Self::start(tree::rack(hosts, devices), None).await
    }

    /// A rack whose devices have no memory: it is made of one memory domain of this size, in steps of 256 MiB.
    pub async fn shared(hosts: u32, devices: u32, domain_mib: u64) -> Self {
        Self::start(tree::shared(hosts, devices, domain_mib), None).await
    }

    /// A rack over TLS.
    pub async fn rack_over_tls(hosts: u32, devices: u32) -> Self {
        let (acceptor, authority) = http::certificates();
        Self::start(tree::rack(hosts, devices), Some((acceptor, authority))).await
    }

    async fn start(documents: BTreeMap<String, Value>, tls: Option<(TlsAcceptor, String)>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(Mutex::new(PlayedState { documents, ..PlayedState::default() }));
        let (acceptor, authority) = tls.unzip();
        let server = tokio::spawn(http::serve(listener, acceptor, Arc::clone(&state)));
        Self { address, authority, state, server }
    }

    /// The address for settings.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.authority.is_some() { "https" } else { "http" }, self.address)
    }

    /// Turns knobs.
    pub fn set(&self, turn: impl FnOnce(&mut RedfishKnobs)) {
        turn(&mut self.lock().knobs);
    }

    /// Changes the documents, by path.
    pub fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Value>)) {
        change(&mut self.lock().documents);
    }

    /// The document at a path as it is, past login and faults.
    pub fn document(&self, path: &str) -> Option<Value> {
        self.lock().documents.get(path).cloned()
    }

    /// The Ids of the connections.
    pub fn connections(&self) -> Vec<String> {
        let state = self.lock();
        let prefix = format!("{FABRIC}/Connections/");
        state.documents.keys().filter_map(|path| path.strip_prefix(&prefix).map(str::to_owned)).collect()
    }

    /// The Ids and sizes in MiB of all chunks.
    pub fn chunks(&self) -> Vec<(String, u64)> {
        let state = self.lock();
        let chunks = state.documents.iter().filter_map(|(path, chunk)| {
            let (_, id) = path.split_once("/MemoryChunks/")?;
            Some((id.to_owned(), chunk["MemoryChunkSizeMiB"].as_u64()?))
        });
        chunks.collect()
    }

    /// Gives a device to a host, as another program would.
    pub fn connect_by_hand(&self, id: &str, host: u32, device: u32) {
        tree::connect(&mut self.lock().documents, id, host, device);
    }

    /// Takes a connection away, as another program would.
    pub fn disconnect_by_hand(&self, id: &str) {
        tree::remove(&mut self.lock().documents, &format!("{FABRIC}/Connections/{id}"));
    }

    /// The requests that were seen.
    pub fn seen(&self) -> Vec<SeenRequest> {
        self.lock().seen.clone()
    }

    /// The number of requests with a method.
    pub fn count(&self, method: &str) -> usize {
        self.lock().seen.iter().filter(|request| request.method == method).count()
    }

    /// The number of logins that were granted.
    pub fn logins(&self) -> u32 {
        self.lock().logins
    }

    /// The largest number of writes that were under way at once.
    pub fn most_writing(&self) -> u32 {
        self.lock().most_writing
    }

    /// The largest number of reads that were under way at once.
    pub fn most_reading(&self) -> u32 {
        self.lock().most_reading
    }

    /// Forgets all sessions.
    pub fn expire_sessions(&self) {
        self.lock().tokens.clear();
    }

    /// Ends all tasks; those that fail change nothing.
    pub fn finish_tasks(&self, state: &str) {
        self.lock().finish_tasks(state);
    }

    fn lock(&self) -> MutexGuard<'_, PlayedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PlayedRedfish {
    fn drop(&mut self) {
        self.server.abort();
    }
}

//! State of the server, behind one lock, and the watches that are told when it changes.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::{broadcast, watch},
    task::JoinSet,
};

use super::{
    auth::ApiUser,
    custom,
    faults::ApiFault,
    http::ClientConnection,
    refusal::StatusError,
    resources::{Catalog, RequestTarget},
    rules::ServerSettings,
    store::ObjectStore,
    verbs::ApiRequest,
    watch::WatchSignal,
};

/// A request that was answered, or begun to be if it is a watch.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// Verb as in RBAC rules; empty for requests that are not about objects.
    pub verb: &'static str,
    /// Plural, `resourceclaims/status` for a subresource.
    pub resource: String,
    /// `None` for objects that have none, and across all.
    pub namespace: Option<String>,
    /// `None` where it is about more than one.
    pub name: Option<String>,
    /// Empty for one who is not known.
    pub user: String,
    /// User agent of the client.
    pub user_agent: String,
    /// Size of the request's body.
    pub bytes: usize,
    /// HTTP status of the answer.
    pub status: u16,
    /// Or HTTP/1.1.
    pub http2: bool,
    /// Number of the connection, which counts on over outages.
    pub connection: u64,
    /// Time from the last byte of the headers to the first of the answer.
    pub took: Duration,
}

impl LoggedRequest {
    pub(crate) fn new(connection: &ClientConnection, version: hyper::Version, user_agent: &str, bytes: usize) -> Self {
        Self {
            verb: "",
            resource: String::new(),
            namespace: None,
            name: None,
            user: String::new(),
            user_agent: user_agent.to_owned(),
            bytes,
            status: 0,
            http2: version == hyper::Version::HTTP_2,
            connection: connection.id,
            took: Duration::ZERO,
        }
    }

    pub(crate) fn about(&mut self, verb: &'static str, target: &RequestTarget) {
        self.verb = verb;
        self.resource = match &target.subresource {
            Some(sub) => format!("{}/{sub}", target.resource.plural),
            None => target.resource.plural.to_owned(),
        };
        self.namespace.clone_from(&target.namespace);
        self.name.clone_from(&target.name);
    }

    /// Returns true if the request was to change an object.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// A write that a policy may refuse.
#[derive(Debug)]
pub struct AdmissionAttributes<'a> {
    /// The user who writes.
    pub user: &'a ApiUser,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// Plural.
    pub resource: &'static str,
    /// `status`, or none.
    pub subresource: Option<&'a str>,
    /// Name of the object.
    pub name: &'a str,
    /// The object as it would be stored; `None` for a deletion.
    pub object: Option<&'a Value>,
    /// The object as it is stored; `None` for a creation.
    pub old: Option<&'a Value>,
}

type AdmitWrite = dyn Fn(&AdmissionAttributes<'_>) -> Result<(), String> + Send + Sync;

/// Decides about writes.
#[derive(Clone)]
pub(crate) struct AdmissionPolicy(pub Arc<AdmitWrite>);

impl fmt::Debug for AdmissionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Policy")
    }
}

/// All there is to know.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub store: ObjectStore,
    /// Users, by token.
    pub users: BTreeMap<String, ApiUser>,
    pub faults: Vec<ApiFault>,
    pub log: Vec<LoggedRequest>,
    pub policies: Vec<AdmissionPolicy>,
    pub catalog: Catalog,
    /// Addresses of Services, by namespace and name.
    pub services: BTreeMap<(String, String), SocketAddr>,
}

impl ServerState {
    pub(crate) fn list(&self, plural: &str) -> Vec<Value> {
        let kind = self.catalog.named(plural).kind;
        let objects = self.store.objects().iter().filter(|(key, _)| key.kind == kind);
        objects.map(|(_, object)| Value::clone(object)).collect()
    }

    pub(crate) fn admit(
        &self,
        call: &ApiRequest,
        operation: &'static str,
        name: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), StatusError> {
        let ApiRequest { user, target, .. } = call;
        let (resource, subresource) = (target.resource.plural, target.subresource.as_deref());
        let admission = AdmissionAttributes { user, operation, resource, subresource, name, object, old };
        self.policies.iter().try_for_each(|policy| {
            (policy.0)(&admission).map_err(|why| StatusError::denied(target.resource, target.api.group, name, &why))
        })
    }
}

/// The state, and the means to wait for it.
#[derive(Debug)]
pub(crate) struct SharedServerState {
    pub settings: ServerSettings,
    pub signals: broadcast::Sender<WatchSignal>,
    state: Mutex<ServerState>,
    /// The counter of the store, and the number of requests.
    changed_tx: watch::Sender<(u64, usize)>,
    connections: AtomicU64,
    feeding: Mutex<JoinSet<()>>,
}

impl SharedServerState {
    pub(crate) fn new(settings: ServerSettings) -> Self {
        let state = ServerState {
            store: ObjectStore::new(),
            users: BTreeMap::new(),
            faults: Vec::new(),
            log: Vec::new(),
            policies: Vec::new(),
            catalog: Catalog::new(&settings),
            services: BTreeMap::new(),
        };
        Self {
            settings,
            signals: broadcast::Sender::new(16),
            state: Mutex::new(state),
            changed_tx: watch::Sender::new((0, 0)),
            connections: AtomicU64::new(0),
            feeding: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&ServerState) -> T) -> T {
        look(&self.lock())
    }

    /// Changes the state; tells all watches if an object changed.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut ServerState) -> T) -> T {
        let mut state = self.lock();
        let defined = state.store.definitions();
        let result = change(&mut state);
        if state.store.definitions() != defined {
            custom::redefine(&mut state);
        }
        let now = (state.store.rv(), state.log.len());
        drop(state);
        self.changed_tx.send_if_modified(|seen| {
            let modified = *seen != now && now.0 >= seen.0 && now.1 >= seen.1;
            *seen = if modified { now } else { *seen };
            modified
        });
        result
    }

    pub(crate) fn changed(&self) -> watch::Receiver<(u64, usize)> {
        self.changed_tx.subscribe()
    }

    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Feeds a watch; ends with the server.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut feeding = self.feeding.lock().unwrap_or_else(PoisonError::into_inner);
        while feeding.try_join_next().is_some() {}
        feeding.spawn(task);
    }
}

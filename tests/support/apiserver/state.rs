//! What the server knows, behind one lock, and who is told when it changes.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
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
    auth::User,
    faults::Fault,
    http::Connection,
    refusal::Refusal,
    resources::{Resource, Target},
    rules::Settings,
    store::Store,
    verbs::Call,
    watch::Signal,
};

/// A request that was answered, or begun to be if it is a watch.
#[derive(Clone, Debug)]
pub struct Logged {
    /// As in RBAC rules; empty for what is not about objects.
    pub verb: &'static str,
    /// Plural, `resourceclaims/status` for a subresource.
    pub resource: String,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub user: String,
    pub user_agent: String,
    /// Of the request's body.
    pub bytes: usize,
    pub status: u16,
    pub http2: bool,
    /// Number of the connection, which counts on over outages.
    pub connection: u64,
    /// From the last byte of the headers to the first of the answer.
    pub took: Duration,
}

impl Logged {
    pub fn new(connection: &Connection, version: hyper::Version, user_agent: &str, bytes: usize) -> Self {
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

    pub fn about(&mut self, verb: &'static str, target: &Target) {
        self.verb = verb;
        self.resource = match &target.subresource {
            Some(sub) => format!("{}/{sub}", target.resource.plural),
            None => target.resource.plural.to_owned(),
        };
        self.namespace.clone_from(&target.namespace);
        self.name.clone_from(&target.name);
    }

    /// Whether it was to change something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// A write that a policy may refuse.
#[derive(Debug)]
pub struct Admission<'a> {
    pub user: &'a User,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// Plural.
    pub resource: &'static str,
    pub subresource: Option<&'a str>,
    pub name: &'a str,
    /// As it would be stored; `None` for a deletion.
    pub object: Option<&'a Value>,
    /// As it is; `None` for a creation.
    pub old: Option<&'a Value>,
}

type Admit = dyn Fn(&Admission<'_>) -> Result<(), String> + Send + Sync;

/// Decides about writes.
#[derive(Clone)]
pub struct Policy(pub Arc<Admit>);

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Policy")
    }
}

/// All there is to know.
#[derive(Debug)]
pub struct State {
    pub store: Store,
    /// By token.
    pub users: BTreeMap<String, User>,
    pub faults: Vec<Fault>,
    pub log: Vec<Logged>,
    pub policies: Vec<Policy>,
}

impl State {
    pub fn list(&self, plural: &str) -> Vec<Value> {
        let kind = Resource::named(plural).kind;
        let objects = self.store.objects().iter().filter(|(key, _)| key.kind == kind);
        objects.map(|(_, object)| Value::clone(object)).collect()
    }

    pub fn admit(
        &self,
        call: &Call,
        operation: &'static str,
        name: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Refusal> {
        let Call { user, target, .. } = call;
        let (resource, subresource) = (target.resource.plural, target.subresource.as_deref());
        let admission = Admission { user, operation, resource, subresource, name, object, old };
        self.policies.iter().try_for_each(|policy| {
            (policy.0)(&admission).map_err(|why| Refusal::denied(target.resource, target.api.group, name, &why))
        })
    }
}

/// The state, and the means to wait for it.
#[derive(Debug)]
pub struct Shared {
    pub settings: Settings,
    pub signals: broadcast::Sender<Signal>,
    state: Mutex<State>,
    /// The counter of the store, and the number of requests.
    changed_tx: watch::Sender<(u64, usize)>,
    connections: AtomicU64,
    feeding: Mutex<JoinSet<()>>,
}

impl Shared {
    pub fn new(settings: Settings) -> Self {
        let state = State {
            store: Store::new(),
            users: BTreeMap::new(),
            faults: Vec::new(),
            log: Vec::new(),
            policies: Vec::new(),
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    /// Tells everyone if something changed.
    pub fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let now = (state.store.rv(), state.log.len());
        drop(state);
        self.changed_tx.send_if_modified(|seen| {
            let modified = *seen != now && now.0 >= seen.0 && now.1 >= seen.1;
            *seen = if modified { now } else { *seen };
            modified
        });
        result
    }

    pub fn changed(&self) -> watch::Receiver<(u64, usize)> {
        self.changed_tx.subscribe()
    }

    pub fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Feeds a watch; ends with the server.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut feeding = self.feeding.lock().unwrap_or_else(PoisonError::into_inner);
        while feeding.try_join_next().is_some() {}
        feeding.spawn(task);
    }
}

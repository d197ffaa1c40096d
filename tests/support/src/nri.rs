//! A container runtime as its NRI plugins see it: it registers, configures and synchronises them, tells them of pods
//! and containers, does what they ask for, and refuses and hangs up where the real ones do. What the real ones would
//! choke on, or silently not do, is a complaint, and a test that leaves one fails.
//!
//! ```text
//!   NriRuntime ── accepts, one after the other ──► PluginLink ── register, configure, synchronize ──► told of events
//!       │                                            │
//!       └ containers, versions, locks                └ wire: frames and messages, byte by byte
//! ```
//!
//! It misbehaves where a test says so, at a [`Moment`] that the test names.

mod adjust;
mod containers;
mod events;
mod link;
mod locks;
mod version;
mod wire;

use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    ops::Deref,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use hostler_proto::nri::{
    ConfigureRequest, ConfigureResponse, Container, ContainerUpdate, Empty, PodSandbox, RegisterPluginRequest,
    SynchronizeRequest, SynchronizeResponse, UpdateContainersRequest, UpdateContainersResponse,
};
use prost::Message;

pub use self::{
    containers::{ContainerSpec, RuntimeContainer},
    link::{CallError, PLUGIN, PluginLink, UNIMPLEMENTED},
    version::NriVersion,
    wire::{PLUGIN_SERVICE, RUNTIME_SERVICE, RawMessage, RpcRequest, RpcResponse, Trunk},
};
use self::{link::Complaints, locks::RuntimeLocks};
use crate::host::wait_for;

/// A plugin that has not registered after this time is hung up on.
pub const REGISTRATION_LIMIT: Duration = Duration::from_secs(5);
/// A plugin that has not answered a call after this time is hung up on.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(2);
/// Fewer objects are not sent in pieces.
const SMALLEST_PIECE: usize = 8;
const UNKNOWN: i32 = 2;

/// The moment of an event between a runtime and a plugin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    /// The plugin has connected and said nothing yet.
    Accepted,
    /// The plugin has registered.
    Registered,
    /// A call of this method was sent; its answer is not waited for yet.
    Sent(&'static str),
    /// The plugin is synchronized and gets events from now on.
    Synchronized,
}

/// An action of a test at a moment.
type Mischief = Box<dyn FnOnce(&Runtime, &PluginLink) + Send>;

/// Another plugin, which runs in the runtime itself.
#[derive(Clone, Debug)]
pub struct RivalPlugin {
    /// The plugin's index and name.
    pub name: String,
    /// CPUs that the plugin wants for every new container.
    pub cpus: String,
}

/// A runtime that listens; its containers outlive its restarts.
pub struct NriRuntime {
    runtime: Arc<Runtime>,
    accepting: Option<JoinHandle<()>>,
}

/// State and behaviour of a runtime.
pub struct Runtime {
    socket: PathBuf,
    version: Mutex<NriVersion>,
    limit: Mutex<Duration>,
    piece: Mutex<usize>,
    rival: Mutex<Option<RivalPlugin>>,
    locks: RuntimeLocks,
    state: Mutex<RuntimeState>,
    links: Mutex<Vec<Arc<PluginLink>>>,
    plugins: Mutex<Vec<Arc<PluginLink>>>,
    mischief: Mutex<VecDeque<(Moment, Mischief)>>,
    complaints: Complaints,
    connections: AtomicUsize,
    synchronized: AtomicUsize,
    unasked: AtomicUsize,
    stopping: AtomicBool,
}

#[derive(Default)]
struct RuntimeState {
    made: usize,
    containers: BTreeMap<String, RuntimeContainer>,
    /// Containers whose updates fail.
    stubborn: Vec<String>,
    /// Every update that was done, and every adjustment: container and CPUs.
    applied: Vec<(String, String)>,
}

impl NriRuntime {
    /// A runtime of the newest kind that listens here.
    pub fn listen(socket: &Path) -> Self {
        Self::of_version(socket, NriVersion::V0_12_2)
    }

    /// A runtime of this age that listens here.
    pub fn of_version(socket: &Path, version: NriVersion) -> Self {
        let mut runtime = Self::absent(socket, version);
        runtime.start();
        runtime
    }

    /// A runtime that is not started yet.
    pub fn absent(socket: &Path, version: NriVersion) -> Self {
        let runtime = Runtime {
            socket: socket.to_owned(),
            version: Mutex::new(version),
            limit: Mutex::new(REQUEST_LIMIT),
            piece: Mutex::new(usize::MAX),
            rival: Mutex::default(),
            locks: RuntimeLocks::default(),
            state: Mutex::default(),
            links: Mutex::default(),
            plugins: Mutex::default(),
            mischief: Mutex::default(),
            complaints: Complaints::default(),
            connections: AtomicUsize::new(0),
            synchronized: AtomicUsize::new(0),
            unasked: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        };
        Self { runtime: Arc::new(runtime), accepting: None }
    }

    /// Listens; what lies where the socket is to be goes.
    pub fn start(&mut self) {
        let socket = &self.runtime.socket;
        if let Err(error) = fs::remove_file(socket) {
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{}", socket.display());
        }
        let listener = UnixListener::bind(socket).unwrap();
        self.runtime.stopping.store(false, Ordering::SeqCst);
        let runtime = Arc::clone(&self.runtime);
        self.accepting = Some(thread::spawn(move || runtime.accept(&listener)));
    }

    /// Dies: connections end, the socket stays behind without a listener. Containers run on.
    pub fn kill(&mut self) {
        self.runtime.stopping.store(true, Ordering::SeqCst);
        self.runtime.hang_up();
        // Wakes the one that accepts.
        drop(UnixStream::connect(&self.runtime.socket));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
        self.runtime.hang_up();
    }

    /// Dies and comes back.
    pub fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Dies and comes back as another version.
    pub fn replace(&mut self, version: NriVersion) {
        self.kill();
        *self.runtime.version.lock().unwrap() = version;
        self.start();
    }
}

impl Deref for NriRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}

impl Drop for NriRuntime {
    fn drop(&mut self) {
        self.kill();
        let complaints = self.complaints.take();
        if !thread::panicking() {
            assert!(complaints.is_empty(), "the runtime complains of its plugin: {complaints:#?}");
        }
    }
}

/// Controls for tests.
impl Runtime {
    /// Does something the next time that this moment comes. Moments are waited for in the order in which they were
    /// named.
    pub fn at(&self, moment: Moment, mischief: impl FnOnce(&Self, &PluginLink) + Send + 'static) {
        self.mischief.lock().unwrap().push_back((moment, Box::new(mischief)));
    }

    /// Returns true if all planned actions were done.
    pub fn has_done_all(&self) -> bool {
        self.mischief.lock().unwrap().is_empty()
    }

    /// Sets the time that plugins have for an answer.
    pub fn limit(&self, limit: Duration) {
        *self.limit.lock().unwrap() = limit;
    }

    /// Splits Synchronize into pieces of so many pods, and as many containers.
    pub fn pieces_of(&self, objects: usize) {
        *self.piece.lock().unwrap() = objects;
    }

    /// Another plugin is there, and asked as well.
    pub fn rival(&self, rival: RivalPlugin) {
        *self.rival.lock().unwrap() = Some(rival);
    }

    /// Updates of this container fail from now on.
    pub fn refuse_updates_of(&self, id: &str) {
        self.state.lock().unwrap().stubborn.push(id.to_owned());
    }

    /// Returns the complaints about its plugins, and forgets them.
    pub fn take_complaints(&self) -> Vec<String> {
        self.complaints.take()
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of synchronizations of plugins.
    pub fn synchronizations(&self) -> usize {
        self.synchronized.load(Ordering::SeqCst)
    }

    /// Returns the number of updates that a plugin sent by itself.
    pub fn unasked_updates(&self) -> usize {
        self.unasked.load(Ordering::SeqCst)
    }

    /// Returns true if the runtime is locked up.
    pub fn is_locked_up(&self) -> bool {
        self.locks.are_locked_up()
    }

    /// The plugin that is told of events, once there is one.
    pub fn wait_for_plugin(&self) -> Arc<PluginLink> {
        wait_for("a plugin that is synchronized", || self.plugin())
    }

    /// The plugin that is told of events.
    pub fn plugin(&self) -> Option<Arc<PluginLink>> {
        self.plugins.lock().unwrap().iter().find(|plugin| !plugin.is_closed()).cloned()
    }

    /// A container.
    pub fn container(&self, id: &str) -> RuntimeContainer {
        self.state.lock().unwrap().containers[id].clone()
    }

    /// The CPUs of a container.
    pub fn cpus(&self, id: &str) -> String {
        self.container(id).cpus().to_owned()
    }

    /// The NUMA nodes of a container.
    pub fn mems(&self, id: &str) -> String {
        self.container(id).mems().to_owned()
    }

    /// Waits until a container has these CPUs.
    pub fn wait_for_cpus(&self, id: &str, cpus: &str) {
        wait_for(&format!("CPUs {cpus} of {id}"), || (self.cpus(id) == cpus).then_some(()));
    }

    /// Every change so far of the CPUs of a container.
    pub fn cpus_so_far(&self, id: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.applied.iter().filter(|(changed, _)| changed == id).map(|(_, cpus)| cpus.clone()).collect()
    }
}

/// Connections of plugins.
impl Runtime {
    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            self.connections.fetch_add(1, Ordering::SeqCst);
            // The next one waits until this one is synchronized, or has failed.
            let _ = self.welcome(stream.unwrap());
        }
    }

    fn hang_up(&self) {
        self.plugins.lock().unwrap().clear();
        self.links.lock().unwrap().drain(..).for_each(|link| link.close());
    }

    fn reach(&self, moment: Moment, link: &PluginLink) {
        let next = self.mischief.lock().unwrap().pop_front_if(|(expected, _)| *expected == moment);
        if let Some((_, mischief)) = next {
            mischief(self, link);
        }
    }

    fn welcome(self: &Arc<Self>, stream: UnixStream) -> Option<()> {
        let (registered_tx, registered_rx) = sync_channel(1);
        let runtime = Arc::downgrade(self);
        let answerer = Arc::new(move |link: &Arc<PluginLink>, method: &str, payload: &[u8]| {
            let Some(runtime) = runtime.upgrade() else { return RpcResponse::failure(UNKNOWN, "gone") };
            match method {
                "RegisterPlugin" => runtime.register(link, payload, &registered_tx),
                "UpdateContainers" => runtime.update_containers(payload),
                _ => RpcResponse::failure(UNIMPLEMENTED, format!("method {method}")),
            }
        });
        let link = PluginLink::open(stream, self.complaints.clone(), answerer);
        self.links.lock().unwrap().push(Arc::clone(&link));
        self.reach(Moment::Accepted, &link);
        match wait_while_open(&link, || registered_rx.recv_timeout(Duration::from_millis(20))) {
            // A plugin with a wrong name is left alone; it is told, and is neither configured nor hung up on.
            Some(false) => return None,
            Some(true) => {}
            None => {
                link.close();
                return None;
            }
        }
        self.reach(Moment::Registered, &link);
        let outcome = self.configure(&link).and_then(|()| self.synchronize(&link));
        if outcome.is_none() {
            link.close();
            return None;
        }
        let mut plugins = self.plugins.lock().unwrap();
        plugins.retain(|plugin| !plugin.is_closed());
        plugins.push(Arc::clone(&link));
        plugins.sort_by_key(|plugin| plugin.name());
        drop(plugins);
        self.synchronized.fetch_add(1, Ordering::SeqCst);
        self.reach(Moment::Synchronized, &link);
        Some(())
    }

    fn register(&self, link: &PluginLink, payload: &[u8], registered_tx: &SyncSender<bool>) -> RpcResponse {
        let request = match RegisterPluginRequest::decode(payload) {
            Ok(request) => request,
            Err(error) => return RpcResponse::failure(UNKNOWN, error.to_string()),
        };
        let is_valid = is_name(&request.plugin_name) && is_index(&request.plugin_idx);
        if link.identity.set((request.plugin_idx, request.plugin_name)).is_err() {
            self.complaints.add("a plugin has registered twice on one connection");
        }
        let _ = registered_tx.try_send(is_valid);
        if is_valid {
            return answer(&Empty {});
        }
        self.complaints.add(format!("a plugin has registered with the invalid name {:?}", link.name()));
        RpcResponse::failure(UNKNOWN, "invalid plugin name or index")
    }

    fn configure(&self, link: &PluginLink) -> Option<()> {
        let (version, limit) = (*self.version.lock().unwrap(), *self.limit.lock().unwrap());
        let milliseconds = |limit: Duration| if version.has_limits { limit.as_millis() as i64 } else { 0 };
        let request = ConfigureRequest {
            config: String::new(),
            runtime_name: "containerd".into(),
            runtime_version: version.runtime.into(),
            registration_timeout: milliseconds(REGISTRATION_LIMIT),
            request_timeout: milliseconds(limit),
            nri_version: version.nri.into(),
        };
        let response: ConfigureResponse = self.call(link, "Configure", &request).ok()?;
        let valid = (1 << version.last_event) - 1;
        if response.events & !valid != 0 {
            self.complaints.add(format!("invalid plugin events: {:#x} of {valid:#x}", response.events));
            return None;
        }
        link.subscribe(if response.events == 0 { valid } else { response.events });
        Some(())
    }

    fn synchronize(&self, link: &PluginLink) -> Option<()> {
        let version = *self.version.lock().unwrap();
        // What is made now waits until this is over, in runtimes that lose nothing.
        let guard = match version.locks_up_connecting {
            true => self.locks.for_update(true),
            false => self.locks.for_event(),
        }
        .ok()?;
        let told: Vec<RuntimeContainer> =
            self.state.lock().unwrap().containers.values().filter(|container| container.is_told()).cloned().collect();
        let mut pods: BTreeMap<String, PodSandbox> = BTreeMap::new();
        for container in &told {
            pods.entry(container.asked.pod_id()).or_insert_with(|| container.asked.sandbox());
        }
        let containers = told.iter().map(|container| container.message(version.has_cdi_devices)).collect();
        let updates = self.tell_all(link, pods.into_values().collect(), containers)?;
        // A failure of these is logged by the real ones, and changes nothing.
        let _ = self.apply(&updates);
        drop(guard);
        Some(())
    }

    /// Synchronizes in pieces, if all objects are too large for a message or a test wants pieces.
    fn tell_all(
        &self,
        link: &PluginLink,
        mut pods: Vec<PodSandbox>,
        mut containers: Vec<Container>,
    ) -> Option<Vec<ContainerUpdate>> {
        let mut piece = *self.piece.lock().unwrap();
        let has_more = self.version.lock().unwrap().has_more;
        loop {
            let rest = (pods.split_off(pods.len().min(piece)), containers.split_off(containers.len().min(piece)));
            let more = !rest.0.is_empty() || !rest.1.is_empty();
            let request = SynchronizeRequest { pods, containers, more: more && has_more };
            let response: SynchronizeResponse = match self.call(link, "Synchronize", &request) {
                Ok(response) => response,
                Err(CallError::TooLarge(_)) if has_more && piece > SMALLEST_PIECE => {
                    let SynchronizeRequest { pods: sent_pods, containers: sent_containers, .. } = request;
                    piece = (sent_pods.len().max(sent_containers.len()) / 2).max(SMALLEST_PIECE / 2);
                    (pods, containers) = ([sent_pods, rest.0].concat(), [sent_containers, rest.1].concat());
                    continue;
                }
                Err(_) => return None,
            };
            if !more {
                return Some(response.update);
            }
            if !response.update.is_empty() || response.more != request.more {
                self.complaints.add("plugin does not handle split sync requests");
                return None;
            }
            (pods, containers) = rest;
        }
    }

    /// A call with the time limit; whatever ends the connection for the real ones ends it.
    fn call<R: Message + Default>(
        &self,
        link: &PluginLink,
        method: &'static str,
        request: &impl Message,
    ) -> Result<R, CallError> {
        let limit = *self.limit.lock().unwrap();
        let answered_rx = link.begin(method, request.encode_to_vec(), limit)?;
        self.reach(Moment::Sent(method), link);
        let outcome = link.finish(&answered_rx, limit);
        if outcome.as_ref().is_err_and(CallError::is_fatal) {
            link.close();
        }
        outcome
    }

    fn update_containers(&self, payload: &[u8]) -> RpcResponse {
        self.unasked.fetch_add(1, Ordering::SeqCst);
        let request = match UpdateContainersRequest::decode(payload) {
            Ok(request) => request,
            Err(error) => return RpcResponse::failure(UNKNOWN, error.to_string()),
        };
        let locks_up = self.version.lock().unwrap().locks_up;
        let guard = match self.locks.for_update(locks_up) {
            Ok(guard) => guard,
            Err(error) => return RpcResponse::failure(UNKNOWN, error),
        };
        let failed = self.apply(&request.update);
        drop(guard);
        if failed.is_empty() {
            return answer(&UpdateContainersResponse { failed });
        }
        // The real ones answer with an error then, and the list of the failed is lost.
        RpcResponse::failure(UNKNOWN, "NRI update of some containers failed")
    }
}

fn answer(message: &impl Message) -> RpcResponse {
    RpcResponse { status: None, payload: message.encode_to_vec() }
}

/// Waits for a message within the time for a registration, unless the plugin hangs up.
fn wait_while_open<T>(link: &PluginLink, mut receive: impl FnMut() -> Result<T, RecvTimeoutError>) -> Option<T> {
    let start = std::time::Instant::now();
    while start.elapsed() < REGISTRATION_LIMIT && !link.is_closed() {
        match receive() {
            Ok(value) => return Some(value),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || "-_.+".contains(char))
}

fn is_index(index: &str) -> bool {
    index.len() == 2 && index.chars().all(|char| char.is_ascii_digit())
}

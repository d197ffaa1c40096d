//! A Kubernetes API server for tests, in the test's own process. It speaks HTTP/1.1 and HTTP/2 over TLS to any client,
//! and enforces what the real one enforces and a driver depends on.
//!
//! ```text
//!   http ──► auth ──► faults ──► verbs ──► convert, schema, strategy, rules ──► store
//!                          └──► watch ◄─────────────── changes ◄──────────────────┘
//! ```
//!
//! What tests do themselves, with [`ApiServer::create`] and the like, goes the same way, past authorization and faults.

mod apply;
mod auth;
mod claims;
mod classic;
mod convert;
mod custom;
mod devices;
mod direct;
mod discovery;
mod events;
mod faults;
mod features;
mod fieldpath;
mod fields;
mod gates;
mod http;
mod list;
mod opaque;
mod patch;
mod policies;
mod protobuf;
mod quantity;
mod refusal;
mod resources;
mod reviews;
mod rules;
mod schema;
mod selectors;
mod shape;
mod slices;
mod state;
mod store;
mod strategic;
mod strategy;
mod structured;
mod syntax;
mod tls;
mod topology;
mod verbs;
mod watch;
mod webhooks;

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::json;
use tempfile::TempDir;
use tokio::{net::TcpSocket, task::JoinSet};
use tokio_rustls::TlsAcceptor;

pub use auth::{ApiUser, PolicyRule};
pub use direct::ApiServerView;
pub use faults::{ApiFault, FaultEffect};
pub use fields::fields_of;
pub use policies::AdmissionPolicy;
pub use refusal::StatusError;
pub use resources::ApiServerRelease;
pub use state::{AdmissionAttributes, LoggedRequest};
pub use webhooks::ask_over_tls;

use rules::ServerSettings;
use state::SharedServerState;
use watch::WatchSignal;

/// Options of a server.
#[derive(Clone, Debug, Default)]
pub struct ApiServerOptions {
    /// The release of the server.
    pub release: ApiServerRelease,
    /// Feature gates that are not as the release has them.
    pub gates: BTreeMap<String, bool>,
    /// True if the CRD of NodeResourceTopology (`topology.node.k8s.io/v1alpha2`) is installed.
    pub topology: bool,
}

/// A running server; it ends when it is dropped.
pub struct ApiServer {
    shared: Arc<SharedServerState>,
    tls: TlsAcceptor,
    address: SocketAddr,
    folder: TempDir,
    serving: Mutex<JoinSet<()>>,
}

impl ApiServer {
    /// Listens when this returns.
    pub async fn start(options: ApiServerOptions) -> Self {
        let folder = TempDir::new().expect("a folder for the certificate");
        let (tls, authority) = tls::new();
        fs::write(folder.path().join("ca.pem"), authority).expect("the certificate is written");
        let mut settings = ServerSettings::new(options.release, &options.gates);
        settings.topology = options.topology;
        let shared = Arc::new(SharedServerState::new(settings));
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = Self { shared, tls, address: nowhere, folder, serving: Mutex::default() };
        server.address = server.listen();
        for namespace in ["default", "kube-system"] {
            server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
        }
        server
    }

    /// A server of a release with its default gates.
    pub async fn of(release: ApiServerRelease) -> Self {
        Self::start(ApiServerOptions { release, ..ApiServerOptions::default() }).await
    }

    fn listen(&self) -> SocketAddr {
        let socket = TcpSocket::new_v4().expect("a socket");
        // The port is taken again after an outage.
        socket.set_reuseaddr(true).expect("an option of the socket");
        socket.bind(self.address).expect("the port is free");
        let listener = socket.listen(1024).expect("a socket that listens");
        let address = listener.local_addr().expect("an address");
        let serving = http::serve(Arc::clone(&self.shared), listener, self.tls.clone());
        self.serving.lock().unwrap_or_else(PoisonError::into_inner).spawn(serving);
        address
    }

    /// An outage: all connections are cut, and new ones refused.
    pub async fn stop_listening(&self) {
        let mut serving = std::mem::take(&mut *self.serving.lock().unwrap_or_else(PoisonError::into_inner));
        serving.shutdown().await;
    }

    /// Ends the outage, on the same port.
    pub async fn listen_again(&self) {
        self.listen();
    }

    /// `https://127.0.0.1:…`
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate that signs the server's, as PEM.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Returns a folder for files of tests that go with the server.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a file with the address and the token of a user, who is created if unknown.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        let token = self.user(user, None);
        let path = self.folder.path().join(format!("{}.kubeconfig", user.replace(['/', ':'], "-")));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{
                "name": "test", "cluster": { "server": self.url(), "certificate-authority": self.authority() },
            }],
            "users": [{ "name": user, "user": { "token": token } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": user } }],
        });
        fs::write(&path, config.to_string()).expect("the kubeconfig is written");
        path
    }

    /// A client with the credentials of a user.
    pub async fn client(&self, user: &str) -> kube::Client {
        // Rustls guesses which cryptography to use, and panics when a build has several.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let config = kube::config::Kubeconfig::read_from(self.kubeconfig(user)).expect("our kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await;
        kube::Client::try_from(config.expect("a configuration")).expect("a client")
    }

    /// Creates a user, or sets the node of an existing one. Returns the token.
    pub fn user(&self, name: &str, node: Option<&str>) -> String {
        let new = ApiUser::new(name);
        let token = new.token();
        self.shared.write(|state| {
            let user = state.users.entry(token.clone()).or_insert(new);
            user.node = node.map(str::to_owned).or_else(|| user.node.take());
        });
        token
    }

    /// Allows a user to do what these rules allow, beside the rules of earlier calls. A user without any rules may do
    /// everything.
    pub fn allow(&self, user: &str, rules: Vec<PolicyRule>) {
        let token = self.user(user, None);
        self.shared.write(|state| {
            let user = state.users.get_mut(&token).expect("made above");
            user.rules.get_or_insert_default().extend(rules);
        });
    }

    /// Revokes a user's token.
    pub fn forget_user(&self, name: &str) {
        self.shared.write(|state| state.users.retain(|_, user| user.name != name));
    }

    /// Asks `policy` about every write from now on; the policy may refuse it with a reason.
    pub fn admit(&self, policy: impl Fn(&AdmissionAttributes<'_>) -> Result<(), String> + Send + Sync + 'static) {
        self.shared.write(|state| state.policies.push(state::AdmissionPolicy(Arc::new(policy))));
    }

    /// Sets the address of a Service: webhooks that name it are called there.
    pub fn lead_to(&self, namespace: &str, service: &str, address: SocketAddr) {
        self.shared.write(|state| state.services.insert((namespace.to_owned(), service.to_owned()), address));
    }

    /// Trouble to come.
    pub fn fail(&self, fault: ApiFault) {
        self.shared.write(|state| state.faults.push(fault));
    }

    /// Ends all trouble that [`fail`](Self::fail) has announced and that did not come yet.
    pub fn heal(&self) {
        self.shared.write(|state| state.faults.clear());
    }

    /// Requests that will still suffer.
    pub fn faults_left(&self) -> u32 {
        self.shared.read(|state| state.faults.iter().map(|fault| fault.times).sum())
    }

    /// Forgets all history: who lists or watches from an older state, the newest seen included, gets 410.
    pub fn compact(&self) {
        self.shared.write(|state| state.store.compact());
    }

    /// Ends all watches, as a real server does every few minutes.
    pub fn close_watches(&self) {
        self.signal(WatchSignal::Close);
    }

    /// Makes all watches report 410.
    pub fn expire_watches(&self) {
        self.signal(WatchSignal::Expire);
    }

    /// Sends a bookmark to everyone who wants one.
    pub fn send_bookmarks(&self) {
        self.signal(WatchSignal::Bookmark);
    }

    fn signal(&self, signal: WatchSignal) {
        // Without a watch, the signal has no receiver.
        let _ = self.shared.signals.send(signal);
    }

    /// Everything that was asked so far.
    pub fn log(&self) -> Vec<LoggedRequest> {
        self.shared.read(|state| state.log.clone())
    }

    /// Number of requests that were to change objects of a resource, refused ones included; `resourceclaims/status` for
    /// a subresource.
    pub fn writes(&self, resource: &str) -> usize {
        self.shared
            .read(|state| state.log.iter().filter(|logged| logged.is_write() && logged.resource == resource).count())
    }

    /// Returns the present value of the counter of versions.
    pub fn resource_version(&self) -> u64 {
        self.shared.read(|state| state.store.rv())
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("address", &self.address).finish_non_exhaustive()
    }
}

//! Opens the kubelet's services: with the lock, or, while another daemon hands over, before it.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    time::Duration,
};

use hostler_api::Chain;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    admin::KubeletSide,
    claims::ClaimsHandle,
    config::{ClassicCalls, DaemonConfig, KubeletSocketPaths},
    inventory::InventoryReader,
    kubelet::{self, KubeletConnections, KubeletParts, KubeletSockets, RegistrationState, SuccessorSocket},
    metrics::Metrics,
    socket::SocketError,
    tasks::Tasks,
};

/// Time between two checks for a kubelet on this host; its first start takes longer.
const KUBELET_LOOK: Duration = Duration::from_secs(5);

/// The services, open or not. On a host without a kubelet there is nothing to open.
pub(super) struct KubeletServices {
    enabled: bool,
    classic: ClassicCalls,
    node: String,
    paths: KubeletSocketPaths,
    is_open: bool,
    /// The kubelet's folder.
    root: PathBuf,
    inventory: InventoryReader,
    metrics: Metrics,
    successor: Option<SuccessorSocket>,
    claims_tx: watch::Sender<Option<ClaimsHandle>>,
    registration_tx: watch::Sender<RegistrationState>,
    connections_tx: watch::Sender<KubeletConnections>,
    tasks: Tasks,
}

impl KubeletServices {
    pub(super) fn new(config: &DaemonConfig, inventory: InventoryReader, metrics: Metrics, tasks: &Tasks) -> Self {
        Self {
            enabled: config.kubelet.enabled,
            classic: config.kubelet.classic,
            node: config.node_name.clone(),
            paths: config.kubelet_sockets().of_new_instance(),
            is_open: false,
            root: config.paths.kubelet.clone(),
            inventory,
            metrics,
            successor: None,
            claims_tx: watch::Sender::default(),
            registration_tx: watch::Sender::default(),
            connections_tx: watch::Sender::default(),
            tasks: tasks.clone(),
        }
    }

    /// Opens the sockets, if they are not open yet. Calls wait until [`begin`](Self::begin).
    pub(super) async fn open(&mut self) -> Result<(), SocketError> {
        if self.is_open || !self.enabled {
            return Ok(());
        }
        if !self.root.is_dir() {
            self.open_later();
            return Ok(());
        }
        let sockets = KubeletSockets::bind(&self.paths).await?;
        // From here on nothing waits, so that a cancelled call has opened them or not.
        self.is_open = true;
        let parts = self.parts()(sockets);
        self.tasks.service("kubelet", async move { Ok(kubelet::serve(parts).await?) });
        Ok(())
    }

    /// Opens the sockets when a kubelet has come: only the kubelet makes its folder.
    fn open_later(&mut self) {
        info!(path = %self.root.display(), "no kubelet is here: its services open when its folder is there");
        self.is_open = true;
        let (paths, root, stop, parts) = (self.paths.clone(), self.root.clone(), self.tasks.stop_token(), self.parts());
        self.tasks.service("kubelet", async move {
            // Cancel safe: the check changes nothing.
            if stop.run_until_cancelled(comes(&root)).await.is_none() {
                return Ok(());
            }
            // In a sandbox that was made without the folder this fails, and the next start has another one.
            Ok(kubelet::serve(parts(KubeletSockets::bind(&paths).await?)).await?)
        });
    }

    /// Returns what makes the parts of the services out of their sockets.
    fn parts(&self) -> impl FnOnce(KubeletSockets) -> KubeletParts + Send + use<> {
        let (driver, claims_rx, inventory) =
            (self.paths.driver.clone(), self.claims_tx.subscribe(), self.inventory.clone());
        let (registration_tx, connections_tx) = (self.registration_tx.clone(), self.connections_tx.clone());
        let (metrics, tasks) = (self.metrics.clone(), self.tasks.clone());
        let (node, classic) = (self.node.clone(), self.classic);
        move |sockets| KubeletParts {
            driver,
            node,
            classic,
            sockets,
            claims_rx,
            inventory,
            registration_tx,
            connections_tx,
            metrics,
            tasks,
        }
    }

    /// Lets the daemon that works find this one. To be called before this one is said to stand by: the operator may
    /// stop the other then.
    pub(super) async fn announce(&mut self) {
        if !self.enabled || !self.root.is_dir() {
            return;
        }
        match SuccessorSocket::bind(&self.paths).await {
            Ok(successor) => self.successor = Some(successor),
            Err(error) => warn_of(&error),
        }
    }

    /// Lets another daemon hand over, as soon as it wants to. A daemon that stands by does so until it has the lock.
    pub(super) async fn stand_by(&mut self) -> Infallible {
        if let Some(successor) = self.successor.take() {
            let register = async || {
                self.open().await?;
                Ok(self.registered().await)
            };
            if let Err(error) = successor.answer(register).await {
                warn_of(&error);
            }
        }
        std::future::pending().await
    }

    /// Waits until the kubelet has registered this daemon and is connected: from then on it calls no other. Or until
    /// it has refused to, as it does up to 1.31 as long as there is another one.
    async fn registered(&self) -> bool {
        let (mut registration_rx, mut connections_rx) =
            (self.registration_tx.subscribe(), self.connections_tx.subscribe());
        // The senders are ours, so neither wait fails.
        let answered = registration_rx.wait_for(|state| *state != RegistrationState::Waiting).await;
        let is_registered = answered.is_ok_and(|state| *state == RegistrationState::Registered);
        if is_registered {
            let _ = connections_rx.wait_for(|connections| connections.open > 0).await;
        }
        is_registered
    }

    /// Lets calls through to the claims, which are recovered.
    pub(super) fn begin(&self, claims: ClaimsHandle) {
        self.claims_tx.send_replace(Some(claims));
    }

    /// State of the kubelet's side.
    pub(super) fn side(&self) -> Option<KubeletSide> {
        self.enabled.then(|| KubeletSide {
            registration_rx: self.registration_tx.subscribe(),
            connections_rx: self.connections_tx.subscribe(),
            registration_socket: self.paths.registration_socket(),
            service_socket: self.paths.service_socket(),
            pods: self.root.join("pods"),
        })
    }
}

fn warn_of(error: &SocketError) {
    warn!(error = %Chain(error), "cannot be told when to follow: the kubelet will miss the driver for a moment");
}

/// Waits for a folder that another program makes.
async fn comes(folder: &Path) {
    while !folder.is_dir() {
        tokio::time::sleep(KUBELET_LOOK).await;
    }
}

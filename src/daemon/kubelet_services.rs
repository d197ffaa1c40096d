//! When the kubelet's services open: with the lock, or, while another daemon hands over, before it.

use std::{convert::Infallible, path::PathBuf};

use hostler_api::Chain;
use tokio::sync::watch;
use tracing::warn;

use crate::{
    admin::KubeletSide,
    claims::ClaimsHandle,
    config::{DaemonConfig, KubeletSocketPaths},
    inventory::InventoryReader,
    kubelet::{self, KubeletConnections, KubeletParts, KubeletSockets, RegistrationState, SuccessorSocket},
    metrics::Metrics,
    socket::SocketError,
    tasks::Tasks,
};

/// The services, open or not. On a host without a kubelet there is nothing to open.
pub(super) struct KubeletServices {
    enabled: bool,
    paths: KubeletSocketPaths,
    is_open: bool,
    /// The kubelet's pods.
    pods: PathBuf,
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
            paths: config.kubelet_sockets().of_new_instance(),
            is_open: false,
            pods: config.paths.kubelet.join("pods"),
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
        let sockets = KubeletSockets::bind(&self.paths).await?;
        // From here on nothing waits, so that whoever is cancelled has opened them or not.
        self.is_open = true;
        let parts = KubeletParts {
            driver: self.paths.driver.clone(),
            sockets,
            claims_rx: self.claims_tx.subscribe(),
            inventory: self.inventory.clone(),
            registration_tx: self.registration_tx.clone(),
            connections_tx: self.connections_tx.clone(),
            metrics: self.metrics.clone(),
            tasks: self.tasks.clone(),
        };
        self.tasks.service("kubelet", async move { Ok(kubelet::serve(parts).await?) });
        Ok(())
    }

    /// Lets the daemon that works find this one. Before anybody hears that this one stands by: he may stop the other then.
    pub(super) async fn announce(&mut self) {
        if !self.enabled {
            return;
        }
        match SuccessorSocket::bind(&self.paths).await {
            Ok(successor) => self.successor = Some(successor),
            Err(error) => warn_of(&error),
        }
    }

    /// Lets another daemon hand over, as soon as it wants to. Who stands by does so until it has the lock.
    pub(super) async fn stand_by(&mut self) -> Infallible {
        if let Some(successor) = self.successor.take() {
            let register = async || {
                self.open().await?;
                self.registered().await;
                Ok(())
            };
            if let Err(error) = successor.answer(register).await {
                warn_of(&error);
            }
        }
        std::future::pending().await
    }

    /// Waits until the kubelet has registered this daemon and is connected: from then on it calls nobody else.
    async fn registered(&self) {
        let (mut registration_rx, mut connections_rx) =
            (self.registration_tx.subscribe(), self.connections_tx.subscribe());
        // The senders are ours, so neither wait fails.
        let _ = registration_rx.wait_for(|state| *state == RegistrationState::Registered).await;
        let _ = connections_rx.wait_for(|connections| connections.open > 0).await;
    }

    /// Lets calls through to the claims, which are recovered.
    pub(super) fn begin(&self, claims: ClaimsHandle) {
        self.claims_tx.send_replace(Some(claims));
    }

    /// What is told of the kubelet.
    pub(super) fn side(&self) -> Option<KubeletSide> {
        self.enabled.then(|| KubeletSide {
            registration_rx: self.registration_tx.subscribe(),
            connections_rx: self.connections_tx.subscribe(),
            registration_socket: self.paths.registration_socket(),
            service_socket: self.paths.service_socket(),
            pods: self.pods.clone(),
        })
    }
}

fn warn_of(error: &SocketError) {
    warn!(error = %Chain(error), "cannot be told when to follow: the kubelet will miss the driver for a moment");
}

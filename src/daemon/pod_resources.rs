//! Starts the tasks that tell which pod holds which device: the join, the poller of the kubelet, the socket.

use std::sync::Arc;

use tokio::sync::watch;

use super::DaemonError;
use crate::{
    claims::ClaimsHandle,
    config::DaemonConfig,
    containers::seen::SeenReader,
    inventory::task::InventoryHandle,
    kubelet::pod_resources::{self, KubeletPods, KubeletPollParts, PodResourcesParts, poll_kubelet},
    metrics::Metrics,
    pods::PodsReader,
    socket::ListeningSocket,
    tasks::Tasks,
    usage::pods::{PodUsageParts, PodUsageReader, reader},
};

/// Starts the join, and the socket where that is switched on.
pub(super) async fn start(
    config: &DaemonConfig,
    (pods_rx, seen_rx): (PodsReader, SeenReader),
    claims: &ClaimsHandle,
    inventory: &InventoryHandle,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<PodUsageReader, DaemonError> {
    let parts = PodUsageParts { pods_rx, seen_rx, claims: claims.clone(), inventory: inventory.clone() };
    let usage = reader::start(parts, tasks);
    if config.pod_resources.enabled {
        serve(config, usage.clone(), inventory, metrics, tasks).await?;
    }
    Ok(usage)
}

async fn serve(
    config: &DaemonConfig,
    usage: PodUsageReader,
    inventory: &InventoryHandle,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<(), DaemonError> {
    let socket = ListeningSocket::bind(config.pod_resources_socket()).await.map_err(DaemonError::PodResources)?;
    let parts = PodResourcesParts {
        driver: config.driver.clone(),
        config: config.pod_resources.clone(),
        usage,
        inventory: inventory.reader(),
        backends: inventory.backends(),
        kubelet_rx: kubelet_pods(config, metrics, tasks),
        metrics: metrics.pod_resources().clone(),
    };
    let serving = pod_resources::serve(socket, parts, tasks.clone());
    tasks.service("pod resources", async move { Ok(serving.await?) });
    Ok(())
}

/// Pods as the kubelet tells of them, where it is to be asked.
fn kubelet_pods(config: &DaemonConfig, metrics: &Metrics, tasks: &Tasks) -> watch::Receiver<Arc<KubeletPods>> {
    if !config.pod_resources.merge {
        return watch::channel(Arc::default()).1;
    }
    let parts = KubeletPollParts {
        socket: config.kubelet_pod_resources_socket(),
        every: config.pod_resources.kubelet_poll,
        metrics: metrics.pod_resources().clone(),
    };
    poll_kubelet(parts, tasks)
}

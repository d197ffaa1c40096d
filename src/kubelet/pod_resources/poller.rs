//! Asks the kubelet for its own pods: one poller, however many clients ask hostler.
//!
//! A kubelet that is away costs only freshness: its last answer is used, and marked as stale.

use std::{path::Path, sync::Arc, time::Duration};

use hostler_api::{Chain, Doubling};
use hostler_proto::pod_resources_v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ListPodResourcesRequest, PodResources,
    pod_resources_lister_client::PodResourcesListerClient,
};
use tokio::{sync::watch, time::sleep};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tracing::{info, warn};

use super::{KubeletPollParts, merge};
use crate::tasks::Tasks;

/// Largest answer: that of a node with many pods and devices is larger than the usual 4 MiB.
const MOST_BYTES: usize = 16 << 20;
/// Time that a call may take. A kubelet answers from memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses after failures: from the length of a restart to one that costs nothing.
const PAUSES: Doubling = Doubling::new(Duration::from_millis(500), Duration::from_secs(60));
/// The name under which unix sockets are called.
const ORIGIN: &str = "http://localhost";

/// The kubelet's own pods and resources, corrected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeletPods {
    /// Pods, sorted.
    pub pods: Vec<PodResources>,
    /// Resources that the kubelet can hand out itself.
    pub allocatable: AllocatableResourcesResponse,
}

/// Reason why the kubelet gave no answer.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error("{} cannot be a socket's address", path.display())]
    Address {
        path: std::path::PathBuf,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("the kubelet said {}: {}", .0.code(), .0.message())]
    Call(Status),
}

/// Polls the kubelet for as long as the daemon runs; readers get the latest good answer.
pub fn poll_kubelet(parts: KubeletPollParts, tasks: &Tasks) -> watch::Receiver<Arc<KubeletPods>> {
    let (pods_tx, pods_rx) = watch::channel(Arc::default());
    let stop = tasks.stop_token();
    let poller = KubeletPoller { parts, pods_tx, client: None, failed: None };
    tasks.service("kubelet pods", async move {
        // Cancel safe: the next daemon asks again for an answer that did not come.
        stop.run_until_cancelled(poller.run()).await;
        Ok(())
    });
    pods_rx
}

struct KubeletPoller {
    parts: KubeletPollParts,
    pods_tx: watch::Sender<Arc<KubeletPods>>,
    client: Option<PodResourcesListerClient<Channel>>,
    /// The pause after the last failure.
    failed: Option<Duration>,
}

impl KubeletPoller {
    async fn run(mut self) {
        // Nothing is known of the kubelet yet.
        self.parts.metrics.set_kubelet_stale(true);
        loop {
            let pause = match self.ask().await {
                Ok(answer) => self.answered(answer),
                Err(error) => self.failed(&error),
            };
            sleep(pause).await;
        }
    }

    async fn ask(&mut self) -> Result<KubeletPods, PollError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(client(&self.parts.socket)?),
        };
        let listed = client.list(ListPodResourcesRequest {}).await.map_err(PollError::Call)?;
        let allocatable = match client.get_allocatable_resources(AllocatableResourcesRequest {}).await {
            Ok(allocatable) => allocatable.into_inner(),
            // Kubelets can be without this call.
            Err(status) if matches!(status.code(), Code::Unknown | Code::Unimplemented) => Default::default(),
            Err(status) => return Err(PollError::Call(status)),
        };
        Ok(KubeletPods {
            pods: merge::mended(listed.into_inner()),
            allocatable: merge::mended_allocatable(allocatable),
        })
    }

    fn answered(&mut self, answer: KubeletPods) -> Duration {
        if self.failed.take().is_some() {
            info!(path = %self.parts.socket.display(), "the kubelet tells of its pods again");
        }
        self.parts.metrics.set_kubelet_stale(false);
        self.pods_tx.send_if_modified(|known| {
            let is_new = **known != answer;
            if is_new {
                *known = Arc::new(answer);
            }
            is_new
        });
        self.parts.every
    }

    fn failed(&mut self, error: &PollError) -> Duration {
        self.parts.metrics.set_kubelet_stale(true);
        if self.failed.is_none() {
            let path = self.parts.socket.display();
            warn!(path = %path, error = %Chain(error), "the kubelet cannot be asked for its pods: its last answer is used");
        }
        let pause = PAUSES.next(self.failed);
        self.failed = Some(pause);
        // Nodes that lost their kubelets at one moment must not ask again at one moment.
        pause.mul_f64(0.8 + 0.4 * fastrand::f64())
    }
}

/// Makes a client, which connects at its first use, and again whenever that is needed.
fn client(socket: &Path) -> Result<PodResourcesListerClient<Channel>, PollError> {
    let failed = |source| PollError::Address { path: socket.to_owned(), source };
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).map_err(failed)?;
    let endpoint = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE).origin(http_origin());
    Ok(PodResourcesListerClient::new(endpoint.connect_lazy()).max_decoding_message_size(MOST_BYTES))
}

fn http_origin() -> tonic::transport::Uri {
    tonic::transport::Uri::from_static(ORIGIN)
}

//! Tells which pod holds which devices, in the API in which kubelets tell it (`PodResourcesLister`).
//!
//! ```text
//!   pod usage ──────────┐
//!   inventory ──────────┼──► answers ──► merge ──► bytes, made once per change ──► pod-resources.sock ──► agents
//!   kubelet's own socket┴──► poller ───────┘
//! ```
//!
//! The service is read-only. Only root may ask; all clients share one limit.

mod answers;
mod encoded;
mod limit;
mod merge;
mod poller;
mod service;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use hostler_proto::pod_resources_v1::GetPodResourcesRequest;
use prost::bytes::Bytes;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tonic::{
    Status,
    metadata::{MetadataMap, MetadataValue},
    service::Routes,
};

use self::{
    encoded::{EncodedPods, MadeOnce, encoded},
    limit::TokenBucket,
    service::{ServiceV1, ServiceV1Alpha1},
};
use super::{KubeletError, serve_socket};
use crate::{
    config::PodResourcesConfig,
    descriptors::ServedSocket,
    inventory::{Inventory, InventoryReader},
    metrics::{PodResourcesApi, PodResourcesCall, PodResourcesMetrics},
    registry::BackendRegistry,
    socket::ListeningSocket,
    tasks::Tasks,
    usage::pods::{NodePodUsage, PodUsageReader},
};

pub use poller::{KubeletPods, poll_kubelet};

/// Header that tells gRPC clients after which time to call again, in milliseconds.
const RETRY_AFTER: &str = "grpc-retry-pushback-ms";

/// Parts of the service.
#[derive(Debug)]
pub struct PodResourcesParts {
    /// Name of the driver.
    pub driver: String,
    /// The section of the configuration, which says which calls are answered.
    pub config: PodResourcesConfig,
    /// Pods with the devices that they hold.
    pub usage: PodUsageReader,
    /// Devices.
    pub inventory: InventoryReader,
    /// Backends, for the kinds of their devices.
    pub backends: BackendRegistry,
    /// Pods and resources of the kubelet's own answers; empty if the kubelet is not polled.
    pub kubelet_rx: watch::Receiver<Arc<KubeletPods>>,
    /// Counters of calls.
    pub metrics: PodResourcesMetrics,
}

/// Answers calls.
#[derive(Debug)]
struct PodResourcesServer {
    parts: PodResourcesParts,
    bucket: Mutex<TokenBucket>,
    pods: MadeOnce<NodePodUsage, KubeletPods, EncodedPods>,
    pods_v1alpha1: MadeOnce<NodePodUsage, KubeletPods, Bytes>,
    allocatable: MadeOnce<Inventory, KubeletPods, Bytes>,
}

/// Serves until the daemon stops.
///
/// # Errors
/// When the server fails.
pub async fn serve(socket: ListeningSocket, parts: PodResourcesParts, tasks: Tasks) -> Result<(), KubeletError> {
    let bucket = TokenBucket::full(parts.config.rate, parts.config.burst, Instant::now());
    let server = Arc::new(PodResourcesServer {
        parts,
        bucket: Mutex::new(bucket),
        pods: MadeOnce::default(),
        pods_v1alpha1: MadeOnce::default(),
        allocatable: MadeOnce::default(),
    });
    let routes = Routes::new(ServiceV1(server.clone())).add_service(ServiceV1Alpha1(server));
    // The service answers its calls from memory.
    let unwatched = (TaskTracker::new(), watch::Sender::default());
    serve_socket((socket, ServedSocket::PodResources), routes, unwatched, tasks.stop_token()).await
}

impl PodResourcesServer {
    async fn list(&self, api: PodResourcesApi) -> Result<Bytes, Status> {
        self.counted(api, PodResourcesCall::List, async {
            let (usage, kubelet) = (self.usage().await?, self.kubelet());
            Ok(match api {
                PodResourcesApi::V1 => self.pods(&usage, &kubelet).list(),
                PodResourcesApi::V1Alpha1 => {
                    let make = || encoded(&answers::to_v1alpha1(self.merged(&usage, &kubelet)));
                    (*self.pods_v1alpha1.get(&usage, &kubelet, make)).clone()
                }
            })
        })
        .await
    }

    async fn get(&self, asked: &GetPodResourcesRequest) -> Result<Bytes, Status> {
        self.counted(PodResourcesApi::V1, PodResourcesCall::Get, async {
            let pods = self.pods(&self.usage().await?, &self.kubelet());
            let GetPodResourcesRequest { pod_name, pod_namespace } = asked;
            // Code and message are the kubelet's own: clients know them.
            pods.pod(pod_namespace, pod_name)
                .ok_or_else(|| Status::unknown(format!("pod {pod_name} in namespace {pod_namespace} not found")))
        })
        .await
    }

    async fn allocatable(&self) -> Result<Bytes, Status> {
        self.counted(PodResourcesApi::V1, PodResourcesCall::GetAllocatable, async {
            let (inventory, kubelet) = (self.parts.inventory.latest(), self.kubelet());
            let make = || {
                let ours = answers::allocatable(&inventory, &self.parts.backends, &self.parts.driver);
                encoded(&merge::allocatable(ours, &kubelet.allocatable))
            };
            Ok((*self.allocatable.get(&inventory, &kubelet, make)).clone())
        })
        .await
    }

    /// Counts a call, and answers it if it is within the limit and switched on.
    async fn counted(
        &self,
        api: PodResourcesApi,
        call: PodResourcesCall,
        answer: impl Future<Output = Result<Bytes, Status>>,
    ) -> Result<Bytes, Status> {
        let metrics = &self.parts.metrics;
        self.admit().map_err(|wait| {
            metrics.throttled();
            rejected(wait)
        })?;
        metrics.asked(api, call);
        let answer = match self.disabled(call) {
            Some(words) => Err(Status::unknown(words)),
            None => answer.await,
        };
        if answer.is_err() {
            metrics.failed(api, call);
        }
        answer
    }

    fn admit(&self) -> Result<(), Duration> {
        // The bucket has two numbers, which are whole even if the last holder panicked.
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now())
    }

    /// The kubelet's message for a call that is switched off; a kubelet has no switch for `List`.
    fn disabled(&self, call: PodResourcesCall) -> Option<&'static str> {
        let config = &self.parts.config;
        let (enabled, words) = match call {
            PodResourcesCall::List => (config.list, "PodResources API List method disabled"),
            PodResourcesCall::Get => (config.get, "PodResources API Get method disabled"),
            PodResourcesCall::GetAllocatable => {
                (config.get_allocatable, "Pod Resources API GetAllocatableResources disabled")
            }
        };
        (!enabled).then_some(words)
    }

    async fn usage(&self) -> Result<Arc<NodePodUsage>, Status> {
        let usage = self.parts.usage.latest().await;
        usage.ok_or_else(|| Status::unavailable("the daemon is stopping; try again"))
    }

    fn kubelet(&self) -> Arc<KubeletPods> {
        self.parts.kubelet_rx.borrow().clone()
    }

    fn pods(&self, usage: &Arc<NodePodUsage>, kubelet: &Arc<KubeletPods>) -> Arc<EncodedPods> {
        self.pods.get(usage, kubelet, || EncodedPods::of(&self.merged(usage, kubelet)))
    }

    fn merged(
        &self,
        usage: &NodePodUsage,
        kubelet: &KubeletPods,
    ) -> Vec<hostler_proto::pod_resources_v1::PodResources> {
        let driver = &self.parts.driver;
        if kubelet.pods.is_empty() {
            return answers::pods(usage, driver);
        }
        let placed = merge::placed(usage, &kubelet.pods);
        merge::pods(answers::pods(&placed, driver), &kubelet.pods, &usage.ended, driver)
    }
}

/// The kubelet's status for a call over the limit, with the time to wait.
fn rejected(wait: Duration) -> Status {
    // A call that comes a moment too early would be rejected again.
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    let mut metadata = MetadataMap::new();
    metadata.insert(RETRY_AFTER, MetadataValue::from(millis));
    let message = format!("rejected by rate limit: try again in {millis}ms");
    Status::with_metadata(tonic::Code::ResourceExhausted, message, metadata)
}

/// Parts of the poller that asks the kubelet for its own pods.
#[derive(Clone, Debug)]
pub struct KubeletPollParts {
    /// The kubelet's socket.
    pub socket: PathBuf,
    /// Period of polls.
    pub every: Duration,
    /// Metrics, which tell whether the kubelet answers.
    pub metrics: PodResourcesMetrics,
}

//! A kubelet's PodResources socket, with the quirks that the real one has; and a client of any such socket.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hostler_proto::{
    pod_resources_v1::{
        AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, GetPodResourcesRequest,
        GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse, PodResources, TopologyInfo,
        pod_resources_lister_client::PodResourcesListerClient,
        pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer},
    },
    pod_resources_v1alpha1::{
        self, pod_resources_lister_client::PodResourcesListerClient as V1Alpha1PodResourcesClient,
    },
};
use tokio::{net::UnixListener, task::JoinHandle, time::sleep};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{
    Code, Request, Response, Status,
    transport::{Channel, Server},
};

use crate::kubelet::{KubeletResult, dial};

/// Largest answer that clients on large nodes accept.
const LARGE_BYTES: usize = 16 << 20;

/// The true state of a kubelet; its answers can differ.
#[derive(Clone, Debug, Default)]
pub struct KubeletTruth {
    /// The kubelet's pods.
    pub pods: Vec<PodResources>,
    /// Devices that the kubelet can hand out.
    pub allocatable: AllocatableResourcesResponse,
}

#[derive(Clone, Default)]
struct KubeletLister {
    truth: Arc<Mutex<KubeletTruth>>,
    refusal: Arc<Mutex<Option<Status>>>,
    calls: Arc<AtomicUsize>,
}

/// A kubelet that serves its socket until this is dropped.
pub struct KubeletPodResources {
    socket: PathBuf,
    lister: KubeletLister,
    serving: Option<JoinHandle<()>>,
}

impl KubeletPodResources {
    /// Serves `socket` in the runtime of the caller.
    pub fn serve(socket: &Path, truth: KubeletTruth) -> Self {
        let lister = KubeletLister { truth: Arc::new(Mutex::new(truth)), ..KubeletLister::default() };
        let mut kubelet = Self { socket: socket.to_owned(), lister, serving: None };
        kubelet.restart();
        kubelet
    }

    /// Serves again, after [`stop`](Self::stop).
    pub fn restart(&mut self) {
        std::fs::create_dir_all(self.socket.parent().unwrap()).unwrap();
        let _ = std::fs::remove_file(&self.socket);
        let incoming = UnixListenerStream::new(UnixListener::bind(&self.socket).unwrap());
        let service = PodResourcesListerServer::new(self.lister.clone());
        self.serving = Some(tokio::spawn(async move {
            Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
        }));
    }

    /// Stops the server, with all connections.
    pub fn stop(&mut self) {
        self.serving.take().expect("it serves").abort();
        let _ = std::fs::remove_file(&self.socket);
        // Connections have tasks of their own.
        *self.lister.refusal.lock().unwrap() = Some(Status::unavailable("the kubelet is gone"));
    }

    /// Answers again after [`stop`](Self::stop) or [`refuse`](Self::refuse).
    pub fn answer(&self) {
        *self.lister.refusal.lock().unwrap() = None;
    }

    /// Answers every call with this.
    pub fn refuse(&self, code: Code, words: &str) {
        *self.lister.refusal.lock().unwrap() = Some(Status::new(code, words));
    }

    /// Replaces the true state.
    pub fn learn(&self, truth: KubeletTruth) {
        *self.lister.truth.lock().unwrap() = truth;
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> usize {
        self.lister.calls.load(Ordering::Relaxed)
    }
}

impl Drop for KubeletPodResources {
    fn drop(&mut self) {
        self.serving.take().into_iter().for_each(|serving| serving.abort());
    }
}

impl KubeletLister {
    fn truth(&self) -> Result<KubeletTruth, Status> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match &*self.refusal.lock().unwrap() {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(self.truth.lock().unwrap().clone()),
        }
    }
}

#[tonic::async_trait]
impl PodResourcesLister for KubeletLister {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pod_resources = self.truth()?.pods.into_iter().map(quirky_pod).rev().collect();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let truth = self.truth()?.allocatable;
        let devices = quirky_devices(truth.devices);
        Ok(Response::new(AllocatableResourcesResponse { devices, ..truth }))
    }

    async fn get(&self, request: Request<GetPodResourcesRequest>) -> Result<Response<GetPodResourcesResponse>, Status> {
        let GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let is_it = |pod: &PodResources| (&pod.name, &pod.namespace) == (&pod_name, &pod_namespace);
        let missing = || Status::unknown(format!("pod {pod_name} in namespace {pod_namespace} not found"));
        let found = self.truth()?.pods.into_iter().find(is_it).ok_or_else(missing)?;
        Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(quirky_pod(found)) }))
    }
}

fn quirky_pod(mut pod: PodResources) -> PodResources {
    for container in &mut pod.containers {
        container.devices = quirky_devices(std::mem::take(&mut container.devices));
        container.cpu_ids.reverse();
        for claim in &mut container.dynamic_resources {
            let mut piled: Vec<(String, Vec<_>)> = Vec::new();
            for resource in &mut claim.claim_resources {
                let place = piled.iter().position(|(driver, _)| *driver == resource.driver_name);
                let place = place.unwrap_or_else(|| {
                    piled.push((resource.driver_name.clone(), Vec::new()));
                    piled.len() - 1
                });
                // The list is made once for all devices of a driver, and each device gets it as it is by then.
                piled[place].1.append(&mut resource.cdi_devices);
                resource.cdi_devices.clone_from(&piled[place].1);
            }
        }
    }
    pod
}

/// An entry for each id and node, in no order; a device with a topology of no node is nowhere.
fn quirky_devices(devices: Vec<ContainerDevices>) -> Vec<ContainerDevices> {
    let mut entries = Vec::new();
    for ContainerDevices { resource_name, device_ids, topology } in devices {
        for id in device_ids {
            let entry = |topology| ContainerDevices {
                resource_name: resource_name.clone(),
                device_ids: vec![id.clone()],
                topology,
            };
            match &topology {
                None => entries.push(entry(None)),
                Some(TopologyInfo { nodes }) => {
                    entries.extend(nodes.iter().map(|node| entry(Some(TopologyInfo { nodes: vec![*node] }))));
                }
            }
        }
    }
    entries.reverse();
    entries
}

/// A client of a PodResources socket, in both versions. Calls that come too soon are made again, as clients should.
#[derive(Clone, Debug)]
pub struct PodResourcesReader {
    v1: PodResourcesListerClient<Channel>,
    v1alpha1: V1Alpha1PodResourcesClient<Channel>,
}

impl PodResourcesReader {
    /// Connects, and takes answers of up to 16 MiB.
    ///
    /// # Errors
    /// Fails if there is no answer.
    pub async fn connect(socket: &Path) -> KubeletResult<Self> {
        let channel = dial(socket, "localhost").await?;
        Ok(Self {
            v1: PodResourcesListerClient::new(channel.clone()).max_decoding_message_size(LARGE_BYTES),
            v1alpha1: V1Alpha1PodResourcesClient::new(channel).max_decoding_message_size(LARGE_BYTES),
        })
    }

    /// The client itself, for calls that may fail.
    pub fn v1(&self) -> PodResourcesListerClient<Channel> {
        self.v1.clone()
    }

    /// All pods, by v1.
    pub async fn list(&self) -> Vec<PodResources> {
        patiently(async || self.v1().list(ListPodResourcesRequest {}).await).await.unwrap().pod_resources
    }

    /// All pods, by v1alpha1.
    ///
    /// # Errors
    /// As the server says.
    pub async fn list_v1alpha1(&self) -> Result<Vec<pod_resources_v1alpha1::PodResources>, Status> {
        let request = || pod_resources_v1alpha1::ListPodResourcesRequest {};
        let answer = patiently(async || self.v1alpha1.clone().list(request()).await).await?;
        Ok(answer.pod_resources)
    }

    /// Returns one pod.
    ///
    /// # Errors
    /// As the server says.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<PodResources, Status> {
        let request = || GetPodResourcesRequest { pod_name: name.to_owned(), pod_namespace: namespace.to_owned() };
        let answer = patiently(async || self.v1().get(request()).await).await?;
        Ok(answer.pod_resources.expect("an answer has a pod"))
    }

    /// Returns the devices that can be handed out.
    ///
    /// # Errors
    /// As the server says.
    pub async fn allocatable(&self) -> Result<AllocatableResourcesResponse, Status> {
        patiently(async || self.v1().get_allocatable_resources(AllocatableResourcesRequest {}).await).await
    }
}

/// Calls again for as long as it is too soon, when the server says so.
async fn patiently<T>(call: impl AsyncFn() -> Result<Response<T>, Status>) -> Result<T, Status> {
    loop {
        match call().await {
            Err(status) if status.code() == Code::ResourceExhausted => {
                let wait = status.metadata().get("grpc-retry-pushback-ms").and_then(|wait| wait.to_str().ok());
                let millis = wait.and_then(|wait| wait.parse().ok()).expect("it says how long to wait");
                sleep(Duration::from_millis(millis)).await;
            }
            answer => return answer.map(Response::into_inner),
        }
    }
}

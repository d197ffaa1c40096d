//! A client of a container runtime as the kubelet is one: the few calls of CRI that make, change and end pods.

use std::{
    collections::HashMap,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::{net::UnixStream, runtime::Runtime};
use tonic::{
    Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

/// A namespace that is the node's own.
const NODE: i32 = 2;
/// Every runtime has a bound on how long it waits; these tests wait for nothing.
const AT_ONCE: i64 = 0;

/// A pod that runs.
#[derive(Clone, Debug)]
pub struct CriPod {
    /// The runtime's id.
    pub id: String,
    config: PodSandboxConfig,
}

/// A connection to a runtime. What it has made, it ends.
pub struct CriClient {
    runtime: Runtime,
    channel: Channel,
    image: String,
    pods: std::sync::Mutex<Vec<String>>,
}

impl CriClient {
    /// Connects as soon as it is first used, and again whenever the connection is lost.
    pub fn new(socket: &Path, image: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let socket = socket.to_owned();
        let connect = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let entered = runtime.enter();
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect);
        drop(entered);
        Self { runtime, channel, image: image.to_owned(), pods: std::sync::Mutex::default() }
    }

    fn call<R: Message + Default + 'static>(
        &self,
        method: &str,
        request: impl Message + Default + 'static,
    ) -> Result<R, Status> {
        let path: PathAndQuery = format!("/runtime.v1.RuntimeService/{method}").parse().unwrap();
        self.runtime.block_on(async {
            let mut client = Grpc::new(self.channel.clone());
            client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let answer = client.unary(Request::new(request), path, ProstCodec::default()).await?;
            Ok(answer.into_inner())
        })
    }

    /// Name and version of the runtime; nothing where it does not answer.
    pub fn version(&self) -> Option<(String, String)> {
        let answer: VersionResponse = self.call("Version", VersionRequest { version: "v1".into() }).ok()?;
        Some((answer.runtime_name, answer.runtime_version))
    }

    /// Starts a pod, on the node's network and with no limit.
    pub fn run_pod(&self, name: &str) -> CriPod {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let uid = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let own = NamespaceOption { network: NODE, pid: 1, ipc: 0 };
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.into(),
                uid: uid.clone(),
                namespace: "default".into(),
                attempt: 0,
            }),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/hostler-test-{uid}"),
                security_context: Some(SecurityContext { namespace_options: Some(own) }),
            }),
            ..PodSandboxConfig::default()
        };
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        let made: RunPodSandboxResponse = self.call("RunPodSandbox", request).unwrap();
        self.pods.lock().unwrap().push(made.pod_sandbox_id.clone());
        CriPod { id: made.pod_sandbox_id, config }
    }

    /// Makes a container that sleeps; its id.
    ///
    /// # Errors
    /// What the runtime says when it refuses.
    pub fn create(
        &self,
        pod: &CriPod,
        name: &str,
        devices: &[String],
        envs: &[(&str, &str)],
    ) -> Result<String, String> {
        let envs = envs.iter().map(|(key, value)| KeyValue { key: (*key).into(), value: (*value).into() });
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(ImageSpec { image: self.image.clone() }),
            command: ["/bin/sleep", "86400"].map(str::to_owned).to_vec(),
            envs: envs.collect(),
            linux: Some(LinuxContainerConfig {
                resources: Some(CriResources { cpu_shares: 2, ..CriResources::default() }),
                security_context: Some(ContainerSecurityContext {
                    namespace_options: Some(NamespaceOption { network: NODE, pid: 1, ipc: 0 }),
                }),
            }),
            cdi_devices: devices.iter().map(|name| CdiDevice { name: name.clone() }).collect(),
            ..ContainerConfig::default()
        };
        let request = CreateContainerRequest {
            pod_sandbox_id: pod.id.clone(),
            config: Some(config),
            sandbox_config: Some(pod.config.clone()),
        };
        let made: CreateContainerResponse = self.call("CreateContainer", request).map_err(said)?;
        Ok(made.container_id)
    }

    /// Starts a container.
    ///
    /// # Errors
    /// What the runtime says when it refuses.
    pub fn start(&self, id: &str) -> Result<(), String> {
        self.call::<Nothing>("StartContainer", OfContainer { container_id: id.into() }).map(drop).map_err(said)
    }

    /// Ends a container at once.
    pub fn stop(&self, id: &str) {
        let request = StopContainerRequest { container_id: id.into(), timeout: AT_ONCE };
        self.call::<Nothing>("StopContainer", request).unwrap();
    }

    /// Forgets a container.
    pub fn remove(&self, id: &str) {
        self.call::<Nothing>("RemoveContainer", OfContainer { container_id: id.into() }).unwrap();
    }

    /// Changes a container's resources, as the kubelet does when a pod is resized in place.
    ///
    /// # Errors
    /// What the runtime says when it refuses.
    pub fn update(&self, id: &str, resources: CriResources) -> Result<(), String> {
        let request = UpdateContainerResourcesRequest { container_id: id.into(), linux: Some(resources) };
        self.call::<Nothing>("UpdateContainerResources", request).map(drop).map_err(said)
    }

    /// Runs a program in a container; returns its output.
    pub fn exec(&self, id: &str, command: &[&str]) -> String {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        let request = ExecSyncRequest { container_id: id.into(), cmd: command, timeout: 30 };
        let answer: ExecSyncResponse = self.call("ExecSync", request).unwrap();
        String::from_utf8(answer.stdout).unwrap()
    }

    /// Returns the runtime's details of a container besides its state: its process, its specification.
    pub fn info(&self, id: &str) -> serde_json::Value {
        let request = ContainerStatusRequest { container_id: id.into(), verbose: true };
        let answer: ContainerStatusResponse = self.call("ContainerStatus", request).unwrap();
        serde_json::from_str(&answer.info["info"]).unwrap()
    }

    /// Ids of all containers that the runtime has, in whatever state.
    pub fn containers(&self) -> Vec<String> {
        let answer: ListContainersResponse = self.call("ListContainers", ListContainersRequest {}).unwrap();
        answer.containers.into_iter().map(|container| container.id).collect()
    }
}

impl Drop for CriClient {
    /// Removes what can be removed; without the runtime, there are no containers to end.
    fn drop(&mut self) {
        for id in self.pods.lock().unwrap().drain(..) {
            let of_pod = || OfPod { pod_sandbox_id: id.clone() };
            let _: Result<Nothing, _> = self.call("StopPodSandbox", of_pod());
            let _: Result<Nothing, _> = self.call("RemovePodSandbox", of_pod());
        }
    }
}

fn said(status: Status) -> String {
    status.message().to_owned()
}

/// Declares the fields that are used of messages of CRI, package `runtime.v1`.
macro_rules! messages {
    ($($name:ident { $($(#[$note:meta])* [$($kind:tt)*] $field:ident: $type:ty,)* })*) => {
        $(#[derive(Clone, PartialEq, Message)]
        struct $name { $($(#[$note])* #[prost($($kind)*)] $field: $type,)* })*
    };
}

messages! {
    Nothing {}
    VersionRequest { [string, tag = "1"] version: String, }
    VersionResponse { [string, tag = "2"] runtime_name: String, [string, tag = "3"] runtime_version: String, }
    OfContainer { [string, tag = "1"] container_id: String, }
    OfPod { [string, tag = "1"] pod_sandbox_id: String, }
    RunPodSandboxRequest {
        [message, optional, tag = "1"] config: Option<PodSandboxConfig>,
        [string, tag = "2"] runtime_handler: String,
    }
    RunPodSandboxResponse { [string, tag = "1"] pod_sandbox_id: String, }
    PodSandboxConfig {
        [message, optional, tag = "1"] metadata: Option<PodSandboxMetadata>,
        [map = "string, string", tag = "6"] labels: HashMap<String, String>,
        [map = "string, string", tag = "7"] annotations: HashMap<String, String>,
        [message, optional, tag = "8"] linux: Option<LinuxPodSandboxConfig>,
    }
    PodSandboxMetadata {
        [string, tag = "1"] name: String,
        [string, tag = "2"] uid: String,
        [string, tag = "3"] namespace: String,
        [uint32, tag = "4"] attempt: u32,
    }
    LinuxPodSandboxConfig {
        [string, tag = "1"] cgroup_parent: String,
        [message, optional, tag = "2"] security_context: Option<SecurityContext>,
    }
    SecurityContext { [message, optional, tag = "1"] namespace_options: Option<NamespaceOption>, }
    ContainerSecurityContext { [message, optional, tag = "3"] namespace_options: Option<NamespaceOption>, }
    NamespaceOption {
        [int32, tag = "1"] network: i32,
        [int32, tag = "2"] pid: i32,
        [int32, tag = "3"] ipc: i32,
    }
    CreateContainerRequest {
        [string, tag = "1"] pod_sandbox_id: String,
        [message, optional, tag = "2"] config: Option<ContainerConfig>,
        [message, optional, tag = "3"] sandbox_config: Option<PodSandboxConfig>,
    }
    CreateContainerResponse { [string, tag = "1"] container_id: String, }
    ContainerConfig {
        [message, optional, tag = "1"] metadata: Option<ContainerMetadata>,
        [message, optional, tag = "2"] image: Option<ImageSpec>,
        [string, repeated, tag = "3"] command: Vec<String>,
        [message, repeated, tag = "6"] envs: Vec<KeyValue>,
        [map = "string, string", tag = "10"] annotations: HashMap<String, String>,
        [message, optional, tag = "15"] linux: Option<LinuxContainerConfig>,
        [message, repeated, tag = "17"] cdi_devices: Vec<CdiDevice>,
    }
    ContainerMetadata { [string, tag = "1"] name: String, [uint32, tag = "2"] attempt: u32, }
    ImageSpec { [string, tag = "1"] image: String, }
    KeyValue { [string, tag = "1"] key: String, [string, tag = "2"] value: String, }
    CdiDevice { [string, tag = "1"] name: String, }
    LinuxContainerConfig {
        [message, optional, tag = "1"] resources: Option<CriResources>,
        [message, optional, tag = "2"] security_context: Option<ContainerSecurityContext>,
    }
    StopContainerRequest { [string, tag = "1"] container_id: String, [int64, tag = "2"] timeout: i64, }
    UpdateContainerResourcesRequest {
        [string, tag = "1"] container_id: String,
        [message, optional, tag = "2"] linux: Option<CriResources>,
    }
    ExecSyncRequest {
        [string, tag = "1"] container_id: String,
        [string, repeated, tag = "2"] cmd: Vec<String>,
        [int64, tag = "3"] timeout: i64,
    }
    ExecSyncResponse { [bytes = "vec", tag = "1"] stdout: Vec<u8>, }
    ContainerStatusRequest { [string, tag = "1"] container_id: String, [bool, tag = "2"] verbose: bool, }
    ContainerStatusResponse { [map = "string, string", tag = "2"] info: HashMap<String, String>, }
    ListContainersRequest {}
    ListContainersResponse { [message, repeated, tag = "1"] containers: Vec<ListedContainer>, }
    ListedContainer { [string, tag = "1"] id: String, }
}

/// Resources of a container, as the kubelet asks for them; nothing is said by zero and by an empty text.
#[derive(Clone, PartialEq, Message)]
pub struct CriResources {
    /// Length of the period over which CPU time is counted.
    #[prost(int64, tag = "1")]
    pub cpu_period: i64,
    /// CPU time within it.
    #[prost(int64, tag = "2")]
    pub cpu_quota: i64,
    /// Weight against others.
    #[prost(int64, tag = "3")]
    pub cpu_shares: i64,
    /// Memory.
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
    /// CPUs.
    #[prost(string, tag = "6")]
    pub cpuset_cpus: String,
    /// NUMA nodes.
    #[prost(string, tag = "7")]
    pub cpuset_mems: String,
}

//! A kubelet for tests: it finds, registers and calls a driver as the real one does, and complains where the real one
//! would fail a pod, retry for ever or misbehave later.
//!
//! ```text
//!   Kubelet::register ──► Plugin ──┬── prepare, unprepare
//!                                  └── health ──► HealthReports
//! ```

#[cfg(all(feature = "cluster", feature = "runtimes"))]
pub mod agent;
pub mod classic;
mod old_dial;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::Duration,
};

use hostler_proto::{
    dra_v1::{
        Claim, Device, NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
        NodeUnprepareResourcesResponse, dra_plugin_client::DraPluginClient,
    },
    dra_v1beta1::{self, dra_plugin_client::DraPluginClient as V1Beta1Client},
    health_v1::{
        DeviceHealth, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
        dra_resource_health_client::DraResourceHealthClient,
    },
    health_v1alpha1::{self, dra_resource_health_client::DraResourceHealthClient as V1Alpha1HealthClient},
    registration::{InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient},
};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::{
    net::UnixStream,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_stream::{Stream, StreamExt};
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint, Uri},
};

/// The kubelet's deadline for a connection.
pub(crate) const DIAL: Duration = Duration::from_secs(10);
/// The kubelet's deadline for GetInfo.
pub(crate) const GET_INFO: Duration = Duration::from_secs(1);
/// The kubelet's deadline for NotifyRegistrationStatus.
pub(crate) const NOTIFY: Duration = Duration::from_secs(5);
/// The kubelet's deadline for prepare and unprepare.
pub const CALL: Duration = Duration::from_secs(45);
/// Limit of the wait for a state; far above what any state takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A complaint of the kubelet about the driver.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KubeletComplaint(pub String);

/// The outcome of what a kubelet does.
pub type KubeletResult<T> = Result<T, KubeletComplaint>;

/// The outcome of something that the kubelet has this against.
///
/// # Errors
/// Always.
pub(crate) fn complain<T>(text: impl Into<String>) -> KubeletResult<T> {
    Err(KubeletComplaint(text.into()))
}

/// A call that failed as a whole.
pub(crate) fn failed(what: &str) -> impl FnOnce(Status) -> KubeletComplaint {
    let what = what.to_owned();
    move |status| KubeletComplaint(format!("{what}: {:?}: {}", status.code(), status.message()))
}

/// A message with the deadline that the kubelet sends along.
pub(crate) fn request<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// The release of Kubernetes that the kubelet is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KubeletRelease {
    /// Speaks v1beta1, dials the service like the registration socket, knows no health.
    V1_33,
    /// Speaks v1 and v1beta1, asks for health in v1alpha1 whatever is advertised.
    V1_36,
    /// Speaks v1 and v1beta1, asks for health in the better version that is advertised.
    V1_37,
}

/// A version of the DRA API.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DraApiVersion {
    /// `v1.DRAPlugin`
    V1,
    /// `v1beta1.DRAPlugin`
    V1Beta1,
}

impl KubeletRelease {
    fn known(self) -> &'static [(&'static str, DraApiVersion)] {
        let known = &[("v1beta1.DRAPlugin", DraApiVersion::V1Beta1), ("v1.DRAPlugin", DraApiVersion::V1)];
        if self == Self::V1_33 { &known[..1] } else { known }
    }

    /// The first of the plugin's list, not the best of ours.
    ///
    /// # Errors
    /// When none of it is known.
    pub(crate) fn choose(self, offered: &[String]) -> KubeletResult<DraApiVersion> {
        let known = |name: &String| self.known().iter().find(|(known, _)| known == name);
        match offered.iter().find_map(known) {
            Some((_, version)) => Ok(*version),
            None => complain(format!("none of services supported by the plugin {offered:?} are supported")),
        }
    }

    /// Returns the authority of calls to the service.
    pub(crate) fn service_authority(self, endpoint: &Path) -> String {
        if self == Self::V1_33 { authority(endpoint) } else { "localhost".to_owned() }
    }
}

/// Returns the authority that the kubelet's gRPC library makes of a socket path which it takes for a host: it escapes
/// all but these characters.
pub fn authority(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]@".contains(&byte);
    let escape = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_encoded_bytes().iter().map(escape).collect()
}

/// Connects to a socket, for calls under this authority.
///
/// # Errors
/// Fails if there is no answer, or the authority is invalid.
pub async fn dial(path: &Path, authority: &str) -> KubeletResult<Channel> {
    let uri: Uri = match format!("http://{authority}").parse() {
        Ok(uri) => uri,
        Err(error) => return complain(format!("authority {authority} of {} is refused: {error}", path.display())),
    };
    let path = path.to_owned();
    let connect = tower::service_fn({
        let path = path.clone();
        move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }
    });
    match timeout(DIAL, Endpoint::from(uri).connect_with_connector(connect)).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => complain(format!("failed to dial {}: {error:?}", path.display())),
        Err(_) => complain(format!("{} did not answer the dial in {DIAL:?}", path.display())),
    }
}

/// A kubelet with its root folder.
#[derive(Clone, Debug)]
pub struct Kubelet {
    root: PathBuf,
    release: KubeletRelease,
}

impl Kubelet {
    /// A kubelet that works in `root`.
    pub fn new(root: impl Into<PathBuf>, release: KubeletRelease) -> Self {
        Self { root: root.into(), release }
    }

    /// The sockets that the kubelet would dial now.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.root.join("plugins_registry")) else { return Vec::new() };
        let mut sockets: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
            .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
            .map(|entry| entry.path())
            .collect();
        sockets.sort();
        sockets
    }

    /// Waits for a socket, then registers the driver behind it.
    ///
    /// # Errors
    /// When the real kubelet would refuse it.
    pub async fn register(&self) -> KubeletResult<KubeletPlugin> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            // A socket of a dead daemon is tried again and again, which does no harm; of the others the newest counts.
            let live =
                self.sockets().into_iter().filter(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok());
            let age = |socket: &PathBuf| fs::metadata(socket).and_then(|found| found.modified()).ok();
            if let Some(socket) = live.max_by_key(age) {
                return self.register_at(&socket).await;
            }
            if Instant::now() > give_up {
                return complain(format!("no driver appeared below {}", self.root.display()));
            }
            // As often as a file watcher would tell.
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn register_at(&self, socket: &Path) -> KubeletResult<KubeletPlugin> {
        let mut client = RegistrationClient::new(dial(socket, &authority(socket)).await?);
        let info = timeout(GET_INFO, client.get_info(request(InfoRequest {}, GET_INFO)))
            .await
            .map_err(|_| KubeletComplaint(format!("GetInfo took longer than {GET_INFO:?}")))?
            .map_err(failed("GetInfo"))?
            .into_inner();
        let plugin = self.accept(info).await;
        let error = plugin.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let status = RegistrationStatus { plugin_registered: plugin.is_ok(), error };
        client.notify_registration_status(request(status, NOTIFY)).await.map_err(failed("NotifyRegistrationStatus"))?;
        plugin
    }

    async fn accept(&self, info: PluginInfo) -> KubeletResult<KubeletPlugin> {
        let version = validate(&info, self.release)?;
        let endpoint = Path::new(&info.endpoint);
        // One connection for everything.
        let channel = dial(endpoint, &self.release.service_authority(endpoint)).await?;
        Ok(KubeletPlugin::new(info, version, self.release, channel))
    }
}

/// Returns the version that the kubelet speaks to a plugin, if it accepts the plugin's information.
///
/// # Errors
/// Fails if the real kubelet would refuse the plugin.
pub(crate) fn validate(info: &PluginInfo, release: KubeletRelease) -> KubeletResult<DraApiVersion> {
    if info.r#type != "DRAPlugin" {
        return complain(format!("no handler for plugin type {:?}", info.r#type));
    }
    if info.name.is_empty() || info.supported_versions.is_empty() {
        return complain(format!("plugin {info:?} has no name or no versions"));
    }
    let endpoint = Path::new(&info.endpoint);
    if !endpoint.is_absolute() {
        return complain(format!("endpoint {:?} is not absolute", info.endpoint));
    }
    release.choose(&info.supported_versions)
}

/// A message of one version as the same message of another: they are the same on the wire.
fn same_on_the_wire<A: Message, B: Message + Default>(message: &A) -> B {
    B::decode(&*message.encode_to_vec()).expect("the versions have the same fields")
}

/// A ResourceClaim.
pub fn claim(namespace: &str, name: &str, uid: &str) -> Claim {
    Claim { namespace: namespace.to_owned(), uid: uid.to_owned(), name: name.to_owned() }
}

/// The answers to a call, by claim UID.
pub type ClaimAnswers<T> = BTreeMap<String, Result<T, String>>;

/// A registered driver.
#[derive(Clone, Debug)]
pub struct KubeletPlugin {
    /// The plugin's information about itself.
    pub info: PluginInfo,
    /// The version that the kubelet speaks to the plugin.
    pub version: DraApiVersion,
    release: KubeletRelease,
    channel: Channel,
    /// Answers for prepared claims: the kubelet keeps them for the life of the pods.
    prepared: BTreeMap<String, Vec<Device>>,
}

impl KubeletPlugin {
    /// A plugin that said this, over a connection to its service.
    pub fn new(info: PluginInfo, version: DraApiVersion, release: KubeletRelease, channel: Channel) -> Self {
        Self { info, version, release, channel, prepared: BTreeMap::new() }
    }

    /// Speaks another version from now on.
    #[must_use]
    pub fn speaking(mut self, version: DraApiVersion) -> Self {
        self.version = version;
        self
    }

    /// Calls NodePrepareResources.
    ///
    /// # Errors
    /// When the call fails as a whole, or its answers are not what a kubelet can use.
    pub async fn prepare(&mut self, claims: &[Claim]) -> KubeletResult<ClaimAnswers<Vec<Device>>> {
        let answers = self.call_prepare(claims.to_vec(), CALL).await?;
        check_uids("NodePrepareResources", claims, answers.claims.keys())?;
        let answers: ClaimAnswers<_> = answers
            .claims
            .into_iter()
            .map(|(uid, answer)| (uid, if answer.error.is_empty() { Ok(answer.devices) } else { Err(answer.error) }))
            .collect();
        for (uid, devices) in &answers {
            if let Ok(devices) = devices {
                self.keep(uid, devices)?;
            }
        }
        Ok(answers)
    }

    /// Calls NodePrepareResources and looks at nothing.
    ///
    /// # Errors
    /// When the call fails as a whole.
    pub async fn call_prepare(
        &self,
        claims: Vec<Claim>,
        deadline: Duration,
    ) -> KubeletResult<NodePrepareResourcesResponse> {
        let message = NodePrepareResourcesRequest { claims };
        let channel = self.channel.clone();
        match self.version {
            DraApiVersion::V1 => DraPluginClient::new(channel)
                .node_prepare_resources(request(message, deadline))
                .await
                .map(tonic::Response::into_inner),
            DraApiVersion::V1Beta1 => V1Beta1Client::new(channel)
                .node_prepare_resources(request(same_on_the_wire(&message), deadline))
                .await
                .map(|response| same_on_the_wire::<dra_v1beta1::NodePrepareResourcesResponse, _>(response.get_ref())),
        }
        .map_err(failed("NodePrepareResources"))
    }

    /// Checks a device list and holds it against the one that is cached.
    fn keep(&mut self, uid: &str, devices: &[Device]) -> KubeletResult<()> {
        for device in devices {
            check_device(device)
                .map_err(|KubeletComplaint(text)| KubeletComplaint(format!("claim {uid}: {text}: {device:?}")))?;
        }
        if let Some(before) = self.prepared.get(uid) {
            if before != devices {
                return complain(format!("claim {uid} had {before:?}, prepared again it has {devices:?}"));
            }
            return Ok(());
        }
        self.prepared.insert(uid.to_owned(), devices.to_vec());
        // Two devices with the same first id become one in the status of pods.
        let mut seen = BTreeSet::new();
        let mut first_ids = self.prepared.values().flatten().filter_map(|device| device.cdi_device_ids.first());
        match first_ids.find(|id| !seen.insert(*id)) {
            Some(id) => complain(format!("CDI id {id} is the first one of two devices")),
            None => Ok(()),
        }
    }

    /// Calls NodeUnprepareResources.
    ///
    /// # Errors
    /// When the call fails as a whole, or its answers are not what a kubelet can use.
    pub async fn unprepare(&mut self, claims: &[Claim]) -> KubeletResult<ClaimAnswers<()>> {
        let answers = self.call_unprepare(claims.to_vec(), CALL).await?;
        check_uids("NodeUnprepareResources", claims, answers.claims.keys())?;
        let answer = |error: String| if error.is_empty() { Ok(()) } else { Err(error) };
        let answers: ClaimAnswers<()> =
            answers.claims.into_iter().map(|(uid, result)| (uid, answer(result.error))).collect();
        self.prepared.retain(|uid, _| !answers.get(uid).is_some_and(Result::is_ok));
        Ok(answers)
    }

    /// Calls NodeUnprepareResources and looks at nothing.
    ///
    /// # Errors
    /// When the call fails as a whole.
    pub async fn call_unprepare(
        &self,
        claims: Vec<Claim>,
        deadline: Duration,
    ) -> KubeletResult<NodeUnprepareResourcesResponse> {
        let message = NodeUnprepareResourcesRequest { claims };
        let channel = self.channel.clone();
        match self.version {
            DraApiVersion::V1 => DraPluginClient::new(channel)
                .node_unprepare_resources(request(message, deadline))
                .await
                .map(tonic::Response::into_inner),
            DraApiVersion::V1Beta1 => V1Beta1Client::new(channel)
                .node_unprepare_resources(request(same_on_the_wire(&message), deadline))
                .await
                .map(|response| same_on_the_wire::<dra_v1beta1::NodeUnprepareResourcesResponse, _>(response.get_ref())),
        }
        .map_err(failed("NodeUnprepareResources"))
    }

    /// Opens the health stream that a kubelet of this release would open.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn health(&self) -> KubeletResult<HealthReports> {
        let advertised = self.info.supported_versions.iter().any(|version| version == "v1.DRAResourceHealth");
        if self.release == KubeletRelease::V1_37 && advertised {
            self.health_v1().await
        } else {
            self.health_v1alpha1().await
        }
    }

    /// Opens the health stream in v1.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn health_v1(&self) -> KubeletResult<HealthReports> {
        let mut client = DraResourceHealthClient::new(self.channel.clone());
        let stream = client.node_watch_resources(NodeWatchResourcesRequest {}).await.map_err(failed("health"))?;
        Ok(HealthReports::new(stream.into_inner()))
    }

    /// Opens the health stream in v1alpha1.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub async fn health_v1alpha1(&self) -> KubeletResult<HealthReports> {
        let mut client = V1Alpha1HealthClient::new(self.channel.clone());
        let message = health_v1alpha1::NodeWatchResourcesRequest {};
        let stream = client.node_watch_resources(message).await.map_err(failed("health"))?;
        Ok(HealthReports::new(stream.into_inner().map(|report| report.map(|report| same_on_the_wire(&report)))))
    }
}

/// Checks that every claim of the request has an answer, and no other.
///
/// # Errors
/// Fails if an answer is missing or unexpected.
pub(crate) fn check_uids<'a>(
    call: &str,
    claims: &[Claim],
    answered: impl Iterator<Item = &'a String>,
) -> KubeletResult<()> {
    let asked: BTreeSet<&String> = claims.iter().map(|claim| &claim.uid).collect();
    let answered: BTreeSet<&String> = answered.collect();
    if let Some(uid) = answered.difference(&asked).next() {
        return complain(format!("{call} returned a result for unknown claim {uid}"));
    }
    match asked.difference(&answered).next() {
        Some(uid) => complain(format!("{call} skipped claim {uid}")),
        None => Ok(()),
    }
}

/// Checks that a container could be given the device.
///
/// # Errors
/// Fails if it could not.
pub(crate) fn check_device(device: &Device) -> KubeletResult<()> {
    if device.pool_name.is_empty() || device.device_name.is_empty() {
        return complain("a device without pool or name");
    }
    if device.request_names.iter().any(|name| name.is_empty() || name.contains('/')) {
        return complain("a request name that is not a top-level one");
    }
    match device.cdi_device_ids.iter().find(|id| !is_cdi_id(id)) {
        Some(id) => complain(format!("CDI id {id:?} would keep the container from starting")),
        None => Ok(()),
    }
}

/// `vendor/class=name` as container runtimes read it.
fn is_cdi_id(id: &str) -> bool {
    let Some((kind, name)) = id.split_once('=') else { return false };
    let Some((vendor, class)) = kind.split_once('/') else { return false };
    let made_of = |text: &str, extra: &[u8]| text.bytes().all(|b| b.is_ascii_alphanumeric() || extra.contains(&b));
    let begins = |text: &str, fits: fn(&u8) -> bool| text.as_bytes().first().is_some_and(fits);
    let ends = |text: &str| text.as_bytes().last().is_some_and(u8::is_ascii_alphanumeric);
    let word = |text: &str, extra: &[u8]| begins(text, u8::is_ascii_alphabetic) && ends(text) && made_of(text, extra);
    word(vendor, b"_.-")
        && word(class, b"_-")
        && begins(name, u8::is_ascii_alphanumeric)
        && ends(name)
        && made_of(name, b"_.:-")
}

/// The reports of a health stream.
pub struct HealthReports {
    stream: std::pin::Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>,
    /// Health by pool and device, as last reported.
    pub devices: BTreeMap<(String, String), DeviceHealth>,
}

impl HealthReports {
    fn new(stream: impl Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send + 'static) -> Self {
        Self { stream: Box::pin(stream), devices: BTreeMap::new() }
    }

    /// Takes the next report in; `None` at the end of the stream.
    ///
    /// # Errors
    /// When the stream breaks, is silent for longer than a kubelet believes it, or says what a kubelet cannot use.
    pub async fn next(&mut self) -> KubeletResult<Option<Vec<DeviceHealth>>> {
        let report = match timeout(PATIENCE, self.stream.next()).await {
            Err(_) => return complain("the health stream is silent"),
            Ok(None) => return Ok(None),
            Ok(Some(report)) => report.map_err(failed("health"))?,
        };
        for health in &report.devices {
            check_health(health)?;
            let Some(device) = &health.device else { return complain("health of no device") };
            self.devices.insert((device.pool_name.clone(), device.device_name.clone()), health.clone());
        }
        Ok(Some(report.devices))
    }

    /// Health and message of a device, as last reported.
    pub fn of(&self, pool: &str, device: &str) -> Option<(HealthStatus, &str)> {
        let health = self.devices.get(&(pool.to_owned(), device.to_owned()))?;
        Some((health.health(), health.message.as_str()))
    }

    /// Reads on until the device has this health.
    ///
    /// # Errors
    /// When the stream ends before, or not in time.
    pub async fn wait_for(&mut self, pool: &str, device: &str, wanted: HealthStatus) -> KubeletResult<()> {
        let give_up = Instant::now() + PATIENCE;
        while self.of(pool, device).is_none_or(|(health, _)| health != wanted) {
            match timeout_at(give_up, self.next()).await {
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => return complain("the health stream ended"),
                Ok(Err(complaint)) => return Err(complaint),
                Err(_) => return complain(format!("{pool} {device} is {:?}, not {wanted:?}", self.of(pool, device))),
            }
        }
        Ok(())
    }
}

fn check_health(health: &DeviceHealth) -> KubeletResult<()> {
    let device = health.device.as_ref();
    if device.is_none_or(|device| device.pool_name.is_empty() || device.device_name.is_empty()) {
        return complain(format!("health without a device: {health:?}"));
    }
    if HealthStatus::try_from(health.health).is_err() {
        return complain(format!("no such health: {health:?}"));
    }
    if health.message.len() > 1024 {
        return complain(format!("the message is longer than 1024 bytes: {health:?}"));
    }
    if health.health_check_timeout_seconds < 0 {
        return complain(format!("a negative timeout: {health:?}"));
    }
    Ok(())
}

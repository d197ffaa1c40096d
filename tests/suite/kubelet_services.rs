//! The kubelet services over real sockets and the real claims task, called by a kubelet that complains like a real one.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use hostler::{
    claims::{
        ClaimsHandle, ReadClaims, ReadContinuation,
        naming::CdiNaming,
        task::{self as claims_task, ClaimsParts},
    },
    containers::ContainerDir,
    inventory::task::{self as inventory_task, InventoryHandle, InventoryParts},
    kubelet::{ClassicCalls, KubeletError, KubeletParts, KubeletSocketPaths, KubeletSockets, RegistrationState, serve},
    metrics::Metrics,
    registry::BackendRegistry,
    socket::SocketError,
    tasks::Tasks,
};
use hostler_api::{Access, Allocation, BackendName, ClaimRef, DeviceName, Grant, ShareId};
use hostler_backend::{
    Backend, BackendError, ContainerEdits, Device, EditScope, Enumeration, ForeignEdits, Health, PrepareOutcome,
    PrepareWork, Sharing, VerifyWork,
};
use hostler_files::InstanceLock;
use hostler_linux::SysRoot;
use hostler_proto::{
    dra_v1::Claim,
    health_v1::HealthStatus,
    registration::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient},
};
use hostler_testing::{
    http2,
    kubelet::{self, DraApiVersion, Kubelet, KubeletPlugin, KubeletRelease, claim},
};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

const POOL: &str = "node-a/bench";
const DRIVER: &str = "hostler.dev";

/// A backend whose devices the test sets. A prepare waits while the gate is closed.
#[derive(Default)]
struct Bench {
    devices: Mutex<Vec<Device>>,
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Bench {
    fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }
}

impl Backend for Bench {
    fn name(&self) -> BackendName {
        BackendName::new("bench").unwrap()
    }

    fn subsystems(&self) -> &[&'static str] {
        &[]
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        Ok(Enumeration {
            devices: self.devices.lock().unwrap().clone(),
            counter_sets: Vec::new(),
            warnings: Vec::new(),
        })
    }

    fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        drop(self.opened.wait_while(self.closed.lock().unwrap(), |closed| *closed).unwrap());
        if work.device.name.as_str() == "broken" {
            return Err(BackendError::step("load the bitstream", std::io::Error::other("timed out")));
        }
        Ok(PrepareOutcome::giving(work.device.edits.clone()))
    }

    fn check_edits(&self, _: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
        EditScope::default().with_env().check(edits)
    }
}

/// A lock of its own for each start: earlier ones are still held.
fn lock(folder: &Path) -> Arc<InstanceLock> {
    let paths = (0..).map(|number| folder.join(format!("lock-{number}")));
    Arc::new(paths.filter_map(|path| InstanceLock::try_take(&path).unwrap()).next().unwrap())
}

/// A claim is given the devices that its name lists: `d0+d1`.
struct ByName;

impl ByName {
    fn allocation(claim: &ClaimRef) -> Allocation {
        let grant = |(index, name): (usize, &str)| Grant {
            request: format!("request-{index}/variant"),
            pool: POOL.to_owned(),
            device: DeviceName::new(name).unwrap(),
            share_id: (name == "shared").then(|| ShareId(format!("share-{index}"))),
            access: Access::Use,
            consumed: BTreeMap::new(),
            config: Vec::new(),
        };
        Allocation { grants: claim.name.split('+').enumerate().map(grant).collect(), ..Allocation::default() }
    }
}

impl ReadClaims for ByName {
    fn read(&self, claims: Vec<ClaimRef>, then: ReadContinuation) {
        let read = claims.iter().map(|claim| Ok(Self::allocation(claim))).collect();
        tokio::task::spawn_blocking(move || then(read));
    }
}

fn device(name: &str) -> Device {
    let sharing = if name == "shared" { Sharing::Shared } else { Sharing::Exclusive };
    let mut device = Device { sharing, ..Device::new(DeviceName::new(name).unwrap()) };
    device.edits.env.push(format!("BENCH_{}=1", name.to_uppercase()));
    device
}

/// A node with a daemon on it.
struct Node {
    root: TempDir,
    bench: Arc<Bench>,
    tasks: Tasks,
    inventory: InventoryHandle,
    claims: ClaimsHandle,
    registration_rx: watch::Receiver<RegistrationState>,
    served: JoinHandle<Result<(), KubeletError>>,
}

impl Node {
    async fn start() -> Self {
        let devices = ["d0", "d1", "d2", "broken", "shared"].map(device).to_vec();
        Self::start_on(TempDir::new().unwrap(), devices).await
    }

    async fn start_on(root: TempDir, devices: Vec<Device>) -> Self {
        let bench = Arc::new(Bench { devices: Mutex::new(devices), ..Bench::default() });
        let backends = BackendRegistry::new([bench.clone() as Arc<dyn Backend>]);
        let (tasks, _) = Tasks::new();
        let rescan = Duration::from_secs(3600);
        let state = root.path().to_owned();
        let parts = InventoryParts { backends, node: "node-a".into(), rescan, answer_within: rescan, state };
        let inventory = inventory_task::start(parts, &tasks);
        inventory.rescan().await;
        let parts = ClaimsParts {
            inventory: inventory.clone(),
            reader: Arc::new(ByName),
            records: root.path().join("claims"),
            cdi: root.path().join("cdi"),
            naming: CdiNaming {
                driver: DRIVER.into(),
                hook: "/usr/bin/hostler".into(),
                containers: "/state/containers".into(),
                metadata: root.path().join("metadata"),
            },
            describe: false,
            containers: ContainerDir::new("/nonexistent", SysRoot::host(), "boot"),
            boot_id: "boot".into(),
            metrics: Metrics::default(),
            lock: lock(root.path()),
        };
        let claims = claims_task::start(parts, &tasks).unwrap();
        claims.recovered(rescan).await;
        let (registration_tx, registration_rx) = watch::channel(RegistrationState::default());
        let parts = KubeletParts {
            metrics: Metrics::default(),
            driver: DRIVER.into(),
            node: "node-a".into(),
            classic: ClassicCalls::Auto,
            sockets: KubeletSockets::bind(&KubeletSocketPaths::new(DRIVER, root.path())).await.unwrap(),
            claims_rx: watch::Sender::new(Some(claims.clone())).subscribe(),
            inventory: inventory.reader(),
            registration_tx,
            connections_tx: watch::Sender::default(),
            tasks: tasks.clone(),
        };
        let served = tasks.job(serve(parts));
        Self { root, bench, tasks, inventory, claims, registration_rx, served }
    }

    fn kubelet(&self, release: KubeletRelease) -> Kubelet {
        Kubelet::new(self.root.path(), release)
    }

    async fn plugin(&self) -> KubeletPlugin {
        self.kubelet(KubeletRelease::V1_37).register().await.unwrap()
    }

    fn registration_socket(&self) -> PathBuf {
        KubeletSocketPaths::new(DRIVER, self.root.path()).registration_socket()
    }

    async fn set_devices(&self, devices: Vec<Device>) {
        *self.bench.devices.lock().unwrap() = devices;
        self.inventory.rescan().await;
    }

    /// Stops the daemon as a signal would, and gives back its folders.
    async fn stop(self) -> TempDir {
        self.tasks.stop_token().cancel();
        self.served.await.unwrap().unwrap();
        self.tasks.drain().await;
        self.root
    }
}

fn of(device: &str) -> Claim {
    claim("default", device, &format!("uid-{}", device.replace('+', "-")))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test(flavor = "multi_thread")]
async fn every_supported_kubelet_registers_the_driver_and_prepares_a_claim() {
    let node = Node::start().await;
    for (release, version) in [
        (KubeletRelease::V1_33, DraApiVersion::V1Beta1),
        (KubeletRelease::V1_36, DraApiVersion::V1),
        (KubeletRelease::V1_37, DraApiVersion::V1),
    ] {
        let mut plugin = node.kubelet(release).register().await.unwrap();
        assert_eq!((plugin.info.name.as_str(), plugin.version), (DRIVER, version));
        let answers = plugin.prepare(&[of("d0+d1")]).await.unwrap();
        let devices = answers["uid-d0-d1"].as_ref().unwrap();
        assert_eq!(devices.iter().map(|device| &*device.device_name).collect::<Vec<_>>(), ["d0", "d1"]);
        assert_eq!(devices[1].request_names, ["request-1"]);
        assert_eq!(devices[0].pool_name, POOL);
        assert_eq!(plugin.unprepare(&[of("d0+d1")]).await.unwrap(), [("uid-d0-d1".into(), Ok(()))].into());
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_and_their_folders_are_private() {
    let node = Node::start().await;
    let config = KubeletSocketPaths::new(DRIVER, node.root.path());
    for socket in [config.registration_socket(), config.service_socket()] {
        assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o750), "{}", socket.display());
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_kubelet_says_about_the_registration_is_remembered() {
    let mut node = Node::start().await;
    assert_eq!(*node.registration_rx.borrow(), RegistrationState::Waiting);
    node.plugin().await;
    node.registration_rx.wait_for(|status| *status == RegistrationState::Registered).await.unwrap();
    let socket = node.registration_socket();
    let mut client = RegistrationClient::new(kubelet::dial(&socket, &kubelet::authority(&socket)).await.unwrap());
    let refusal = RegistrationStatus { plugin_registered: false, error: "name taken".into() };
    client.notify_registration_status(refusal).await.unwrap();
    let refused = RegistrationState::Refused { error: "name taken".into() };
    node.registration_rx.wait_for(|status| *status == refused).await.unwrap();
    node.plugin().await;
    node.registration_rx.wait_for(|status| *status == RegistrationState::Registered).await.unwrap();
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_request_gets_an_empty_answer() {
    let node = Node::start().await;
    for version in [DraApiVersion::V1, DraApiVersion::V1Beta1] {
        let mut plugin = node.plugin().await.speaking(version);
        assert!(plugin.prepare(&[]).await.unwrap().is_empty());
        assert!(plugin.unprepare(&[]).await.unwrap().is_empty());
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_claim_does_not_spoil_the_others_of_its_request() {
    let node = Node::start().await;
    let mut plugin = node.plugin().await;
    let evil = claim("default", "evil", "../../etc/passwd");
    let request = [of("d0"), of("broken"), evil.clone(), of("absent"), of("d1")];
    let answers = plugin.prepare(&request).await.unwrap();
    assert!(answers["uid-d0"].is_ok() && answers["uid-d1"].is_ok());
    let error = |uid: &str| answers[uid].clone().unwrap_err();
    assert_eq!(error("uid-broken"), "failed to prepare device broken: failed to load the bitstream: timed out");
    assert!(error("uid-absent").contains("device absent is not in pool node-a/bench"), "{}", error("uid-absent"));
    assert!(error("../../etc/passwd").contains("claim uid \"../../etc/passwd\" is not valid"));
    let answers = plugin.unprepare(&request).await.unwrap();
    assert_eq!(answers.iter().filter(|(_, answer)| answer.is_err()).count(), 1, "{answers:?}");
    assert!(answers[&evil.uid].is_err());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_stands_in_a_request_twice_gets_one_answer() {
    let node = Node::start().await;
    let mut plugin = node.plugin().await;
    let answers = plugin.prepare(&[of("d0"), of("d0")]).await.unwrap();
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["uid-d0"]);
    assert!(answers["uid-d0"].is_ok());
    assert_eq!(plugin.unprepare(&[of("d0"), of("d0")]).await.unwrap(), [("uid-d0".into(), Ok(()))].into());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_claim_has_the_same_answer_again_and_after_a_restart() {
    let node = Node::start().await;
    let mut plugin = node.plugin().await;
    // The fake kubelet compares the device lists.
    assert!(plugin.prepare(&[of("d0+d1")]).await.unwrap()["uid-d0-d1"].is_ok());
    assert!(plugin.prepare(&[of("d0+d1"), of("d2")]).await.unwrap()["uid-d0-d1"].is_ok());
    let devices = node.bench.devices.lock().unwrap().clone();
    let node = Node::start_on(node.stop().await, devices).await;
    // A kubelet that lost the service socket dials it again.
    assert!(plugin.prepare(&[of("d0+d1"), of("d2")]).await.unwrap()["uid-d0-d1"].is_ok());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shares_are_told_apart_in_v1_and_unknown_to_v1beta1() {
    let node = Node::start().await;
    let shares = |answers: kubelet::ClaimAnswers<Vec<hostler_proto::dra_v1::Device>>| {
        let devices = answers["uid-shared-shared-d0"].clone().unwrap();
        devices.into_iter().map(|device| device.share_id).collect::<Vec<_>>()
    };
    let mut plugin = node.plugin().await;
    let answers = plugin.prepare(&[of("shared+shared+d0")]).await.unwrap();
    assert_eq!(shares(answers), [Some("share-0".into()), Some("share-1".into()), None]);
    let mut older = node.plugin().await.speaking(DraApiVersion::V1Beta1);
    assert_eq!(shares(older.prepare(&[of("shared+shared+d0")]).await.unwrap()), [None, None, None]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_never_prepared_can_be_taken_back() {
    let node = Node::start().await;
    let mut plugin = node.plugin().await;
    assert_eq!(plugin.unprepare(&[of("d0")]).await.unwrap(), [("uid-d0".into(), Ok(()))].into());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_says_who_it_is_while_a_prepare_runs() {
    let node = Node::start().await;
    let plugin = node.plugin().await;
    let socket = node.registration_socket();
    let mut client = RegistrationClient::new(kubelet::dial(&socket, &kubelet::authority(&socket)).await.unwrap());
    node.bench.close();
    let preparing = node.tasks.job({
        let mut plugin = plugin.clone();
        async move { plugin.prepare(&[of("d0")]).await }
    });
    wait_for_claim(&node, "uid-d0").await;
    let mut fastest = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        client.get_info(InfoRequest {}).await.unwrap();
        fastest = fastest.min(start.elapsed());
    }
    // The best of several tries, so that a busy machine does not fail the test; a wait for the prepare would be
    // endless.
    assert!(fastest < Duration::from_millis(10), "{fastest:?}");
    assert!(!preparing.is_finished());
    node.bench.open();
    assert!(preparing.await.unwrap().unwrap()["uid-d0"].is_ok());
    node.stop().await;
}

/// Waits for a state without an event.
async fn until(state: impl Fn() -> bool) {
    while !state() {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the claim has a record: its prepare is then at the gate or beyond.
async fn wait_for_claim(node: &Node, uid: &str) {
    let mut table_rx = node.claims.table();
    table_rx.wait_for(|table| table.claims.keys().any(|known| known.as_str() == uid)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_flight_is_answered_although_the_daemon_stops() {
    let node = Node::start().await;
    let plugin = node.plugin().await;
    let kubelet = node.kubelet(KubeletRelease::V1_37);
    node.bench.close();
    let preparing = node.tasks.job({
        let mut plugin = plugin.clone();
        async move { plugin.prepare(&[of("d0")]).await }
    });
    wait_for_claim(&node, "uid-d0").await;
    let mut reports = plugin.health().await.unwrap();
    node.tasks.stop_token().cancel();
    until(|| kubelet.sockets().is_empty()).await;
    while reports.next().await.unwrap().is_some() {}
    assert!(!preparing.is_finished(), "the registration goes first");
    node.bench.open();
    assert!(preparing.await.unwrap().unwrap()["uid-d0"].is_ok());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_kubelet_gave_up_is_finished_all_the_same() {
    let node = Node::start().await;
    let plugin = node.plugin().await;
    node.bench.close();
    let preparing = node.tasks.job({
        let mut plugin = plugin.clone();
        async move { plugin.prepare(&[of("d0")]).await }
    });
    wait_for_claim(&node, "uid-d0").await;
    preparing.abort();
    assert!(preparing.await.unwrap_err().is_cancelled());
    node.bench.open();
    let cdi = node.root.path().join("cdi");
    until(|| fs::read_dir(&cdi).unwrap().count() == 1).await;
    assert!(plugin.clone().prepare(&[of("d0")]).await.unwrap()["uid-d0"].is_ok());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_begins_with_everything_and_follows_changes_in_both_versions() {
    let node = Node::start().await;
    let plugin = node.plugin().await;
    for mut reports in [plugin.health_v1().await.unwrap(), plugin.health_v1alpha1().await.unwrap()] {
        node.set_devices(vec![device("d0"), device("d1")]).await;
        reports.wait_for(POOL, "d0", HealthStatus::Healthy).await.unwrap();
        assert_eq!(reports.of(POOL, "d1"), Some((HealthStatus::Healthy, "")), "all in the first report");
        let sick = Device { health: Health::Unhealthy { reason: "link down".into() }, ..device("d0") };
        node.set_devices(vec![sick, device("d1")]).await;
        reports.wait_for(POOL, "d0", HealthStatus::Unhealthy).await.unwrap();
        assert_eq!(reports.of(POOL, "d0"), Some((HealthStatus::Unhealthy, "link down")));
        assert_eq!(reports.of(POOL, "d1"), Some((HealthStatus::Healthy, "")));
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_pulled_out_of_a_claim_is_unhealthy_until_the_claim_goes() {
    let node = Node::start().await;
    let mut plugin = node.plugin().await;
    assert!(plugin.prepare(&[of("d0")]).await.unwrap()["uid-d0"].is_ok());
    let mut reports = plugin.health().await.unwrap();
    reports.wait_for(POOL, "d0", HealthStatus::Healthy).await.unwrap();
    node.set_devices(vec![device("d1")]).await;
    reports.wait_for(POOL, "d0", HealthStatus::Unhealthy).await.unwrap();
    assert_eq!(reports.of(POOL, "d0").unwrap().1, "removed from this host while held by claim uid-d0");
    // A kubelet that connects later gets the state as well.
    let mut anew = node.plugin().await.health().await.unwrap();
    anew.wait_for(POOL, "d0", HealthStatus::Unhealthy).await.unwrap();
    assert!(plugin.unprepare(&[of("d0")]).await.unwrap()["uid-d0"].is_ok());
    while reports.next().await.unwrap().unwrap().iter().any(|health| health.health == 2) {}
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_streams_end_with_the_daemon() {
    let node = Node::start().await;
    let mut reports = node.plugin().await.health().await.unwrap();
    reports.wait_for(POOL, "d0", HealthStatus::Healthy).await.unwrap();
    node.tasks.stop_token().cancel();
    while reports.next().await.unwrap().is_some() {}
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_does_not_read_does_not_keep_the_daemon_from_stopping() {
    let node = Node::start().await;
    let plugin = node.plugin().await;
    let _unread = (plugin.health_v1().await.unwrap(), plugin.health_v1alpha1().await.unwrap());
    timeout(Duration::from_secs(20), node.stop()).await.expect("the daemon stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_leaves_no_socket_behind() {
    let node = Node::start().await;
    let root = node.stop().await;
    for folder in ["plugins_registry", "plugins/hostler.dev"] {
        assert_eq!(fs::read_dir(root.path().join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_does_not_take_the_sockets_of_the_first() {
    let node = Node::start().await;
    let config = KubeletSocketPaths::new(DRIVER, node.root.path());
    assert!(matches!(KubeletSockets::bind(&config).await, Err(SocketError::InUse { .. })));
    // A second instance has sockets of its own, and leaves those of the first alone.
    let second = KubeletSockets::bind(&config.of_new_instance()).await.unwrap();
    assert_eq!(node.kubelet(KubeletRelease::V1_37).sockets().len(), 2);
    drop(second);
    node.plugin().await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_of_a_killed_daemon_are_in_nobodys_way() {
    let root = TempDir::new().unwrap();
    let config = KubeletSocketPaths::new(DRIVER, root.path());
    let killed = config.clone().of_new_instance();
    for path in
        [config.registration_socket(), config.service_socket(), killed.registration_socket(), killed.service_socket()]
    {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    }
    let node = Node::start_on(root, vec![device("d0")]).await;
    assert_eq!(node.kubelet(KubeletRelease::V1_37).sockets(), [config.registration_socket()]);
    assert!(!killed.service_socket().exists());
    node.plugin().await;
    node.stop().await;
}

/// Real bytes of clients; our own client libraries would refuse to send them.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_client_calls_the_socket_is_answered() {
    let node = Node::start().await;
    let socket = node.registration_socket();
    let call =
        async |authority: &str| http2::call(&socket, authority, "/pluginregistration.Registration/GetInfo").await;

    let as_the_kubelet = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fdra@hostler.dev-reg.sock";
    assert_eq!(
        kubelet::authority(Path::new("/var/lib/kubelet/plugins_registry/dra@hostler.dev-reg.sock")),
        as_the_kubelet
    );
    let http2::GrpcOutcome::Answer(answer) = call(as_the_kubelet).await else { panic!("GetInfo is answered") };
    let info = <hostler_proto::registration::PluginInfo as prost::Message>::decode(&*answer).unwrap();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", DRIVER));
    for (client, authority) in [
        ("tonic", "localhost"),
        ("grpc-go from 1.57 on", "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fhostler.dev-reg.sock"),
        ("grpc-go before 1.57", "/var/lib/kubelet/plugins_registry/hostler.dev-reg.sock"),
        ("grpcio", "var%2Flib%2Fkubelet%2Fplugins_registry%2Fhostler.dev-reg.sock"),
    ] {
        assert!(matches!(call(authority).await, http2::GrpcOutcome::Answer(_)), "{client}: {authority}");
    }
    node.stop().await;
}

//! A node for one scenario: a cluster, a kubelet, one daemon or several, and the steps of scenarios.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use hostler_proto::dra_v1::Device;
use hostler_testing::{
    cluster::{DeviceWant, TestCluster},
    host::{ClusterMembership, Host, PATIENCE, SCRIPT, script_with, wait_for},
    kubelet::{
        KubeletRelease,
        agent::{
            KubeletAgent, KubeletAgentSettings,
            machine::BoundPod,
            times::KubeletTimes,
            view::{DraMethod, PodPhase, PodView},
        },
    },
};
use tokio::runtime::Runtime;

/// Returns a fault of the fake backend: `rest` is its effect.
pub fn fault(step: &str, device: &str, rest: &str) -> String {
    script_with(&format!("[[fault]]\nstep = \"{step}\"\ndevice = \"{device}\"\n{rest}"))
}

/// The kubelet's pauses, for tests: a minute is three tenths of a second, and the wipe comes after 150 ms.
pub const HASTE: f64 = 0.005;

/// Settings of a scenario that differ from the usual node.
pub struct Plan {
    /// The fake backend's script.
    pub script: String,
    /// More configuration of the daemon; it begins inside `[backends.fake]`.
    pub extra: String,
    /// The kubelet's release.
    pub release: KubeletRelease,
    /// The kubelet's pauses and deadlines.
    pub times: KubeletTimes,
    /// The driver's name; `None`: one of the cluster's.
    pub driver: Option<String>,
    /// The kubelet's root folder below the host's root.
    pub kubelet: Option<&'static str>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            script: SCRIPT.to_owned(),
            extra: String::new(),
            release: KubeletRelease::V1_36,
            times: KubeletTimes::default().scaled(HASTE),
            driver: None,
            kubelet: None,
        }
    }
}

/// The node. Dropped in this order: daemons, kubelet, cluster, runtime.
pub struct Scene {
    /// The first daemon's host.
    pub host: Host,
    /// The node's kubelet.
    pub kubelet: KubeletAgent,
    /// The cluster, with its API server.
    pub cluster: TestCluster,
    /// Claims of pods, by pod.
    claims: BTreeMap<String, Vec<String>>,
    // Held until every process that works in it is gone.
    _folder: tempfile::TempDir,
    runtime: Runtime,
}

impl Scene {
    /// Makes a node on which no process runs yet.
    pub fn new(plan: Plan) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let cluster = TestCluster::new(&handle);
        // Short, since sockets are below it: their paths hold 107 bytes.
        let folder = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let root = folder.path().join(plan.kubelet.unwrap_or("kubelet"));
        let driver = plan.driver.unwrap_or_else(|| cluster.driver());
        let membership = ClusterMembership {
            node: cluster.node(),
            driver,
            kubeconfig: cluster.kubeconfig(),
            kubelet: Some(root.clone()),
            cdi: Some(folder.path().join("cdi")),
        };
        let settings = KubeletAgentSettings {
            root,
            cdi: folder.path().join("cdi"),
            node: cluster.node(),
            release: plan.release,
            times: plan.times,
            client: cluster.client(),
        };
        let host = Host::in_cluster(&plan.script, &plan.extra, membership);
        let kubelet = KubeletAgent::new(settings, handle);
        Self { host, kubelet, cluster, claims: BTreeMap::new(), _folder: folder, runtime }
    }

    /// The usual node: kubelet and daemon run and know each other, and devices are published.
    pub fn started() -> Self {
        Self::started_with(Plan::default())
    }

    /// Does the same as [`Scene::started`], with other settings.
    pub fn started_with(plan: Plan) -> Self {
        let mut scene = Self::new(plan);
        scene.kubelet.start();
        scene.begin();
        scene
    }

    /// Starts the daemon and waits until the kubelet and the cluster know it.
    pub fn begin(&mut self) {
        self.host.start();
        self.connected();
        self.published();
    }

    /// Waits until the kubelet can call the daemon, and has told it so.
    pub fn connected(&self) {
        let driver = self.host.driver().to_owned();
        self.kubelet.wait_until("the daemon to be connected", |view| view.is_connected(&driver));
        wait_for("the daemon to be registered", || {
            (self.host.get("/v1/status")["kubelet"]["registered"] == true).then_some(())
        });
    }

    /// Waits until all devices can be allocated.
    pub fn published(&self) {
        wait_for("the devices to be published", || (self.devices_published() > 0).then_some(()));
    }

    /// Returns the number of devices in the cluster of this node's first daemon.
    pub fn devices_published(&self) -> usize {
        let slices = self.cluster.slices(self.host.driver());
        slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()).count()
    }

    /// Another daemon on the same node, with a driver of its own; not started.
    pub fn second_host(&self, script: &str) -> Host {
        let membership = ClusterMembership {
            node: self.cluster.node(),
            driver: format!("second.{}", self.cluster.driver()),
            kubeconfig: self.cluster.kubeconfig(),
            kubelet: Some(self.host.kubelet_root()),
            cdi: Some(self.host.cdi_folder()),
        };
        Host::in_cluster(script, "", membership)
    }

    /// Creates a claim and allocates it; returns its UID.
    pub fn claim(&self, name: &str, wants: &[DeviceWant]) -> String {
        self.claim_of(self.host.driver(), name, wants)
    }

    /// Does the same as [`Scene::claim`], for another driver.
    pub fn claim_of(&self, driver: &str, name: &str, wants: &[DeviceWant]) -> String {
        let uid = self.cluster.create_claim(name, driver, wants, &[]);
        // A daemon that was just started has not published everything yet.
        let mut allocated = Ok(());
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            allocated = self.cluster.allocate(name, driver, &self.cluster.node(), wants);
            if allocated.is_ok() {
                return uid;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("claim {name} cannot be allocated: {allocated:?}");
    }

    /// Creates a claim for one card; returns its UID.
    pub fn card(&self, name: &str, card: &str) -> String {
        self.claim(name, &[DeviceWant::device("card", card)])
    }

    /// Creates a pod on the node that uses these claims; returns its UID.
    pub fn pod(&mut self, name: &str, claims: &[&str]) -> String {
        let uid = self.cluster.create_pod(name, &self.cluster.node(), claims);
        let names: Vec<String> = claims.iter().map(|&claim| claim.to_owned()).collect();
        self.claims.insert(name.to_owned(), names.clone());
        self.kubelet.machine().create(BoundPod {
            namespace: self.cluster.namespace(),
            name: name.to_owned(),
            uid: uid.clone(),
            claims: names,
            deleting: false,
        });
        uid
    }

    /// Creates a claim for one card, and a pod of the same name that uses it; returns the claim's UID.
    pub fn running_later(&mut self, name: &str, card: &str) -> String {
        let uid = self.card(name, card);
        self.pod(name, &[name]);
        uid
    }

    /// Creates a claim for one card, and waits for a pod of the same name that runs with it; returns the claim's UID.
    pub fn running(&mut self, name: &str, card: &str) -> String {
        let uid = self.running_later(name, card);
        self.runs(name);
        uid
    }

    /// Waits until a pod runs; returns the devices of its containers.
    pub fn runs(&self, pod: &str) -> PodView {
        self.kubelet.wait(&format!("pod {pod} to run"), |view| {
            let pod = view.pod(pod);
            (pod.phase == PodPhase::Running).then_some(pod)
        })
    }

    /// Waits until a pod cannot start or end for a reason with this word in it; returns the reason.
    pub fn fails(&self, pod: &str, word: &str) -> String {
        self.kubelet.wait(&format!("pod {pod} to fail with {word:?}"), |view| {
            view.pod(pod).error.filter(|error| error.contains(word))
        })
    }

    /// Deletes a pod and waits until nothing is left of it.
    pub fn end(&mut self, pod: &str) {
        self.kubelet.machine().delete(pod);
        self.gone(pod);
    }

    /// Waits until nothing is left of a pod, and removes it from the cluster.
    pub fn gone(&mut self, pod: &str) {
        let uid = self.kubelet.wait(&format!("pod {pod} to be gone"), |view| {
            let pod = view.pod(pod);
            (pod.phase == PodPhase::Gone).then_some(pod.uid)
        });
        self.cluster.remove_pod(pod, &uid, &self.claims.remove(pod).unwrap_or_default());
    }

    /// Returns the devices that a pod has of a claim.
    pub fn devices(&self, pod: &str, claim: &str) -> Vec<Device> {
        self.kubelet.view().pod(pod).devices.get(claim).cloned().unwrap_or_default()
    }

    /// Returns the number of calls of a method that named a claim.
    pub fn calls(&self, method: DraMethod, claim: &str) -> usize {
        self.kubelet.view().calls_for(method, claim).count()
    }

    /// Has the daemon scan its hardware again.
    pub fn rescan(&self) {
        assert_eq!(self.host.request("POST", "/v1/rescan", "").0, 204);
    }

    /// Replaces the script and waits until the daemon has scanned it.
    pub fn hardware(&self, script: &str) {
        self.host.script(script);
        self.rescan();
    }

    /// Returns files of a claim on the node: record, CDI file, hardware.
    pub fn traces(&self, claim: &str) -> Vec<PathBuf> {
        let folders = [self.host.path("state/claims"), self.host.cdi_folder(), self.host.path("hardware")];
        let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(claim)).collect();
        paths.sort();
        paths
    }

    /// Waits until no file of a claim is left on the node.
    pub fn clean(&self, claim: &str) {
        wait_for("the claim's traces to go", || self.traces(claim).is_empty().then_some(()));
    }

    /// Waits for a time in which a forbidden event would have happened: there is no state to wait for. The condition
    /// must hold during all of it.
    pub fn holds(&self, what: &str, time: Duration, mut holds: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + time.min(PATIENCE);
        while Instant::now() < end {
            assert!(holds(self), "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a call of the cluster.
    pub fn block_on<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// Checks that nothing happened that a kubelet would suffer from later. Called at the end of each scenario.
    pub fn no_complaints(&self) {
        let complaints = self.kubelet.view().complaints;
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.no_complaints();
        }
    }
}

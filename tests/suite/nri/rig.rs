//! A made-up machine with a daemon on it, and a runtime beside it.

use std::{
    fs,
    ops::{Deref, DerefMut},
};

use hostler::admin::types::AdminClaim;
use hostler_linux::{
    IdSet,
    testkit::{CpuLayout, MachineTree},
};
use hostler_testing::{
    host::{Host, wait_for},
    nri::{ContainerSpec, NriRuntime, NriVersion},
};

/// Two nodes with eight CPUs each.
const SMALL: CpuLayout = CpuLayout { nodes: 2, cores: 8, threads: 1, blocks: 2 };
/// All CPUs of that machine.
pub const ALL: &str = "0-15";

/// A claim of the daemon, as far as containers are concerned.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Name of the claim.
    pub name: String,
    /// UID of the claim.
    pub uid: String,
    /// CPUs of all its devices.
    pub cpus: IdSet,
    /// NUMA nodes of all its devices.
    pub mems: IdSet,
    /// Names of its CDI devices.
    pub ids: Vec<String>,
}

/// CPUs for containers without claims.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SharedPool {
    /// All CPUs.
    Off,
    /// CPUs that claims leave.
    ExcludeExclusive,
}

/// The host and its runtime. The runtime is dropped first, so that its complaints are reported.
pub struct Rig {
    /// The runtime.
    pub runtime: NriRuntime,
    host: Host,
    _machine: MachineTree,
}

impl Deref for Rig {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

impl Rig {
    /// A daemon that is synchronized with the newest runtime.
    pub fn new(pool: SharedPool) -> Self {
        Self::with(pool, SMALL, NriVersion::V0_12_2)
    }

    /// Does the same as [`Rig::new`], with another machine and another runtime.
    pub fn with(pool: SharedPool, layout: CpuLayout, version: NriVersion) -> Self {
        let mut rig = Self::stopped(pool, layout, version);
        rig.runtime.start();
        rig.host.start();
        rig.runtime.wait_for_plugin();
        rig
    }

    /// A runtime of some age on a small machine.
    pub fn of_version(pool: SharedPool, version: NriVersion) -> Self {
        Self::with(pool, SMALL, version)
    }

    /// Neither the daemon nor the runtime runs yet.
    pub fn quiet(pool: SharedPool) -> Self {
        Self::stopped(pool, SMALL, NriVersion::V0_12_2)
    }

    fn stopped(pool: SharedPool, layout: CpuLayout, version: NriVersion) -> Self {
        let machine = MachineTree::new();
        layout.plug(&machine);
        let host = Host::bare("");
        let socket = host.path("nri.sock");
        let pool = match pool {
            SharedPool::Off => "off",
            SharedPool::ExcludeExclusive => "exclude-exclusive",
        };
        let file = host.path("hostler.toml");
        let config = fs::read_to_string(&file).unwrap();
        let own = format!("root = \"{}\"", host.path("machine").display());
        assert!(config.contains(&own));
        let config = config
            .replace(&own, &format!("root = \"{}\"", machine.path("").display()))
            .replace("[backends.cpu]\nenabled = false", "[backends.cpu]\nfull_cores = false")
            .replace("[backends.memory]\nenabled = false", "[backends.memory]\nenabled = true");
        let nri =
            format!("[nri]\nenabled = true\nsocket = {:?}\nshared_pool = \"{pool}\"\n", socket.display().to_string());
        fs::write(file, format!("{config}\n{nri}")).unwrap();
        Self { runtime: NriRuntime::absent(&socket, version), host, _machine: machine }
    }

    /// Creates a claim for devices.
    pub fn claim(&self, name: &str, devices: &[&str]) -> Claim {
        let mut args = vec!["claim", "create", name, "-o", "json"];
        args.extend(devices.iter().flat_map(|device| ["--device", device]));
        let claim: AdminClaim = serde_json::from_str(&self.run_ok(&args)).unwrap();
        let union = |list: fn(&hostler::admin::types::AdminClaimDevice) -> &String| {
            claim.devices.iter().map(|device| set(list(device))).fold(IdSet::default(), |all, set| all.union(&set))
        };
        Claim {
            name: name.to_owned(),
            cpus: union(|device| &device.cpus),
            mems: union(|device| &device.mems),
            ids: claim.devices.iter().flat_map(|device| device.cdi_ids.clone()).collect(),
            uid: claim.uid,
        }
    }

    /// Deletes a claim.
    pub fn release(&self, claim: &Claim) {
        self.run_ok(&["claim", "delete", &claim.name]);
    }

    /// Returns a container of a pod with these claims.
    pub fn container(&self, pod: &str, name: &str, claims: &[&Claim]) -> ContainerSpec {
        let ids: Vec<String> = claims.iter().flat_map(|claim| claim.ids.clone()).collect();
        let container = ContainerSpec::new(pod, name);
        if ids.is_empty() { container } else { container.devices(&self.path("cdi"), &ids) }
    }

    /// Runs a container with these claims; returns its id.
    pub fn run_container(&self, pod: &str, name: &str, claims: &[&Claim]) -> String {
        self.runtime.run(&self.container(pod, name, claims)).unwrap()
    }

    /// Checks that a container has what its claim promises.
    #[track_caller]
    pub fn assert_bound(&self, id: &str, claim: &Claim) {
        assert_eq!((self.runtime.cpus(id), self.runtime.mems(id)), (claim.cpus.to_string(), claim.mems.to_string()));
    }

    /// Waits until a container has what its claim promises.
    pub fn wait_until_bound(&self, id: &str, claim: &Claim) {
        self.runtime.wait_for_cpus(id, &claim.cpus.to_string());
        self.assert_bound(id, claim);
    }

    /// Returns the reason why the daemon is not ready that is about the runtime. There is no kubelet here.
    pub fn misses_runtime(&self) -> Option<String> {
        let reasons: Vec<String> = serde_json::from_value(self.get("/v1/status")["not_ready"].clone()).unwrap();
        reasons.into_iter().find(|reason| reason.contains("container runtime"))
    }

    /// Returns the runtime that the daemon reports as connected.
    pub fn connected_with(&self) -> Option<String> {
        self.get("/v1/status")["nri"]["runtime"].as_str().map(str::to_owned)
    }

    /// Waits until the daemon reports a connection.
    pub fn wait_until_connected(&self) {
        wait_for("a daemon that says it is connected", || self.connected_with());
    }

    /// Waits until the daemon reports a lost connection.
    pub fn wait_until_lost(&self) {
        wait_for("a daemon that says it is not connected", || self.connected_with().is_none().then_some(()));
    }

    /// Kills the daemon and starts it again; it is synchronized then.
    pub fn revive(&mut self) {
        self.host.kill();
        self.restart();
    }

    /// Starts the daemon, which does not run; it is synchronized then.
    pub fn restart(&mut self) {
        let before = self.runtime.synchronizations();
        self.host.start();
        self.runtime.wait_for_synchronization(before + 1);
    }
}

/// A list as a set.
pub fn set(list: &str) -> IdSet {
    list.parse().unwrap()
}

/// All CPUs of the small machine but these.
pub fn without(taken: &[&Claim]) -> String {
    taken.iter().fold(set(ALL), |rest, claim| rest.difference(&claim.cpus)).to_string()
}

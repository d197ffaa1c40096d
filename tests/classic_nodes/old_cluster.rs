//! A cluster of 1.26 to 1.31 with a daemon on its node, and claims that are allocated by hand.

use std::fs;

use hostler::admin::types::AdminClaim;
use hostler_linux::IdSet;
use hostler_testing::{
    host::Host,
    real_node::{RealNode, eventually},
};
use serde_json::{Value, json};

pub const DRIVER: &str = "hostler.dev";
const GROUP: &str = "resource.k8s.io";
const FINALIZER: &str = "hostler.dev/deletion-protection";
/// The version of 1.31, which has other fields than those before it.
pub const V1_31: &str = "v1alpha3";

/// The cluster, and the daemon of its node.
pub struct OldCluster {
    pub node: RealNode,
    pub host: Host,
    pub version: String,
}

impl OldCluster {
    /// Starts a daemon if there is a cluster for it, and waits until kubelet and API server know it.
    pub fn start() -> Option<Self> {
        let is_classic = |versions: &[String]| ["v1alpha1", "v1alpha2", V1_31].iter().any(|it| versions == [*it]);
        let node = RealNode::find(is_classic, "the cluster is none of 1.26 to 1.31 with classic DRA")?;
        let version = node.versions(GROUP).remove(0);
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        node.apply_file(crds, "deploy/crds/nodehardware.yaml".as_ref());
        let mut host = Host::real_node("[backends.cpu]\nfull_cores = false\n", node.membership());
        host.start();
        let cluster = Self { node, host, version };
        cluster.make_class();
        eventually("a daemon that the kubelet knows", || {
            (cluster.host.get("/v1/status")["kubelet"]["registered"] == true).then_some(())
        });
        eventually("slices in the NodeHardware", || (!cluster.slices().is_empty()).then_some(()));
        Some(cluster)
    }

    pub fn root(&self) -> String {
        format!("/apis/{GROUP}/{}", self.version)
    }

    pub fn object(&self, kind: &str, name: &str, rest: &Value) -> Value {
        let mut object = rest.clone();
        object["apiVersion"] = json!(format!("{GROUP}/{}", self.version));
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name});
        object
    }

    fn make_class(&self) {
        let (plural, class) = if self.version == V1_31 {
            ("deviceclasses", self.object("DeviceClass", "by-hand", &json!({"spec": {}})))
        } else {
            ("resourceclasses", self.object("ResourceClass", "by-hand", &json!({"driverName": DRIVER})))
        };
        let collection = format!("{}/{plural}", self.root());
        if self.node.get(&format!("{collection}/by-hand")).is_none() {
            self.node.create(&collection, &class);
        }
    }

    /// Returns the daemon's slices.
    pub fn slices(&self) -> Vec<Value> {
        let path = format!("/apis/hostler.dev/v1alpha1/nodehardware/{}", self.node.name());
        let object = self.node.get(&path).unwrap_or_default();
        object["status"]["slices"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the first device of the node's CPUs, and its pool.
    fn cpu_device(&self) -> (Value, Value) {
        let slices = self.slices();
        let pool = json!(format!("{}/cpu", self.node.name()));
        let slice = slices.iter().find(|slice| slice["pool"]["name"] == pool).expect("CPUs");
        (pool, slice["devices"][0].clone())
    }

    /// Returns all CPUs that can be given to claims: those of the first NUMA node.
    pub fn cpus(&self) -> IdSet {
        let all: IdSet = fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap();
        let (_, device) = self.cpu_device();
        let offered = device["capacity"]["cpus"]["value"].as_str().unwrap();
        assert_eq!(offered, all.len().to_string(), "a machine with one NUMA node is needed");
        all
    }

    /// Returns a handle as a controller would write it for so many CPUs.
    pub fn handle(&self, cpus: usize) -> Value {
        let (pool, device) = self.cpu_device();
        let share = uuid::Uuid::new_v4().to_string();
        json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "ResourceHandle", "node": self.node.name(), "results": [
            {"request": "cpus", "driver": DRIVER, "pool": pool, "device": device["name"], "shareID": share,
                "consumedCapacity": {"cpus": cpus.to_string()}}]})
    }

    pub fn claim_path(&self, name: &str) -> String {
        self.node.of(&self.root(), &format!("resourceclaims/{name}"))
    }

    /// Creates a claim.
    pub fn claim(&self, name: &str) {
        let spec = if self.version == V1_31 {
            json!({"controller": DRIVER, "devices": {"requests": [{"name": "cpus", "deviceClassName": "by-hand"}]}})
        } else {
            json!({"resourceClassName": "by-hand"})
        };
        let claim = self.object("ResourceClaim", name, &json!({"spec": spec}));
        self.node.create(&self.node.of(&self.root(), "resourceclaims"), &claim);
    }

    /// Allocates a claim with a handle: finalizer, then status, as every controller has to.
    pub fn allocate(&self, name: &str, handle: &Value) {
        let path = self.claim_path(name);
        self.node.change(&path, "", |claim| claim["metadata"]["finalizers"] = json!([FINALIZER]));
        let node = json!({"key": "metadata.name", "operator": "In", "values": [self.node.name()]});
        let selector = json!({"nodeSelectorTerms": [{"matchFields": [node]}]});
        let allocation = match &*self.version {
            "v1alpha1" => {
                json!({"resourceHandle": handle.to_string(), "availableOnNodes": selector, "shareable": true})
            }
            "v1alpha2" => json!({"resourceHandles": [{"driverName": DRIVER, "data": handle.to_string()}],
                "availableOnNodes": selector, "shareable": true}),
            _ => json!({"controller": DRIVER, "nodeSelector": selector, "devices": {
                "results": [known_to_1_31(&handle["results"][0])],
                "config": [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": handle}}]}}),
        };
        self.node.change(&path, "/status", |claim| {
            claim["status"]["allocation"] = allocation.clone();
            if self.version != V1_31 {
                claim["status"]["driverName"] = json!(DRIVER);
            }
        });
    }

    /// Removes the allocation of an unused claim.
    pub fn deallocate(&self, name: &str) {
        let path = self.claim_path(name);
        eventually("a claim that no pod has", || {
            let claim = self.node.get(&path)?;
            claim["status"]["reservedFor"].as_array().is_none_or(Vec::is_empty).then_some(())
        });
        self.node.change(&path, "/status", |claim| {
            claim["status"] = json!({});
        });
        self.node.change(&path, "", |claim| claim["metadata"]["finalizers"] = json!([]));
    }

    /// Starts a pod with claims.
    pub fn run(&self, pod: &str, claims: &[&str]) {
        self.run_on(pod, claims, &json!({}));
    }

    /// Does the same as [`Self::run`], on nodes with such labels.
    pub fn run_on(&self, pod: &str, claims: &[&str], labels: &Value) {
        let entry = |claim: &&str| match &*self.version {
            V1_31 => json!({"name": claim, "resourceClaimName": claim}),
            _ => json!({"name": claim, "source": {"resourceClaimName": claim}}),
        };
        self.node.run_pod(pod, &claims.iter().map(entry).collect::<Vec<_>>(), labels);
    }

    /// Returns the CPUs that the running container of a pod uses: those of its claims, as daemon, kernel and cgroup
    /// say.
    pub fn bound_to(&self, pod: &str, claims: &[&str]) -> IdSet {
        eventually(&format!("pod {pod} runs"), || {
            let phase = self.node.get(&self.node.of("/api/v1", &format!("pods/{pod}")))?["status"]["phase"].clone();
            (phase == "Running" && self.node.pid(pod).is_some()).then_some(())
        });
        let held = claims.iter().map(|claim| self.held_by(claim)).fold(IdSet::default(), |all, one| all.union(&one));
        assert_eq!(self.kernel_lets(pod), held, "{pod}: what the kernel lets it use, and what its claims hold");
        assert_eq!(cgroup_cpus(self.node.pid(pod).unwrap()), held, "{pod}: what its cgroup says");
        held
    }

    /// Returns the CPUs that the kernel lets a pod's container use.
    pub fn kernel_lets(&self, pod: &str) -> IdSet {
        let status = fs::read_to_string(format!("/proc/{}/status", self.node.pid(pod).expect("it runs"))).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().parse().unwrap()
    }

    fn held_by(&self, claim: &str) -> IdSet {
        let claims: Vec<AdminClaim> = serde_json::from_value(self.host.get("/v1/claims")).unwrap();
        let claim = claims.into_iter().find(|it| it.namespace == self.node.namespace() && it.name == claim).unwrap();
        let sets = claim.devices.iter().map(|device| device.cpus.parse::<IdSet>().unwrap());
        sets.fold(IdSet::default(), |all, set| all.union(&set))
    }

    /// Begins to delete a pod.
    pub fn delete(&self, pod: &str) {
        self.node.delete(&self.node.of("/api/v1", &format!("pods/{pod}")), 1);
    }

    /// Waits until a pod's object is gone: the kubelet removes it after its containers and claims.
    pub fn wait_until_gone(&self, pod: &str) {
        eventually(&format!("pod {pod} is gone"), || {
            self.node.get(&self.node.of("/api/v1", &format!("pods/{pod}"))).is_none().then_some(())
        });
    }

    /// Waits until no claim holds a device on this node, by the daemon's status and the files in the runtime's folder.
    pub fn wait_until_nothing_is_held(&self) {
        eventually("a node on which no claim holds anything", || {
            let claims = self.host.get("/v1/claims");
            let files = fs::read_dir(self.host.cdi_folder()).unwrap().flatten();
            let mut names = files.map(|file| file.file_name().to_string_lossy().into_owned());
            (claims == json!([]) && !names.any(|name| name.starts_with("hostler.dev-claim_"))).then_some(())
        });
    }
}

/// Returns a result without the fields that 1.31 does not have.
fn known_to_1_31(result: &Value) -> Value {
    json!({"request": result["request"], "driver": result["driver"], "pool": result["pool"], "device": result["device"]})
}

/// Returns the cpuset of a process: that of cgroup v1, or the only one.
fn cgroup_cpus(pid: u32) -> IdSet {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let of = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        match controllers {
            "cpuset" => Some(format!("/sys/fs/cgroup/cpuset{path}/cpuset.cpus")),
            "" if id == "0" => Some(format!("/sys/fs/cgroup{path}/cpuset.cpus.effective")),
            _ => None,
        }
    };
    let files: Vec<String> = groups.lines().filter_map(of).collect();
    let read = files.iter().find_map(|file| fs::read_to_string(file).ok()).expect("a cpuset");
    read.trim().parse().unwrap()
}

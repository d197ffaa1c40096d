//! CPUs, memory and a card of one claim on one NUMA node: the real backends over a made-up machine, from manifest to
//! record.
use std::{fs, path::Path, sync::Arc};

use hostler::{
    claims::{admit::admit, held::HeldGrant, store::RecordDevice},
    inventory::{Inventory, Pool, pool_name},
    registry::BackendRegistry,
    standalone::parse,
};
use hostler_api::{Chain, ClaimUid};
use hostler_backend::Backend;
use hostler_linux::{IdSet, SysRoot};

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// Two NUMA nodes of four cores with one thread, one L3 cache and 8 GiB each.
fn machine(root: &Path) {
    for list in ["possible", "present", "online"] {
        write(root, &format!("sys/devices/system/cpu/{list}"), "0-7");
    }
    for list in ["possible", "online", "has_memory"] {
        write(root, &format!("sys/devices/system/node/{list}"), "0-1");
    }
    for node in 0..2 {
        let cpus = format!("{}-{}", node * 4, node * 4 + 3);
        write(root, &format!("sys/devices/system/node/node{node}/cpulist"), &cpus);
        let meminfo = format!("Node {node} MemTotal:       8388608 kB\nNode {node} MemFree:        8388608 kB");
        write(root, &format!("sys/devices/system/node/node{node}/meminfo"), &meminfo);
        for cpu in node * 4..node * 4 + 4 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            for (file, text) in [
                ("topology/physical_package_id", "0"),
                ("topology/core_id", &*cpu.to_string()),
                ("topology/core_siblings_list", "0-7"),
                ("topology/thread_siblings_list", &*cpu.to_string()),
                ("cache/index0/level", "3"),
                ("cache/index0/type", "Unified"),
                ("cache/index0/id", &*node.to_string()),
                ("cache/index0/shared_cpu_list", &*cpus),
            ] {
                write(root, &format!("{folder}/{file}"), text);
            }
        }
    }
    write(root, "fake.toml", "[[device]]\nname = \"card\"\ncount = 2\nnuma_node = 1\n");
}

struct Host {
    inventory: Inventory,
    backends: BackendRegistry,
    _root: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        machine(root.path());
        let sys = SysRoot::new(root.path());
        let cpu = hostler_cpu::CpuBackendConfig { mode: hostler_cpu::CpuGrouping::Machine, ..Default::default() };
        let fake = hostler_fake::FakeBackendConfig { script: root.path().join("fake.toml"), state_dir: None };
        let backends: [Arc<dyn Backend>; 3] = [
            Arc::new(hostler_cpu::CpuBackend::new(sys.clone(), cpu)),
            Arc::new(hostler_memory::MemoryBackend::new(sys, hostler_memory::MemoryBackendConfig::default())),
            Arc::new(hostler_fake::FakeBackend::new(fake)),
        ];
        let mut inventory = Inventory::default();
        for backend in &backends {
            let found = backend.enumerate().unwrap();
            let name = pool_name("node", &backend.name());
            inventory.pools.insert(backend.name(), Arc::new(Pool { name, devices: found.devices, ..Pool::default() }));
        }
        Self { inventory, backends: BackendRegistry::new(backends), _root: root }
    }

    /// Returns the devices of a claim whose allocation is made of these results, beside `held`.
    fn admit(
        &self,
        results: &[(&str, &str, &str)],
        config: &str,
        held: &[RecordDevice],
    ) -> Result<Vec<RecordDevice>, String> {
        let results = results.iter().map(|(pool, device, taken)| {
            format!(
                "    - {{request: {pool}, driver: hostler.dev, pool: node/{pool}, device: {device}, consumedCapacity: {{{taken}}}}}\n"
            )
        });
        let manifest = format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: a, uid: a-1}}\nstatus:\n  allocation:\n   \
             devices:\n    results:\n{}    config:\n{config}",
            results.collect::<String>()
        );
        let manifest = parse(&manifest).unwrap();
        let (claim, allocation) = (manifest.claim().unwrap(), manifest.allocation("hostler.dev").unwrap());
        let uid = ClaimUid::new("other").unwrap();
        let holdings: Vec<HeldGrant<'_>> =
            held.iter().map(|device| HeldGrant { uid: &uid, name: "default/other", device }).collect();
        let admitted = admit(&claim, &allocation, &self.inventory, &self.backends, &holdings);
        admitted.map_err(|error| Chain(&error).to_string())
    }
}

fn config(source: &str, kind: &str, requests: &str, fields: &str) -> String {
    format!(
        "    - {{source: {source}, requests: [{requests}], opaque: {{driver: hostler.dev, parameters: {{apiVersion: \
         hostler.dev/v1alpha1, kind: {kind}, {fields}}}}}}}\n"
    )
}

fn cpus(device: &RecordDevice) -> String {
    IdSet::from(device.plan.pinning.cpus.clone()).to_string()
}

#[test]
fn one_prepare_chooses_cpus_memory_and_card_together() {
    let host = Host::new();
    let same = config("FromClaim", "PlacementConfig", "", "sameNumaNode: required");
    let wanted = [("cpu", "machine", "cpus: 2"), ("memory", "node1", "memory: 1Gi"), ("fake", "card-0", "")];
    let given = host.admit(&wanted, &same, &[]).unwrap();
    assert_eq!(cpus(&given[0]), "4-5");
    assert_eq!(given[1].plan.pinning.mems, [1].into());
    // Without the wish, CPUs come from the first node.
    assert_eq!(cpus(&host.admit(&wanted, "     []\n", &[]).unwrap()[0]), "0-1");
}

#[test]
fn what_cannot_be_together_is_refused_with_nodes_and_reasons() {
    let host = Host::new();
    let same = config("FromClaim", "PlacementConfig", "", "sameNumaNode: required");
    let apart = [("cpu", "machine", "cpus: 2"), ("memory", "node0", "memory: 1Gi"), ("fake", "card-0", "")];
    let error = host.admit(&apart, &same, &[]).unwrap_err();
    assert_eq!(
        error,
        "no NUMA node has all that has to be on one (sameNumaNode: required): machine for request cpu (nodes 0,1), node0 \
         for request memory (node 0), card-0 for request fake (node 1); they have no node in common"
    );
    let full = host.admit(&[("cpu", "machine", "cpus: 3"), ("fake", "card-1", "")], &same, &[]).unwrap();
    let error = host.admit(&[("cpu", "machine", "cpus: 2"), ("fake", "card-0", "")], &same, &full).unwrap_err();
    let reason = "on node 1: failed to plan device machine: machine has 1 of 4 CPUs in whole cores on NUMA node 1 free, 2 \
                  are wanted; held by default/other (3)";
    assert!(error.ends_with(reason), "{error}");
    let preferred = config("FromClaim", "PlacementConfig", "", "sameNumaNode: preferred");
    assert!(host.admit(&[("cpu", "machine", "cpus: 2"), ("fake", "card-0", "")], &preferred, &full).is_ok());
}

#[test]
fn classes_come_before_claims_field_by_field() {
    let host = Host::new();
    let wanted = [("cpu", "machine", "cpus: 2")];
    let claim = config("FromClaim", "CpuConfig", "cpu", "spread: numa");
    let class = config("FromClass", "CpuConfig", "cpu", "spread: packed, l3Exclusive: true");
    // In the list of an allocation the order of sources does not count.
    let given = host.admit(&wanted, &format!("{claim}{class}"), &[]).unwrap();
    assert_eq!(cpus(&given[0]), "0,4");
    assert_eq!(given[0].plan.data["l3"], "0-7");
}

#[test]
fn a_kind_for_another_device_is_refused_with_the_way_on() {
    let host = Host::new();
    let wanted = [("cpu", "machine", "cpus: 2"), ("memory", "node1", "memory: 1Gi")];
    let error = host.admit(&wanted, &config("FromClaim", "CpuConfig", "", "spread: numa"), &[]).unwrap_err();
    assert!(error.contains("CpuConfig says nothing to device node1 of pool node/memory"), "{error}");
    assert!(host.admit(&wanted, &config("FromClaim", "CpuConfig", "cpu", "spread: numa"), &[]).is_ok());
}

//! Which devices a machine makes.

use std::collections::BTreeMap;

use hostler_api::Quantity;
use hostler_backend::{AttributeValue, Sharing};
use hostler_linux::topology::Topology;

use super::{GIB, MIB, bytes, device, machine};
use crate::{MemoryBackendConfig, ZoneInfo, enumeration};

fn reserve(entries: &[(&str, &str)]) -> MemoryBackendConfig {
    let entry = |(node, amount): &(&str, &str)| ((*node).to_owned(), (*amount).to_owned());
    MemoryBackendConfig { reserved: entries.iter().map(entry).collect() }
}

fn sizes(topology: &Topology, zones: &ZoneInfo, config: &MemoryBackendConfig) -> Vec<(String, u64)> {
    let found = enumeration(topology, zones, config).unwrap();
    found.devices.iter().map(|device| (device.name.to_string(), bytes(device) / MIB)).collect()
}

fn expected(sizes: &[(&str, u64)]) -> Vec<(String, u64)> {
    sizes.iter().map(|(name, mib)| ((*name).to_owned(), *mib)).collect()
}

#[test]
fn memory_and_pools_of_every_node_but_a_gpu_s_are_offered() {
    let sizes = sizes(&machine(), &ZoneInfo::default(), &MemoryBackendConfig::default());
    let names = [("node0", 6 * 1024), ("node0-hugepages-2mi", 1024), ("node0-hugepages-1gi", 1024), ("node2", 4096)];
    assert_eq!(sizes, expected(&names));
}

#[test]
fn amounts_are_split_in_mebibytes_and_pages() {
    let found = enumeration(&machine(), &ZoneInfo::default(), &MemoryBackendConfig::default()).unwrap();
    for (name, step) in [("node0", MIB), ("node0-hugepages-2mi", 2 * MIB), ("node0-hugepages-1gi", GIB)] {
        let device = device(&found.devices, name);
        let policy = device.capacity["memory"].policy.unwrap();
        assert_eq!([policy.default, policy.min, policy.step], [Quantity::whole(step); 3], "{name}");
        assert_eq!(bytes(device) % step, 0, "{name}");
        assert_eq!(device.sharing, Sharing::Shared);
    }
}

#[test]
fn what_operator_and_kernel_keep_is_not_offered() {
    let config = reserve(&[("0", "1Gi"), ("default", "512Mi")]);
    let zones = ZoneInfo::parse("Node 0, zone   Normal\n  min 2048\n  managed 2097152\n");
    let sizes = sizes(&machine(), &zones, &config);
    let left = [("node0", 5 * 1024 - 8), ("node0-hugepages-2mi", 1024), ("node0-hugepages-1gi", 1024), ("node2", 3584)];
    assert_eq!(sizes, expected(&left));
}

#[test]
fn a_node_with_nothing_left_keeps_its_huge_pages_and_says_why() {
    let config = reserve(&[("0", "7Gi"), ("2", "1Ti")]);
    let found = enumeration(&machine(), &ZoneInfo::default(), &config).unwrap();
    let names: Vec<&str> = found.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["node0-hugepages-2mi", "node0-hugepages-1gi"]);
    assert_eq!(found.warnings.len(), 2);
    let reason = "nothing of its 8Gi is left to offer: huge pages take 2Gi, the configuration reserves 7Gi, the kernel \
                  keeps 0";
    assert_eq!(found.warnings[0].reason, reason);
}

#[test]
fn surplus_pages_are_nobody_s_to_hand_out() {
    let mut machine = machine();
    let pool = machine.nodes.get_mut(&0).unwrap().huge_pages.get_mut(&(2 * MIB)).unwrap();
    (pool.total, pool.surplus) = (600, 88);
    let found = enumeration(&machine, &ZoneInfo::default(), &MemoryBackendConfig::default()).unwrap();
    assert_eq!(bytes(device(&found.devices, "node0-hugepages-2mi")), 512 * 2 * MIB);
    assert_eq!(bytes(device(&found.devices, "node0")), 6 * GIB);
}

#[test]
fn attributes_tell_kinds_of_memory_apart() {
    let zones = ZoneInfo::parse("Node 0, zone   Normal\n  min 0\n  managed 2097152\n");
    let found = enumeration(&machine(), &zones, &MemoryBackendConfig::default()).unwrap();
    let attributes = |name: &str| -> BTreeMap<String, AttributeValue> {
        let device = device(&found.devices, name);
        device.attributes.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    };
    let all = |entries: &[(&str, AttributeValue)]| -> BTreeMap<String, AttributeValue> {
        entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    let near = |hugepages: bool, page_size: &str| {
        all(&[
            ("resource.kubernetes.io/numaNode", 0.into()),
            ("hugepages", hugepages.into()),
            ("pageSize", page_size.into()),
            ("cpuless", false.into()),
            ("tier", 4.into()),
            ("memorySideCache", i64::try_from(2 * GIB).unwrap().into()),
        ])
    };
    assert_eq!(attributes("node0"), near(false, "4Ki"));
    assert_eq!(attributes("node0-hugepages-1gi"), near(true, "1Gi"));
    let far = all(&[
        ("resource.kubernetes.io/numaNode", 2.into()),
        ("hugepages", false.into()),
        ("cpuless", true.into()),
        ("tier", 22.into()),
        ("readBandwidth", 16_000.into()),
        ("readLatency", 202.into()),
    ]);
    assert_eq!(attributes("node2"), far);
}

#[test]
fn only_nodes_that_the_cpuset_allows_are_offered() {
    let mut machine = machine();
    machine.allowed_nodes = "2,8".parse().unwrap();
    assert_eq!(sizes(&machine, &ZoneInfo::default(), &MemoryBackendConfig::default()), expected(&[("node2", 4096)]));
}

#[test]
fn memory_of_unknown_size_is_left_out_with_a_warning() {
    let mut machine = machine();
    machine.nodes.get_mut(&2).unwrap().memory_bytes = None;
    let found = enumeration(&machine, &ZoneInfo::default(), &MemoryBackendConfig::default()).unwrap();
    assert!(found.devices.iter().all(|device| device.name.as_str() != "node2"));
    assert_eq!(found.warnings[0].path, "/sys/devices/system/node/node2");
}

#[test]
fn a_machine_without_nodes_is_an_error() {
    assert!(enumeration(&Topology::default(), &ZoneInfo::default(), &MemoryBackendConfig::default()).is_err());
}

#[test]
fn reserving_on_a_node_that_cannot_exist_is_a_warning() {
    let found = enumeration(&machine(), &ZoneInfo::default(), &reserve(&[("5", "1Gi")])).unwrap();
    assert!(found.warnings[0].reason.contains("node 5"), "{:?}", found.warnings);
}

#[test]
fn all_mistakes_of_a_configuration_are_reported_at_once() {
    let config = reserve(&[("zero", "1GB"), ("1", "-1"), ("00", "1Gi"), ("0", "0"), ("default", "1500m")]);
    let fields: Vec<String> = config.validate().into_iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["reserved.00", "reserved.1", "reserved.default", "reserved.zero", "reserved.zero"]);
    assert!(enumeration(&machine(), &ZoneInfo::default(), &config).is_err());
    assert_eq!(reserve(&[("0", "1Gi"), ("default", "0")]).validate(), []);
}

#[test]
fn configuration_keys_are_checked() {
    let config: MemoryBackendConfig =
        serde_json::from_str(r#"{"reserved": {"0": "1Gi", "default": "512Mi"}}"#).unwrap();
    assert_eq!(config, reserve(&[("0", "1Gi"), ("default", "512Mi")]));
    assert!(serde_json::from_str::<MemoryBackendConfig>(r#"{"reserve": {}}"#).is_err());
    assert_eq!(serde_json::from_str::<MemoryBackendConfig>("{}").unwrap(), MemoryBackendConfig::default());
}

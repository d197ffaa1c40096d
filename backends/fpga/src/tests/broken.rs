//! Trees that contradict themselves, and garbage.

use std::sync::Arc;

use hostler_api::Chain;
use hostler_linux::testkit::{AccessCounts, AttributeFaults, FakeDflCard, FakeDflPort, FakeXrtCard, MachineTree};
use nix::errno::Errno;
use proptest::prelude::*;

use super::*;

#[test]
fn a_machine_without_any_of_this_has_no_devices_and_no_warnings() {
    assert_eq!(enumerated(MachineTree::new().root(), FpgaBackendConfig::default()), Enumeration::default());
}

#[test]
fn dangling_links_and_loops_hide_nothing() {
    let found = after(|tree, card| {
        let base = card.engine().parent().unwrap().to_owned();
        tree.raw_link(base.join("region0"), "region0").raw_link(card.engine().join("driver"), ".");
        tree.raw_link("sys/class/fpga_region/region9", "region9");
        tree.link("sys/class/fpga_region/region8", "sys/devices/pci0000:b0/0000:b0:01.0/fpga_region/region8");
        tree.link("sys/class/fpga_manager/fpga9", "sys/devices/nowhere/fpga_manager/fpga9");
        tree.link("sys/bus/pci/devices/0000:c1:00.0", "sys/devices/pci0000:c0/0000:c1:00.0");
    });
    assert_eq!(names(&found.devices)[..3], ["card-0000-b1-00-0", "region-0000-b1-00-0-0", "afu-0000-b1-00-0-0"]);
    let paths: Vec<&str> = found.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(paths, ["/sys/devices/pci0000:b0/0000:b0:01.0/fpga_region/region8"]);
}

#[test]
fn files_of_nothing_but_zeros_are_absent_values() {
    let found = after(|tree, card| {
        for file in [card.region(0).join("compat_id"), card.port(0).join("afu_id"), card.engine().join("bitstream_id")]
        {
            tree.bytes(file, [0; 4096]);
        }
    });
    assert_eq!(names(&found.devices), ["card-0000-b1-00-0", "region-0000-b1-00-0-0"], "the port tells of no function");
    let region = attributes(device(&found, "region-0000-b1-00-0-0"));
    assert!(
        !region.iter().any(|text| text.starts_with("interfaceID") || text.starts_with("bitstreamID")),
        "{region:?}"
    );
}

#[test]
fn a_port_without_a_number_is_left_out_with_a_word() {
    for text in [None, Some(""), Some("-1"), Some("zero")] {
        let found = after(|tree, card| {
            tree.remove(card.port(0).join("id"));
            text.iter().for_each(|text| _ = tree.file(card.port(0).join("id"), text));
        });
        assert_eq!(names(&found.devices), ["card-0000-b1-00-0", "region-0000-b1-00-0-0"], "{text:?}");
        assert!(found.warnings[0].path.ends_with("dfl-port.0/id"), "{:?}", found.warnings);
    }
}

#[test]
fn an_engine_without_regions_is_a_card_that_cannot_be_programmed() {
    let found = after(|tree, card| _ = tree.remove(card.region(0).parent().unwrap().parent().unwrap()));
    assert_eq!(names(&found.devices), ["card-0000-b1-00-0", "afu-0000-b1-00-0-0"]);
    assert!(attributes(&found.devices[0]).contains(&"prCapable=false".to_owned()));
}

#[test]
fn of_two_ports_with_one_number_the_first_is_offered() {
    let found = after(|tree, card| {
        let second = card.port(0).parent().unwrap().join("dfl-port.9");
        tree.files(&second, &[("id", "0"), ("afu_id", FakeDflCard::AFU_ID)]);
    });
    assert_eq!(nodes(device(&found, "afu-0000-b1-00-0-0")), ["/dev/dfl-port.0"]);
    assert!(found.warnings[0].reason.contains("has port 0 too"), "{:?}", found.warnings);
}

#[test]
fn more_ports_than_there_can_be_counters_are_not_offered() {
    let tree = MachineTree::new();
    let ports: Vec<FakeDflPort> = (0..31).map(FakeDflPort::new).collect();
    let card = FakeDflCard { ports, ..FakeDflCard::new("0000:b1:00.0") };
    card.plug(&tree);
    for id in 31..40 {
        tree.files(card.port(0).parent().unwrap().join(format!("dfl-port.9{id}")), &[("id", &id.to_string())]);
    }
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    assert_eq!(found.counter_sets[0].counters.len(), 31);
}

#[test]
fn any_one_thing_that_cannot_be_read_is_named_or_leaves_the_rest() {
    let tree = MachineTree::new();
    FakeDflCard { ports: vec![FakeDflPort::new(0), FakeDflPort::new(1)], ..FakeDflCard::new("0000:b1:00.0") }
        .plug(&tree);
    FakeXrtCard::new("0000:c1:00").plug(&tree);
    let counts = Arc::new(AccessCounts::default());
    enumerated(tree.root().tapped(counts.clone()), FpgaBackendConfig::default());
    for (_, path) in counts.take().into_keys() {
        for errno in [Errno::EIO, Errno::EBUSY] {
            let faults = Arc::new(AttributeFaults::default());
            faults.set(&path, errno);
            let root = tree.root().tapped(faults);
            let found = match FpgaBackend::new(root.clone(), FpgaBackendConfig::default()).enumerate() {
                Ok(_) => enumerated(root, FpgaBackendConfig::default()),
                Err(error) => {
                    let told = Chain(&error).to_string();
                    assert!(told.contains(&format!("failed to read /{}", path.display())), "{told}");
                    continue;
                }
            };
            // Trouble of one card is none of the other's.
            for (own, other) in [("0000:b1:00", "xrt-0000-c1-00-1"), ("0000:c1:00", "card-0000-b1-00-0")] {
                if path.to_string_lossy().contains(own) {
                    assert_eq!(device(&found, other).health, Health::Healthy, "{} {errno}", path.display());
                }
            }
        }
    }
}

/// Any file of the trees below `sys`, by number.
fn files(folder: &std::path::Path, into: &mut Vec<std::path::PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let kind = std::fs::symlink_metadata(&path).unwrap();
        if kind.is_dir() {
            files(&path, into);
        } else if kind.is_file() && !path.ends_with("config") {
            into.push(path);
        }
    }
}

#[test]
fn a_link_that_leads_to_no_region_is_warned_of() {
    let found = after(|tree, _| {
        tree.remove("sys/class/fpga_region/region0").raw_link("sys/class/fpga_region/region0", "../../nowhere");
    });
    let told = |path: &str, reason: &str| {
        found.warnings.iter().any(|warning| warning.path.ends_with(path) && warning.reason.contains(reason))
    };
    assert!(told("/fpga_region/region0", "does not lead to a region"), "{:?}", found.warnings);
    assert!(told("/0000:b1:00.0", "shows no card of it"), "{:?}", found.warnings);
    assert_eq!(names(&found.devices), Vec::<&str>::new());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever files contain, devices stay within every limit, and nothing panics.
    #[test]
    fn garbage_in_any_file_upsets_nothing(
        garbage in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..80)), 1..20),
    ) {
        let tree = MachineTree::new();
        FakeDflCard { ports: vec![FakeDflPort::new(0), FakeDflPort::new(1)], ..FakeDflCard::new("0000:b1:00.0") }.plug(&tree);
        FakeXrtCard { xclbin_id: Some(FakeDflCard::AFU_ID.to_owned()), ..FakeXrtCard::new("0000:c1:00") }.plug(&tree);
        amd::plug_ami(&tree, "READY");
        managers::plug(&tree, 9);
        let mut all = Vec::new();
        files(&tree.path("sys"), &mut all);
        for (index, bytes) in garbage {
            std::fs::write(index.get(&all), bytes).unwrap();
        }
        enumerated(tree.root(), FpgaBackendConfig { vfio: vec!["8086:bcce".to_owned()], ..FpgaBackendConfig::default() });
        enumerated(tree.root(), FpgaBackendConfig::default());
    }
}

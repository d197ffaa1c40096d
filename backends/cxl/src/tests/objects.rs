//! The joined objects of the captured trees.

use super::captured;
use crate::{
    device::{CardId, DaxId, RegionId},
    objects::{CxlObjects, RegionMode},
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[test]
fn cards_are_joined_with_functions_endpoints_regions_and_nodes() {
    let capture = captured("regions");
    let root = &capture.root();
    let objects = CxlObjects::read(root).unwrap();
    let mut cards: Vec<_> = objects
        .memdevs
        .iter()
        .map(|memdev| {
            let regions = objects.regions_of(memdev);
            let nodes: Vec<_> =
                regions.iter().map(|region| root.look(|tree| objects.node_of(tree, region)).unwrap()).collect();
            let committed = objects.endpoint_of(memdev).unwrap().decoders_committed.unwrap();
            let address = memdev.address.unwrap().to_string();
            (memdev.serial.unwrap(), address, memdev.host_bridge().unwrap(), committed, nodes)
        })
        .collect();
    cards.sort();
    let card = |serial, address: &str, bridge, node| (serial, address.to_owned(), bridge, 1, vec![node]);
    assert_eq!(
        cards,
        [
            card(0x1001, "0000:41:00.0", "pci0000:40", Some(5)),
            card(0x2001, "0000:c3:00.0", "pci0000:c0", None),
            card(0x2002, "0000:c4:00.0", "pci0000:c0", Some(6)),
            card(0x3001, "0000:43:00.0", "pci0000:40", Some(5)),
        ]
    );
}

#[test]
fn a_region_is_joined_with_its_card_its_window_and_its_dax_device() {
    let capture = captured("regions");
    let objects = CxlObjects::read(&capture.root()).unwrap();
    let region = objects.region("region2").unwrap();
    assert_eq!(
        (region.mode, region.size, region.resource),
        (Some(RegionMode::Ram), Some(256 * MIB), Some(0x4_8000_0000))
    );
    assert!(region.committed);
    let serials: Vec<_> = objects.memdevs_of(region).iter().map(|memdev| memdev.serial).collect();
    assert_eq!(serials, [Some(0x2002)]);
    let dax: Vec<_> = objects.daxes_of(region).collect();
    assert_eq!((dax.len(), dax[0].target_node, dax[0].is_system_ram()), (1, Some(6), true));
    assert_eq!(dax[0].range(), region.range());
    assert_eq!(objects.root_decoder_of(region).unwrap().host_bridges, ["pci0000:c0"]);
    let fast = objects.region("region0").unwrap().performance.unwrap();
    assert_eq!((fast.read_bandwidth, fast.read_latency), (Some(16_000), Some(202)));
    assert_eq!(region.performance, None);
}

#[test]
fn windows_are_told_by_host_bridge_and_have_what_regions_leave() {
    for (moment, free) in [("boot", [4 * GIB, 4 * GIB]), ("regions", [4 * GIB - 768 * MIB, 4 * GIB - 512 * MIB])] {
        let capture = captured(moment);
        let objects = CxlObjects::read(&capture.root()).unwrap();
        let near = |serial| {
            let memdev = objects.memdevs.iter().find(|memdev| memdev.serial == Some(serial)).unwrap();
            objects.windows_for(memdev, RegionMode::Ram)
        };
        for (serial, window, free) in [(0x1001, "decoder0.0", free[0]), (0x2002, "decoder0.1", free[1])] {
            let windows: Vec<_> = near(serial).iter().map(|window| window.name.as_str()).collect();
            assert_eq!(windows, [window]);
            assert_eq!(objects.free_bytes(near(serial)[0]), free, "{moment} {window}");
        }
    }
}

#[test]
fn identities_written_down_find_the_objects_of_another_reading() {
    let capture = captured("regions");
    let objects = CxlObjects::read(&capture.root()).unwrap();
    let later = captured("hotadd");
    let later = CxlObjects::read(&later.root()).unwrap();
    for region in &objects.regions {
        let identity = RegionId::of(&objects, region).unwrap();
        let written = serde_json::to_string(&identity).unwrap();
        assert!(!written.contains("region"), "{written}");
        let identity: RegionId = serde_json::from_str(&written).unwrap();
        assert_eq!(identity.find(&later).map(|found| found.resource), Some(region.resource));
    }
    for dax in &objects.daxes {
        let identity = DaxId::of(&objects, dax).unwrap();
        assert_eq!(identity.find(&later).map(|found| found.resource), Some(dax.resource));
    }
    let boot = captured("boot");
    let boot = CxlObjects::read(&boot.root()).unwrap();
    assert!(objects.regions.iter().all(|region| RegionId::of(&objects, region).unwrap().find(&boot).is_none()));
}

#[test]
fn a_card_is_found_by_its_serial_number_wherever_it_is_and_by_place_where_that_is_no_help() {
    let capture = captured("boot");
    let mut objects = CxlObjects::read(&capture.root()).unwrap();
    let moved = CardId { serial: Some(0x1001), address: "0000:99:00.0".parse().ok() };
    assert_eq!(moved.find(&objects).unwrap().address.unwrap().to_string(), "0000:41:00.0");
    for memdev in &mut objects.memdevs {
        memdev.serial = Some(0);
    }
    for memdev in &objects.memdevs {
        assert_eq!(CardId::of(memdev).serial, None);
        assert_eq!(CardId::of(memdev).find(&objects), Some(memdev));
    }
    assert_eq!(CardId { serial: None, ..moved }.find(&objects), None);
    for memdev in &mut objects.memdevs {
        memdev.serial = Some(7);
    }
    for memdev in &objects.memdevs {
        assert_eq!(CardId::of(memdev).find(&objects), Some(memdev));
    }
}

#[test]
fn a_machine_without_cxl_has_no_objects() {
    let tree = hostler_linux::testkit::MachineTree::new();
    let objects = CxlObjects::read(&tree.root()).unwrap();
    assert!(objects.memdevs.is_empty() && objects.daxes.is_empty());
}

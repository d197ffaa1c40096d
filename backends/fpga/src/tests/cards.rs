//! Made-up cards: what is offered of them, and what excludes what.

use hostler_linux::{
    pci::PciAddress,
    testkit::{AccessCounts, FakeDflCard, FakeDflPort, FakePciFunction, MachineTree},
};
use std::sync::Arc;

use super::*;
use crate::{FpgaDevice, dfl};

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// A virtual function of a card at `0000:b1:00.0`.
fn virtual_function(number: u32) -> FakePciFunction {
    FakePciFunction { class: 0x12_0000, ..FakePciFunction::new(&format!("0000:b1:00.{number}"), 0x8086, 0xbccf) }
}

/// A card with three ports, of which a virtual function with the same driver has the second, and a guest the third.
fn card() -> FakeDflCard {
    let second = FakeDflPort {
        function: Some(FakePciFunction { driver: Some("dfl-pci".into()), ..virtual_function(5) }),
        ..FakeDflPort::new(1)
    };
    let bound = FakePciFunction { driver: Some("vfio-pci".into()), iommu_group: Some(9), ..virtual_function(6) };
    let third = FakeDflPort { present: false, function: Some(bound), ..FakeDflPort::new(2) };
    FakeDflCard { ports: vec![FakeDflPort::new(0), second, third], ..FakeDflCard::new("0000:b1:00.0") }
}

fn plugged(card: &FakeDflCard) -> MachineTree {
    let tree = MachineTree::new();
    tree.folder("sys/bus/pci/drivers/vfio-pci");
    card.plug(&tree);
    tree
}

#[test]
fn a_card_offers_itself_its_regions_and_its_programmed_ports() {
    let tree = plugged(&card());
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    let expected = [
        "card-0000-b1-00-0",
        "region-0000-b1-00-0-0",
        "region-0000-b1-00-0-1",
        "region-0000-b1-00-0-2",
        "afu-0000-b1-00-0-0",
        "afu-0000-b1-00-0-1",
        "vfio-0000-b1-00-6",
    ];
    assert_eq!((names(&found.devices), found.warnings.len()), (expected.to_vec(), 0));
    assert_eq!(nodes(device(&found, "card-0000-b1-00-0")), ["/dev/dfl-fme.0", "/dev/dfl-port.0", "/dev/dfl-port.1"]);
    let of_guest = device(&found, "afu-0000-b1-00-0-1");
    assert_eq!(nodes(of_guest), ["/dev/dfl-port.1"]);
    assert!(attributes(of_guest).contains(&"resource.kubernetes.io/pciBusID=0000:b1:00.5".to_owned()));
    assert!(attributes(of_guest).contains(&"virtualFunction=true".to_owned()));
    let gone = device(&found, "region-0000-b1-00-0-2");
    assert!(nodes(gone).is_empty());
    assert!(reason(gone).starts_with("port 2 is not on this host"), "{}", reason(gone));
}

#[test]
fn what_lies_behind_one_port_excludes_each_other_and_the_card_excludes_everything() {
    let tree = plugged(&card());
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    let set = &found.counter_sets[0];
    let counters: Vec<String> = set.counters.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    assert_eq!(
        (set.name.as_str(), counters.join(" ").as_str()),
        ("card-0000-b1-00-0", "functions=1 port-0=1 port-1=1 port-2=1")
    );
    let of = |name: &str| takes(device(&found, name)).join(" ").replace("card-0000-b1-00-0/", "");
    assert_eq!(of("card-0000-b1-00-0"), "functions=1 port-0=1 port-1=1 port-2=1");
    assert_eq!(of("afu-0000-b1-00-0-1"), "port-1=1");
    // Nothing tells behind which region the function of the guest lies.
    assert_eq!(of("region-0000-b1-00-0-1"), "functions=1 port-1=1");
    assert_eq!(of("vfio-0000-b1-00-6"), "functions=1");
}

#[test]
fn devices_are_the_same_when_the_kernel_counts_anew() {
    let before = enumerated(plugged(&card()).root(), FpgaBackendConfig::default());
    let after = enumerated(plugged(&FakeDflCard { number: 7, ..card() }).root(), FpgaBackendConfig::default());
    let without_nodes = |found: &Enumeration| {
        let mut devices = found.devices.clone();
        devices.iter_mut().for_each(|device| device.edits = hostler_backend::ContainerEdits::default());
        devices
    };
    assert_eq!(without_nodes(&before), without_nodes(&after));
    assert_eq!(nodes(device(&after, "afu-0000-b1-00-0-1")), ["/dev/dfl-port.449"]);
}

#[test]
fn a_target_finds_its_card_where_it_is_today() {
    let card = FakeDflCard { number: 3, ..card() };
    let tree = plugged(&card);
    FakeDflCard::nth(1).plug(&tree);
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    let target = FpgaDevice::of(device(&found, "region-0000-b1-00-0-1")).unwrap();
    let interface_id = Some(FakeDflCard::INTERFACE_ID.to_owned());
    assert_eq!(target, FpgaDevice::Region { card: address("0000:b1:00.0"), port: 1, interface_id });
    let today = tree.look(|tree| dfl::find(tree, address("0000:b1:00.0"))).unwrap();
    let engine = today.engine.as_ref().unwrap();
    assert_eq!((&engine.folder, &engine.node), (&card.engine(), &card.engine_node()));
    assert_eq!(engine.manager, Some(card.manager()));
    assert_eq!(today.region(1).unwrap().folder, card.region(1));
    let port = today.port(1).unwrap();
    assert_eq!((&port.folder, &port.node, port.function), (&card.port(1), &card.port_node(1), address("0000:b1:00.5")));
    assert_eq!(today.port(2), None);
    assert_eq!(tree.look(|tree| dfl::find(tree, address("0000:b1:00.1"))), None);
}

#[test]
fn a_guest_that_has_a_port_without_its_card_can_use_it() {
    let tree = MachineTree::new();
    let card = FakeDflCard::new("0000:00:05.0");
    card.plug(&tree);
    tree.remove(card.engine());
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    assert_eq!(names(&found.devices), ["afu-0000-00-05-0-0"]);
    let afu = device(&found, "afu-0000-00-05-0-0");
    assert_eq!((nodes(afu), &afu.health), (vec!["/dev/dfl-port.0"], &Health::Healthy));
    assert!(attributes(afu).contains(&"prCapable=false".to_owned()));
}

#[test]
fn two_engines_in_one_slot_are_two_cards() {
    let tree = MachineTree::new();
    FakeDflCard::new("0000:b1:00.0").plug(&tree);
    FakeDflCard { number: 1, ..FakeDflCard::new("0000:b1:00.1") }.plug(&tree);
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    let cards = names(&found.devices).into_iter().filter(|name| name.starts_with("card-"));
    assert_eq!(cards.collect::<Vec<_>>(), ["card-0000-b1-00-0", "card-0000-b1-00-1"]);
    assert_eq!(nodes(device(&found, "afu-0000-b1-00-1-0")), ["/dev/dfl-port.64"]);
}

#[test]
fn regions_of_a_card_with_holes_among_its_ports_have_the_numbers_of_the_ports() {
    let tree = MachineTree::new();
    let card =
        FakeDflCard { ports: vec![FakeDflPort::new(0), FakeDflPort::new(3)], ..FakeDflCard::new("0000:b1:00.0") };
    card.plug(&tree);
    tree.file(card.engine().join("ports_num"), "4");
    let found = tree.look(|tree| dfl::find(tree, address("0000:b1:00.0"))).unwrap();
    assert_eq!(found.region(3).unwrap().folder, card.region(3));
    assert_eq!(found.region(1), None);
}

#[test]
fn a_function_that_the_configuration_passes_on_is_offered_in_no_other_way() {
    let tree = plugged(&card());
    let models = FpgaBackendConfig { vfio: vec!["8086:bccf".to_owned()], ..FpgaBackendConfig::default() };
    let found = enumerated(tree.root(), models);
    assert!(names(&found.devices).contains(&"vfio-0000-b1-00-5"));
    assert!(!names(&found.devices).contains(&"afu-0000-b1-00-0-1"));
    assert_eq!(takes(device(&found, "card-0000-b1-00-0"))[0], "card-0000-b1-00-0/functions=2");
    let whole = FpgaBackendConfig { vfio: vec!["0000:b1:00.0".to_owned()], ..FpgaBackendConfig::default() };
    let found = enumerated(tree.root(), whole);
    assert_eq!(names(&found.devices), ["afu-0000-b1-00-0-1", "vfio-0000-b1-00-0", "vfio-0000-b1-00-6"]);
}

/// Its driver still has it, so it is not for vfio to be passed on.
#[test]
fn a_card_whose_region_leads_nowhere_is_offered_in_no_way_and_named() {
    let card = FakeDflCard::new("0000:b1:00.0");
    let tree = plugged(&card);
    tree.remove(card.engine().parent().unwrap());
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    assert_eq!(names(&found.devices), [""; 0]);
    let expected = "dfl-pci is bound to it and shows no card of it; it is not offered";
    assert!(found.warnings.iter().any(|it| it.path.ends_with("0000:b1:00.0") && it.reason == expected), "{found:?}");
    let whole = FpgaBackendConfig { vfio: vec!["0000:b1:00.0".to_owned()], ..FpgaBackendConfig::default() };
    assert_eq!(names(&enumerated(tree.root(), whole).devices), ["vfio-0000-b1-00-0"]);
}

#[test]
fn a_card_that_is_pulled_leaves_nothing() {
    let tree = plugged(&card());
    assert!(!enumerated(tree.root(), FpgaBackendConfig::default()).devices.is_empty());
    card().pull(&tree);
    assert_eq!(enumerated(tree.root(), FpgaBackendConfig::default()), Enumeration::default());
}

/// What a look costs, by the number of files that it touches.
fn cost(tree: &MachineTree) -> usize {
    let counts = Arc::new(AccessCounts::default());
    FpgaBackend::new(tree.root().tapped(counts.clone()), FpgaBackendConfig::default()).enumerate().unwrap();
    counts.take().values().sum()
}

#[test]
fn the_cost_of_a_look_grows_with_the_cards_and_other_functions_cost_three_files() {
    let tree = MachineTree::new();
    FakeDflCard::nth(0).plug(&tree);
    let one = cost(&tree);
    (1..10).for_each(|n| _ = FakeDflCard::nth(n).plug(&tree));
    let ten = cost(&tree);
    (10..100).for_each(|n| _ = FakeDflCard::nth(n).plug(&tree));
    let (each, hundred) = ((ten - one) / 9, cost(&tree));
    assert_eq!(hundred - ten, each * 90);
    assert!(each <= 60, "{each} files for each card");
    for bus in 0..100 {
        FakePciFunction::new(&format!("0000:{bus:02x}:00.0"), 0x8086, 0x1521).plug(&tree);
    }
    assert_eq!(cost(&tree) - hundred, 300);
}

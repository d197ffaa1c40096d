//! A look after devices went finds what a look at everything finds, and reads little.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use hostler_backend::Backend;
use hostler_linux::testkit::{AccessCounts, CxlCard, CxlHost, MachineTree, RegionUse, cxl_function};
use proptest::prelude::*;

use super::backend;

/// Cards, of which every second is a region, and accelerators. Gives for each the folders of its objects, in the order in
/// which the kernel takes them away.
fn plug(tree: &MachineTree, cards: u64, accelerators: u32) -> Vec<Vec<PathBuf>> {
    let mut host = CxlHost::new(tree);
    let mut devices = Vec::new();
    for serial in 1..=cards {
        let card = host.plug(&CxlCard::new(serial));
        let used = if serial % 4 == 0 { RegionUse::SystemRam(6) } else { RegionUse::DevDax(5) };
        let region = (serial % 2 == 0).then(|| host.region(&[&card], used));
        devices.push(region.into_iter().chain([card.endpoint, card.function.folder()]).collect());
    }
    for number in 0..accelerators {
        let function = cxl_function(&format!("0003:{number:02x}:00.0"), 2, true, 16 << 30);
        function.plug(tree);
        devices.push(vec![function.folder()]);
    }
    devices
}

fn unplug(tree: &MachineTree, device: Vec<PathBuf>) -> BTreeSet<String> {
    device.into_iter().flat_map(|folder| tree.unplug(folder)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_look_after_removals_finds_what_is_left(
        rounds in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 1..4), 1..4),
    ) {
        let tree = MachineTree::new();
        let mut devices = plug(&tree, 6, 3);
        let looking = backend(&tree.root());
        looking.enumerate().unwrap();
        for round in rounds {
            let mut removed = BTreeSet::new();
            for pick in round {
                if !devices.is_empty() {
                    removed.extend(unplug(&tree, devices.remove(pick.index(devices.len()))));
                }
            }
            let found = looking.enumerate_after_removal(&removed).unwrap();
            prop_assert_eq!(found, backend(&tree.root()).enumerate().unwrap());
        }
    }
}

#[test]
fn after_a_removal_the_tables_of_other_cards_are_read_and_no_more() {
    let reads = |cards: u64| {
        let tree = MachineTree::new();
        let mut devices = plug(&tree, cards, 4);
        let counts = Arc::new(AccessCounts::default());
        let looking = backend(&tree.root().tapped(counts.clone()));
        looking.enumerate().unwrap();
        let all: usize = counts.take().values().sum();
        let removed = unplug(&tree, devices.remove(0));
        looking.enumerate_after_removal(&removed).unwrap();
        (all, counts.take().values().sum::<usize>())
    };
    let [(few, after_few), (many, after_many)] = [4, 32].map(reads);
    println!("{few} accesses for 4 cards, {after_few} after a removal; {many} for 32, {after_many}");
    assert!(after_many <= after_few + 28 && after_many * 10 < many, "{after_few} {after_many}");
}

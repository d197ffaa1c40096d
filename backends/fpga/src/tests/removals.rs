//! A look after cards went finds what a look at everything finds, and reads little.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use hostler_linux::testkit::{AccessCounts, FakePciFunction, FakeXrtCard};
use proptest::prelude::*;

use super::*;

const DFL_CARDS: u32 = 4;
const XRT_CARDS: u32 = 3;

/// Cards of both kinds and one that is passed on whole. Gives the folders of all functions.
fn plug(tree: &MachineTree) -> Vec<PathBuf> {
    let dfl = (0..DFL_CARDS).map(|number| {
        let card = FakeDflCard::nth(number);
        card.plug(tree);
        card.function.folder()
    });
    let dfl: Vec<PathBuf> = dfl.collect();
    let xrt = (0..XRT_CARDS).flat_map(|number| {
        let card = FakeXrtCard { render: 128 + number, ..FakeXrtCard::new(&format!("0002:{number:02x}:00")) };
        card.plug(tree);
        [Some(card.user.folder()), card.management.map(|function| function.folder())].into_iter().flatten()
    });
    let xrt: Vec<PathBuf> = xrt.collect();
    let bound = FakePciFunction { driver: Some("vfio-pci".into()), iommu_group: Some(9), ..whole() };
    bound.plug(tree);
    dfl.into_iter().chain(xrt).chain([bound.folder()]).collect()
}

fn whole() -> FakePciFunction {
    FakePciFunction { class: 0x12_0000, ..FakePciFunction::new("0003:b1:00.0", 0x8086, 0xbccf) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_look_after_removals_finds_what_is_left(
        rounds in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 1..4), 1..4),
    ) {
        let tree = MachineTree::new();
        let mut functions = plug(&tree);
        let backend = FpgaBackend::new(tree.root(), FpgaBackendConfig::default());
        backend.enumerate().unwrap();
        for round in rounds {
            let mut removed = BTreeSet::new();
            for pick in round {
                if !functions.is_empty() {
                    removed.extend(tree.unplug(functions.remove(pick.index(functions.len()))));
                }
            }
            let found = backend.enumerate_after_removal(&removed).unwrap();
            prop_assert_eq!(found, enumerated(tree.root(), FpgaBackendConfig::default()));
        }
    }
}

#[test]
fn after_a_removal_the_names_of_other_cards_parts_are_read_and_no_more() {
    let reads = |cards: u32| {
        let tree = MachineTree::new();
        (0..cards).for_each(|number| drop(FakeDflCard::nth(number).plug(&tree)));
        let counts = Arc::new(AccessCounts::default());
        let backend = FpgaBackend::new(tree.root().tapped(counts.clone()), FpgaBackendConfig::default());
        backend.enumerate().unwrap();
        let all: usize = counts.take().values().sum();
        let removed = tree.unplug(FakeDflCard::nth(1).function.folder());
        assert_eq!(backend.enumerate_after_removal(&removed).unwrap().devices.len() as u32, 3 * (cards - 1));
        (all, counts.take().values().sum::<usize>())
    };
    let [(few, after_few), (many, after_many)] = [4, 32].map(reads);
    println!("{few} accesses for 4 cards, {after_few} after a removal; {many} for 32, {after_many}");
    assert!(after_many <= after_few + 2 * 28 && after_many * 10 < many, "{after_few} {after_many}");
}

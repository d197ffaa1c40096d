//! Reading, writing and combining sets of numbers.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde::{
    Deserialize,
    de::value::{Error as ValueError, StrDeserializer},
};

use super::{IdSet, LARGEST};

fn set() -> impl Strategy<Value = IdSet> {
    proptest::collection::btree_set(0..300_u32, 0..40).prop_map(IdSet::from)
}

fn members() -> impl Strategy<Value = BTreeSet<u32>> {
    proptest::collection::btree_set(0..300_u32, 0..80)
}

/// The kernel's way to print a mask of `groups` times 32 bits.
fn mask(set: &IdSet, groups: u32) -> String {
    let group =
        |group: u32| (0..32).filter(|bit| set.contains(group * 32 + bit)).fold(0_u32, |bits, bit| bits | 1 << bit);
    (0..groups).rev().map(|at| format!("{:08x}", group(at))).collect::<Vec<_>>().join(",")
}

fn list(text: &str) -> IdSet {
    text.parse().unwrap()
}

#[test]
fn lists_are_read_and_written_as_the_kernel_does() {
    for text in ["", "0", "0-3", "0-3,8,10-11", "0,2,4", "65535"] {
        assert_eq!(list(text).to_string(), text);
    }
    assert_eq!(list("0-30:2/8\n").to_string(), "0-1,8-9,16-17,24-25");
    assert_eq!(list("\n"), IdSet::new());
}

#[test]
fn what_is_no_list_is_refused() {
    for text in ["(null)", "3-1", "1,,2", "a", "-1", "0-65536", "0-3:2", "0-3:0/2", "0-3:3/2", "0-4294967296", "1 2"] {
        assert!(text.parse::<IdSet>().is_err(), "{text}");
    }
}

/// What a text costs is the ranges that are read out of it, whatever numbers these name.
#[test]
fn a_page_that_names_all_numbers_again_and_again_is_read_for_its_length() {
    let page = "0-65535,".repeat(512);
    let set = list(page.trim_end_matches(','));
    assert_eq!((set.0.len(), set.0.capacity(), set.len()), (1, 1, 65_536));
    assert_eq!(list("0-65535:7/7,3-9:65536/65536").to_string(), "0-65535");
    let strides = ["0-65535:1/2"; 2].join(",");
    assert_eq!(list(&strides).to_string(), list("0-65535:1/2").to_string());
    let error = ["0-65535:1/2"; 3].join(",").parse::<IdSet>().unwrap_err();
    assert_eq!(error.reason, "it names more ranges than a machine has");
    let error = "x".repeat(1 << 20).parse::<IdSet>().unwrap_err().to_string();
    assert!(error.len() < 200, "{} bytes", error.len());
}

#[test]
fn masks_of_any_width_are_read() {
    assert_eq!(IdSet::from_mask("0c").unwrap().to_string(), "2-3");
    assert_eq!(IdSet::from_mask("ffff,fff00000,00ffffff,f0000000").unwrap().to_string(), "28-55,84-111");
    assert_eq!(IdSet::from_mask("0000,00000000,00000003\n").unwrap().to_string(), "0-1");
    assert_eq!("0-1,35".parse::<IdSet>().unwrap().to_mask(), "00000008,00000003");
    assert_eq!(IdSet::new().to_mask(), "00000000");
}

#[test]
fn what_is_no_mask_is_refused() {
    for text in ["", "0x3", "g", "1,,2", "123456789", "-1"] {
        assert!(IdSet::from_mask(text).is_err(), "{text}");
    }
    assert!(IdSet::from_mask(&vec!["0"; 2049].join(",")).is_err());
    assert!(IdSet::from_mask(&vec!["0"; 2048].join(",")).is_ok());
}

proptest! {
    #[test]
    fn a_list_survives_being_written_and_read(set in set()) {
        prop_assert_eq!(list(&set.to_string()), set);
    }

    #[test]
    fn a_mask_and_a_list_of_one_set_are_equal(set in set()) {
        prop_assert_eq!(IdSet::from_mask(&mask(&set, 10)).unwrap(), set.clone());
        prop_assert_eq!(IdSet::from_mask(&set.to_mask()).unwrap(), set);
    }

    #[test]
    fn union_intersection_and_difference_obey_the_laws(a in set(), b in set(), c in set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
        prop_assert_eq!(a.difference(&b.union(&c)), a.difference(&b).difference(&c));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&b).is_disjoint(&b));
        prop_assert!(a.intersection(&b).is_subset(&a));
        prop_assert_eq!(a.union(&b).len() + a.intersection(&b).len(), a.len() + b.len());
    }

    #[test]
    fn a_set_says_what_a_standard_set_of_its_members_says(a in members(), b in members(), id in 0..300_u32) {
        let (one, other) = (IdSet::from(a.clone()), IdSet::from(b.clone()));
        prop_assert!(one.iter().eq(a.iter().copied()) && one.iter().rev().eq(a.iter().rev().copied()));
        prop_assert_eq!((one.len(), one.first(), one.contains(id)), (a.len(), a.first().copied(), a.contains(&id)));
        prop_assert_eq!(one.union(&other), IdSet::from(&a | &b));
        prop_assert_eq!(one.intersection(&other), IdSet::from(&a & &b));
        prop_assert_eq!(one.difference(&other), IdSet::from(&a - &b));
        prop_assert_eq!((one.is_subset(&other), one.is_disjoint(&other)), (a.is_subset(&b), a.is_disjoint(&b)));
        prop_assert_eq!(one.cmp(&other), a.cmp(&b));
        let (mut grown, mut known) = (one.clone(), a.clone());
        prop_assert_eq!(grown.insert(id), known.insert(id));
        grown.extend(b.iter().copied());
        known.extend(b);
        prop_assert_eq!(&grown, &IdSet::from(known.clone()));
        prop_assert_eq!(grown.0.len(), known.iter().filter(|id| !known.contains(&(**id + 1))).count());
    }

    #[test]
    fn no_text_makes_it_panic_or_grow_without_bound(text in "[0-9a-f,:/\\- \n]{0,40}") {
        let largest = |set: IdSet| set.iter().next_back().unwrap_or_default();
        prop_assert!(text.parse().map_or(0, largest) <= LARGEST);
        prop_assert!(IdSet::from_mask(&text).map_or(0, largest) <= LARGEST);
    }

    #[test]
    fn any_text_at_all_is_read_or_refused(text in any::<String>()) {
        let _ = (text.parse::<IdSet>(), IdSet::from_mask(&text));
    }
}

#[test]
fn a_serialized_set_is_the_kernel_list() {
    let read = |text| IdSet::deserialize(StrDeserializer::<ValueError>::new(text));
    assert_eq!(read("0-3,8").unwrap(), "0-3,8".parse().unwrap());
    assert!(read("3-0").is_err());
}

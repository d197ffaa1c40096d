//! What a cluster does, told on the API server and the controllers of this crate, and on a real cluster of 1.36 where
//! `HOSTLER_E2E_KUBECONFIG` names one. Scenarios are in `scenarios/`, one file a topic; all of a file are told, and those
//! that went wrong are named.

#![allow(clippy::panic, clippy::print_stdout, reason = "a test says what it does, and fails by panicking")]

use hostler_testing::scenario::{tell, texts};

fn tell_all(file: &str) {
    let mut wrong = Vec::new();
    for text in texts(file) {
        let name = text.lines().find_map(|line| line.strip_prefix("name: ")).unwrap_or_default();
        match tell(text) {
            Ok(()) => println!("told: {name}"),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

macro_rules! topics {
    ($($name:ident $file:literal,)*) => {
        $(#[test]
        fn $name() {
            tell_all(include_str!(concat!("../scenarios/", $file)));
        })*
    };
}

topics! {
    fields_belong_to_those_who_apply_them "applying.yaml",
    patches_merge_as_the_kind_says "patching.yaml",
    kinds_are_defined "definitions.yaml",
    what_nobody_owns_is_collected "collecting.yaml",
    claims_are_made_reserved_and_freed "claims.yaml",
    pods_get_nodes_and_devices "scheduling.yaml",
}

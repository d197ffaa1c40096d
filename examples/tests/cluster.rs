//! The demonstration of a cluster comes to its end by itself, and shows what it is for.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test runs the program, and fails by panicking")]
#![cfg(feature = "cluster")]

use std::process::{Command, Output};

fn demo_cluster(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_demo-cluster")).args(arguments).output().unwrap()
}

#[test]
fn the_demonstration_of_a_cluster_shows_that_cards_are_kept_and_ends_by_itself() {
    let output = demo_cluster(&["--once"]);
    let (said, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}{complaints}");
    for line in [
        "worker-3: a daemon on the captured machine qemu-cxl-7.3.4-hotadd.tar.zst",
        "encode-two: Provisioned=True: ",
        "encode-hundred: Provisioned=False: ",
        "stranger-3: on worker-",
        "stranger-4: waits: 0/3 nodes are available",
        "4 strangers have the other cards, and one waits: the two cards are kept.",
        "training-0: on worker-",
        "open http://127.0.0.1:",
    ] {
        assert!(said.lines().any(|found| found.starts_with(line)), "{line:?} is not in:\n{said}");
    }
    let last = said.lines().last().unwrap();
    assert_eq!(last, "demo-cluster: all steps passed; two cards were kept for their job");
}

#[test]
fn an_argument_that_is_not_known_is_refused_before_anything_starts() {
    let output = demo_cluster(&["--twice"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: demo-cluster [--once]"));
}

//! Containers of real clusters of 1.26 to 1.31, which the real binary binds: `tests/support/src/real_node.rs` says how
//! to name a cluster. Without one, or if it is of a later release, every test here prints that it is skipped.
//!
//! Tests of [`old_cluster`] allocate by hand, as a controller would, in the version of the cluster. Tests of
//! [`negotiated`] run the real controller, with the cluster's scheduler.

#![allow(unreachable_pub, reason = "modules of a program")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod negotiated;
mod old_cluster;

use std::fs;

use hostler_linux::IdSet;
use hostler_testing::real_node::eventually;
use serde_json::json;

use old_cluster::OldCluster;

#[test]
fn containers_run_on_the_cpus_of_their_claims_whoever_is_killed() {
    let Some(mut cluster) = OldCluster::start() else { return };
    cluster.claim("one");
    cluster.claim("rest");
    let all = cluster.cpus();
    cluster.allocate("one", &cluster.handle(1));
    cluster.run("a", &["one"]);
    let one = cluster.bound_to("a", &["one"]);
    assert_eq!(one.len(), 1);

    // A container is not asked to stop when its daemon goes, and a claim has the same devices for its second pod.
    cluster.host.kill();
    assert_eq!(cluster.kernel_lets("a"), one);
    cluster.host.start();
    cluster.node.restart_kubelet();
    cluster.run("b", &["one"]);
    assert_eq!(cluster.bound_to("b", &["one"]), one);
    assert_eq!(cluster.kernel_lets("a"), one);

    if all.len() > 1 {
        cluster.allocate("rest", &cluster.handle(all.len() - 1));
        cluster.run("c", &["rest"]);
        assert_eq!(cluster.bound_to("c", &["rest"]), all.difference(&one));
        cluster.run("d", &["one", "rest"]);
        assert_eq!(cluster.bound_to("d", &["one", "rest"]), all);
    }

    // The claim of a pod that is deleted while the daemon is down is taken back when the daemon runs again.
    cluster.host.kill();
    ["a", "b", "c", "d"].iter().for_each(|pod| cluster.delete(pod));
    cluster.host.start();
    ["a", "b", "c", "d"].iter().for_each(|pod| cluster.wait_until_gone(pod));
    cluster.wait_until_nothing_is_held();
    cluster.deallocate("one");
    cluster.deallocate("rest");

    // All CPUs are free again.
    cluster.claim("all");
    cluster.allocate("all", &cluster.handle(all.len()));
    cluster.run("e", &["all"]);
    assert_eq!(cluster.bound_to("e", &["all"]), all);
    cluster.delete("e");
    cluster.wait_until_gone("e");
    cluster.wait_until_nothing_is_held();
    cluster.deallocate("all");
}

#[test]
fn a_handle_that_cannot_be_used_is_told_in_the_events_of_its_pod() {
    let Some(cluster) = OldCluster::start() else { return };
    let mut newer = cluster.handle(1);
    newer["apiVersion"] = json!("hostler.dev/v9");
    cluster.claim("bad");
    cluster.allocate("bad", &newer);
    cluster.run("a", &["bad"]);
    let told = eventually("an event that names the version", || {
        let events = cluster.node.events("Pod", "a");
        events.into_iter().find(|event| event.contains("hostler.dev/v9"))
    });
    assert!(told.contains("field status.allocation"), "{told}");
    // The failure is not held against the node: the pod goes, and nothing of it stays.
    cluster.delete("a");
    cluster.wait_until_gone("a");
    cluster.wait_until_nothing_is_held();
    cluster.deallocate("bad");
}

#[test]
fn the_node_offers_what_it_has_in_its_node_hardware() {
    let Some(cluster) = OldCluster::start() else { return };
    let pools: Vec<String> =
        cluster.slices().iter().map(|slice| slice["pool"]["name"].as_str().unwrap().to_owned()).collect();
    assert!(pools.contains(&format!("{}/cpu", cluster.node.name())), "{pools:?}");
    let status = cluster.host.get("/v1/status");
    assert_eq!((&status["publication"]["synced"], &status["kubelet"]["registered"]), (&json!(true), &json!(true)));
    let all: IdSet = fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap();
    assert_eq!(cluster.cpus(), all);
}

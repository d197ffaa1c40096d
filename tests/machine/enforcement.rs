//! What a claim binds is bound: the unified cgroups of a real kernel, and its page allocator.

use crate::{
    container::{Bound, Container},
    guest::Guest,
};

/// Fills 32 MiB: a variable of the shell is memory like any other.
const HOLD: &str = "held=$(dd if=/dev/zero bs=1M count=32 2>/dev/null | tr \\\\0 x)";

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_container_has_the_processors_and_the_memory_of_its_claim_and_keeps_them() {
    let mut guest = Guest::with_daemon();
    let claim = guest.claim("train", &["cpu/numa1,cpus=2", "memory/node3,memory=64Mi"]);
    let container = Container::with_claim(&mut guest, "train", &claim);
    let bound = Bound { cpus: "2-3".into(), mems: "3".into() };
    assert_eq!(container.bound(&mut guest), bound);
    assert_eq!(container.cgroup_file(&mut guest, "cpuset.cpus"), "2-3");
    assert_eq!(container.cgroup_file(&mut guest, "cpuset.mems.effective"), "3");

    // Node 3 has no processor: pages come from there because of the claim and of nothing else.
    container.run(&mut guest, HOLD);
    let pages = container.pages(&mut guest, "anon");
    assert!(pages[&3] >= 32 << 20, "{pages:?}");

    guest.kill_daemon();
    guest.start_daemon();
    let claims = &guest.json("hostler claim list -o json")["items"];
    assert_eq!((&claims[0]["uid"], &claims[0]["state"]), (&claim.as_str().into(), &"prepared".into()), "{claims:#}");
    assert_eq!(container.bound(&mut guest), bound);
    let other = guest.refused("hostler claim create other -d cpu/numa1,cpus=2");
    assert!(other.contains("default/train"), "{other}");

    container.kill(&mut guest);
    guest.ok("hostler claim delete train");
    guest.ok("hostler claim create other -d cpu/numa1,cpus=2");
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn what_somebody_writes_into_the_cgroup_of_a_container_is_undone() {
    let mut guest = Guest::with_daemon();
    let claim = guest.claim("train", &["cpu/numa1,cpus=2", "memory/node3,memory=64Mi"]);
    let container = Container::with_claim(&mut guest, "train", &claim);
    let bound = Bound { cpus: "2-3".into(), mems: "3".into() };
    assert_eq!(container.bound(&mut guest), bound);
    guest.ok("echo 0-3 >/sys/fs/cgroup/train/cpuset.cpus; echo 0-3 >/sys/fs/cgroup/train/cpuset.mems");
    guest.wait_for("the container to be bound again", |guest| (container.bound(guest) == bound).then_some(()));
    assert_eq!(container.cgroup_file(&mut guest, "cpuset.cpus"), "2-3");
    guest.assert_alive();
}

#[test]
#[ignore = "needs the emulated machine: make test-machine"]
fn a_container_whose_cgroup_cannot_have_the_claimed_processors_does_not_start() {
    let mut guest = Guest::with_daemon();
    let claim = guest.claim("train", &["cpu/numa1,cpus=2"]);
    guest.ok("mkdir /sys/fs/cgroup/slice; echo 0-1 >/sys/fs/cgroup/slice/cpuset.cpus");
    guest.ok("echo +cpuset >/sys/fs/cgroup/slice/cgroup.subtree_control");
    let container = Container::create(&mut guest, "slice/train");
    let refusals = container.give(&mut guest, &claim);
    let refusal = refusals.iter().find(|said| said.code != 0).expect("a hook fails");
    assert!(refusal.errors.contains("2-3"), "{refusal:?}");
    guest.assert_alive();
}

//! Containers of the pool on a made-up machine, with a played cpuset controller.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    audit::tests::{AuditMachine, set},
    containers::ContainerId,
};

/// The container `id` runs as process `pid` in the pool, on these CPUs.
fn pooled(id: &str, pid: u32, pool: &str) -> SeenContainers {
    let container = SeenContainer {
        id: ContainerId::new(id).unwrap(),
        name: "main".to_owned(),
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        pod_uid: "web-uid".to_owned(),
        claims: Vec::new(),
        cgroups_path: None,
        pid: Some(pid),
        quarantined: None,
        pool: Some(set(pool)),
    };
    SeenContainers::Connected(Arc::new(BTreeMap::from([(id.to_owned(), Arc::new(container))])))
}

/// A claim has CPUs 2 and 3, and `c1` was put into what is left.
fn machine() -> AuditMachine {
    let mut machine = AuditMachine::new();
    machine.claim("a", &[("cpus", "2-3")]);
    machine.container("c1", 42, "0-1,4-7", &[]);
    machine
}

fn auditor(machine: &AuditMachine) -> PoolAuditor {
    PoolAuditor::new(machine.tapped(), machine.tree.path("kubelet"), machine.metrics.clone())
}

#[test]
fn a_container_of_the_pool_that_was_put_on_claimed_cpus_is_put_back() {
    let (machine, seen) = (machine(), pooled("c1", 42, "0-1,4-7"));
    let start = Instant::now();
    auditor(&machine).look(&machine.table, &seen, start);
    assert_eq!(machine.kernel.take_writes(), [""; 0]);
    for cpus in ["0-7", "2", ""] {
        machine.kernel.set("pods/c1", "cpuset.cpus", cpus);
        machine.kernel.take_writes();
        auditor(&machine).look(&machine.table, &seen, start);
        assert_eq!(machine.has("c1"), "0-1,4-7", "{cpus:?}");
        assert_eq!(machine.kernel.take_writes(), ["pods/c1/cpuset.cpus=0-1,4-7"], "{cpus:?}: nothing else is written");
    }
    machine.kernel.set("pods/c1", "cpuset.cpus", "0,4");
    machine.kernel.take_writes();
    auditor(&machine).look(&machine.table, &seen, start);
    assert_eq!(machine.kernel.take_writes(), [""; 0], "less of the pool takes nothing from a claim");
}

#[test]
fn after_three_repairs_a_container_of_the_pool_is_left_alone() {
    let (machine, seen) = (machine(), pooled("c1", 42, "0-1,4-7"));
    let (mut auditor, start) = (auditor(&machine), Instant::now());
    for seconds in 0..6 {
        machine.kernel.set("pods/c1", "cpuset.cpus", "0-7");
        auditor.look(&machine.table, &seen, start + Duration::from_secs(seconds));
        assert_eq!(machine.has("c1"), if seconds < 3 { "0-1,4-7" } else { "0-7" });
    }
}

#[test]
fn a_container_of_the_pool_is_not_touched_while_the_runtime_is_told_of_claims() {
    let (machine, seen) = (machine(), pooled("c1", 42, "0-7"));
    machine.kernel.set("pods/c1", "cpuset.cpus", "0-7");
    machine.kernel.take_writes();
    auditor(&machine).look(&machine.table, &seen, Instant::now());
    assert_eq!(machine.kernel.take_writes(), [""; 0]);
}

#[test]
fn a_process_that_may_be_another_container_is_not_written_to() {
    type Change = fn(&AuditMachine);
    let cases: [(&str, Change); 3] = [
        ("another cgroup has the number", |machine| machine.process(42, 8, "/pods/other")),
        ("the number is free", |machine| {
            machine.tree.remove("proc/42");
        }),
        ("the cgroup is gone", |machine| {
            machine.tree.remove("sys/fs/cgroup/pods/c1");
        }),
    ];
    for (case, change) in cases {
        let (machine, seen) = (machine(), pooled("c1", 42, "0-1,4-7"));
        machine.kernel.cgroup("pods/other");
        machine.kernel.set("pods/c1", "cpuset.cpus", "0-7");
        machine.kernel.take_writes();
        change(&machine);
        auditor(&machine).look(&machine.table, &seen, Instant::now());
        assert_eq!(machine.kernel.take_writes(), [""; 0], "{case}");
    }
}

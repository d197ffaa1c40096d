//! What the host's cpuset lets us hand out.

use hostler_linux::topology::Topology;

use crate::tree::{CPU, NODE, TopologyTree, only_warning};

const V2: &str = "sysfs /sys sysfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0";
const V1: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
    cgroup /dev/the\\040cpusets cgroup rw,relatime,cpuset 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0";

/// Eight CPUs in two nodes.
fn machine(mounts: &str) -> TopologyTree {
    let tree = TopologyTree::with_cores(8);
    tree.file(&format!("{NODE}/online"), "0-1").node(0, "0-3", "10 20", 1024).node(1, "4-7", "20 10", 1024);
    tree.file("proc/mounts", mounts);
    tree
}

fn allowed(topology: &Topology) -> (String, String) {
    (topology.allowed_cpus.to_string(), topology.allowed_nodes.to_string())
}

fn both(cpus: &str, nodes: &str) -> (String, String) {
    (cpus.to_owned(), nodes.to_owned())
}

#[test]
fn nothing_that_narrows_it_allows_all_that_is_online() {
    assert_eq!(allowed(&machine("").read_clean()), both("0-7", "0-1"));
    assert_eq!(allowed(&machine(V2).read_clean()), both("0-7", "0-1"));
    assert_eq!(allowed(&TopologyTree::with_cores(2).read_clean()).0, "0-1");
}

#[test]
fn the_root_and_then_the_pods_of_version_two_narrow_it() {
    let tree = machine(V2);
    tree.file("sys/fs/cgroup/cpuset.cpus.effective", "0-6").file("sys/fs/cgroup/cpuset.mems.effective", "0-1");
    assert_eq!(allowed(&tree.read_clean()), both("0-6", "0-1"));
    tree.file("sys/fs/cgroup/kubepods/cpuset.cpus.effective", "0-5");
    assert_eq!(allowed(&tree.read_clean()), both("0-5", "0-1"));
    tree.file("sys/fs/cgroup/kubepods.slice/cpuset.cpus.effective", "2-5,100");
    tree.file("sys/fs/cgroup/kubepods.slice/cpuset.mems.effective", "1");
    assert_eq!(allowed(&tree.read_clean()), both("2-5", "1"));
}

#[test]
fn our_own_group_does_not_narrow_it_where_the_root_speaks() {
    let tree = machine(V2);
    tree.file("proc/self/cpuset", "/job").file("sys/fs/cgroup/job/cpuset.cpus.effective", "0-1");
    assert_eq!(allowed(&tree.read_clean()).0, "0-1");
    tree.file("sys/fs/cgroup/cpuset.cpus.effective", "0-7");
    assert_eq!(allowed(&tree.read_clean()).0, "0-7");
}

#[test]
fn version_one_is_found_wherever_it_is_mounted() {
    let tree = machine(V1);
    tree.file("dev/the cpusets/cpuset.cpus", "0-7").file("dev/the cpusets/cpuset.mems", "0-1");
    tree.file("dev/the cpusets/kubepods/cpuset.cpus", "0-3").file("dev/the cpusets/kubepods/cpuset.mems", "");
    // The other version has no cpuset controller then.
    tree.file("sys/fs/cgroup/unified/cpuset.cpus.effective", "7");
    assert_eq!(allowed(&tree.read_clean()), both("0-3", "0-1"));
    tree.file("dev/the cpusets/kubepods/cpuset.effective_cpus", "0-2");
    assert_eq!(allowed(&tree.read_clean()).0, "0-2");
}

#[test]
fn the_oldest_kind_of_cpuset_has_bare_names() {
    let tree = machine("none /dev/cpuset cpuset rw 0 0");
    tree.file("dev/cpuset/cpus", "1-2").file("dev/cpuset/mems", "0");
    assert_eq!(allowed(&tree.read_clean()), both("1-2", "0"));
}

#[test]
fn the_usual_places_serve_where_the_mount_table_is_anothers() {
    let tree = machine("cgroup2 /host/sys/fs/cgroup cgroup2 rw 0 0");
    tree.file("sys/fs/cgroup/cpuset.cpus.effective", "0-4");
    assert_eq!(allowed(&tree.read_clean()).0, "0-4");
}

#[test]
fn partitions_isolate_and_take_away_and_the_boot_line_only_isolates() {
    let tree = machine(V2);
    tree.file(&format!("{CPU}/isolated"), "6-7");
    tree.file("sys/fs/cgroup/cpuset.cpus.effective", "0-7").file("sys/fs/cgroup/cpuset.cpus.isolated", "2,6-7");
    let topology = tree.read_clean();
    assert_eq!((allowed(&topology).0.as_str(), topology.isolated.to_string().as_str()), ("0-1,3-7", "2,6-7"));
}

#[test]
fn a_limit_that_is_not_online_leaves_nothing_and_is_reported() {
    let tree = machine(V2);
    tree.file("sys/fs/cgroup/cpuset.cpus.effective", "20-30");
    let topology = tree.read();
    assert_eq!(allowed(&topology), both("", "0-1"));
    assert_eq!(only_warning(&topology).0, "/sys/fs/cgroup/cpuset.cpus.effective");
}

#[test]
fn paths_that_climb_are_not_followed() {
    let tree = machine("cgroup2 /a/../../cgroup cgroup2 rw 0 0");
    tree.file("cgroup/cpuset.cpus.effective", "0").file("proc/self/cpuset", "/../../cgroup");
    assert_eq!(allowed(&tree.read_clean()).0, "0-7");
}

#[test]
fn files_that_a_fuse_mount_fakes_are_reported() {
    let tree = machine("lxcfs /proc/cpuinfo fuse.lxcfs rw 0 0\nlxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0");
    let topology = tree.read();
    assert_eq!(only_warning(&topology).0, "/proc/cpuinfo");
}

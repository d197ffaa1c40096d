//! Cgroup v2 and mixed machines as plain files; `tests/cgroup.rs` has the real v1.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use tempfile::TempDir;

use super::*;
use crate::SysRootTap;

const POD: &str = "sys/fs/cgroup/kubepods/pod1/ctr";

/// A machine with CPUs 0-7 on nodes 0-1, and process 42 in a container's cgroup.
struct CgroupMachine(TempDir);

impl CgroupMachine {
    fn v2() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.put("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
        machine.put("proc/42/cgroup", "0::/kubepods/pod1/ctr\n");
        machine.put("sys/devices/system/cpu/online", "0-7\n");
        machine.put("sys/devices/system/node/has_memory", "0-1\n");
        for cgroup in ["sys/fs/cgroup/kubepods/pod1", POD] {
            machine.put(&format!("{cgroup}/cgroup.controllers"), "cpuset cpu memory\n");
            machine.put(&format!("{cgroup}/cpuset.cpus"), "\n");
            machine.put(&format!("{cgroup}/cpuset.mems"), "\n");
        }
        machine.put("sys/fs/cgroup/kubepods/pod1/cgroup.subtree_control", "cpu memory\n");
        machine.effective("sys/fs/cgroup/kubepods/pod1", "0-7", "0-1");
        machine.now("0-7", "0-1");
        machine
    }

    fn root(&self) -> SysRoot {
        SysRoot::new(self.0.path())
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root().path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn effective(&self, cgroup: &str, cpus: &str, mems: &str) {
        self.put(&format!("{cgroup}/cpuset.cpus.effective"), &format!("{cpus}\n"));
        self.put(&format!("{cgroup}/cpuset.mems.effective"), &format!("{mems}\n"));
    }

    /// What the kernel will say about the container after the pin.
    fn now(&self, cpus: &str, mems: &str) {
        self.effective(POD, cpus, mems);
        self.status(cpus, mems);
    }

    fn status(&self, cpus: &str, mems: &str) {
        let lines =
            format!("Cpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed:\t3\nMems_allowed_list:\t{mems}\n");
        self.put("proc/42/status", &lines);
    }

    fn pin(&self, cpus: &str, mems: &str) -> Result<(), CgroupError> {
        CpusetCgroup::of_process(&self.root(), 42).unwrap().pin(&cpus.parse().unwrap(), &mems.parse().unwrap())
    }

    fn locate(&self) -> Result<CpusetCgroup, CgroupError> {
        CpusetCgroup::of_process(&self.root(), 42)
    }
}

#[test]
fn both_sets_are_written_and_verified() {
    let machine = CgroupMachine::v2();
    machine.now("2-3", "1");
    machine.pin("2-3", "1").unwrap();
    assert_eq!(fs::read_to_string(machine.root().path(POD).join("cpuset.cpus")).unwrap(), "2-3");
    assert_eq!(fs::read_to_string(machine.root().path(POD).join("cpuset.mems")).unwrap(), "1");
    assert_eq!(machine.locate().unwrap().path(), Path::new("/sys/fs/cgroup/kubepods/pod1/ctr"));
    assert_eq!(machine.locate().unwrap().version(), CgroupVersion::V2);
}

#[test]
fn an_empty_set_leaves_its_file_alone() {
    let machine = CgroupMachine::v2();
    machine.now("2", "0-1");
    machine.pin("2", "").unwrap();
    assert_eq!(machine.root().required_bytes(format!("{POD}/cpuset.mems"), u64::MAX).unwrap(), b"\n");
    machine.now("2", "0");
    machine.pin("", "0").unwrap();
    assert_eq!(machine.root().required_bytes(format!("{POD}/cpuset.cpus"), u64::MAX).unwrap(), b"2");
}

#[test]
fn a_parent_that_allows_less_is_named() {
    let machine = CgroupMachine::v2();
    machine.effective("sys/fs/cgroup/kubepods/pod1", "0-3", "0");
    machine.now("0-3", "0");
    let error = machine.pin("2-5", "").unwrap_err();
    assert_eq!(
        error.to_string(),
        "/sys/fs/cgroup/kubepods/pod1/ctr/cpuset.cpus.effective is \"0-3\" instead of 2-5: the parent cgroup \
         /sys/fs/cgroup/kubepods/pod1 allows CPUs 0-3, not 4-5; widen it (AllowedCPUs= and AllowedMemoryNodes= of its \
         systemd slice) or reserve 4-5 in the configuration"
    );
    let error = machine.pin("", "1").unwrap_err().to_string();
    assert!(error.contains("allows memory nodes 0, not 1"), "{error}");
}

#[test]
fn offline_cpus_are_named() {
    let machine = CgroupMachine::v2();
    machine.put("sys/devices/system/cpu/online", "0-5\n");
    machine.now("4-5", "0-1");
    let error = machine.pin("4-7", "").unwrap_err().to_string();
    assert!(error.ends_with("CPUs 6-7 are offline; bring them online or prepare the claim anew"), "{error}");
}

#[test]
fn a_process_with_less_than_its_cgroup_is_refused() {
    let machine = CgroupMachine::v2();
    machine.now("2-3", "1");
    machine.status("2", "1");
    let error = machine.pin("2-3", "1").unwrap_err();
    let CgroupError::Mismatch { file, wanted, seen, cause } = error else { panic!("{error}") };
    assert_eq!((file.as_path(), wanted.as_str(), seen.as_str()), (Path::new("/proc/42/status"), "2-3", "2"));
    assert!(cause.contains("CPUAffinity="), "{cause}");
}

#[test]
fn a_set_that_others_hold_is_explained() {
    let machine = CgroupMachine::v2();
    machine.now("0-1", "0-1");
    let error = machine.pin("2-3", "").unwrap_err().to_string();
    assert!(error.contains("cpuset.cpus.partition"), "{error}");
}

#[test]
fn a_controller_that_nobody_delegated_is_refused() {
    let machine = CgroupMachine::v2();
    machine.put(&format!("{POD}/cgroup.controllers"), "cpu memory\n");
    machine.put("sys/fs/cgroup/kubepods/pod1/cgroup.controllers", "cpu memory\n");
    let error = machine.pin("2", "").unwrap_err().to_string();
    assert!(error.contains("its parent /sys/fs/cgroup/kubepods/pod1 does not have it either"), "{error}");
    let control = machine.root().text("sys/fs/cgroup/kubepods/pod1/cgroup.subtree_control").unwrap();
    assert_eq!(control.as_deref(), Some("cpu memory"), "nothing is written where it cannot help");
}

#[test]
fn passing_the_controller_on_is_not_believed() {
    let machine = CgroupMachine::v2();
    machine.put(&format!("{POD}/cgroup.controllers"), "cpu memory\n");
    let error = machine.pin("2", "").unwrap_err();
    assert!(matches!(&error, CgroupError::NotDelegated { .. }), "{error}");
    assert!(error.to_string().contains("changed nothing"), "{error}");
    let missing = machine.root().path("sys/fs/cgroup/kubepods/pod1/cgroup.subtree_control");
    fs::remove_file(&missing).unwrap();
    let error = machine.pin("2", "").unwrap_err().to_string();
    assert!(error.contains("failed to write +cpuset"), "{error}");
    assert!(!missing.exists(), "a missing file is never made");
}

#[test]
fn a_parent_with_the_controller_passes_it_on() {
    let machine = CgroupMachine::v2();
    machine.now("2", "0-1");
    machine.put(&format!("{POD}/cgroup.controllers"), "cpu memory\n");
    let kernel = Arc::new(DelegatingKernel { pod: machine.root().path(POD), written: Mutex::default() });
    let root = machine.root().tapped(kernel.clone());
    CpusetCgroup::of_process(&root, 42).unwrap().pin(&"2".parse().unwrap(), &IdSet::new()).unwrap();
    assert_eq!(*kernel.written.lock().unwrap(), b"+cpuset");
}

/// Gives a pod the controllers that are asked of its parent.
#[derive(Debug)]
struct DelegatingKernel {
    pod: PathBuf,
    written: Mutex<Vec<u8>>,
}

impl SysRootTap for DelegatingKernel {
    fn write(&self, path: &Path, bytes: &[u8]) -> Option<io::Result<()>> {
        if !path.ends_with("cgroup.subtree_control") {
            return None;
        }
        *self.written.lock().unwrap() = bytes.to_vec();
        Some(fs::write(self.pod.join("cgroup.controllers"), "cpuset cpu memory\n"))
    }
}

#[test]
fn the_top_of_the_hierarchy_is_not_pinned() {
    let machine = CgroupMachine::v2();
    machine.put("proc/42/cgroup", "0::/\n");
    machine.put("sys/fs/cgroup/cgroup.controllers", "cpu\n");
    let error = machine.pin("2", "").unwrap_err().to_string();
    assert!(error.contains("holds every process"), "{error}");
}

#[test]
fn a_v1_hierarchy_beside_v2_has_the_cpusets() {
    let machine = CgroupMachine::v2();
    let mounts = "30 1 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                  31 1 0:27 /other /mnt/other rw - cgroup cgroup rw,cpuset\n\
                  32 1 0:27 /docker /mnt/cpu\\040sets rw shared:1 - cgroup cgroup rw,cpuset,cpu\n";
    machine.put("proc/self/mountinfo", mounts);
    machine.put("proc/42/cgroup", "5:cpu,cpuset:/docker/abc\n1:name=systemd:/x\n0::/kubepods/pod1/ctr\n");
    let cgroup = machine.locate().unwrap();
    assert_eq!((cgroup.version(), cgroup.path()), (CgroupVersion::V1, PathBuf::from("/mnt/cpu sets/abc")));
    machine.put("mnt/cpu sets/abc/cpuset.cpus", "0-7\n");
    machine.put("mnt/cpu sets/abc/cpuset.mems", "0-1\n");
    machine.status("4", "1");
    cgroup.pin(&"4".parse().unwrap(), &"1".parse().unwrap()).unwrap();
    machine.put("mnt/cpu sets/abc/cpuset.effective_cpus", "5\n");
    let error = cgroup.pin(&"4".parse().unwrap(), &IdSet::new()).unwrap_err().to_string();
    assert!(error.starts_with("/mnt/cpu sets/abc/cpuset.effective_cpus is \"5\" instead of 4"), "{error}");
}

#[test]
fn what_cannot_be_found_is_told_apart() {
    let machine = CgroupMachine::v2();
    assert!(matches!(CpusetCgroup::of_process(&machine.root(), 43), Err(CgroupError::Read(_))));
    machine.put("proc/42/cgroup", "0::/../elsewhere\n");
    assert!(matches!(machine.locate(), Err(CgroupError::Outside { cgroup, .. }) if cgroup == "/../elsewhere"));
    machine.put("proc/42/cgroup", "3:cpuset:/x\n0::/\n");
    assert!(matches!(machine.locate(), Err(CgroupError::NotMounted { hierarchy: "cpuset", .. })));
    machine.put("proc/42/cgroup", "3:cpu,cpuacct:/x\n");
    assert!(matches!(machine.locate(), Err(CgroupError::NoCpuset { pid: 42 })));
    machine.put("proc/42/cgroup", "");
    assert!(matches!(machine.locate(), Err(CgroupError::NoCpuset { pid: 42 })));
}

#[test]
fn a_cgroup_that_has_gone_is_an_error_and_not_made_again() {
    let machine = CgroupMachine::v2();
    fs::remove_file(machine.root().path(POD).join("cpuset.cpus")).unwrap();
    let error = machine.pin("2", "").unwrap_err();
    assert!(matches!(&error, CgroupError::Write { .. }), "{error}");
    assert!(error.to_string().contains("has gone"), "{error}");
    assert!(!machine.root().path(POD).join("cpuset.cpus").exists());
}

#[test]
fn a_user_without_privileges_is_told_what_to_do() {
    let machine = CgroupMachine::v2();
    let cgroup = machine.locate().unwrap();
    for errno in [nix::libc::EACCES, nix::libc::EPERM] {
        let cause = cgroup.refusal(&CPUS, &"2".parse().unwrap(), &io::Error::from_raw_os_error(errno));
        assert!(cause.contains("run the container as root, or delegate cpuset to its user"), "{cause}");
        let cause = explain::not_passed_on(Path::new("/x"), &io::Error::from_raw_os_error(errno));
        assert!(cause.contains("in a drop-in of user@.service"), "{cause}");
    }
}

#[test]
fn a_cgroup_holds_those_in_it_and_below_it() {
    let machine = CgroupMachine::v2();
    let cgroup = machine.locate().unwrap();
    for (path, held) in [
        ("/kubepods/pod1/ctr", true),
        ("/kubepods/pod1/ctr/init.scope", true),
        ("/kubepods/pod1/ctr2", false),
        ("/kubepods/pod1", false),
        ("/", false),
    ] {
        machine.put("proc/7/cgroup", &format!("0::{path}\n"));
        assert_eq!(cgroup.holds(7).unwrap(), held, "{path}");
    }
    assert!(matches!(cgroup.holds(8), Err(CgroupError::Read(_))));
}

mod standing {
    use super::*;
    use crate::testkit::{CpusetKernel, MachineTree};

    fn machine() -> (MachineTree, Arc<CpusetKernel>, CpusetCgroup) {
        let tree = MachineTree::new();
        let kernel = Arc::new(CpusetKernel::new(&tree, "0-7", "0-1"));
        kernel.cgroup("pods/a/init");
        tree.file("proc/42/cgroup", "0::/pods/a/init");
        let cgroup = CpusetCgroup::of_process(&tree.root().tapped(kernel.clone()), 42).unwrap();
        (tree, kernel, cgroup)
    }

    fn set(list: &str) -> IdSet {
        list.parse().unwrap()
    }

    #[test]
    fn a_container_is_put_back_in_its_own_cgroup_and_nowhere_else() {
        let (_tree, kernel, cgroup) = machine();
        let own = cgroup.around("/sys/fs/cgroup/pods/a".as_ref()).unwrap();
        assert_eq!(own.path(), Path::new("/sys/fs/cgroup/pods/a"));
        kernel.set("pods/a", "cpuset.cpus", "0-7");
        let standing = own.standing().unwrap();
        assert_eq!((standing.cpus.requested, standing.cpus.effective), (set("0-7"), set("0-7")));
        assert_eq!((standing.mems.requested, standing.mems.effective), (IdSet::new(), set("0-1")));
        own.put_back(&set("2-3"), &set("1")).unwrap();
        assert_eq!(kernel.take_writes(), ["pods/a/cpuset.mems=1", "pods/a/cpuset.cpus=2-3"]);
        let standing = own.standing().unwrap();
        assert!(standing.cpus.is(&set("2-3")) && standing.mems.is(&set("1")) && standing.cpus.is(&IdSet::new()));
        own.put_back(&set("2-3"), &set("1")).unwrap();
        assert_eq!(kernel.take_writes(), [""; 0], "what is right is not written again");
    }

    #[test]
    fn a_process_that_has_left_a_cgroup_is_not_in_it() {
        let around = |path: &str| machine().2.around(path.as_ref());
        assert!(around("/sys/fs/cgroup/pods/b").is_none());
        assert!(around("/sys/fs/cgroup/pods/a/init/deeper").is_none());
        assert!(around("/elsewhere").is_none());
        assert_eq!(around("/sys/fs/cgroup/pods/a/init").unwrap().path(), Path::new("/sys/fs/cgroup/pods/a/init"));
    }

    #[test]
    fn a_cgroup_above_that_has_less_is_named_and_not_touched() {
        let (_tree, kernel, cgroup) = machine();
        let own = cgroup.around("/sys/fs/cgroup/pods/a".as_ref()).unwrap();
        own.put_back(&set("2-3"), &IdSet::new()).unwrap();
        kernel.set("pods", "cpuset.cpus", "0-2");
        let standing = own.with_above(own.standing().unwrap());
        assert_eq!((standing.cpus.requested, standing.cpus.effective), (set("2-3"), set("2")));
        assert_eq!(standing.cpus.above, set("0-2"));
        kernel.take_writes();
        let error = own.put_back(&set("2-3"), &IdSet::new()).unwrap_err().to_string();
        assert!(error.contains("the parent cgroup /sys/fs/cgroup/pods allows CPUs 0-2, not 3"), "{error}");
        assert_eq!(kernel.take_writes(), ["pods/a/cpuset.cpus=2-3"]);
    }
}

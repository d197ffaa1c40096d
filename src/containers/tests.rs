//! Notes of containers in made-up trees of `/proc` and cgroups, and of a real process.

use std::{os::unix::fs::symlink, process::Command};

use super::*;

const BOOT: &str = "00000000-0000-4000-8000-000000000001";

/// A machine that is a folder, and the notes of its containers.
struct NotesHost {
    temp: tempfile::TempDir,
}

impl NotesHost {
    /// Version 2 cgroups; the tests themselves are process `us`, in a cgroup of their own.
    fn new() -> Self {
        let machine = Self { temp: tempfile::tempdir().unwrap() };
        machine.write("proc/sys/kernel/random/boot_id", BOOT);
        machine.namespaces("pid:[1]", "cgroup:[1]");
        machine.write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
        machine.write(&format!("proc/{}/cgroup", std::process::id()), "0::/runtime\n");
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.temp.path().join("root").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn namespaces(&self, pid: &str, cgroup: &str) {
        let folder = self.temp.path().join("root/proc/self/ns");
        fs::create_dir_all(&folder).unwrap();
        for (name, target) in [("pid", pid), ("cgroup", cgroup)] {
            let _ = fs::remove_file(folder.join(name));
            symlink(target, folder.join(name)).unwrap();
        }
    }

    /// A process with a name that would confuse a careless reader.
    fn process(&self, pid: u32, state: char, started: u64, cgroup: &str) {
        let before = "1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0";
        self.write(&format!("proc/{pid}/stat"), &format!("{pid} (a) Z (b) {state} {before} {started} 0 0\n"));
        self.write(&format!("proc/{pid}/cgroup"), &format!("0::{cgroup}\n"));
    }

    fn gone(&self, path: &str) {
        fs::remove_dir_all(self.temp.path().join("root").join(path)).unwrap();
    }

    fn root(&self) -> SysRoot {
        SysRoot::new(self.temp.path().join("root"))
    }

    fn dir(&self) -> ContainerDir {
        ContainerDir::new(self.temp.path().join("notes"), self.root(), BOOT)
    }

    fn record(&self, id: &str, pid: u32) {
        let (claim, container) = (&claim(), &ContainerId::new(id).unwrap());
        record(
            &self.root(),
            self.dir().path(),
            ContainerUse { claim, container, pid, sets: None, owner: ContainerOwner::default() },
        )
        .unwrap();
    }
}

fn claim() -> ClaimUid {
    ClaimUid::new("u1").unwrap()
}

#[test]
fn a_container_runs_as_long_as_its_first_process_does() {
    let machine = NotesHost::new();
    machine.process(7, 'S', 500, "/pods/c1");
    machine.record("c1", 7);
    let found = machine.dir().of(&claim()).unwrap();
    assert_eq!((found[0].id.as_str(), found[0].runs), ("c1", true));
    let note = found[0].note.as_ref().unwrap();
    assert_eq!((note.pid, note.started, note.cgroup.as_deref()), (7, 500, Some(Path::new("/sys/fs/cgroup/pods/c1"))));
    machine.gone("proc/7");
    assert!(!machine.dir().any_runs(&claim()));
}

#[test]
fn another_process_with_the_same_number_is_not_the_container() {
    let machine = NotesHost::new();
    machine.process(7, 'S', 500, "/pods/c1");
    machine.record("c1", 7);
    machine.process(7, 'S', 501, "/elsewhere");
    assert!(!machine.dir().any_runs(&claim()));
}

#[test]
fn a_process_that_only_waits_to_be_collected_runs_no_more() {
    let machine = NotesHost::new();
    machine.process(7, 'S', 500, "/pods/c1");
    machine.record("c1", 7);
    machine.process(7, 'Z', 500, "/pods/c1");
    assert!(!machine.dir().any_runs(&claim()));
}

#[test]
fn processes_that_outlive_the_first_one_count_on_both_versions_of_cgroups() {
    let machine = NotesHost::new();
    machine.process(7, 'S', 500, "/pods/c1");
    machine.record("c1", 7);
    machine.gone("proc/7");
    machine.write("sys/fs/cgroup/pods/c1/cgroup.events", "populated 1\nfrozen 0\n");
    assert!(machine.dir().any_runs(&claim()));
    machine.write("sys/fs/cgroup/pods/c1/cgroup.events", "populated 0\nfrozen 0\n");
    assert!(!machine.dir().any_runs(&claim()));
    fs::remove_file(machine.temp.path().join("root/sys/fs/cgroup/pods/c1/cgroup.events")).unwrap();
    machine.write("sys/fs/cgroup/pods/c1/cgroup.procs", "");
    machine.write("sys/fs/cgroup/pods/c1/below/cgroup.procs", "12\n");
    assert!(machine.dir().any_runs(&claim()), "version 1 shows processes below in their own folder only");
    machine.write("sys/fs/cgroup/pods/c1/below/cgroup.procs", "");
    assert!(!machine.dir().any_runs(&claim()));
}

#[test]
fn the_runtimes_own_cgroup_is_not_taken_for_the_containers() {
    let machine = NotesHost::new();
    machine.process(7, 'S', 500, "/runtime");
    machine.record("c1", 7);
    assert_eq!(machine.dir().of(&claim()).unwrap()[0].note.as_ref().unwrap().cgroup, None);
}

#[test]
fn what_cannot_be_seen_or_understood_counts_as_running() {
    let machine = NotesHost::new();
    machine.process(7, 'S', 500, "/pods/c1");
    machine.record("c1", 7);
    machine.gone("proc/7");
    for (pid, cgroup) in [("pid:[2]", "cgroup:[1]"), ("pid:[1]", "cgroup:[2]")] {
        machine.namespaces(pid, cgroup);
        assert!(machine.dir().any_runs(&claim()), "{pid} {cgroup}");
    }
    machine.namespaces("pid:[1]", "cgroup:[1]");
    assert!(!machine.dir().any_runs(&claim()));
    fs::write(machine.dir().path().join("u1/c2.9.json"), "{").unwrap();
    assert!(machine.dir().any_runs(&claim()));
    assert_eq!(machine.dir().sweep(&claim()).unwrap(), 1, "what is not understood stays");
    assert!(machine.dir().any_runs(&claim()));
}

/// A daemon in a pod often cannot see the cgroups of the host.
#[test]
fn with_the_first_process_of_a_namespace_all_others_have_ended() {
    let machine = NotesHost::new();
    for (pid, namespace) in [(7, "pid:[2]"), (8, "pid:[1]")] {
        machine.process(pid, 'S', 500, "/pods/c1");
        let folder = machine.temp.path().join(format!("root/proc/{pid}/ns"));
        fs::create_dir_all(&folder).unwrap();
        symlink(namespace, folder.join("pid")).unwrap();
        machine.record(&format!("c{pid}"), pid);
    }
    machine.namespaces("pid:[1]", "cgroup:[2]");
    assert!(machine.dir().of(&claim()).unwrap().iter().all(|container| container.runs));
    machine.gone("proc/7");
    machine.gone("proc/8");
    let runs: Vec<bool> = machine.dir().of(&claim()).unwrap().iter().map(|container| container.runs).collect();
    assert_eq!(runs, [false, true], "only the namespace of its own says so");
    machine.namespaces("pid:[3]", "cgroup:[1]");
    assert!(
        machine.dir().of(&claim()).unwrap().iter().all(|container| container.runs),
        "nothing can be seen from here"
    );
}

#[test]
fn no_container_outlives_a_reboot() {
    let machine = NotesHost::new();
    machine.process(7, 'S', 500, "/pods/c1");
    machine.record("c1", 7);
    let later = ContainerDir::new(machine.dir().path(), machine.root(), "boot-2");
    assert!(!later.any_runs(&claim()));
    assert!(machine.dir().any_runs(&claim()));
}

#[test]
fn notes_of_ended_containers_are_removed_and_those_of_a_restarted_one_stay() {
    let machine = NotesHost::new();
    machine.process(7, 'S', 500, "/pods/c1");
    machine.process(8, 'S', 501, "/pods/c2");
    machine.record("c1", 7);
    machine.record("c2", 8);
    // Some runtimes start a container again under its old id.
    machine.process(7, 'S', 600, "/pods/c1");
    machine.record("c1", 7);
    assert_eq!(machine.dir().sweep(&claim()).unwrap(), 1);
    let found = machine.dir().of(&claim()).unwrap();
    let ids: Vec<&str> = found.iter().map(|container| container.id.as_str()).collect();
    assert_eq!((ids, found.iter().all(|container| container.runs)), (vec!["c1", "c2"], true));
    assert_eq!(machine.dir().claims().unwrap(), [claim()]);
    machine.dir().forget(&claim()).unwrap();
    machine.dir().forget(&claim()).unwrap();
    assert!(machine.dir().claims().unwrap().is_empty() && !machine.dir().any_runs(&claim()));
}

#[test]
fn a_real_process_is_seen_to_run_and_to_end() {
    let root = SysRoot::host();
    let temp = tempfile::tempdir().unwrap();
    let dir = ContainerDir::new(temp.path(), root.clone(), boot::boot_id(&root).unwrap());
    #[expect(clippy::disallowed_methods, reason = "a test needs a process")]
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let (claim_uid, container) = (claim(), ContainerId::new("real").unwrap());
    let used = ContainerUse {
        claim: &claim_uid,
        container: &container,
        pid: child.id(),
        sets: None,
        owner: ContainerOwner::default(),
    };
    record(&root, dir.path(), used).unwrap();
    assert!(dir.any_runs(&claim()));
    child.kill().unwrap();
    child.wait().unwrap();
    let note = dir.of(&claim()).unwrap().remove(0).note.unwrap();
    // It shares the cgroup of the tests, which is none of its own.
    assert_eq!(note.cgroup, None);
    assert!(!dir.any_runs(&claim()));
}

#[test]
fn only_ids_that_are_file_names_are_ids() {
    for id in ["c", "libpod-0a.b_c+d", &"x".repeat(200)] {
        ContainerId::new(id).unwrap();
    }
    for id in ["", ".", "..", ".hidden", "a/b", "a b", "a\0", "ä", &"x".repeat(201)] {
        ContainerId::new(id).unwrap_err();
    }
}

#[test]
fn a_note_says_whose_container_it_is_and_one_of_an_earlier_version_is_read_without() {
    let machine = NotesHost::new();
    machine.process(7, 'S', 100, "/pod/one");
    let pod = NotedPod { namespace: "ml".to_owned(), name: "train-0".to_owned(), uid: Some("5f0c-1".to_owned()) };
    let owner = ContainerOwner { name: Some("main".to_owned()), pod: Some(pod) };
    let (claim_uid, container) = (claim(), ContainerId::new("one").unwrap());
    let used = ContainerUse { claim: &claim_uid, container: &container, pid: 7, sets: None, owner: owner.clone() };
    record(&machine.root(), machine.dir().path(), used).unwrap();
    let note = machine.dir().of(&claim()).unwrap().remove(0).note.unwrap();
    assert_eq!(note.owner, owner);
    let mut earlier = serde_json::to_value(&note).unwrap();
    for field in ["name", "pod"] {
        assert!(earlier.as_object_mut().unwrap().remove(field).is_some(), "{field}");
    }
    let earlier: ContainerNote = serde_json::from_value(earlier).unwrap();
    assert_eq!(earlier, ContainerNote { owner: ContainerOwner::default(), ..note });
}

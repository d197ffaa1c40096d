//! The kernel's own cgroup v1: needs root and a writable cpuset hierarchy.

#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "the tests need a process to pin")]

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Child, Command},
};

use hostler_linux::{
    IdSet, SysRoot,
    cgroup::{CgroupError, CgroupVersion, CpusetCgroup},
};

/// A process in a cgroup of its own, below one that may be narrowed.
struct PinnedProcess {
    parent: PathBuf,
    cgroup: PathBuf,
    process: Child,
}

impl PinnedProcess {
    /// `None`, with a word, where this machine has no v1 cpusets or lets us not make any.
    fn start(name: &str) -> Option<Self> {
        let own = CpusetCgroup::of_process(&SysRoot::host(), std::process::id());
        let Some(own) = own.ok().filter(|own| own.version() == CgroupVersion::V1) else {
            skipped("this machine has no cgroup v1 cpusets");
            return None;
        };
        let parent = own.path().join(format!("hostler-test-{}-{name}", std::process::id()));
        if let Err(error) = fs::create_dir(&parent) {
            skipped(&format!("{} cannot be made ({error}); run as root", parent.display()));
            return None;
        }
        let cgroup = parent.join("container");
        let process = Command::new("sleep").arg("600").spawn().unwrap();
        let pinned = Self { parent, cgroup, process };
        pinned.fill(&own.path());
        Some(pinned)
    }

    fn fill(&self, above: &Path) {
        fs::create_dir(&self.cgroup).unwrap();
        for folder in [&self.parent, &self.cgroup] {
            for file in ["cpuset.mems", "cpuset.cpus"] {
                fs::write(folder.join(file), fs::read(above.join(file)).unwrap()).unwrap();
            }
        }
        fs::write(self.cgroup.join("cgroup.procs"), self.process.id().to_string()).unwrap();
    }

    fn find(&self) -> CpusetCgroup {
        let found = CpusetCgroup::of_process(&SysRoot::host(), self.process.id()).unwrap();
        assert_eq!(found.path(), self.cgroup);
        found
    }

    fn cpus(&self) -> IdSet {
        fs::read_to_string(self.cgroup.join("cpuset.cpus")).unwrap().parse().unwrap()
    }

    fn mems(&self) -> IdSet {
        fs::read_to_string(self.cgroup.join("cpuset.mems")).unwrap().parse().unwrap()
    }

    fn status(&self, field: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().to_owned()
    }
}

impl Drop for PinnedProcess {
    fn drop(&mut self) {
        let killed = self.process.kill().and_then(|()| self.process.wait());
        let removed = fs::remove_dir(&self.cgroup).and_then(|()| fs::remove_dir(&self.parent));
        if !std::thread::panicking() {
            killed.unwrap();
            removed.unwrap();
        }
    }
}

/// Not `eprintln!`: the harness shows that of failed tests only.
fn skipped(reason: &str) {
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

fn one(id: u32) -> IdSet {
    IdSet::from_iter([id])
}

#[test]
fn a_process_is_pinned_to_each_cpu_in_turn() {
    let Some(pinned) = PinnedProcess::start("pin") else { return };
    let (cgroup, cpus, mems) = (pinned.find(), pinned.cpus(), pinned.mems());
    for cpu in cpus.iter() {
        cgroup.pin(&one(cpu), &one(mems.first().unwrap())).unwrap();
        assert_eq!(pinned.status("Cpus_allowed_list:"), cpu.to_string());
        assert_eq!(pinned.status("Mems_allowed_list:"), mems.first().unwrap().to_string());
    }
    cgroup.pin(&cpus, &mems).unwrap();
    assert_eq!(pinned.status("Cpus_allowed_list:"), cpus.to_string());
}

#[test]
fn cpus_that_the_parent_has_not_are_refused_by_name() {
    let Some(pinned) = PinnedProcess::start("parent") else { return };
    let (cgroup, cpus) = (pinned.find(), pinned.cpus());
    let (Some(first), Some(last)) = (cpus.first(), cpus.iter().next_back().filter(|last| Some(*last) != cpus.first()))
    else {
        skipped("this machine has one CPU");
        return;
    };
    cgroup.pin(&one(first), &IdSet::new()).unwrap();
    fs::write(pinned.parent.join("cpuset.cpus"), first.to_string()).unwrap();
    let error = cgroup.pin(&one(last), &IdSet::new()).unwrap_err();
    let CgroupError::Write { file, wanted, seen, cause, .. } = error else { panic!("{error}") };
    assert_eq!(file, pinned.cgroup.join("cpuset.cpus"));
    assert_eq!((wanted, seen), (last.to_string(), first.to_string()));
    let expected = format!("the parent cgroup {} allows CPUs {first}, not {last};", pinned.parent.display());
    assert!(cause.starts_with(&expected), "{cause}");
    assert_eq!(pinned.status("Cpus_allowed_list:"), first.to_string());
}

#[test]
fn cpus_and_nodes_that_are_not_there_are_refused_by_name() {
    let Some(pinned) = PinnedProcess::start("offline") else { return };
    let cgroup = pinned.find();
    let absent: IdSet = "4000-4001".parse().unwrap();
    let error = cgroup.pin(&absent, &IdSet::new()).unwrap_err().to_string();
    assert!(error.contains("CPUs 4000-4001 are offline"), "{error}");
    let error = cgroup.pin(&IdSet::new(), &one(60)).unwrap_err().to_string();
    assert!(error.contains("memory nodes 60 are offline"), "{error}");
}

#[test]
fn a_process_that_was_narrowed_before_gets_the_whole_set() {
    let Some(pinned) = PinnedProcess::start("affinity") else { return };
    let (cgroup, cpus) = (pinned.find(), pinned.cpus());
    if cpus.len() < 2 {
        skipped("this machine has one CPU");
        return;
    }
    let pid = nix::unistd::Pid::from_raw(pinned.process.id().try_into().unwrap());
    let mut first = nix::sched::CpuSet::new();
    first.set(cpus.first().unwrap() as usize).unwrap();
    nix::sched::sched_setaffinity(pid, &first).unwrap();
    assert_eq!(pinned.status("Cpus_allowed_list:"), cpus.first().unwrap().to_string());
    cgroup.pin(&cpus, &IdSet::new()).unwrap();
    assert_eq!(pinned.status("Cpus_allowed_list:"), cpus.to_string());
}

#[test]
fn a_process_that_has_ended_is_not_found() {
    let Some(mut pinned) = PinnedProcess::start("ended") else { return };
    pinned.process.kill().unwrap();
    pinned.process.wait().unwrap();
    assert!(matches!(CpusetCgroup::of_process(&SysRoot::host(), pinned.process.id()), Err(CgroupError::Read(_))));
}

#[test]
fn a_process_is_put_back_and_so_is_what_was_made_below_it() {
    let Some(pinned) = PinnedProcess::start("back") else { return };
    let (cgroup, cpus, mems) = (pinned.find(), pinned.cpus(), pinned.mems());
    let (Some(first), Some(last)) = (cpus.iter().next(), cpus.iter().next_back()) else { return };
    let node = one(mems.first().unwrap());
    cgroup.put_back(&one(first), &node).unwrap();
    assert_eq!(pinned.status("Cpus_allowed_list:"), first.to_string());
    // Somebody gives it all, and to what is below as well.
    fs::write(pinned.cgroup.join("cpuset.cpus"), cpus.to_string()).unwrap();
    let below = [pinned.cgroup.join("a"), pinned.cgroup.join("a/b")];
    for (folder, list) in below.iter().zip([cpus.clone(), one(last)]) {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("cpuset.mems"), node.to_string()).unwrap();
        fs::write(folder.join("cpuset.cpus"), list.to_string()).unwrap();
    }
    assert_eq!(cgroup.standing().unwrap().cpus.effective, cpus);
    let put_back = cgroup.put_back(&one(first), &node);
    let left = |folder: &PathBuf| fs::read_to_string(folder.join("cpuset.cpus")).unwrap().trim().to_owned();
    let lists: Vec<String> = below.iter().map(left).collect();
    for folder in below.iter().rev() {
        fs::remove_dir(folder).unwrap();
    }
    put_back.unwrap();
    assert_eq!(lists, [first.to_string(), first.to_string()]);
    assert_eq!(pinned.status("Cpus_allowed_list:"), first.to_string());
    assert!(cgroup.standing().unwrap().cpus.is(&one(first)));
}

#[test]
fn a_program_that_narrows_itself_is_not_touched() {
    let Some(pinned) = PinnedProcess::start("narrow") else { return };
    let (cgroup, cpus) = (pinned.find(), pinned.cpus());
    let Some(first) = cpus.first().filter(|_| cpus.len() > 1) else { return };
    let narrowed = Command::new("taskset").args(["-cp", &first.to_string(), &pinned.process.id().to_string()]).output();
    let Ok(_) = narrowed else { return skipped("there is no taskset here") };
    assert!(cgroup.standing().unwrap().cpus.is(&cpus));
    cgroup.put_back(&cpus, &IdSet::new()).unwrap();
    assert_eq!(pinned.status("Cpus_allowed_list:"), first.to_string());
}

//! Plays the kernel's cpuset controller in version 2: what a cgroup has follows from what it asks for and what the one
//! above has.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Mutex,
};

use nix::errno::Errno;

use super::MachineTree;
use crate::{IdSet, PathAccess, SysRootTap};

const TOP: &str = "sys/fs/cgroup";

/// A [`SysRootTap`] that takes writes to cpusets as the kernel does, with version 2 mounted where everybody has it.
#[derive(Debug)]
pub struct CpusetKernel {
    tree: PathBuf,
    /// What every write fails with, if it does.
    refusal: Mutex<Option<Errno>>,
    writes: Mutex<Vec<String>>,
}

impl CpusetKernel {
    /// The kernel of a tree, whose top cgroup has these CPUs and memory nodes.
    pub fn new(tree: &MachineTree, cpus: &str, mems: &str) -> Self {
        tree.file("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate");
        tree.file("sys/devices/system/cpu/online", cpus);
        tree.file("sys/devices/system/node/has_memory", mems);
        tree.files(
            TOP,
            &[("cpuset.cpus.effective", cpus), ("cpuset.mems.effective", mems), ("cgroup.controllers", "cpuset")],
        );
        Self { tree: tree.path(""), refusal: Mutex::default(), writes: Mutex::default() }
    }

    /// Makes a cgroup below the top (`pods/a`), and those above it, that asks for nothing.
    pub fn cgroup(&self, path: &str) {
        let folder = self.tree.join(TOP).join(path);
        for above in
            folder.ancestors().take_while(|above| *above != self.tree.join(TOP)).collect::<Vec<_>>().iter().rev()
        {
            if above.join("cpuset.cpus").exists() {
                continue;
            }
            fs::create_dir_all(above).unwrap();
            for name in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(above.join(name), "\n").unwrap();
            }
            fs::write(above.join("cgroup.controllers"), "cpuset\n").unwrap();
            self.settle(above);
        }
    }

    /// Has another program write a set.
    pub fn set(&self, path: &str, file: &str, ids: &str) {
        let folder = self.tree.join(TOP).join(path);
        fs::write(folder.join(file), format!("{ids}\n")).unwrap();
        self.settle(&folder);
    }

    /// Makes every write fail, or none.
    pub fn refuse(&self, errno: Option<Errno>) {
        *self.refusal.lock().unwrap() = errno;
    }

    /// What was written since the last call, as `path=text`.
    pub fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut *self.writes.lock().unwrap())
    }

    /// What follows for a cgroup and those below it.
    fn settle(&self, folder: &Path) {
        for name in ["cpuset.cpus", "cpuset.mems"] {
            let read = |path: PathBuf| fs::read_to_string(path).unwrap().parse::<IdSet>().unwrap();
            let above = read(folder.parent().unwrap().join(format!("{name}.effective")));
            let rest = read(folder.join(name)).intersection(&above);
            let has = if rest.is_empty() { above } else { rest };
            fs::write(folder.join(format!("{name}.effective")), format!("{has}\n")).unwrap();
        }
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().join("cpuset.cpus").exists() {
                self.settle(&entry.path());
            }
        }
    }
}

impl SysRootTap for CpusetKernel {
    fn access(&self, _: PathAccess, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Option<io::Result<()>> {
        let name = path.file_name()?.to_str()?;
        if !path.starts_with(TOP) || !name.starts_with("cpuset.") {
            return None;
        }
        let text = std::str::from_utf8(bytes).unwrap();
        self.writes.lock().unwrap().push(format!("{}={text}", path.strip_prefix(TOP).unwrap().display()));
        if let Some(errno) = *self.refusal.lock().unwrap() {
            return Some(Err(errno.into()));
        }
        let below = path.parent()?.strip_prefix(TOP).unwrap().to_str()?;
        self.set(below, name, text);
        Some(Ok(()))
    }
}

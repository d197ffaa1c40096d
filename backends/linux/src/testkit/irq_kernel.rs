//! Plays the kernel's `/proc/irq`: which lines can be moved, and what becomes of writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Mutex,
};

use nix::errno::Errno;

use super::MachineTree;
use crate::{IdSet, PathAccess, SysRootTap};

/// A [`SysRootTap`] that takes writes to `/proc/irq` as the kernel does. A write after which no running CPU could take a
/// line fails the test: it must not be tried.
#[derive(Debug)]
pub struct IrqKernel {
    tree: PathBuf,
    state: Mutex<IrqKernelState>,
}

#[derive(Debug, Default)]
struct IrqKernelState {
    online: IdSet,
    kept: BTreeSet<u32>,
    ignored: BTreeSet<u32>,
    refused: BTreeMap<u32, Errno>,
    /// Every write that was tried, as `line=cpus`.
    writes: Vec<String>,
    /// After so many writes the process that writes is killed.
    left: Option<usize>,
}

impl IrqKernel {
    /// The kernel of a machine with so many CPUs, all of them running, and no line yet.
    pub fn new(tree: &MachineTree, cpus: u32) -> Self {
        let online: IdSet = (0..cpus).collect();
        tree.file("proc/irq/default_smp_affinity", online.to_mask());
        tree.file("sys/devices/system/cpu/online", online.to_string());
        let state = IrqKernelState { online, ..IrqKernelState::default() };
        Self { tree: tree.path(""), state: Mutex::new(state) }
    }

    /// Sets up a line, which begins where new ones do.
    pub fn plug(&self, irq: u32, user: &str) {
        let mask = std::fs::read_to_string(self.tree.join("proc/irq/default_smp_affinity")).unwrap();
        std::fs::create_dir_all(self.folder(irq).join(user)).unwrap();
        std::fs::write(self.folder(irq).join("node"), "-1\n").unwrap();
        self.put(irq, &IdSet::from_mask(&mask).unwrap());
    }

    /// Takes a line away.
    pub fn unplug(&self, irq: u32) {
        std::fs::remove_dir_all(self.folder(irq)).unwrap();
    }

    /// Has another program move a line.
    pub fn move_to(&self, irq: u32, cpus: &str) {
        self.put(irq, &cpus.parse().unwrap());
    }

    /// Says on which NUMA node the device of a line is.
    pub fn on_node(&self, irq: u32, node: u32) {
        std::fs::write(self.folder(irq).join("node"), format!("{node}\n")).unwrap();
    }

    /// Manages a line for its driver.
    pub fn keep(&self, irq: u32) {
        self.state.lock().unwrap().kept.insert(irq);
    }

    /// Gives a line a controller that cannot choose.
    pub fn ignore(&self, irq: u32) {
        self.state.lock().unwrap().ignored.insert(irq);
    }

    /// Refuses to move a line.
    pub fn refuse(&self, irq: u32, errno: Errno) {
        self.state.lock().unwrap().refused.insert(irq, errno);
    }

    /// Moves a line again, whatever stood in the way.
    pub fn allow(&self, irq: u32) {
        let mut state = self.state.lock().unwrap();
        state.kept.remove(&irq);
        state.ignored.remove(&irq);
        state.refused.remove(&irq);
    }

    /// Takes CPUs offline: lines that only they could take go to all that still run.
    pub fn offline(&self, cpus: &str) {
        let gone: IdSet = cpus.parse().unwrap();
        let online = self.state.lock().unwrap().online.difference(&gone);
        self.state.lock().unwrap().online = online.clone();
        std::fs::write(self.tree.join("sys/devices/system/cpu/online"), format!("{online}\n")).unwrap();
        for (irq, cpus) in self.lines() {
            if cpus.is_disjoint(&online) {
                self.put(irq, &online);
            }
        }
    }

    /// Kills whoever writes when it has written so often: the write happens, and nothing after it. The kill is a panic.
    pub fn kill_after(&self, writes: Option<usize>) {
        self.state.lock().unwrap().left = writes;
    }

    /// What was written since the last call, as `line=cpus`.
    pub fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().writes)
    }

    /// Where every line and every new one goes: `default 0-7, 24 0-3`.
    pub fn describe(&self) -> String {
        let mask = std::fs::read_to_string(self.tree.join("proc/irq/default_smp_affinity")).unwrap();
        let default = format!("default {}", IdSet::from_mask(&mask).unwrap());
        let lines = self.lines().into_iter().map(|(irq, cpus)| format!("{irq} {cpus}"));
        std::iter::once(default).chain(lines).collect::<Vec<_>>().join(", ")
    }

    fn lines(&self) -> BTreeMap<u32, IdSet> {
        let entries = std::fs::read_dir(self.tree.join("proc/irq")).unwrap();
        let numbers = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
        let cpus = |irq| std::fs::read_to_string(self.folder(irq).join("smp_affinity_list")).unwrap();
        numbers.map(|irq| (irq, cpus(irq).parse().unwrap())).collect()
    }

    fn folder(&self, irq: u32) -> PathBuf {
        self.tree.join("proc/irq").join(irq.to_string())
    }

    fn put(&self, irq: u32, cpus: &IdSet) {
        let running = cpus.intersection(&self.state.lock().unwrap().online);
        let effective = running.first().map(|cpu| cpu.to_string()).unwrap_or_default();
        for (name, text) in [
            ("smp_affinity_list", cpus.to_string()),
            ("smp_affinity", cpus.to_mask()),
            ("effective_affinity_list", effective),
        ] {
            std::fs::write(self.folder(irq).join(name), format!("{text}\n")).unwrap();
        }
    }

    fn take(&self, irq: Option<u32>, cpus: &IdSet) -> io::Result<()> {
        if let Some(irq) = irq {
            let state = self.state.lock().unwrap();
            if !self.folder(irq).exists() {
                return Err(Errno::ENOENT.into());
            }
            // The kernel asks this before it reads what is wanted.
            if state.kept.contains(&irq) {
                return Err(Errno::EIO.into());
            }
        }
        let online = self.state.lock().unwrap().online.clone();
        assert!(!cpus.is_disjoint(&online), "{irq:?} would have no CPU that runs: {cpus} of {online}");
        let Some(irq) = irq else {
            return std::fs::write(self.tree.join("proc/irq/default_smp_affinity"), cpus.to_mask());
        };
        if let Some(errno) = self.state.lock().unwrap().refused.get(&irq) {
            return Err((*errno).into());
        }
        if !self.state.lock().unwrap().ignored.contains(&irq) {
            self.put(irq, cpus);
        }
        Ok(())
    }
}

impl SysRootTap for IrqKernel {
    fn access(&self, _: PathAccess, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Option<io::Result<()>> {
        let below = path.strip_prefix("proc/irq").ok()?.to_str()?;
        let text = std::str::from_utf8(bytes).unwrap();
        let (irq, cpus) = match below.strip_suffix("/smp_affinity_list") {
            Some(irq) => (Some(irq.parse().unwrap()), text.parse::<IdSet>().unwrap()),
            None if below == "default_smp_affinity" => (None, IdSet::from_mask(text).unwrap()),
            None => return None,
        };
        let result = self.take(irq, &cpus);
        let mut state = self.state.lock().unwrap();
        let line = irq.map_or_else(|| "default".to_owned(), |irq| irq.to_string());
        state.writes.push(format!("{line}={cpus}"));
        let killed = state.left == Some(1);
        state.left = state.left.map(|left| left.saturating_sub(1));
        drop(state);
        assert!(!killed, "killed");
        Some(result)
    }
}

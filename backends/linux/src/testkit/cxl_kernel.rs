//! A kernel that plays what happens to CXL regions, dax devices and memory blocks of a [`MachineTree`] when they are
//! written.
//!
//! It enforces the rules of the real one, and it can be destroyed like the real one: taking a region, a memory device or
//! a PCI function away under online memory succeeds, and the machine is [`dead`](CxlKernel::dead) from then on.

mod memory;
mod region;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use nix::errno::Errno;

use super::MachineTree;
use crate::{PathAccess, SysRoot, SysRootTap, memory_blocks::PhysicalRange};

/// What becomes of memory blocks that appear: `memhp_default_state` of the kernel command line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NewBlocks {
    /// They wait.
    Offline,
    /// Online, in whatever zone the kernel likes: they cannot be taken back for sure.
    Online,
    /// Online, and movable.
    OnlineMovable,
}

/// What kind of machine it is.
#[derive(Clone, Debug)]
pub struct CxlMachine {
    /// What becomes of memory blocks that appear.
    pub new_blocks: NewBlocks,
    /// Whether dax devices of the kmem driver have `state` (7.3) or not (6.12).
    pub dax_state: bool,
    /// Whether regions can be committed: not where the CPU cannot flush its caches, as in most virtual machines.
    pub flushes_caches: bool,
    /// True if programs can map dax devices, whose content is a file here.
    pub maps_devices: bool,
    /// The NUMA node that the memory of a root decoder's window becomes.
    pub nodes: BTreeMap<String, u32>,
    /// Ports of host bridges with a single root port: they carry one region at a time.
    pub passthrough: BTreeSet<String>,
}

impl Default for CxlMachine {
    /// A current kernel that onlines movable; windows `decoder0.0` and `decoder0.1` become nodes 5 and 6.
    fn default() -> Self {
        Self {
            new_blocks: NewBlocks::OnlineMovable,
            dax_state: true,
            flushes_caches: true,
            maps_devices: true,
            nodes: [("decoder0.0".to_owned(), 5), ("decoder0.1".to_owned(), 6)].into(),
            passthrough: BTreeSet::new(),
        }
    }
}

/// Something that happens in the middle of what is tested.
#[derive(Clone, Copy, Debug)]
enum InjectedTrouble {
    /// Somebody brings a block of a region online just before the write or look at memory of this number.
    Online(usize),
    /// The write of this number fails.
    Fail(usize, Errno),
    /// The write of this number says yes and does nothing.
    Lie(usize),
}

#[derive(Debug, Default)]
struct CxlKernelState {
    dead: Option<String>,
    /// Ranges whose memory the kernel cannot let go of before it is booted again.
    stuck: Vec<PhysicalRange>,
    /// Blocks that hold something that cannot be moved.
    pinned: BTreeSet<u64>,
    /// Dax devices that the device_dax driver was told to take.
    device_dax: BTreeSet<String>,
    /// Reads of `security/state` until the erasure is over.
    sanitizing: u32,
    sanitized: Vec<String>,
    /// Endpoints of disabled memory devices, by the name of the device.
    endpoints: BTreeMap<String, PathBuf>,
    regions_made: u32,
    accesses: usize,
    writes: usize,
    trouble: Option<InjectedTrouble>,
    log: Vec<(PathBuf, String)>,
}

/// A fake kernel over a tree; see the module. Reads come from the tree's files.
#[derive(Debug)]
pub struct CxlKernel {
    tree: Arc<MachineTree>,
    machine: CxlMachine,
    state: Mutex<CxlKernelState>,
}

impl CxlKernel {
    /// A kernel of that kind over `tree`, which holds the buses and devices as after boot.
    pub fn new(tree: Arc<MachineTree>, machine: CxlMachine) -> Arc<Self> {
        for driver in ["cxl/drivers/cxl_region", "cxl/drivers/cxl_mem", "dax/drivers/kmem", "dax/drivers/device_dax"] {
            for file in ["bind", "unbind", "new_id", "remove_id"] {
                let is_dax = driver.starts_with("dax");
                if is_dax || file.ends_with("bind") {
                    tree.file(format!("sys/bus/{driver}/{file}"), "");
                }
            }
        }
        tree.folder("sys/bus/dax/devices");
        Arc::new(Self { tree, machine, state: Mutex::default() })
    }

    /// The machine, to be read and written.
    pub fn root(self: &Arc<Self>) -> SysRoot {
        self.tree.root().tapped(self.clone())
    }

    /// The tree below.
    pub fn tree(&self) -> &MachineTree {
        &self.tree
    }

    /// Which write destroyed the machine, if one did.
    pub fn dead(&self) -> Option<String> {
        self.lock().dead.clone()
    }

    /// Whether memory is left that only a reboot gets rid of.
    pub fn stuck(&self) -> bool {
        !self.lock().stuck.is_empty()
    }

    /// Puts something into a block that cannot be moved.
    pub fn pin(&self, block: u64) {
        self.lock().pinned.insert(block);
    }

    /// Takes it out again.
    pub fn unpin(&self, block: u64) {
        self.lock().pinned.remove(&block);
    }

    /// Just before the `access`-th write, or look at memory, from now on, somebody brings a block of a region online, if there is one.
    pub fn online_before(&self, access: usize) {
        self.expect(InjectedTrouble::Online(access));
    }

    /// The `write`-th write from now on fails.
    pub fn fail_write(&self, write: usize, errno: Errno) {
        self.expect(InjectedTrouble::Fail(write, errno));
    }

    /// The `write`-th write from now on says yes and does nothing.
    pub fn lie_at_write(&self, write: usize) {
        self.expect(InjectedTrouble::Lie(write));
    }

    /// No more trouble from now on; gives the writes and looks at memory, and the writes alone, since the last call of this kind.
    pub fn calm(&self) -> (usize, usize) {
        let mut state = self.lock();
        let counted = (state.accesses, state.writes);
        (state.trouble, state.accesses, state.writes) = (None, 0, 0);
        counted
    }

    /// Every write since the last call, in order: path and text.
    pub fn take_log(&self) -> Vec<(PathBuf, String)> {
        std::mem::take(&mut self.lock().log)
    }

    /// The memory devices that were erased.
    pub fn sanitized(&self) -> Vec<String> {
        self.lock().sanitized.clone()
    }

    fn expect(&self, trouble: InjectedTrouble) {
        let mut state = self.lock();
        (state.trouble, state.accesses, state.writes) = (Some(trouble), 0, 0);
    }

    fn lock(&self) -> MutexGuard<'_, CxlKernelState> {
        self.state.lock().unwrap()
    }

    /// A path of the tree without links; `None` if it is not there.
    fn real(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let top = fs::canonicalize(self.tree.path("")).unwrap();
        let real = fs::canonicalize(self.tree.path(path)).ok()?;
        real.strip_prefix(top).ok().map(Path::to_path_buf)
    }

    fn exists(&self, path: impl AsRef<Path>) -> bool {
        fs::symlink_metadata(self.tree.path(path)).is_ok()
    }

    fn text(&self, path: impl AsRef<Path>) -> String {
        fs::read_to_string(self.tree.path(path)).unwrap_or_default().trim().to_owned()
    }

    /// A number as sysfs writes it, decimal or `0x…`; 0 where there is none.
    fn number(&self, path: impl AsRef<Path>) -> u64 {
        let text = self.text(path);
        text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16)).unwrap_or(0)
    }

    fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        self.tree.root().names(path).unwrap()
    }

    /// Puts `text` where there may be a file that nobody may write.
    fn put(&self, path: impl AsRef<Path>, text: impl AsRef<str>) {
        self.tree.remove(&path).file(path, text);
    }

    /// Who does it is destroyed where memory of `ranges` is online. The kernel has nothing against it.
    fn destroys(&self, state: &mut CxlKernelState, ranges: &[PhysicalRange], what: &str) {
        for range in ranges {
            let online = self.blocks(*range).into_iter().find(|block| self.block_state(*block) == "online");
            if let (Some(block), None) = (online, &state.dead) {
                state.dead = Some(format!("{what} while memory{block} is online"));
            }
        }
    }

    /// Counts what can have to do with memory: every write, and every look at blocks and at what dax devices say of them.
    fn happen(&self, state: &mut CxlKernelState, access: PathAccess, path: &Path) -> io::Result<Option<()>> {
        if access != PathAccess::Write && !path.starts_with("sys/devices/system/memory") && !path.ends_with("state") {
            return Ok(None);
        }
        state.accesses += 1;
        state.writes += usize::from(access == PathAccess::Write);
        match state.trouble {
            Some(InjectedTrouble::Online(at)) if at == state.accesses => self.somebody_onlines(state),
            Some(InjectedTrouble::Fail(at, errno)) if access == PathAccess::Write && at == state.writes => {
                return Err(errno.into());
            }
            Some(InjectedTrouble::Lie(at)) if access == PathAccess::Write && at == state.writes => return Ok(Some(())),
            _ => {}
        }
        Ok(None)
    }
}

impl SysRootTap for CxlKernel {
    fn access(&self, access: PathAccess, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        if access != PathAccess::Write {
            self.happen(&mut state, access, path)?;
            if access == PathAccess::Read && path.ends_with("security/state") {
                self.erase_on(&mut state, path);
            }
        }
        Ok(())
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Option<io::Result<()>> {
        let mut state = self.lock();
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        state.log.push((path.to_owned(), text.clone()));
        match self.happen(&mut state, PathAccess::Write, path) {
            Err(error) => return Some(Err(error)),
            Ok(Some(())) => return Some(Ok(())),
            Ok(None) => {}
        }
        let Some(real) = self.real(path) else { return Some(Err(Errno::ENOENT.into())) };
        let result = self.written(&mut state, &real, &text);
        result.map(|result| result.map_err(io::Error::from))
    }
}

impl CxlKernel {
    /// What a write does; `None` where it is a plain file.
    fn written(&self, state: &mut CxlKernelState, path: &Path, text: &str) -> Option<Result<(), Errno>> {
        let file = path.file_name()?.to_str()?;
        let folder = path.parent()?;
        let owner = folder.file_name()?.to_str()?;
        let devtype = self.text(folder.join("devtype"));
        Some(match (owner, devtype.as_str(), file) {
            (_, "cxl_decoder_endpoint", _) => self.endpoint_decoder(folder, file, text),
            (_, "cxl_decoder_root", "create_ram_region") => self.create_region(state, folder, text),
            (_, "cxl_decoder_root", "delete_region") => self.delete_region(state, folder, text),
            (_, "cxl_region", "commit") => self.commit(state, folder, text),
            (_, "cxl_region", _) => self.region(folder, file, text),
            ("cxl_region", _, "bind") => self.bind_region(state, text),
            ("cxl_region", _, "unbind") => self.unbind_region(state, text),
            ("cxl_mem", _, "bind") => self.bind_memdev(state, text),
            ("cxl_mem", _, "unbind") => self.unbind_memdev(state, text),
            ("kmem" | "device_dax", _, _) => self.dax_driver(state, owner, file, text),
            (_, _, "state") if owner.starts_with("memory") => self.set_block(state, owner, text),
            (_, _, "state") if owner.starts_with("dax") => self.set_dax_state(state, folder, text),
            ("security", _, "sanitize") => self.sanitize(state, folder),
            (_, _, "remove") => self.remove_function(state, folder),
            _ => return None,
        })
    }
}

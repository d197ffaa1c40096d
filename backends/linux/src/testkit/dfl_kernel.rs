//! Plays the kernel and the hardware behind the nodes of DFL cards: takes ports, programs regions, and writes into the tree
//! what becomes of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use nix::errno::Errno;

use super::MachineTree;
use crate::ioctl::dfl::{Dfl, TakenPort};

/// [`Dfl`] of a tree. An image for it is made with [`DflKernel::image`]; anything else has a wrong checksum.
#[derive(Clone, Debug)]
pub struct DflKernel {
    tree: PathBuf,
    state: Arc<Mutex<DflKernelState>>,
}

#[derive(Debug, Default)]
struct DflKernelState {
    /// Ports that are open, by us alone or by others.
    open: BTreeSet<u32>,
    /// Management engines that somebody has open.
    open_engines: BTreeSet<u32>,
    /// Ports whose function keeps something of whoever used it last.
    dirty: BTreeSet<u32>,
    /// Ports that were programmed while somebody else had them open: the kernel lets it happen.
    disturbed: BTreeSet<u32>,
    /// What the next calls fail with.
    reset_fails: Option<Errno>,
    program_fails: Option<Errno>,
    /// Images that leave the region as it was although the kernel says yes.
    without_effect: bool,
    programmed: usize,
}

/// What is wrong with an image, in the kernel's words.
const CHECKSUM: &str = "reconfig CRC error";
const INCOMPATIBLE: &str = "reconfig incompatible image";

impl DflKernel {
    /// The cards of a tree.
    pub fn new(tree: &MachineTree) -> Self {
        Self { tree: tree.path(""), state: Arc::default() }
    }

    /// An image for regions with this interface that makes this function appear.
    pub fn image(interface_id: &str, afu_id: &str) -> Vec<u8> {
        format!("image {interface_id} {afu_id}").into_bytes()
    }

    /// Has somebody open `/dev/dfl-port.<port>` and work with it.
    pub fn open(&self, port: u32) {
        let mut state = self.state.lock().unwrap();
        state.open.insert(port);
        state.dirty.insert(port);
    }

    /// Has them end. The last one to close has the kernel reset the port.
    pub fn close(&self, port: u32) {
        let mut state = self.state.lock().unwrap();
        state.open.remove(&port);
        state.dirty.remove(&port);
    }

    /// Has somebody open `/dev/dfl-fme.<fme>`.
    pub fn open_engine(&self, fme: u32) {
        self.state.lock().unwrap().open_engines.insert(fme);
    }

    /// Has them end.
    pub fn close_engine(&self, fme: u32) {
        self.state.lock().unwrap().open_engines.remove(&fme);
    }

    /// Leaves something in a function, as whoever has used it through another way than its node.
    pub fn soil(&self, port: u32) {
        self.state.lock().unwrap().dirty.insert(port);
    }

    /// Whether something of whoever used the function last is in it.
    pub fn is_dirty(&self, port: u32) -> bool {
        self.state.lock().unwrap().dirty.contains(&port)
    }

    /// Ports that were programmed while somebody else worked with them.
    pub fn disturbed(&self) -> BTreeSet<u32> {
        self.state.lock().unwrap().disturbed.clone()
    }

    /// How many images the hardware took.
    pub fn programmed(&self) -> usize {
        self.state.lock().unwrap().programmed
    }

    /// Lets resets fail from now on, or work again.
    pub fn fail_resets(&self, errno: Option<Errno>) {
        self.state.lock().unwrap().reset_fails = errno;
    }

    /// Lets programming fail from now on, or work again.
    pub fn fail_programming(&self, errno: Option<Errno>) {
        self.state.lock().unwrap().program_fails = errno;
    }

    /// Lets the kernel say yes to images from now on, and do nothing.
    pub fn ignore_images(&self, ignore: bool) {
        self.state.lock().unwrap().without_effect = ignore;
    }

    /// Every `dfl-fme.N` and `dfl-port.N` of the tree, by name.
    fn parts(&self) -> BTreeMap<String, PathBuf> {
        let class = self.tree.join("sys/class/fpga_region");
        let regions = list(&class).into_iter().filter_map(|region| fs::canonicalize(region).ok());
        let parts = regions.flat_map(|region| list(&region));
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        parts.map(|path| (name(&path), path)).filter(|(name, _)| name.starts_with("dfl-")).collect()
    }

    /// The folder and the node's number of the port that the card calls `id`: on the same card as `engine`.
    fn port(&self, engine: &Path, id: u32) -> Option<(u32, PathBuf)> {
        let slot = |part: &Path| {
            let function = part.ancestors().nth(3).unwrap().file_name().unwrap().to_str().unwrap().to_owned();
            function.rsplit_once('.').unwrap().0.to_owned()
        };
        self.parts().into_iter().find_map(|(name, folder)| {
            let number = name.strip_prefix("dfl-port.")?.parse().ok()?;
            let found = slot(&folder) == slot(engine) && text(&folder.join("id")) == id.to_string();
            found.then_some((number, folder))
        })
    }

    fn reset(&self, port: u32) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if let Some(errno) = state.reset_fails {
            return Err(errno.into());
        }
        state.dirty.remove(&port);
        Ok(())
    }
}

impl Dfl for DflKernel {
    /// As `open` with `O_EXCL`.
    fn take(&self, port: u32) -> io::Result<Box<dyn TakenPort>> {
        if !self.parts().contains_key(&format!("dfl-port.{port}")) {
            return Err(Errno::ENOENT.into());
        }
        if !self.state.lock().unwrap().open.insert(port) {
            return Err(Errno::EBUSY.into());
        }
        Ok(Box::new(FakeTakenPort { kernel: self.clone(), port }))
    }

    /// As `open` with `O_EXCL`.
    fn expect_unused(&self, fme: u32) -> io::Result<()> {
        if !self.parts().contains_key(&format!("dfl-fme.{fme}")) {
            return Err(Errno::ENOENT.into());
        }
        let in_use = self.state.lock().unwrap().open_engines.contains(&fme);
        if in_use { Err(Errno::EBUSY.into()) } else { Ok(()) }
    }

    fn program(&self, fme: u32, port_id: u32, image: &[u8]) -> io::Result<()> {
        let parts = self.parts();
        let engine = parts.get(&format!("dfl-fme.{fme}")).ok_or(Errno::ENOENT)?;
        let mut regions: Vec<PathBuf> = list(engine);
        regions.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("dfl-fme-region."));
        let region = regions.get(port_id as usize).ok_or(Errno::EINVAL)?;
        let region = list(&region.join("fpga_region")).into_iter().next().ok_or(Errno::EINVAL)?;
        let (port, folder) = self.port(engine, port_id).ok_or(Errno::ENODEV)?;
        let manager = list(engine).into_iter().find(|path| path.to_string_lossy().contains("dfl-fme-mgr."));
        let manager =
            manager.and_then(|path| list(&path.join("fpga_manager")).into_iter().next()).ok_or(Errno::ENODEV)?;
        let mut state = self.state.lock().unwrap();
        if let Some(errno) = state.program_fails {
            return Err(errno.into());
        }
        // Whoever programs has the port open: only one who has not disturbs others.
        if state.dirty.contains(&port) && state.open.contains(&port) {
            state.disturbed.insert(port);
        }
        let words = std::str::from_utf8(image).map(|text| text.split(' ').collect::<Vec<_>>()).unwrap_or_default();
        let problem = match words[..] {
            ["image", interface, afu] if interface == text(&region.join("compat_id")) => {
                if !state.without_effect {
                    fs::write(folder.join("afu_id"), format!("{afu}\n"))?;
                }
                None
            }
            ["image", ..] => Some(INCOMPATIBLE),
            _ => Some(CHECKSUM),
        };
        fs::write(manager.join("status"), problem.map(|problem| format!("{problem}\n")).unwrap_or_default())?;
        fs::write(manager.join("state"), if problem.is_some() { "write complete error\n" } else { "operating\n" })?;
        if problem.is_some() {
            return Err(Errno::EIO.into());
        }
        state.dirty.remove(&port);
        state.programmed += 1;
        Ok(())
    }
}

#[derive(Debug)]
struct FakeTakenPort {
    kernel: DflKernel,
    port: u32,
}

impl TakenPort for FakeTakenPort {
    fn reset(&self) -> io::Result<()> {
        self.kernel.reset(self.port)
    }
}

impl Drop for FakeTakenPort {
    fn drop(&mut self) {
        let mut state = self.kernel.state.lock().unwrap();
        state.open.remove(&self.port);
        if state.reset_fails.is_none() {
            state.dirty.remove(&self.port);
        }
    }
}

/// The paths in a folder, sorted by name, numbers in it by value.
fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    paths
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

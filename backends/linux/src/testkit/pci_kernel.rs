//! Plays the kernel's core of PCI drivers: what becomes of writes to `driver_override`, `bind`, `unbind`, `drivers_probe`,
//! `reset` and `remove`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Mutex,
};

use nix::errno::Errno;

use super::MachineTree;
use crate::{PathAccess, SysRootTap};

const VFIO: &str = "vfio-pci";

/// A [`SysRootTap`] that takes the writes with which drivers are bound, and does to the tree what the kernel does to sysfs.
#[derive(Debug)]
pub struct PciKernel {
    tree: PathBuf,
    state: Mutex<PciKernelState>,
}

#[derive(Debug, Default)]
struct PciKernelState {
    /// Which driver takes a function by its ids.
    natural: BTreeMap<String, String>,
    /// Drivers whose probe fails: the kernel logs it and tells the writer nothing.
    failing: BTreeSet<String>,
    /// Every write, as `path=text`.
    writes: Vec<String>,
}

impl PciKernel {
    /// The kernel of a tree, with `vfio-pci` loaded. The functions that are in it keep the drivers that they have, and
    /// would get them again.
    pub fn new(tree: &MachineTree) -> Self {
        let kernel = Self { tree: tree.path(""), state: Mutex::default() };
        tree.folder("sys/bus/pci/drivers/vfio-pci").file("dev/vfio/vfio", "").file("sys/bus/pci/drivers_probe", "");
        for address in tree.root().names("sys/bus/pci/devices").unwrap() {
            let folder = kernel.function(&address);
            if !folder.join("driver_override").exists() {
                fs::write(folder.join("driver_override"), "(null)\n").unwrap();
            }
            if let Some(driver) = kernel.driver(&address) {
                kernel.takes(&driver, &address);
            }
        }
        kernel
    }

    /// Lets `driver` take the function by its ids from now on.
    pub fn takes(&self, driver: &str, address: &str) {
        fs::create_dir_all(self.drivers().join(driver)).unwrap();
        self.state.lock().unwrap().natural.insert(address.to_owned(), driver.to_owned());
    }

    /// Lets every probe of `driver` fail.
    pub fn fails(&self, driver: &str) {
        self.state.lock().unwrap().failing.insert(driver.to_owned());
    }

    /// Lets probes of `driver` succeed again.
    pub fn works(&self, driver: &str) {
        self.state.lock().unwrap().failing.remove(driver);
    }

    /// What was written since the last call, as `path=text`.
    pub fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().writes)
    }

    fn drivers(&self) -> PathBuf {
        self.tree.join("sys/bus/pci/drivers")
    }

    fn function(&self, address: &str) -> PathBuf {
        self.tree.join("sys/bus/pci/devices").join(address)
    }

    fn driver(&self, address: &str) -> Option<String> {
        let link = fs::read_link(self.function(address).join("driver")).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    fn known(&self, address: &str) -> io::Result<()> {
        if self.function(address).exists() { Ok(()) } else { Err(Errno::ENODEV.into()) }
    }

    /// A newline alone clears the override.
    fn override_driver(&self, folder: &Path, text: &str) -> io::Result<()> {
        let name = text.trim_end_matches('\n');
        fs::write(folder.join("driver_override"), format!("{}\n", if name.is_empty() { "(null)" } else { name }))
    }

    /// Only the driver that has it can let go of it.
    fn unbind(&self, driver: &str, address: &str) -> io::Result<()> {
        self.known(address)?;
        if self.driver(address).as_deref() != Some(driver) {
            return Err(Errno::ENODEV.into());
        }
        fs::remove_file(self.function(address).join("driver"))?;
        fs::remove_file(self.drivers().join(driver).join(address)).ok();
        if driver == VFIO {
            fs::remove_dir_all(self.function(address).join("vfio-dev")).ok();
            if let Some(group) = self.group(address) {
                fs::remove_file(self.tree.join("dev/vfio").join(group)).ok();
            }
        }
        Ok(())
    }

    /// An override names the only driver that matches; without one, ids do, and `vfio-pci` has none.
    fn matches(&self, driver: &str, address: &str) -> bool {
        let text = fs::read_to_string(self.function(address).join("driver_override")).unwrap_or_default();
        match text.trim() {
            "" | "(null)" => self.state.lock().unwrap().natural.get(address).is_some_and(|natural| natural == driver),
            name => name == driver,
        }
    }

    /// What a driver's `bind` does: unlike a probe, it says when it does not work.
    fn bind(&self, driver: &str, address: &str) -> io::Result<()> {
        self.known(address)?;
        if !self.matches(driver, address) {
            return Err(Errno::ENODEV.into());
        }
        if self.driver(address).is_some() {
            return Err(Errno::EBUSY.into());
        }
        if self.state.lock().unwrap().failing.contains(driver) {
            return Err(Errno::EINVAL.into());
        }
        self.attach(driver, address)
    }

    /// Looks for a driver. That there is none, or that it fails, is not told.
    fn probe(&self, address: &str) -> io::Result<()> {
        self.known(address)?;
        if self.driver(address).is_some() {
            return Ok(());
        }
        let mut drivers: Vec<String> =
            fs::read_dir(self.drivers())?.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        drivers.sort();
        let Some(driver) = drivers.into_iter().find(|driver| self.matches(driver, address)) else { return Ok(()) };
        if self.state.lock().unwrap().failing.contains(&driver) {
            return Ok(());
        }
        self.attach(&driver, address)
    }

    fn attach(&self, driver: &str, address: &str) -> io::Result<()> {
        let folder = fs::canonicalize(self.function(address))?;
        symlink(self.drivers().join(driver), folder.join("driver"))?;
        symlink(&folder, self.drivers().join(driver).join(address))?;
        if driver == VFIO {
            let group = self.group(address).ok_or(Errno::EINVAL)?;
            fs::create_dir_all(self.tree.join("dev/vfio/devices"))?;
            fs::write(self.tree.join("dev/vfio").join(&group), "")?;
            if self.tree.join("dev/iommu").exists() {
                fs::create_dir_all(folder.join("vfio-dev/vfio0"))?;
                fs::write(self.tree.join("dev/vfio/devices/vfio0"), "")?;
            }
        }
        Ok(())
    }

    /// Takes a function away, with its driver.
    fn remove(&self, address: &str) -> io::Result<()> {
        if let Some(driver) = self.driver(address) {
            self.unbind(&driver, address)?;
        }
        fs::remove_dir_all(fs::canonicalize(self.function(address))?)?;
        fs::remove_file(self.function(address))
    }

    fn group(&self, address: &str) -> Option<String> {
        let link = fs::read_link(self.function(address).join("iommu_group")).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }
}

impl SysRootTap for PciKernel {
    fn access(&self, _: PathAccess, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Option<io::Result<()>> {
        let text = std::str::from_utf8(bytes).unwrap();
        let name = path.file_name()?.to_str()?;
        let parent = path.parent()?;
        let driver = (parent.parent() == Some(Path::new("sys/bus/pci/drivers")))
            .then(|| parent.file_name().and_then(|name| name.to_str()))
            .flatten();
        let result = match (name, driver) {
            ("driver_override", _) => self.override_driver(&self.tree.join(parent), text),
            ("drivers_probe", _) => self.probe(text.trim()),
            ("unbind", Some(driver)) => self.unbind(driver, text.trim()),
            ("bind", Some(driver)) => self.bind(driver, text.trim()),
            ("reset", None) if self.tree.join(path).exists() => Ok(()),
            ("remove", None) => self.remove(parent.file_name()?.to_str()?),
            _ => return None,
        };
        self.state.lock().unwrap().writes.push(format!("{}={}", path.display(), text.escape_debug()));
        Some(result)
    }
}

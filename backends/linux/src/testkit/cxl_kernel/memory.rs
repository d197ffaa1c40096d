//! Dax devices, their drivers, memory blocks and nodes.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::{CxlKernel, CxlKernelState, NewBlocks};
use crate::{IdSet, memory_blocks::PhysicalRange};

const MEMORY: &str = "sys/devices/system/memory";
const NODES: &str = "sys/devices/system/node";

impl CxlKernel {
    pub(super) fn block_bytes(&self) -> u64 {
        u64::from_str_radix(&self.text(format!("{MEMORY}/block_size_bytes")), 16).unwrap()
    }

    /// The blocks of `range` that exist.
    pub(super) fn blocks(&self, range: PhysicalRange) -> Vec<u64> {
        let size = self.block_bytes();
        let numbers = range.start / size..range.end().div_ceil(size);
        numbers.filter(|number| self.exists(format!("{MEMORY}/memory{number}"))).collect()
    }

    pub(super) fn block_state(&self, number: u64) -> String {
        self.text(format!("{MEMORY}/memory{number}/state"))
    }

    fn online_blocks(&self, range: PhysicalRange) -> Vec<u64> {
        self.blocks(range).into_iter().filter(|number| self.block_state(*number) == "online").collect()
    }

    fn dax_range(&self, dax: &Path) -> PhysicalRange {
        PhysicalRange { start: self.number(dax.join("resource")), bytes: self.number(dax.join("size")) }
    }

    /// The dax device of a region that has just got its driver.
    pub(super) fn add_dax(&self, state: &mut CxlKernelState, region: &Path, node: u32) {
        let id = region.file_name().unwrap().to_str().unwrap().trim_start_matches("region").to_owned();
        let parent = region.join(format!("dax_region{id}"));
        let dax = parent.join(format!("dax{id}.0"));
        let size = self.number(region.join("size"));
        self.tree.files(&parent, &[("devtype", "cxl_dax_region"), ("modalias", "cxl:t8")]);
        self.tree.link(format!("sys/bus/cxl/devices/dax_region{id}"), &parent);
        self.tree.files(parent.join("dax_region"), &[("id", &id), ("size", &size.to_string()), ("align", "2097152")]);
        let files = [
            ("size", size.to_string()),
            ("resource", self.text(region.join("resource"))),
            ("target_node", node.to_string()),
            ("numa_node", "-1".to_owned()),
            ("align", "2097152".to_owned()),
            ("modalias", "dax:t0".to_owned()),
            ("dev", format!("253:{id}")),
        ];
        for (name, text) in files {
            self.tree.file(dax.join(name), text);
        }
        self.tree.link(format!("sys/bus/dax/devices/dax{id}.0"), &dax);
        let node = format!("dev/dax{id}.0");
        self.tree.bytes(&node, "");
        if self.machine.maps_devices {
            let content = std::fs::File::options().write(true).open(self.tree.path(&node)).unwrap();
            content.set_len(size).unwrap();
        }
        let driver = if state.device_dax.contains(&format!("dax{id}.0")) { "device_dax" } else { "kmem" };
        self.attach(state, driver, &dax).unwrap();
    }

    /// Takes the dax device of a region away, with its memory if that is offline.
    pub(super) fn remove_dax(&self, state: &mut CxlKernelState, region: &Path) {
        let id = region.file_name().unwrap().to_str().unwrap().trim_start_matches("region").to_owned();
        if let Some(dax) = self.real(format!("sys/bus/dax/devices/dax{id}.0")) {
            self.detach(state, &dax);
        }
        self.tree.remove(format!("sys/bus/dax/devices/dax{id}.0")).remove(format!("dev/dax{id}.0"));
        self.tree.remove(format!("sys/bus/cxl/devices/dax_region{id}"));
        self.tree.remove(region.join(format!("dax_region{id}")));
    }

    pub(super) fn dax_driver(
        &self,
        state: &mut CxlKernelState,
        driver: &str,
        file: &str,
        name: &str,
    ) -> Result<(), Errno> {
        let dax = self.real(format!("sys/bus/dax/devices/{name}"));
        match (file, dax) {
            ("new_id", dax) => {
                if driver == "device_dax" {
                    state.device_dax.insert(name.to_owned());
                }
                match dax.filter(|dax| !self.exists(dax.join("driver"))) {
                    Some(dax) => self.attach(state, driver, &dax),
                    None => Ok(()),
                }
            }
            ("remove_id", _) => {
                state.device_dax.remove(name);
                Ok(())
            }
            (_, None) => Err(Errno::ENODEV),
            ("bind", Some(dax)) if self.exists(dax.join("driver")) => Err(Errno::EBUSY),
            ("bind", Some(dax)) if driver == "kmem" || state.device_dax.contains(name) => {
                self.attach(state, driver, &dax)
            }
            ("unbind", Some(dax)) if self.exists(format!("sys/bus/dax/drivers/{driver}/{name}")) => {
                self.detach(state, &dax);
                Ok(())
            }
            _ => Err(Errno::ENODEV),
        }
    }

    fn attach(&self, state: &mut CxlKernelState, driver: &str, dax: &Path) -> Result<(), Errno> {
        let range = self.dax_range(dax);
        if driver == "kmem" {
            if state.stuck.contains(&range) {
                return Err(Errno::EBUSY);
            }
            self.add_blocks(range, self.number(dax.join("target_node")));
            self.say_state(dax);
        }
        let folder = PathBuf::from("sys/bus/dax/drivers").join(driver);
        self.tree.link(dax.join("driver"), &folder);
        self.tree.link(folder.join(dax.file_name().unwrap()), dax);
        Ok(())
    }

    /// The driver lets go. What kmem has online stays, and nobody owns it any more.
    fn detach(&self, state: &mut CxlKernelState, dax: &Path) {
        let Some(driver) = self.tree.root().link_name(dax.join("driver")).unwrap() else { return };
        if driver == "kmem" {
            let range = self.dax_range(dax);
            if self.online_blocks(range).is_empty() {
                self.remove_blocks(range);
            } else {
                state.stuck.push(range);
            }
            self.tree.remove(dax.join("state"));
        }
        self.tree.remove(dax.join("driver"));
        self.tree.remove(PathBuf::from("sys/bus/dax/drivers").join(driver).join(dax.file_name().unwrap()));
    }

    fn add_blocks(&self, range: PhysicalRange, node: u64) {
        let size = self.block_bytes();
        for number in range.start.div_ceil(size)..range.end() / size {
            let folder = format!("{MEMORY}/memory{number}");
            let text = match self.machine.new_blocks {
                NewBlocks::Offline => "offline",
                NewBlocks::Online => "online",
                NewBlocks::OnlineMovable => "online_movable",
            };
            self.tree.file(format!("{folder}/phys_index"), format!("{number:08x}"));
            self.tree.link(format!("{folder}/node{node}"), format!("{NODES}/node{node}"));
            self.tree.link(format!("{NODES}/node{node}/memory{number}"), &folder);
            self.say_block(number, text);
        }
        self.refresh_nodes();
    }

    fn remove_blocks(&self, range: PhysicalRange) {
        for number in self.blocks(range) {
            for node in self.machine.nodes.values() {
                self.tree.remove(format!("{NODES}/node{node}/memory{number}"));
            }
            self.tree.remove(format!("{MEMORY}/memory{number}"));
        }
        self.refresh_nodes();
    }

    fn say_block(&self, number: u64, text: &str) {
        let (state, zones) = match text {
            "offline" => ("offline", "Normal Movable"),
            "online_movable" => ("online", "Movable"),
            _ => ("online", "Normal"),
        };
        self.put(format!("{MEMORY}/memory{number}/state"), state);
        self.put(format!("{MEMORY}/memory{number}/valid_zones"), zones);
    }

    pub(super) fn set_block(&self, state: &mut CxlKernelState, block: &str, text: &str) -> Result<(), Errno> {
        let number: u64 = block.trim_start_matches("memory").parse().map_err(|_| Errno::EINVAL)?;
        let now = self.block_state(number);
        match text {
            "offline" if now == "offline" => return Err(Errno::EINVAL),
            "offline" if state.pinned.contains(&number) => return Err(Errno::EBUSY),
            "offline" => {}
            "online" | "online_kernel" | "online_movable" if now == "offline" => {}
            _ => return Err(Errno::EINVAL),
        }
        self.say_block(number, text);
        self.refresh_nodes();
        let name = |path: &String| format!("sys/bus/dax/devices/{path}");
        for dax in self.names("sys/bus/dax/devices").iter().map(name).filter_map(|path| self.real(path)) {
            self.say_state(&dax);
        }
        Ok(())
    }

    /// `state` of a dax device of kmem, where the kernel has it.
    fn say_state(&self, dax: &Path) {
        if !self.machine.dax_state {
            return;
        }
        let blocks = self.blocks(self.dax_range(dax));
        let online = self.online_blocks(self.dax_range(dax));
        let zones = online.first().map(|number| self.text(format!("{MEMORY}/memory{number}/valid_zones")));
        let text = match zones.as_deref() {
            _ if blocks.is_empty() => "unplugged",
            None => "offline",
            Some("Movable") => "online_movable",
            Some(_) => "online",
        };
        self.put(dax.join("state"), text);
    }

    pub(super) fn set_dax_state(&self, state: &mut CxlKernelState, dax: &Path, text: &str) -> Result<(), Errno> {
        let range = self.dax_range(dax);
        match text {
            "unplugged" => {
                if self.online_blocks(range).iter().any(|block| state.pinned.contains(block)) {
                    return Err(Errno::EBUSY);
                }
                self.remove_blocks(range);
            }
            "online" | "online_kernel" | "online_movable" if self.blocks(range).is_empty() => {
                self.add_blocks(range, self.number(dax.join("target_node")));
                for number in self.blocks(range) {
                    self.say_block(number, text);
                }
            }
            "online" | "online_kernel" | "online_movable" => return Err(Errno::EBUSY),
            _ => return Err(Errno::EINVAL),
        }
        self.refresh_nodes();
        self.say_state(dax);
        Ok(())
    }

    /// Somebody else brings memory of a region online: a block that waits, or all of a device that is unplugged.
    pub(super) fn somebody_onlines(&self, state: &mut CxlKernelState) {
        for dax in self.names("sys/bus/dax/devices") {
            let Some(dax) = self.real(format!("sys/bus/dax/devices/{dax}")) else { continue };
            let blocks = self.blocks(self.dax_range(&dax));
            if let Some(number) = blocks.iter().find(|number| self.block_state(**number) == "offline") {
                let _ = self.set_block(state, &format!("memory{number}"), "online_movable");
            } else if blocks.is_empty() && self.text(dax.join("state")) == "unplugged" {
                let _ = self.set_dax_state(state, &dax, "online_movable");
            }
        }
    }

    /// Nodes of windows come and go with their blocks; their memory is that of the blocks that are online.
    fn refresh_nodes(&self) {
        let mut lists = [("online", IdSet::default()), ("has_memory", IdSet::default())];
        for (list, ids) in &mut lists {
            *ids = self.text(format!("{NODES}/{list}")).parse().unwrap_or_default();
        }
        for node in self.machine.nodes.values() {
            let folder = format!("{NODES}/node{node}");
            let names = self.names(&folder);
            let numbers = names.iter().filter_map(|name| name.strip_prefix("memory")?.parse::<u64>().ok());
            let (all, online): (Vec<u64>, Vec<u64>) = numbers.map(|number| (number, number)).unzip();
            let online = online.into_iter().filter(|number| self.block_state(*number) == "online").count() as u64;
            let [(_, nodes), (_, with_memory)] = &mut lists;
            set(nodes, *node, !all.is_empty());
            set(with_memory, *node, online > 0);
            if all.is_empty() {
                self.tree.remove(&folder);
                continue;
            }
            let kb = online * self.block_bytes() / 1024;
            self.put(
                format!("{folder}/meminfo"),
                format!("Node {node} MemTotal:  {kb} kB\nNode {node} MemFree:  {kb} kB"),
            );
            self.put(format!("{folder}/cpulist"), "");
            self.put(format!("{folder}/distance"), "20");
        }
        for (list, ids) in lists {
            self.put(format!("{NODES}/{list}"), ids.to_string());
        }
    }
}

fn set(ids: &mut IdSet, id: u32, there: bool) {
    let others = ids.iter().filter(|other| *other != id);
    *ids = others.chain(there.then_some(id)).collect();
}

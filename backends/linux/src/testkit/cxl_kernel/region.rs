//! Decoders, regions and memory devices.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use super::{CxlKernel, CxlKernelState};
use crate::memory_blocks::PhysicalRange;

const CXL: &str = "sys/bus/cxl/devices";
const REGION_DRIVER: &str = "sys/bus/cxl/drivers/cxl_region";
const MEM_DRIVER: &str = "sys/bus/cxl/drivers/cxl_mem";
/// What regions and their parts are made of.
const UNIT: u64 = 256 << 20;
const NOWHERE: &str = "0xffffffffffffffff";

fn name(folder: &Path) -> &str {
    folder.file_name().unwrap().to_str().unwrap()
}

/// `decoder3.0`, and not `decoders_committed`.
fn is_decoder(name: &str) -> bool {
    name.starts_with("decoder") && name.contains('.')
}

fn parse(text: &str) -> Result<u64, Errno> {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    parsed.map_err(|_| Errno::EINVAL)
}

impl CxlKernel {
    fn device(&self, name: &str) -> Option<PathBuf> {
        self.real(Path::new(CXL).join(name)).filter(|_| !name.is_empty())
    }

    fn devices(&self, prefix: &str) -> Vec<PathBuf> {
        let names = self.names(CXL);
        names.iter().filter(|name| name.starts_with(prefix)).filter_map(|name| self.device(name)).collect()
    }

    fn range_of(&self, region: &Path) -> PhysicalRange {
        PhysicalRange { start: self.number(region.join("resource")), bytes: self.number(region.join("size")) }
    }

    fn targets(&self, region: &Path) -> Vec<String> {
        let ways = self.number(region.join("interleave_ways"));
        (0..ways).map(|position| self.text(region.join(format!("target{position}")))).collect()
    }

    fn is_complete(&self, region: &Path) -> bool {
        let targets = self.targets(region);
        self.number(region.join("size")) > 0 && !targets.is_empty() && targets.iter().all(|target| !target.is_empty())
    }

    pub(super) fn endpoint_decoder(&self, decoder: &Path, file: &str, text: &str) -> Result<(), Errno> {
        if !self.text(decoder.join("region")).is_empty() {
            return Err(Errno::EBUSY);
        }
        match file {
            "mode" if matches!(text, "ram" | "pmem") => self.put(decoder.join("mode"), text),
            "dpa_size" => self.take_capacity(decoder, parse(text)?)?,
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Decoders take capacity in their order, and give it back in the opposite one.
    fn take_capacity(&self, decoder: &Path, size: u64) -> Result<(), Errno> {
        let mode = self.text(decoder.join("mode"));
        if !size.is_multiple_of(UNIT) || (mode != "ram" && mode != "pmem") {
            return Err(Errno::EINVAL);
        }
        let endpoint = decoder.parent().unwrap();
        let (stem, number) = name(decoder).split_once('.').unwrap();
        let number: u32 = number.parse().unwrap();
        let taken = |other: u32| self.number(endpoint.join(format!("{stem}.{other}/dpa_size")));
        if (0..number).any(|other| size > 0 && taken(other) == 0) || (number + 1..16).any(|other| taken(other) > 0) {
            return Err(Errno::EBUSY);
        }
        let capacity = self.number(endpoint.join("uport").join(mode).join("size"));
        if (0..number).map(taken).sum::<u64>() + size > capacity {
            return Err(Errno::ENOSPC);
        }
        self.put(decoder.join("dpa_size"), format!("{size:#018x}"));
        self.put(decoder.join("dpa_resource"), if size == 0 { NOWHERE } else { "0x0" });
        Ok(())
    }

    pub(super) fn create_region(&self, state: &mut CxlKernelState, window: &Path, wanted: &str) -> Result<(), Errno> {
        if wanted != self.text(window.join("create_ram_region")) {
            return Err(Errno::EBUSY);
        }
        let folder = window.join(wanted);
        let files = [
            ("devtype", "cxl_region"),
            ("modalias", "cxl:t6"),
            ("mode", "ram"),
            ("uuid", ""),
            ("commit", "0"),
            ("size", "0x0"),
            ("resource", NOWHERE),
            ("interleave_ways", "0"),
            ("interleave_granularity", "0"),
            ("locked", "0"),
        ];
        self.tree.files(&folder, &files).link(Path::new(CXL).join(wanted), &folder);
        state.regions_made += 1;
        self.put(window.join("create_ram_region"), format!("region{}", 100 + state.regions_made));
        Ok(())
    }

    pub(super) fn region(&self, region: &Path, file: &str, text: &str) -> Result<(), Errno> {
        let allocated = self.number(region.join("size")) > 0;
        match file {
            "interleave_granularity" | "interleave_ways" if allocated => return Err(Errno::EBUSY),
            "interleave_granularity" => {
                let bytes = parse(text)?;
                if bytes < 256 || !bytes.is_power_of_two() {
                    return Err(Errno::EINVAL);
                }
                self.put(region.join(file), text);
            }
            "interleave_ways" => {
                for position in 0..parse(text)? {
                    self.put(region.join(format!("target{position}")), "");
                }
                self.put(region.join(file), text);
            }
            "size" => self.set_size(region, parse(text)?)?,
            _ => match file.strip_prefix("target") {
                Some(_) => self.set_target(region, file, text)?,
                None => return Err(Errno::EINVAL),
            },
        }
        Ok(())
    }

    fn set_size(&self, region: &Path, size: u64) -> Result<(), Errno> {
        let now = self.number(region.join("size"));
        let ways = self.number(region.join("interleave_ways"));
        if size == 0 {
            if self.is_complete(region) {
                return Err(Errno::EBUSY);
            }
            self.put(region.join("size"), "0x0");
            self.put(region.join("resource"), NOWHERE);
            return Ok(());
        }
        if ways == 0 || self.number(region.join("interleave_granularity")) == 0 {
            return Err(Errno::ENXIO);
        }
        if !size.is_multiple_of(UNIT * ways) {
            return Err(Errno::EINVAL);
        }
        if now > 0 {
            return if now == size { Ok(()) } else { Err(Errno::EBUSY) };
        }
        let start = self.free_addresses(region.parent().unwrap(), size).ok_or(Errno::ERANGE)?;
        self.put(region.join("size"), format!("{size:#x}"));
        self.put(region.join("resource"), format!("{start:#x}"));
        Ok(())
    }

    fn free_addresses(&self, window: &Path, size: u64) -> Option<u64> {
        let (start, length) = (self.number(window.join("start")), self.number(window.join("size")));
        let names = self.names(window);
        let regions = names.iter().filter(|name| name.starts_with("region"));
        let mut taken: Vec<PhysicalRange> = regions.map(|name| self.range_of(&window.join(name))).collect();
        taken.retain(|range| range.bytes > 0);
        taken.sort_by_key(|range| range.start);
        let mut free = start;
        for range in taken {
            if range.start.saturating_sub(free) >= size {
                break;
            }
            free = free.max(range.end());
        }
        (free + size <= start + length).then_some(free)
    }

    /// The port below the root that a decoder's endpoint hangs on, as its folder.
    fn host_bridge_port(&self, path: &Path) -> PathBuf {
        let mut port = path;
        while !port.parent().unwrap().file_name().is_some_and(|name| name.to_string_lossy().starts_with("root")) {
            port = port.parent().unwrap();
        }
        port.to_path_buf()
    }

    fn set_target(&self, region: &Path, file: &str, text: &str) -> Result<(), Errno> {
        if !self.exists(region.join(file)) || self.number(region.join("size")) == 0 {
            return Err(Errno::ENXIO);
        }
        let decoder = self.device(text).ok_or(Errno::ENODEV)?;
        let ways = self.number(region.join("interleave_ways"));
        if self.text(decoder.join("mode")) != self.text(region.join("mode")) {
            return Err(Errno::EINVAL);
        }
        if !self.text(decoder.join("region")).is_empty() || !self.text(region.join(file)).is_empty() {
            return Err(Errno::EBUSY);
        }
        let capacity = self.number(decoder.join("dpa_size"));
        if capacity == 0 {
            return Err(Errno::ENXIO);
        }
        if capacity * ways != self.number(region.join("size")) {
            return Err(Errno::EINVAL);
        }
        let port = self.host_bridge_port(&decoder);
        if !self.reaches(region.parent().unwrap(), &port) {
            return Err(Errno::ENXIO);
        }
        if self.machine.passthrough.contains(name(&port)) && self.carries_another(&port, region) {
            return Err(Errno::EBUSY);
        }
        self.put(region.join(file), text);
        self.put(decoder.join("region"), name(region));
        Ok(())
    }

    /// Whether a window's addresses are routed to a host bridge.
    fn reaches(&self, window: &Path, port: &Path) -> bool {
        let bridge = self.real(port.join("uport"));
        let list = self.text(window.join("target_list"));
        let mut targets = list.split(',').map(|id| self.real(window.parent().unwrap().join(format!("dport{id}"))));
        targets.any(|target| target == bridge)
    }

    fn carries_another(&self, port: &Path, region: &Path) -> bool {
        let others = self.devices("region").into_iter().filter(|other| other != region);
        let mut decoders = others.flat_map(|other| self.targets(&other)).filter_map(|target| self.device(&target));
        decoders.any(|decoder| self.host_bridge_port(&decoder) == port)
    }

    pub(super) fn commit(&self, state: &mut CxlKernelState, region: &Path, text: &str) -> Result<(), Errno> {
        let committed = self.text(region.join("commit")) == "1";
        match text {
            "1" if committed => Ok(()),
            "1" if !self.is_complete(region) || !self.machine.flushes_caches => Err(Errno::ENXIO),
            "1" => {
                self.put(region.join("commit"), "1");
                self.program(region, 1);
                Ok(())
            }
            "0" if self.text(region.join("locked")) == "1" => Err(Errno::EPERM),
            "0" => {
                self.destroys(state, &[self.range_of(region)], &format!("{} was uncommitted", name(region)));
                self.reset(state, region);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Programs the decoders of a region, or takes the program back.
    fn program(&self, region: &Path, step: i64) {
        let range = self.range_of(region);
        for decoder in self.targets(region).iter().filter_map(|target| self.device(target)) {
            let (start, size) = if step > 0 { (range.start, range.bytes) } else { (0, 0) };
            self.put(decoder.join("start"), format!("{start:#x}"));
            self.put(decoder.join("size"), format!("{size:#x}"));
            let count = decoder.parent().unwrap().join("decoders_committed");
            let committed = i64::try_from(self.number(&count)).unwrap() + step;
            self.put(count, committed.to_string());
        }
    }

    /// A region without its driver, and decoders that decode nothing.
    fn reset(&self, state: &mut CxlKernelState, region: &Path) {
        self.release(state, region);
        if self.text(region.join("commit")) == "1" {
            self.put(region.join("commit"), "0");
            self.program(region, -1);
        }
    }

    fn release(&self, state: &mut CxlKernelState, region: &Path) {
        self.remove_dax(state, region);
        self.tree.remove(region.join("driver")).remove(Path::new(REGION_DRIVER).join(name(region)));
    }

    pub(super) fn bind_region(&self, state: &mut CxlKernelState, text: &str) -> Result<(), Errno> {
        let region = self.device(text).ok_or(Errno::ENODEV)?;
        if self.exists(region.join("driver")) {
            return Err(Errno::EBUSY);
        }
        if self.text(region.join("commit")) != "1" {
            return Err(Errno::ENXIO);
        }
        self.tree.link(region.join("driver"), REGION_DRIVER).link(Path::new(REGION_DRIVER).join(text), &region);
        let node = self.machine.nodes.get(name(region.parent().unwrap())).copied().unwrap_or(0);
        self.add_dax(state, &region, node);
        Ok(())
    }

    pub(super) fn unbind_region(&self, state: &mut CxlKernelState, text: &str) -> Result<(), Errno> {
        let region = self.device(text).filter(|region| self.exists(region.join("driver"))).ok_or(Errno::ENODEV)?;
        self.destroys(state, &[self.range_of(&region)], &format!("{text} lost its driver"));
        self.release(state, &region);
        Ok(())
    }

    pub(super) fn delete_region(&self, state: &mut CxlKernelState, window: &Path, text: &str) -> Result<(), Errno> {
        let region = self.device(text).filter(|region| region.parent() == Some(window)).ok_or(Errno::ENODEV)?;
        if self.text(region.join("locked")) == "1" {
            return Err(Errno::EPERM);
        }
        self.destroys(state, &[self.range_of(&region)], &format!("{text} was deleted"));
        self.reset(state, &region);
        for decoder in self.targets(&region).iter().filter_map(|target| self.device(target)) {
            self.put(decoder.join("region"), "");
        }
        self.tree.remove(Path::new(CXL).join(text)).remove(region);
        // Numbers that are free are given again.
        self.put(window.join("create_ram_region"), text);
        Ok(())
    }

    fn endpoint_of(&self, memdev: &Path) -> Option<PathBuf> {
        let is_its = |endpoint: &PathBuf| self.real(endpoint.join("uport")).as_deref() == Some(memdev);
        self.devices("endpoint").into_iter().find(is_its)
    }

    /// Takes away what hangs on a memory device: its endpoint, and the regions that it is a part of.
    fn disable(&self, state: &mut CxlKernelState, memdev: &Path, what: &str) {
        let Some(endpoint) = self.endpoint_of(memdev) else { return };
        let is_part = |target: &String| self.device(target).is_some_and(|decoder| decoder.starts_with(&endpoint));
        let mut regions = self.devices("region");
        regions.retain(|region| self.targets(region).iter().any(is_part));
        let ranges: Vec<PhysicalRange> = regions.iter().map(|region| self.range_of(region)).collect();
        self.destroys(state, &ranges, what);
        for region in &regions {
            self.reset(state, region);
            for (position, _) in self.targets(region).iter().enumerate().filter(|(_, target)| is_part(target)) {
                self.put(region.join(format!("target{position}")), "");
            }
        }
        for decoder in self.names(&endpoint).iter().filter(|name| is_decoder(name)) {
            self.tree.remove(Path::new(CXL).join(decoder));
        }
        self.tree.remove(Path::new(CXL).join(name(&endpoint)));
        // It comes back with the driver.
        fs::create_dir_all(self.tree.path("gone")).unwrap();
        fs::rename(self.tree.path(&endpoint), self.tree.path("gone").join(name(&endpoint))).unwrap();
        state.endpoints.insert(name(memdev).to_owned(), endpoint);
    }

    pub(super) fn bind_memdev(&self, state: &mut CxlKernelState, text: &str) -> Result<(), Errno> {
        let memdev = self.device(text).ok_or(Errno::ENODEV)?;
        if self.exists(memdev.join("driver")) {
            return Err(Errno::EBUSY);
        }
        let endpoint = state.endpoints.remove(text).ok_or(Errno::ENXIO)?;
        fs::rename(self.tree.path("gone").join(name(&endpoint)), self.tree.path(&endpoint)).unwrap();
        self.tree.link(Path::new(CXL).join(name(&endpoint)), &endpoint);
        for decoder in self.names(&endpoint).iter().filter(|name| is_decoder(name)) {
            self.tree.link(Path::new(CXL).join(decoder), endpoint.join(decoder));
            self.put(endpoint.join(decoder).join("region"), "");
            self.put(endpoint.join(decoder).join("dpa_size"), format!("{:#018x}", 0));
        }
        self.tree.link(memdev.join("driver"), MEM_DRIVER).link(Path::new(MEM_DRIVER).join(text), &memdev);
        Ok(())
    }

    pub(super) fn unbind_memdev(&self, state: &mut CxlKernelState, text: &str) -> Result<(), Errno> {
        let memdev = self.device(text).filter(|memdev| self.exists(memdev.join("driver"))).ok_or(Errno::ENODEV)?;
        self.disable(state, &memdev, &format!("{text} lost its driver"));
        self.tree.remove(memdev.join("driver")).remove(Path::new(MEM_DRIVER).join(text));
        Ok(())
    }

    pub(super) fn remove_function(&self, state: &mut CxlKernelState, function: &Path) -> Result<(), Errno> {
        let memdevs = self.devices("mem").into_iter().filter(|memdev| memdev.parent() == Some(function));
        for memdev in memdevs.collect::<Vec<_>>() {
            self.disable(state, &memdev, &format!("{} was removed", name(function)));
            self.tree.remove(Path::new(MEM_DRIVER).join(name(&memdev))).remove(Path::new(CXL).join(name(&memdev)));
        }
        self.tree.remove(Path::new("sys/bus/pci/devices").join(name(function))).remove(function);
        Ok(())
    }

    pub(super) fn sanitize(&self, state: &mut CxlKernelState, security: &Path) -> Result<(), Errno> {
        let memdev = security.parent().unwrap();
        // Without an endpoint the driver cannot tell whether the device is mapped.
        let endpoint = self.endpoint_of(memdev).ok_or(Errno::EBUSY)?;
        if self.number(endpoint.join("decoders_committed")) > 0 {
            return Err(Errno::EBUSY);
        }
        self.put(security.join("state"), "sanitize");
        state.sanitizing = 3;
        state.sanitized.push(self.text(memdev.join("serial")));
        Ok(())
    }

    /// Somebody looks how far the erasure is.
    pub(super) fn erase_on(&self, state: &mut CxlKernelState, path: &Path) {
        state.sanitizing = state.sanitizing.saturating_sub(1);
        if state.sanitizing == 0 && self.text(path) == "sanitize" {
            self.put(path, "disabled");
        }
    }
}

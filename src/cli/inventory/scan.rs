//! Reads the machine once and asks the backends about it.

use std::collections::BTreeSet;

use hostler_api::Chain;
use hostler_backend::{Backend, BackendError, BackendWarning, CounterSet, Device, Enumeration};
use hostler_linux::{ReadFailure, SysRoot, topology::Topology};
use hostler_memory::{MemoryBackendConfig, ZoneInfo};

use super::shares::KnownShares;
use crate::{
    cli::CliFailure,
    config::{BackendsConfig, DaemonConfig},
};

/// Everything that is shown.
#[derive(Debug)]
pub(in crate::cli) struct ScannedMachine {
    /// The node's name.
    pub(in crate::cli) node: String,
    /// CPUs, caches, memory.
    pub(in crate::cli) topology: Topology,
    /// One pool per backend, by name.
    pub(in crate::cli) pools: Vec<ScannedPool>,
    /// Parts that could not be understood, each once.
    pub(in crate::cli) warnings: Vec<BackendWarning>,
    /// Why nothing is known of CPUs and memory.
    pub(in crate::cli) failure: Option<ReadFailure>,
    /// Holders of the devices, where the daemon was asked.
    pub(in crate::cli) shares: KnownShares,
}

/// The devices of a backend.
#[derive(Clone, Debug)]
pub(in crate::cli) struct ScannedPool {
    /// Name of the backend.
    pub(in crate::cli) backend: &'static str,
    /// `<node>/<backend>`.
    pub(in crate::cli) name: String,
    /// In the backend's order.
    pub(in crate::cli) devices: Vec<Device>,
    /// Counters that these devices share.
    pub(in crate::cli) counter_sets: Vec<CounterSet>,
}

impl ScannedMachine {
    /// Every device with its pool.
    pub(in crate::cli) fn devices(&self) -> impl Iterator<Item = (&ScannedPool, &Device)> {
        self.pools.iter().flat_map(|pool| pool.devices.iter().map(move |device| (pool, device)))
    }

    /// The machine, if it could be read.
    pub(in crate::cli) fn complete(mut self) -> Result<Self, CliFailure> {
        match self.failure.take() {
            Some(failure) => Err(CliFailure::step("read the machine", failure)),
            None => Ok(self),
        }
    }

    /// Adds warnings that are not there yet.
    pub(in crate::cli) fn warn(&mut self, warnings: Vec<BackendWarning>) {
        let mut known: BTreeSet<BackendWarning> = self.warnings.iter().cloned().collect();
        self.warnings.extend(warnings.into_iter().filter(|warning| known.insert(warning.clone())));
    }
}

/// Reads the machine under `root` and asks the enabled backends, or the one that is named. A backend that fails costs
/// its devices and leaves a warning.
pub(in crate::cli) fn scan_machine(config: &DaemonConfig, root: &SysRoot, only: Option<&str>) -> ScannedMachine {
    let looked = Topology::read(root).and_then(|topology| {
        let (node, empty) = (node_name(config, root)?, no_machine(root)?);
        Ok((topology, node, empty))
    });
    let (found, failure) = match looked {
        Ok(found) => (found, None),
        Err(failure) => ((Topology::default(), config.node_name.clone(), None), Some(failure)),
    };
    let (topology, node, empty) = found;
    let (pools, warnings, shares) = (Vec::new(), Vec::new(), KnownShares::default());
    let mut machine = ScannedMachine { node, topology, pools, warnings, failure, shares };
    machine.warn(empty.into_iter().collect());
    machine.warn(machine.topology.warnings.iter().map(own_warning).collect());
    for (backend, scan) in scans(config, root, &machine.topology, only) {
        let Enumeration { devices, counter_sets, warnings } = scan.unwrap_or_else(|error| failed(backend, &error));
        machine.warn(warnings);
        let name = format!("{}/{backend}", machine.node);
        machine.pools.push(ScannedPool { backend, name, devices, counter_sets });
    }
    machine
}

/// The most likely mistake with a captured tree, said before what follows from it.
fn no_machine(root: &SysRoot) -> Result<Option<BackendWarning>, ReadFailure> {
    let reason = "the tree holds neither sys nor proc; name the folder above them".to_owned();
    let empty = !root.exists("sys")? && !root.exists("proc")?;
    Ok(empty.then(|| BackendWarning { path: "/".to_owned(), reason }))
}

/// Asks the backends on one reading of the machine. By themselves each would read it again, which on a large machine is
/// nearly all that this program does.
fn scans(config: &DaemonConfig, root: &SysRoot, topology: &Topology, only: Option<&str>) -> Vec<BackendScan> {
    let BackendsConfig { cpu, memory, fpga, cxl, fake } = &config.backends;
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let mut scans: Vec<BackendScan> = Vec::new();
    if let Some(config) = cpu.active().filter(|_| wanted("cpu")) {
        scans.push(("cpu", hostler_cpu::enumeration(topology, config)));
    }
    if let Some(config) = cxl.active().filter(|_| wanted("cxl")) {
        scans.push(("cxl", hostler_cxl::CxlBackend::new(root.clone(), config.clone()).enumerate()));
    }
    if let Some(config) = fake.active().filter(|_| wanted("fake")) {
        scans.push(("fake", hostler_fake::FakeBackend::new(config.clone()).enumerate()));
    }
    if let Some(config) = fpga.active().filter(|_| wanted("fpga")) {
        scans.push(("fpga", hostler_fpga::FpgaBackend::new(root.clone(), config.clone()).enumerate()));
    }
    if let Some(config) = memory.active().filter(|_| wanted("memory")) {
        scans.push(("memory", memory_devices(root, topology.clone(), config, cxl.active().is_some())));
    }
    scans
}

fn memory_devices(
    root: &SysRoot,
    mut topology: Topology,
    config: &MemoryBackendConfig,
    without_cxl: bool,
) -> Result<Enumeration, BackendError> {
    if without_cxl {
        hostler_memory::leave_out_cxl_nodes(root, &mut topology).map_err(BackendError::unread)?;
    }
    let zones = ZoneInfo::read(root).map_err(BackendError::unread)?;
    hostler_memory::enumeration(&topology, &zones, config)
}

type BackendScan = (&'static str, Result<Enumeration, BackendError>);

/// The configured name; on a captured machine the host name that the tree tells, where it does.
fn node_name(config: &DaemonConfig, root: &SysRoot) -> Result<String, ReadFailure> {
    if !config.node_name.is_empty() {
        return Ok(config.node_name.clone());
    }
    let name = root.text("proc/sys/kernel/hostname")?.filter(|name| !name.is_empty());
    Ok(name.map_or_else(|| "captured".to_owned(), |name| name.to_lowercase()))
}

fn failed(backend: &str, error: &BackendError) -> Enumeration {
    let warning = BackendWarning { path: format!("backend {backend}"), reason: Chain(error).to_string() };
    Enumeration { devices: Vec::new(), counter_sets: Vec::new(), warnings: vec![warning] }
}

/// A reader's warning as one of the inventory.
pub(in crate::cli) fn own_warning(warning: &hostler_linux::TreeWarning) -> BackendWarning {
    BackendWarning { path: warning.path.clone(), reason: warning.reason.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::BackendSection, registry};

    #[test]
    fn the_backends_are_those_of_the_daemon() {
        let config = DaemonConfig {
            backends: BackendsConfig { fake: BackendSection::on(), ..BackendsConfig::default() },
            ..DaemonConfig::default()
        };
        let root = SysRoot::new("/nonexistent");
        let here: Vec<&str> = scan_machine(&config, &root, None).pools.iter().map(|pool| pool.backend).collect();
        let daemon = registry::from_config(&config, &root);
        assert_eq!(here, daemon.iter().map(|(name, _)| name.as_str().to_owned()).collect::<Vec<_>>());
    }
}

//! Memory and huge pages of NUMA nodes as devices.
//!
//! A node with memory is a shared device with the capacity `memory` in bytes, and so is each of its pools of huge
//! pages. A claim binds containers to the node (`cpuset.mems`) and accounts what it takes; it does not limit what a
//! process uses: that stays with the container's own memory and hugetlb limits. A request that names no amount gets
//! the least that can be accounted, 1 MiB or one huge page: it asks for the place alone. A grant with administrative
//! access binds nothing and takes nothing.
//!
//! A `MemoryConfig` says how the memory is to be used. Binding and the nodes of an interleaving are enforced; a
//! preference and the interleaving itself are a program's own doing, and it is told through its environment.

mod config;
mod enumerate;
mod prepare;
#[cfg(test)]
mod tests;
mod zones;

use hostler_api::BackendName;
use hostler_backend::{Backend, BackendError, DevicePlan, Enumeration, PlanWork, VerifyWork};
use hostler_linux::{ReadFailure, SysRoot, topology::Topology};

pub use config::MemoryBackendConfig;
pub use enumerate::enumeration;
pub use zones::ZoneInfo;

/// The memory of the machine under a root.
#[derive(Clone, Debug)]
pub struct MemoryBackend {
    root: SysRoot,
    config: MemoryBackendConfig,
    /// True if nodes that are made of CXL memory are offered.
    cxl_nodes: bool,
}

impl MemoryBackend {
    /// A backend for the machine under `root`. A `config` that does not [`validate`](MemoryBackendConfig::validate)
    /// makes [`enumerate`](Backend::enumerate) fail: memory that was meant to be reserved must not be handed out.
    pub fn new(root: SysRoot, config: MemoryBackendConfig) -> Self {
        Self { root, config, cxl_nodes: true }
    }

    /// Leaves out the nodes that are made of CXL memory: another backend offers them, and no byte may be offered twice.
    #[must_use]
    pub fn without_cxl_nodes(mut self) -> Self {
        self.cxl_nodes = false;
        self
    }
}

/// Takes the nodes that are made of CXL memory out of a topology, for [`enumeration`].
///
/// # Errors
/// When it cannot be told which nodes these are.
pub fn leave_out_cxl_nodes(root: &SysRoot, topology: &mut Topology) -> Result<(), ReadFailure> {
    let (nodes, warnings) = root.look_warned(hostler_linux::cxl_nodes)?;
    topology.nodes.retain(|node, _| !nodes.contains_key(node));
    topology.warnings.extend(warnings);
    Ok(())
}

impl Backend for MemoryBackend {
    #[expect(clippy::expect_used, reason = "the literal is a DNS label")]
    fn name(&self) -> BackendName {
        BackendName::new("memory").expect("a DNS label")
    }

    fn subsystems(&self) -> &[&'static str] {
        // A node of CXL memory is another backend's, and that it is one shows in the CXL objects.
        &["node", "memory", "memory_tiering", "cxl", "dax"]
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        let mut topology = Topology::read_nodes(&self.root).map_err(BackendError::unread)?;
        if !self.cxl_nodes {
            leave_out_cxl_nodes(&self.root, &mut topology).map_err(BackendError::unread)?;
        }
        let zones = ZoneInfo::read(&self.root).map_err(BackendError::unread)?;
        enumeration(&topology, &zones, &self.config)
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        prepare::plan(work)
    }

    fn free(&self, work: &PlanWork<'_>) -> Option<u64> {
        prepare::free(work)
    }

    fn changes_hardware(&self, _: &DevicePlan) -> bool {
        false
    }

    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        prepare::verify(&self.root, work.plan)
    }
}

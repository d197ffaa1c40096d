//! Makes hardware ready for a claim, checks it, and takes it back.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hostler_api::{Chain, opaque::MemoryMode};
use hostler_backend::{
    BackendError, ContainerEdits, MemoryPolicy, Pinning, PrepareOutcome, PrepareWork, UnprepareWork, VerifyWork,
};
use hostler_cdi::DeviceNode;
use hostler_linux::{SysRoot, pci::PciAddress, vfio};

use crate::{
    device::{CardId, DaxId},
    erase,
    memory::{self, MemoryError},
    objects::{CxlObjects, DaxDevice},
    operate,
    plan::CxlPlan,
    region::{self, RegionError},
    write::WaitLimits,
};

/// Access to the hardware for the steps of a claim.
#[derive(Debug)]
pub(crate) struct CxlHardware<'a> {
    pub(crate) root: &'a SysRoot,
    pub(crate) waits: &'a WaitLimits,
    /// Held while a region is made or taken down: the kernel hands out names and addresses one at a time, and a
    /// region that one thread has half made is an orphan to another.
    pub(crate) regions: &'a Mutex<()>,
}

impl CxlHardware<'_> {
    /// Locks out other work on regions. The lock guards nothing that a panic could have left half done.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the hardware of a plan ready.
    pub(crate) fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        let none = PrepareOutcome::giving(work.device.edits.clone());
        match CxlPlan::read(work.plan)? {
            None | Some(CxlPlan::Node { .. } | CxlPlan::Accelerator { vfio: false, .. }) => Ok(none),
            Some(CxlPlan::Accelerator { address, .. }) => self.hand_over(address),
            Some(CxlPlan::Memory { card, system_ram, sanitize, .. }) => self.map(&card, system_ram, sanitize),
            Some(CxlPlan::Dax { memory }) => {
                let dax = self.dax(&memory)?;
                memory::is_device(self.root, &dax).map_err(|error| unusable(&error))?;
                Ok(PrepareOutcome::giving(node_of(&dax)))
            }
        }
    }

    /// Maps all volatile memory of a card, in the form that the claim asks for.
    fn map(&self, card: &CardId, system_ram: bool, sanitize: bool) -> Result<PrepareOutcome, BackendError> {
        let _alone = self.alone();
        if sanitize {
            let objects = self.objects()?;
            let supported = card.find(&objects).map(|memdev| erase::is_supported(self.root, memdev)).transpose();
            if supported.map_err(BackendError::unread)? != Some(true) {
                return Err(BackendError::refused(format!("card {card} cannot erase its memory (sanitize: true)")));
            }
        }
        let failed = |error: RegionError| BackendError::step(format!("map the memory of card {card}"), error);
        let dax = region::create(self.root, card, self.waits).map_err(failed)?;
        if system_ram {
            memory::bring_online(self.root, &dax, self.waits).map_err(|error| failed(error.into()))?;
            let mems: BTreeSet<u32> = dax.target_node.into_iter().collect();
            // All of it is movable, so containers may also use an ordinary node beside it: their programs have to
            // choose.
            let policy = Some(MemoryPolicy { mode: MemoryMode::Bind, nodes: mems.clone() });
            let pinning = Pinning { mems, policy, ..Pinning::default() };
            return Ok(PrepareOutcome { pinning: Some(pinning), ..PrepareOutcome::default() });
        }
        memory::make_device(self.root, &dax, self.waits).map_err(|error| failed(error.into()))?;
        Ok(PrepareOutcome::giving(node_of(&dax)))
    }

    fn hand_over(&self, address: PciAddress) -> Result<PrepareOutcome, BackendError> {
        // The driver of an accelerator whose memory is mapped must not go.
        let objects = self.objects()?;
        let mapped = objects.memdevs_at(address).find_map(|memdev| objects.regions_of(memdev).first().copied());
        if let Some(region) = mapped {
            return Err(BackendError::refused(format!(
                "{address} cannot be handed over: its memory is mapped as {}",
                region.name
            )));
        }
        let failed = |error| BackendError::step(format!("hand {address} over to vfio-pci"), error);
        let nodes = vfio::hand_over(self.root, address).map_err(failed)?;
        let device_nodes = nodes.all().into_iter().map(|path| DeviceNode { path, ..DeviceNode::default() }).collect();
        Ok(PrepareOutcome::giving(ContainerEdits { device_nodes, ..ContainerEdits::default() }))
    }

    /// Checks what was prepared, by reading it.
    pub(crate) fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        let not = |reason: String| Err(BackendError::NotUsable { reason });
        match CxlPlan::read(work.plan)? {
            None => Ok(()),
            Some(CxlPlan::Accelerator { address, vfio, .. }) => {
                let there = self.root.exists(format!("sys/bus/pci/devices/{address}"));
                if !there.map_err(BackendError::unread)? {
                    return not(format!("{address} is gone"));
                }
                let bound = !vfio || vfio::is_bound(self.root, address).map_err(BackendError::unread)?;
                if bound { Ok(()) } else { not(format!("{address} is not bound to {}", vfio::DRIVER)) }
            }
            Some(CxlPlan::Node { node, .. }) => {
                let has_memory = self.root.attribute("sys/devices/system/node/has_memory");
                let has_memory = has_memory.map_err(BackendError::unread)?.unwrap_or_default();
                let has_memory = has_memory.parse::<hostler_linux::IdSet>().unwrap_or_default();
                if has_memory.contains(node) { Ok(()) } else { not(format!("NUMA node {node} has no memory")) }
            }
            Some(CxlPlan::Dax { memory }) => {
                let dax = self.dax(&memory)?;
                memory::is_device(self.root, &dax).map_err(|error| unusable(&error))
            }
            Some(CxlPlan::Memory { card, system_ram, .. }) => self.is_mapped(&card, system_ram),
        }
    }

    fn is_mapped(&self, card: &CardId, system_ram: bool) -> Result<(), BackendError> {
        let not = |reason: String| BackendError::NotUsable { reason };
        let objects = self.objects()?;
        let (memdev, _) = region::find(&objects, card).map_err(|error| not(error.to_string()))?;
        let regions = objects.regions_of(memdev);
        let whole = regions.iter().find(|region| region::is_whole(&objects, memdev, region) && region.committed);
        let dax = whole.and_then(|region| objects.daxes_of(region).next());
        let dax = dax.ok_or_else(|| not(format!("memory of card {card} is not mapped")))?;
        let ready = if system_ram { memory::is_online(self.root, dax) } else { memory::is_device(self.root, dax) };
        ready.map_err(|error| unusable(&error))
    }

    /// Takes back the prepared hardware, or any part of it.
    pub(crate) fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        match CxlPlan::read(work.plan)? {
            Some(CxlPlan::Accelerator { address, vfio: true, former }) => vfio::give_back(self.root, address, &former)
                .map_err(|error| BackendError::step(format!("take {address} back from vfio-pci"), error)),
            Some(CxlPlan::Memory { card, sanitize, .. }) => self.unmap(&card, sanitize),
            _ => Ok(()),
        }
    }

    fn unmap(&self, card: &CardId, sanitize: bool) -> Result<(), BackendError> {
        {
            let _alone = self.alone();
            let nodes = operate::nodes(self.root, &self.objects()?, card).map_err(BackendError::unread)?;
            region::take_down_all(self.root, card, self.waits, &mut Vec::new()).map_err(|error| {
                let who = operate::who(self.root, &error, &nodes);
                let who: String = who.iter().map(|users| format!("; {users}")).collect();
                BackendError::step(format!("take memory of card {card} out of the system{who}"), error)
            })?;
        }
        let objects = self.objects()?;
        // A card that is gone took its memory with it.
        let Some(memdev) = card.find(&objects).filter(|_| sanitize) else { return Ok(()) };
        erase::erase(self.root, &objects, memdev, self.waits)
            .map_err(|error| BackendError::step(format!("erase card {card}"), error))
    }

    fn objects(&self) -> Result<CxlObjects, BackendError> {
        CxlObjects::read(self.root).map_err(BackendError::unread)
    }

    fn dax(&self, memory: &DaxId) -> Result<DaxDevice, BackendError> {
        let objects = self.objects()?;
        let gone = || BackendError::NotUsable { reason: "its dax device is gone".to_owned() };
        memory.find(&objects).cloned().ok_or_else(gone)
    }
}

fn node_of(dax: &DaxDevice) -> ContainerEdits {
    let path = format!("/{}", dax.device_node().display());
    let device_nodes = vec![DeviceNode { path, ..DeviceNode::default() }];
    ContainerEdits { device_nodes, ..ContainerEdits::default() }
}

fn unusable(error: &MemoryError) -> BackendError {
    BackendError::NotUsable { reason: Chain(error).to_string() }
}

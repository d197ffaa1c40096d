//! Carries out a plan, checks the result, and undoes it.
//!
//! Programming is repeated whenever `prepare` is: that the wanted function answers does not prove which image brought
//! it there, nor that all of it arrived. A port that its tenant has open cannot be taken, so no running tenant is
//! disturbed.

use hostler_backend::{BackendError, ContainerEdits, DevicePlan, PrepareOutcome, PrepareWork};
use hostler_cdi::DeviceNode;
use hostler_linux::{
    TreeReading,
    pci::{self, PciAddress},
    vfio,
};
use serde::Deserialize;

use crate::{
    FpgaDevice, ami,
    bitstream::Guid,
    dfl::{DflCard, DflPort},
    image::{BlankImage, RegionImage},
    manager,
    place::{FpgaHardware, NotTaken, afu_id, gone, here, not_usable, shown},
    plan::FpgaPlan,
    store::chain,
    xrt,
};

impl FpgaHardware<'_> {
    /// Makes the device ready, and says what containers need.
    pub(crate) fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        let nodes = match read(work.plan)? {
            Some(FpgaPlan::Program { card, port, image, .. }) => {
                let card = self.present(card)?;
                self.program(&card, port, &image)?;
                vec![shown(&here(&card, port)?.node)]
            }
            Some(FpgaPlan::PassOn { function, .. }) => {
                let handed = vfio::hand_over(self.root, function);
                handed.map_err(|error| BackendError::step(format!("hand over {function}"), error))?.all()
            }
            Some(FpgaPlan::Lend { .. }) | None => {
                return Ok(PrepareOutcome::giving(work.device.edits.clone()));
            }
        };
        let device_nodes = nodes.into_iter().map(|path| DeviceNode { path, ..DeviceNode::default() }).collect();
        Ok(PrepareOutcome::giving(ContainerEdits { device_nodes, ..ContainerEdits::default() }))
    }

    /// Checks that the device is as it was planned, now.
    pub(crate) fn verify(&self, plan: &DevicePlan) -> Result<(), BackendError> {
        match read(plan)? {
            None => Ok(()),
            Some(FpgaPlan::Program { card, port, image, .. }) => self.verify_port(card, port, Some(&image.afu_id)),
            Some(FpgaPlan::Lend { device: FpgaDevice::Afu { card, port }, afu_id, .. }) => {
                self.verify_port(card, port, afu_id.as_ref())
            }
            Some(FpgaPlan::Lend { device: FpgaDevice::Card { card }, .. }) => self.verify_card(card),
            Some(FpgaPlan::Lend { device, .. }) => self.verify_ready(&device),
            Some(FpgaPlan::PassOn { function, .. }) => self.verify_passed_on(function),
        }
    }

    /// Leaves nothing of the claim on the device. A device that is gone needs nothing.
    pub(crate) fn unprepare(&self, plan: &DevicePlan) -> Result<(), BackendError> {
        match read(plan)? {
            Some(FpgaPlan::Program { card, port, image, blank, before }) => {
                let Some(card) = self.card(card)? else { return Ok(()) };
                self.clear(&card, port, &image, blank.as_ref(), before.as_ref())
            }
            Some(FpgaPlan::Lend { device: FpgaDevice::Afu { card, port }, .. }) => {
                let Some(card) = self.card(card)? else { return Ok(()) };
                Ok(self.take(here(&card, port)?).map(drop)?)
            }
            Some(FpgaPlan::Lend { device: FpgaDevice::Card { card }, blanks, .. }) => {
                let Some(card) = self.card(card)? else { return Ok(()) };
                self.clear_card(&card, &blanks)
            }
            Some(FpgaPlan::PassOn { function, former }) => vfio::give_back(self.root, function, &former)
                .map_err(|error| BackendError::step(format!("give back {function}"), error)),
            Some(FpgaPlan::Lend { .. }) | None => Ok(()),
        }
    }

    fn clear(
        &self,
        card: &DflCard,
        port: u32,
        image: &RegionImage,
        blank: Option<&RegionImage>,
        before: Option<&Guid>,
    ) -> Result<(), BackendError> {
        let found = here(card, port)?;
        match self.take(found) {
            Ok(taken) => drop(taken),
            // A process works with a function that this claim never programmed: preparing failed for that very
            // reason.
            Err(NotTaken::InUse(_)) if before != Some(&image.afu_id) && self.is(found, before) => return Ok(()),
            Err(why) => return Err(why.into()),
        }
        blank.map_or(Ok(()), |blank| self.program(card, port, blank))
    }

    /// True if the function is known, and is behind the port now.
    fn is(&self, port: &DflPort, function: Option<&Guid>) -> bool {
        function.is_some() && afu_id(self.root, port).ok().as_ref() == function
    }

    /// Tries every reset and every blank image, once no process can undo them; returns the first failure.
    pub(crate) fn clear_card(&self, card: &DflCard, blanks: &[BlankImage]) -> Result<(), BackendError> {
        card.engine.as_ref().map_or(Ok(()), |engine| self.expect_unused(engine))?;
        let resets = card.ports.iter().map(|port| Ok(self.take(port).map(drop)?)).collect::<Vec<_>>();
        let blanked = blanks.iter().map(|blank| self.program(card, blank.port, &blank.image)).collect::<Vec<_>>();
        resets.into_iter().chain(blanked).collect()
    }

    fn verify_port(&self, card: PciAddress, port: u32, wanted: Option<&Guid>) -> Result<(), BackendError> {
        let card = self.present(card)?;
        let port = here(&card, port)?;
        self.expect_node(&shown(&port.node))?;
        wanted.map_or(Ok(()), |wanted| self.expect(&card, port, wanted))
    }

    fn verify_card(&self, card: PciAddress) -> Result<(), BackendError> {
        let card = self.present(card)?;
        let mut nodes = card.engine.iter().map(|engine| &engine.node).chain(card.ports.iter().map(|port| &port.node));
        nodes.try_for_each(|node| self.expect_node(&shown(node)))
    }

    fn verify_passed_on(&self, function: PciAddress) -> Result<(), BackendError> {
        let bound = vfio::is_bound(self.root, function);
        if !bound.map_err(BackendError::unread)? {
            return Err(not_usable(format!("{function} is not bound to {}", vfio::DRIVER)));
        }
        let found = vfio::check(self.root, function).and_then(|_| vfio::nodes(self.root, function));
        found.map(drop).map_err(|error| not_usable(chain(&error)))
    }

    /// Checks a device that hostler neither programs nor binds by what the device itself reports.
    fn verify_ready(&self, device: &FpgaDevice) -> Result<(), BackendError> {
        match device {
            FpgaDevice::Xrt { user, management } => {
                let find = |tree: &TreeReading<'_>| {
                    let card = xrt::find(tree, *user, *management)?;
                    let is = |attribute: &str, bad: &str| card.user.text(tree, &[], attribute).as_deref() == Some(bad);
                    let ready = !is("ready", "0") && !is("dev_offline", "1");
                    Some((card, ready))
                };
                let found = self.root.look(find).map_err(BackendError::unread)?;
                let (card, ready) = found.ok_or_else(|| not_usable(gone(*user)))?;
                if !ready {
                    return Err(not_usable(format!("the card {user} says that it is not ready")));
                }
                let node = card.render_node.ok_or_else(|| not_usable(format!("the card {user} has no render node")))?;
                self.expect_node(&shown(&node))
            }
            FpgaDevice::Ami { function } => {
                let state = |tree: &TreeReading<'_>| {
                    let state = tree.attribute(pci::folder(tree, *function).join("dev_state"));
                    (state, ami::node(tree, *function))
                };
                let (state, node) = self.root.look(state).map_err(BackendError::unread)?;
                if let Some(state) = state.filter(|state| state != "READY") {
                    return Err(not_usable(format!("dev_state of the card {function} is {state}")));
                }
                let node = node.ok_or_else(|| not_usable(format!("the card {function} has no device node")))?;
                self.expect_node(&shown(&node))
            }
            FpgaDevice::Manager { device } => {
                let found = self.root.look(|tree| manager::find(tree, device)).map_err(BackendError::unread)?;
                found.map(drop).ok_or_else(|| not_usable(format!("the FPGA manager of {device} is gone")))
            }
            FpgaDevice::Card { .. } | FpgaDevice::Region { .. } | FpgaDevice::Afu { .. } | FpgaDevice::Vfio { .. } => {
                Ok(())
            }
        }
    }

    fn present(&self, card: PciAddress) -> Result<DflCard, BackendError> {
        self.card(card)?.ok_or_else(|| not_usable(gone(card)))
    }

    fn expect_node(&self, node: &str) -> Result<(), BackendError> {
        let there = self.root.exists(node.trim_start_matches('/')).map_err(BackendError::unread)?;
        if there { Ok(()) } else { Err(not_usable(format!("{node} is absent"))) }
    }
}

/// Reads the recorded plan; `None` for administrative access.
fn read(plan: &DevicePlan) -> Result<Option<FpgaPlan>, BackendError> {
    if plan.data.is_null() {
        return Ok(None);
    }
    FpgaPlan::deserialize(&plan.data).map(Some).map_err(|error| BackendError::step("read the recorded plan", error))
}

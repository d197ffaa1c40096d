//! Programs and resets regions and ports, wherever the kernel has them today, and reads back what came of it.

use std::{
    io,
    path::{Path, PathBuf},
};

use hostler_backend::BackendError;
use hostler_linux::{
    DeviceUser, ReadFailure, SysRoot,
    ioctl::dfl::{Dfl, TakenPort},
    pci::PciAddress,
    users,
};

use crate::{
    bitstream::Guid,
    dfl::{self, DflCard, DflPort, ManagementEngine},
    image::RegionImage,
    store::BitstreamStore,
};

/// Access to the hardware for all acts that change it.
pub(crate) struct FpgaHardware<'a> {
    pub(crate) root: &'a SysRoot,
    pub(crate) dfl: &'a dyn Dfl,
    pub(crate) store: &'a BitstreamStore,
}

impl FpgaHardware<'_> {
    /// The card, as it is now. `None` when it was taken out; an error when it is there without its driver: what the
    /// last claim left on it is then out of reach.
    pub(crate) fn card(&self, address: PciAddress) -> Result<Option<DflCard>, BackendError> {
        let found = self.root.look(|tree| dfl::find(tree, address)).map_err(BackendError::unread)?;
        let function = format!("sys/bus/pci/devices/{address}");
        if found.is_none() && self.root.exists(function).map_err(BackendError::unread)? {
            let reason = format!("the card {address} is there, but no driver shows what is on it");
            return Err(BackendError::NotUsable { reason });
        }
        Ok(found)
    }

    /// Takes a port, so that no other process can open it, and resets it.
    pub(crate) fn take(&self, port: &DflPort) -> Result<Box<dyn TakenPort>, NotTaken> {
        let node = shown(&port.node);
        let failed = |step: &str, error| NotTaken::Failed(BackendError::step(format!("{step} {node}"), error));
        let number = number(&port.node).map_err(NotTaken::Failed)?;
        let taken = self.dfl.take(number).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => NotTaken::InUse(self.in_use(&node)),
            _ => failed("open", error),
        })?;
        taken.reset().map_err(|error| failed("reset", error))?;
        Ok(taken)
    }

    /// Checks that no process can go on programming regions through a card's management engine.
    pub(crate) fn expect_unused(&self, engine: &ManagementEngine) -> Result<(), BackendError> {
        let node = shown(&engine.node);
        self.dfl.expect_unused(number(&engine.node)?).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => self.in_use(&node),
            _ => BackendError::step(format!("open {node}"), error),
        })
    }

    /// Names the processes that have a node open.
    fn in_use(&self, node: &String) -> BackendError {
        let by = match users(self.root, std::slice::from_ref(node)) {
            Ok(found) if !found.is_empty() => found.iter().map(DeviceUser::to_string).collect::<Vec<_>>().join(", "),
            Ok(_) => "a process that cannot be seen from here".to_owned(),
            Err(failure) => format!("a process that cannot be told ({failure})"),
        };
        not_usable(format!("{node} is in use by {by}"))
    }

    /// Programs the region behind a port and reads back the function that is there then. The port is taken meanwhile.
    pub(crate) fn program(&self, card: &DflCard, port: u32, image: &RegionImage) -> Result<(), BackendError> {
        let address = card.address;
        let (engine, region) = card.engine.as_ref().zip(card.region(port)).ok_or_else(|| {
            not_usable(format!("the card {address} has no region that can be programmed in front of port {port} now"))
        })?;
        let found = region.interface_id.as_deref().unwrap_or("none that the kernel tells");
        if found != image.interface_id.as_str() {
            let RegionImage { name, interface_id, .. } = image;
            let text = format!("bitstream {name} is for interface id {interface_id}, and the region of port {port}");
            return Err(not_usable(format!("{text} on the card {address} has {found} now")));
        }
        let bytes = self.store.image(&image.digest);
        let bytes = bytes.map_err(|error| BackendError::step(format!("read bitstream {}", image.name), error))?;
        let port = here(card, port)?;
        let taken = self.take(port)?;
        self.dfl.program(number(&engine.node)?, port.id, &bytes).map_err(|error| {
            let status = |manager: &PathBuf| self.root.attribute(manager.join("status")).ok().flatten();
            let why = engine.manager.as_ref().and_then(status);
            let why = why.filter(|why| !why.is_empty()).map(|why| why.lines().collect::<Vec<_>>().join(", "));
            let step = format!("program {} into the region of {}", image.name, shown(&port.node));
            BackendError::step(why.map_or(step.clone(), |why| format!("{step} ({why})")), error)
        })?;
        self.expect(card, port, &image.afu_id)?;
        drop(taken);
        Ok(())
    }

    /// Checks which function is behind a port. Cards whose functions do not sit behind the port have no AFU id to
    /// read: there, the manager that wrote the last image must report that all went well.
    pub(crate) fn expect(&self, card: &DflCard, port: &DflPort, wanted: &Guid) -> Result<(), BackendError> {
        let node = shown(&port.node);
        match afu_id(self.root, port) {
            Ok(found) if found == *wanted => Ok(()),
            Ok(found) => Err(not_usable(format!("AFU {wanted} should be behind {node}, and {found} is"))),
            Err(failure) if failure.error().kind() == io::ErrorKind::NotFound => self.expect_operating(card),
            Err(failure) => Err(BackendError::step(format!("read the AFU id behind {node}"), failure)),
        }
    }

    fn expect_operating(&self, card: &DflCard) -> Result<(), BackendError> {
        let manager = card.engine.as_ref().and_then(|engine| engine.manager.as_ref());
        let state = manager.map_or(Ok(None), |manager| self.root.attribute(manager.join("state")));
        let state = state.map_err(BackendError::unread)?.unwrap_or_default();
        if state == "operating" {
            return Ok(());
        }
        Err(not_usable(format!("the state of the FPGA manager of {} is {state:?}, not \"operating\"", card.address)))
    }
}

/// Reason why a port could not be taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// A process has the port open; nothing was done to the port.
    InUse(BackendError),
    /// Anything else.
    Failed(BackendError),
}

impl From<NotTaken> for BackendError {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::InUse(error) | NotTaken::Failed(error) => error,
        }
    }
}

/// The port of a card, if this host has it.
pub(crate) fn here(card: &DflCard, port: u32) -> Result<&DflPort, BackendError> {
    let address = card.address;
    card.port(port).ok_or_else(|| not_usable(format!("port {port} of the card {address} is not on this host now")))
}

/// The function behind a port.
///
/// # Errors
/// What the kernel says: `EBUSY` while the port is released or disabled.
pub(crate) fn afu_id(root: &SysRoot, port: &DflPort) -> Result<Guid, ReadFailure> {
    let file = port.folder.join("afu_id");
    let text = root.required_attribute(&file)?;
    let no_id = || io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is no id"));
    Guid::parse(&text).ok_or_else(|| ReadFailure::new(file, no_id()))
}

/// Message about a card that was taken out.
pub(crate) fn gone(card: PciAddress) -> String {
    format!("the card {card} is gone")
}

pub(crate) fn not_usable(reason: String) -> BackendError {
    BackendError::NotUsable { reason }
}

/// Path of a node on the host.
pub(crate) fn shown(node: &Path) -> String {
    format!("/{}", node.display())
}

/// The kernel's number in a node's name.
fn number(node: &Path) -> Result<u32, BackendError> {
    let number = node.extension().and_then(|number| number.to_str()?.parse().ok());
    number.ok_or_else(|| not_usable(format!("{} has no number", shown(node))))
}

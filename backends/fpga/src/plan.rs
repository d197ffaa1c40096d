//! Chooses the bitstream, the driver and the later clean-up for a claim. Reads the machine and the store, and changes
//! neither; as long as both stand still, the answer is the same.

use std::error::Error;

use hostler_api::{Access, ConfigProblem, opaque::FpgaConfig};
use hostler_backend::{BackendError, DevicePlan, PlanWork, opaque::config_of};
use hostler_linux::{SysRoot, pci::PciAddress, vfio};
use serde::{Deserialize, Serialize};

use crate::{
    FpgaBackendConfig, FpgaDevice,
    bitstream::Guid,
    dfl::{self, DflCard},
    image::{BlankImage, RegionImage},
    place::{afu_id, gone},
    store::{BitstreamStore, chain},
};

/// Work that is done for a claim. The claim's record holds it, so it names hardware by what outlives reboots.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "work", rename_all = "camelCase")]
pub(crate) enum FpgaPlan {
    /// The device is handed over as it is. Ports are reset when the claim ends.
    Lend {
        /// The device.
        device: FpgaDevice,
        /// The accelerator function of the device, where it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        afu_id: Option<Guid>,
        /// Images for the device's regions when the claim ends, where the claim can program them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blanks: Vec<BlankImage>,
    },
    /// A region is programmed.
    Program {
        /// The card's function.
        card: PciAddress,
        /// The card's number of the port behind the region.
        port: u32,
        /// The image for the claim.
        image: RegionImage,
        /// The image for when the claim ends; without one, the claim's function stays there, reset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blank: Option<RegionImage>,
        /// The function that was there when the claim came.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Guid>,
    },
    /// A function is bound to `vfio-pci`.
    PassOn {
        /// The function.
        function: PciAddress,
        /// Binding before the claim, to which the function is given back.
        former: vfio::DriverBinding,
    },
}

/// Sources that planning reads.
pub(crate) struct PlanSources<'a> {
    pub(crate) root: &'a SysRoot,
    pub(crate) store: &'a BitstreamStore,
    pub(crate) config: &'a FpgaBackendConfig,
}

/// Chooses for a grant. Administrative access gets the device's nodes, and nothing is done for it.
///
/// # Errors
/// When the configuration is wrong, does not suit the device, or names what is not there.
pub(crate) fn plan(sources: &PlanSources<'_>, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
    let parameters = ClaimParameters::read(work)?;
    if work.grant.access == Access::Admin {
        return parameters.nothing("administrative access changes nothing").map(|()| DevicePlan::default());
    }
    let chosen = match FpgaDevice::of(work.device)? {
        FpgaDevice::Region { card, port, interface_id } => {
            let interface_id = interface_id.as_deref().and_then(Guid::parse);
            sources.program(work, &parameters, card, port, interface_id.as_ref())?
        }
        FpgaDevice::Afu { card, port } => sources.lend_function(work, &parameters, card, port)?,
        FpgaDevice::Card { card } => {
            parameters.nothing(&programs_itself(work, "its user programs it"))?;
            let blanks = sources.blanks(card)?;
            FpgaPlan::Lend { device: FpgaDevice::Card { card }, afu_id: None, blanks }
        }
        FpgaDevice::Vfio { function } => {
            parameters.nothing(&programs_itself(work, "it is passed on whole"))?;
            sources.pass_on(work, function)?
        }
        device => {
            parameters.nothing(&programs_itself(work, "the kernel has no way to program it from here"))?;
            FpgaPlan::Lend { device, afu_id: None, blanks: Vec::new() }
        }
    };
    let data = serde_json::to_value(chosen).map_err(|error| BackendError::step("write the plan", error))?;
    Ok(DevicePlan { data, ..DevicePlan::default() })
}

fn programs_itself(work: &PlanWork<'_>, why: &str) -> String {
    format!("{} is not programmed for a claim: {why}; ask for a device of kind region", work.device.name)
}

/// Parameters that the claim gives.
struct ClaimParameters {
    bitstream: Option<String>,
    afu_id: Option<Guid>,
}

impl ClaimParameters {
    fn read(work: &PlanWork<'_>) -> Result<Self, BackendError> {
        let FpgaConfig { bitstream, afu_id } = config_of(work.grant)?;
        let afu_id = afu_id.map(Guid::try_from).transpose();
        let afu_id = afu_id.map_err(|reason| BackendError::Config {
            problems: vec![ConfigProblem::new("parameters.afuID", reason)],
        })?;
        Ok(Self { bitstream, afu_id })
    }

    /// Refuses parameters for a device that accepts none.
    fn nothing(&self, why: &str) -> Result<(), BackendError> {
        if self.bitstream.is_none() && self.afu_id.is_none() { Ok(()) } else { Err(BackendError::refused(why)) }
    }
}

impl PlanSources<'_> {
    fn program(
        &self,
        work: &PlanWork<'_>,
        parameters: &ClaimParameters,
        card: PciAddress,
        port: u32,
        interface_id: Option<&Guid>,
    ) -> Result<FpgaPlan, BackendError> {
        let name = &work.device.name;
        let Some(reference) = &parameters.bitstream else {
            let text =
                format!("{name} is programmed for its claim, which names no bitstream: give it an FpgaConfig with one");
            return Err(BackendError::refused(text));
        };
        let Some(interface_id) = interface_id else {
            let text =
                format!("the kernel does not say which interface {name} has, so that no bitstream is known to fit");
            return Err(BackendError::refused(text));
        };
        let image = RegionImage::from(self.store.find(reference).map_err(refusal)?);
        fits(&image, interface_id, name.as_str())?;
        if let Some(wanted) = parameters.afu_id.as_ref().filter(|wanted| **wanted != image.afu_id) {
            let text = format!("bitstream {} brings AFU {}, and the claim wants {wanted}", image.name, image.afu_id);
            return Err(BackendError::refused(text));
        }
        let found = self.card(card)?;
        let before = match found.port(port).map(|port| afu_id(self.root, port)) {
            Some(Err(failure)) if failure.is_shortage() => return Err(BackendError::unread(failure)),
            // A port that is released has no function.
            before => before.and_then(Result::ok),
        };
        Ok(FpgaPlan::Program { card, port, image, blank: self.blank(interface_id)?, before })
    }

    fn lend_function(
        &self,
        work: &PlanWork<'_>,
        parameters: &ClaimParameters,
        card: PciAddress,
        port: u32,
    ) -> Result<FpgaPlan, BackendError> {
        let name = &work.device.name;
        if parameters.bitstream.is_some() {
            return Err(BackendError::refused(programs_itself(work, "it is a function that is programmed already")));
        }
        let found = self.card(card)?;
        let Some(port) = found.port(port) else {
            return Err(BackendError::refused(format!("{name} is gone: the card {card} has no port {port} now")));
        };
        let current = afu_id(self.root, port).map_err(|failure| {
            BackendError::refused(format!("the AFU id of {name} is not known: {}", chain(&failure)))
        })?;
        if let Some(wanted) = parameters.afu_id.as_ref().filter(|wanted| **wanted != current) {
            return Err(BackendError::refused(format!("{name} is AFU {current}, and the claim wants {wanted}")));
        }
        let device = FpgaDevice::Afu { card, port: port.id };
        Ok(FpgaPlan::Lend { device, afu_id: Some(current), blanks: Vec::new() })
    }

    fn card(&self, card: PciAddress) -> Result<DflCard, BackendError> {
        let found = self.root.look(|tree| dfl::find(tree, card)).map_err(BackendError::unread)?;
        found.ok_or_else(|| BackendError::refused(gone(card)))
    }

    /// Images for all regions of a card: the holder of the card has its management engine too, and can program every
    /// region.
    pub(crate) fn blanks(&self, card: PciAddress) -> Result<Vec<BlankImage>, BackendError> {
        let found = self.card(card)?;
        let mut blanks = Vec::new();
        for region in found.engine.iter().flat_map(|engine| &engine.regions) {
            let interface_id = region.interface_id.as_deref().and_then(Guid::parse);
            let image = interface_id.map(|interface_id| self.blank(&interface_id)).transpose()?.flatten();
            // A port that is not on this host cannot be taken, and so its region cannot be programmed.
            let image = image.filter(|_| found.port(region.port).is_some());
            blanks.extend(image.map(|image| BlankImage { port: region.port, image }));
        }
        Ok(blanks)
    }

    /// The image that is configured for regions with this interface.
    fn blank(&self, interface_id: &Guid) -> Result<Option<RegionImage>, BackendError> {
        let of = |(key, reference): (&String, &String)| (Guid::parse(key)? == *interface_id).then(|| reference.clone());
        let Some(reference) = self.config.blank.iter().find_map(of) else { return Ok(None) };
        let image = RegionImage::from(self.store.find(&reference).map_err(|error| {
            BackendError::refused(format!("the configured blank image cannot be used: {}", chain(&error)))
        })?);
        fits(&image, interface_id, "the region that it is to blank")?;
        Ok(Some(image))
    }

    fn pass_on(&self, work: &PlanWork<'_>, function: PciAddress) -> Result<FpgaPlan, BackendError> {
        let group = vfio::check(self.root, function).map_err(refusal)?;
        // Functions of one group reach each other's memory, and the group's node is opened once.
        for held in work.held.iter().filter(|held| held.claim != work.claim) {
            let Ok(FpgaPlan::PassOn { function: other, .. }) = FpgaPlan::deserialize(&held.plan.data) else { continue };
            if other != function && vfio::group_of(self.root, other).map_err(refusal)? == Some(group) {
                let text = format!("IOMMU group {group} is in the hands of claim {}, with {other}", held.claim_name);
                return Err(BackendError::refused(format!("{text}; one claim can have the whole group")));
            }
        }
        let former = vfio::binding(self.root, function).map_err(refusal)?;
        Ok(FpgaPlan::PassOn { function, former })
    }
}

/// A region takes only images that were built for its interface; another one can hang the card.
fn fits(image: &RegionImage, interface_id: &Guid, region: &str) -> Result<(), BackendError> {
    if image.interface_id == *interface_id {
        return Ok(());
    }
    let RegionImage { name, interface_id: other, .. } = image;
    Err(BackendError::refused(format!("bitstream {name} is for interface id {other}, and {region} has {interface_id}")))
}

fn refusal(error: impl Error) -> BackendError {
    BackendError::refused(chain(&error))
}

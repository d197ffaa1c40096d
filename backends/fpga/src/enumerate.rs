//! From what the kernel shows to devices.
//!
//! ```text
//!   PCI functions ─┬─ configured for vfio, or bound to it ─► vfio
//!   (of interest)  ├─ a device feature list ───────────────► card, region, afu
//!                  ├─ user_pf, mgmt_pf ────────────────────► xrt
//!                  ├─ looks after a card (xclmgmt, ami) ───► nothing: it says how the functions beside it are
//!                  └─ known, but no driver ────────────────► vfio, not usable, with the way out
//!   FPGA managers of no card (some are functions, too) ─────► manager
//! ```
//!
//! A function is offered in one way only.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use hostler_api::NameError;
use hostler_backend::{CounterSet, Enumeration};
use hostler_linux::{
    TreeReading,
    pci::{self, PciAddress, PciFunction},
};

use crate::{
    FpgaBackendConfig, ami,
    dfl::{self, DflCard},
    health::{HwmonSensors, SteadyHealth},
    known,
    manager::{self, FpgaManager},
    offer::OfferedDevice,
    xrt,
};

mod amd;
mod cards;
mod functions;
mod managers;
mod serials;

/// Findings of a look at the machine, sorted by the way in which they are offered.
pub(crate) struct FpgaScan<'a> {
    tree: &'a TreeReading<'a>,
    functions: BTreeMap<PciAddress, PciFunction>,
    /// Functions that the configuration wants to be passed on whole.
    passed_on: BTreeSet<PciAddress>,
    cards: Vec<DflCard>,
    xrt: Vec<xrt::XrtCard>,
    config: &'a FpgaBackendConfig,
    managers: Vec<FpgaManager>,
    /// Functions with the AMI driver, which say what their cards are and how they are.
    ami: BTreeSet<PciAddress>,
    /// Functions that are offered whole: those that the configuration names, those that are bound for it already, and
    /// FPGAs that cannot be offered in any other way.
    whole: BTreeSet<PciAddress>,
    sensors: HwmonSensors,
}

/// The devices that are offered, and what they share.
#[derive(Default)]
pub(crate) struct EnumeratedDevices {
    offers: Vec<OfferedDevice>,
    counter_sets: Vec<CounterSet>,
}

impl<'a> FpgaScan<'a> {
    /// Reads what is there now.
    pub(crate) fn read(tree: &'a TreeReading<'a>, config: &'a FpgaBackendConfig) -> Self {
        let mut cards = dfl::cards(tree);
        let mut managers = manager::managers(tree);
        let of_managers = managers.iter().filter_map(|manager| manager.function);
        let wanted: BTreeSet<PciAddress> = functions_of(&cards).chain(of_managers).collect();
        let mut passed_on = BTreeSet::new();
        // An entry that cannot be read there may be anything: readers of all functions warn of it.
        let (functions, _) = pci::functions_where(tree, |function| {
            let passes_on = config.passes_on(function);
            if passes_on {
                passed_on.insert(function.address);
            }
            passes_on || wanted.contains(&function.address) || known::may_be_fpga(function)
        });
        cards::leave_out(&mut cards, &passed_on);
        managers.retain(|manager| manager.function.is_none_or(|function| !passed_on.contains(&function)));
        let sensors = if functions.is_empty() { HwmonSensors::default() } else { HwmonSensors::read(tree) };
        let functions = functions.into_iter().map(|function| (function.address, function)).collect();
        let (xrt, ami, whole) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let mut scan = Self { tree, functions, passed_on, cards, xrt, config, managers, ami, whole, sensors };
        scan.sort();
        scan
    }

    /// Decides for each function outside of cards in which way it is offered.
    fn sort(&mut self) {
        let mut taken: BTreeSet<PciAddress> = functions_of(&self.cards).chain(self.passed_on.iter().copied()).collect();
        let of_managers = self.managers.iter().filter(|manager| manager.is_function());
        taken.extend(of_managers.filter_map(|manager| manager.function));
        taken.extend(self.unseen_cards(&taken));
        let free: Vec<&PciFunction> =
            self.functions.values().filter(|function| !taken.contains(&function.address)).collect();
        let driver = |function: &PciFunction, name: &str| function.driver.as_deref() == Some(name);
        self.ami =
            free.iter().filter(|function| driver(function, ami::DRIVER)).map(|function| function.address).collect();
        let others = free.iter().map(|function| function.address).filter(|address| !self.ami.contains(address));
        let bound = |address: &PciAddress| driver(&self.functions[address], functions::DRIVER);
        self.xrt = xrt::cards(self.tree, others.filter(|address| !bound(address)));
        taken.extend(self.xrt.iter().flat_map(xrt::XrtCard::functions));
        let offered = self.xrt.iter().map(|card| card.user.address);
        let mut offered: BTreeSet<PciAddress> = offered.chain(self.passed_on.iter().copied()).collect();
        let (management, whole): (Vec<_>, Vec<_>) = self
            .functions
            .values()
            .filter(|function| known::is_fpga(function.vendor, function.device, function.base_class()))
            .filter(|function| !taken.contains(&function.address))
            .partition(|function| self.is_management(function));
        self.whole = whole.iter().map(|function| function.address).chain(self.passed_on.iter().copied()).collect();
        offered.extend(&self.whole);
        for function in management {
            self.tell_of_management(function, &offered);
        }
    }

    /// True for a function that programs or restarts its card: a container with it would have the cards of others as
    /// well.
    fn is_management(&self, function: &PciFunction) -> bool {
        !self.passed_on.contains(&function.address)
            && (known::is_management(function, &self.functions) || xrt::is_management(self.tree, function.address))
    }

    /// Warns of a card of which nothing else is offered, so that the log names the card.
    fn tell_of_management(&self, function: &PciFunction, offered: &BTreeSet<PciAddress>) {
        let beside = |other: &PciAddress| other.slot() == function.address.slot() && *other != function.address;
        if !offered.iter().any(beside) {
            let reason = "looks after its card, and the card's function for users is not on this host; it is not offered, since \
                          who has it can program the card for everybody";
            self.tree.warn(pci::folder(self.tree, function.address), reason);
        }
    }

    /// Functions that are bound to the driver of feature lists, but of which it shows no card: parts of one, whatever
    /// they are.
    fn unseen_cards(&self, taken: &BTreeSet<PciAddress>) -> Vec<PciAddress> {
        let is_unseen = |function: &&PciFunction| {
            function.driver.as_deref() == Some(dfl::DRIVER) && !taken.contains(&function.address)
        };
        let unseen = self.functions.values().filter(is_unseen).map(|function| function.address);
        let unseen: Vec<PciAddress> = unseen.collect();
        for address in &unseen {
            let reason = format!("{} is bound to it and shows no card of it; it is not offered", dfl::DRIVER);
            self.tree.warn(pci::folder(self.tree, *address), reason);
        }
        unseen
    }

    /// The functions that are offered whole.
    fn whole(&self) -> impl Iterator<Item = &PciFunction> {
        self.whole.iter().filter_map(|address| self.functions.get(address))
    }

    /// The devices, with everything that speaks against them.
    ///
    /// # Errors
    /// When a device name is invalid, which no hardware can bring about.
    pub(crate) fn devices(&self) -> Result<EnumeratedDevices, NameError> {
        let mut found = EnumeratedDevices::default();
        cards::offer(self, &mut found)?;
        amd::offer(self, &mut found)?;
        managers::offer(self, &mut found)?;
        functions::offer(self, &mut found)?;
        serials::name_cards(self.tree, &mut found);
        Ok(found)
    }
}

impl EnumeratedDevices {
    /// The devices with their health as `steady` sees it. Call it only after a look that has ended well: what a
    /// failed look did not see is no sign of health. `counted` is the time of a look at everything; another look is none
    /// at the health of devices.
    pub(crate) fn judged(self, steady: &mut SteadyHealth, counted: Option<Instant>) -> Enumeration {
        let judged = |offer: OfferedDevice| {
            let mut device = offer.device;
            device.health = match counted {
                Some(now) => steady.judge(&device.name, &offer.findings, now),
                None => steady.recall(&device.name, &offer.findings),
            };
            device
        };
        let devices: Vec<_> = self.offers.into_iter().map(judged).collect();
        steady.retain(&devices.iter().map(|device| device.name.clone()).collect());
        Enumeration { devices, counter_sets: self.counter_sets, warnings: Vec::new() }
    }
}

fn functions_of(cards: &[DflCard]) -> impl Iterator<Item = PciAddress> {
    cards.iter().flat_map(|card| card.functions.iter().copied())
}

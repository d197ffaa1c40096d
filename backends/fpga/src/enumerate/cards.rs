//! DFL cards: the card itself, its regions and its programmed ports, which exclude each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use hostler_api::{DeviceName, NameError, Quantity, limits::MAX_COUNTERS};
use hostler_backend::{AttributeValue, CounterSet, CounterUse};
use hostler_linux::{
    pci::{PciAddress, PciFunction},
    place,
};

use super::{EnumeratedDevices, FpgaScan, managers};
use crate::{
    FpgaDevice, detach,
    dfl::{DflCard, DflPort, DflRegion, ManagementEngine, read_id},
    health::HealthFinding,
    offer::{OfferedDevice, name, numbered, text},
};

/// Counter from which all functions of a card that are passed on draw.
const FUNCTIONS: &str = "functions";

/// Removes from the cards the parts on functions that are passed on whole, and then cards without any part left.
pub(super) fn leave_out(cards: &mut Vec<DflCard>, functions: &BTreeSet<PciAddress>) {
    for card in cards.iter_mut() {
        card.functions.retain(|function| !functions.contains(function));
        card.ports.retain(|port| !functions.contains(&port.function));
        if card.engine.as_ref().is_some_and(|engine| functions.contains(&engine.function)) {
            card.engine = None;
        }
    }
    cards.retain(|card| card.engine.is_some() || !card.ports.is_empty());
}

/// The devices of all cards.
pub(super) fn offer(scan: &FpgaScan<'_>, found: &mut EnumeratedDevices) -> Result<(), NameError> {
    let mut passed_on: BTreeMap<Slot, u64> = BTreeMap::new();
    for function in scan.whole() {
        *passed_on.entry(slot(function)).or_default() += 1;
    }
    for card in &scan.cards {
        let described = DescribedCard::new(scan, card, passed_on.get(&card.address.slot()).copied().unwrap_or(0))?;
        let counters = described.counters()?;
        if !counters.is_empty() {
            found.counter_sets.push(CounterSet { name: described.name.clone(), counters });
        }
        if let Some(engine) = &card.engine {
            found.offers.push(described.card(engine)?);
            for region in engine.regions.iter().filter(|region| described.counted.contains(&region.port)) {
                found.offers.push(described.region(engine, region)?);
            }
        }
        for port in card.ports.iter().filter(|port| described.counted.contains(&port.id)) {
            found.offers.extend(described.afu(port)?);
        }
    }
    Ok(())
}

/// Counters that a function that is passed on takes, by the slot of its card.
pub(super) fn uses_of_functions(scan: &FpgaScan<'_>) -> Result<BTreeMap<Slot, CounterUse>, NameError> {
    let one = BTreeMap::from([(DeviceName::new(FUNCTIONS)?, Quantity::whole(1))]);
    let taken = |card: &DflCard| {
        Ok((card.address.slot(), CounterUse { set: name("card", card.address)?, counters: one.clone() }))
    };
    // Of several cards in a slot the first stays.
    scan.cards.iter().rev().map(taken).collect()
}

/// Domain, bus and device of a card.
pub(super) type Slot = (u32, u8, u8);

/// The slot of the card that a function belongs to: its own, or that of the function it is a virtual one of.
pub(super) fn slot(function: &PciFunction) -> Slot {
    function.physical_function.unwrap_or(function.address).slot()
}

/// A card while it is being described.
struct DescribedCard<'a> {
    scan: &'a FpgaScan<'a>,
    card: &'a DflCard,
    name: DeviceName,
    /// Ports with a counter; sysfs of a sane card has no more of them than there can be counters.
    counted: BTreeSet<u32>,
    /// How many functions of the card are offered whole.
    passed_on: u64,
    bitstream_id: Option<AttributeValue>,
    /// Findings against everything on the card.
    findings: Vec<HealthFinding>,
    /// Findings that the last programming has left. They speak against the card and its functions, which may be
    /// programmed badly now, not against regions: programming a region again mends it.
    programming: Vec<HealthFinding>,
    /// The ports that this host has, by number.
    ports: BTreeMap<u32, PortState>,
}

/// State that a port reports.
struct PortState {
    /// The accelerator function, or the finding that it cannot be read.
    afu_id: Option<Result<String, HealthFinding>>,
    findings: Vec<HealthFinding>,
}

impl<'a> DescribedCard<'a> {
    fn new(scan: &'a FpgaScan<'a>, card: &'a DflCard, passed_on: u64) -> Result<Self, NameError> {
        let regions = card.engine.iter().flat_map(|engine| &engine.regions);
        let ports: BTreeSet<u32> =
            card.ports.iter().map(|port| port.id).chain(regions.map(|region| region.port)).collect();
        let manager = card.engine.as_ref().and_then(|engine| engine.manager.as_ref());
        let id = card.engine.as_ref().and_then(|engine| scan.tree.attribute(place(&engine.folder, "bitstream_id")));
        Ok(Self {
            scan,
            card,
            name: name("card", card.address)?,
            counted: ports.into_iter().take(MAX_COUNTERS - 1).collect(),
            passed_on,
            bitstream_id: id.as_deref().and_then(text),
            findings: card.engine.iter().flat_map(|engine| engine_findings(scan, engine)).collect(),
            programming: manager.map(|folder| managers::findings(scan.tree, folder)).unwrap_or_default(),
            ports: card.ports.iter().map(|port| (port.id, PortState::read(scan, port))).collect(),
        })
    }

    /// One counter for each port: the holder of a port has all that lies behind it. A function that is passed on has
    /// a port behind it too, but sysfs does not tell which: such functions share a counter, and a device that changes
    /// what is programmed takes all of it.
    fn counters(&self) -> Result<BTreeMap<DeviceName, Quantity>, NameError> {
        let ports = self.counted.iter().map(|port| (port_counter(*port), 1));
        let functions = (self.passed_on > 0).then(|| (FUNCTIONS.to_owned(), self.passed_on));
        ports.chain(functions).map(|(name, count)| Ok((DeviceName::new(name)?, Quantity::whole(count)))).collect()
    }

    fn consumes(&self, counters: BTreeMap<DeviceName, Quantity>) -> Vec<CounterUse> {
        if counters.is_empty() { Vec::new() } else { vec![CounterUse { set: self.name.clone(), counters }] }
    }

    fn card(&self, engine: &ManagementEngine) -> Result<OfferedDevice, NameError> {
        let mut offer = OfferedDevice::new(self.name.clone(), "card", &FpgaDevice::Card { card: self.card.address });
        self.describe(&mut offer, engine.function);
        offer.set("interfaceID", engine.regions.first().and_then(|region| text(region.interface_id.as_ref()?)));
        offer.set("ports", i64::try_from(self.card.ports.len()).ok().map(Into::into));
        offer.set("functions", i64::try_from(self.card.functions.len()).ok().map(Into::into));
        offer.findings.extend(self.programming.iter().cloned());
        offer.hand_over(&engine.node);
        for port in &self.card.ports {
            self.hand_over(&mut offer, port);
        }
        offer.device.consumes = self.consumes(self.counters()?);
        offer.device.erasure = detach::erasure(self.card, self.scan.config);
        Ok(offer)
    }

    fn region(&self, engine: &ManagementEngine, region: &DflRegion) -> Result<OfferedDevice, NameError> {
        let (card, interface_id) = (self.card.address, region.interface_id.clone());
        let target = FpgaDevice::Region { card, port: region.port, interface_id };
        let mut offer = OfferedDevice::new(numbered("region", card, region.port)?, "region", &target);
        self.describe(&mut offer, engine.function);
        offer.set("interfaceID", text(region.interface_id.as_deref().unwrap_or_default()));
        offer.set("port", Some(i64::from(region.port).into()));
        match self.card.port(region.port) {
            Some(port) => {
                let state = self.ports.get(&port.id);
                offer.set("afuID", state.and_then(|state| text(state.afu_id.as_ref()?.as_ref().ok()?)));
                self.hand_over(&mut offer, port);
            }
            None => offer.findings.push(HealthFinding::fact(format!(
                "port {} is not on this host: it was released, or given to a virtual function that is passed on",
                region.port
            ))),
        }
        let mut counters = self.counters()?;
        counters.retain(|name, _| [FUNCTIONS, &port_counter(region.port)].contains(&name.as_str()));
        offer.device.consumes = self.consumes(counters);
        Ok(offer)
    }

    /// A port that has an accelerator function. A port that cannot tell its function is offered too, as not usable.
    fn afu(&self, port: &DflPort) -> Result<Option<OfferedDevice>, NameError> {
        let Some(afu_id) = self.ports.get(&port.id).and_then(|state| state.afu_id.as_ref()) else { return Ok(None) };
        let target = FpgaDevice::Afu { card: self.card.address, port: port.id };
        let mut offer = OfferedDevice::new(numbered("afu", self.card.address, port.id)?, "afu", &target);
        self.describe(&mut offer, port.function);
        let region = self.card.region(port.id);
        offer.set("interfaceID", region.and_then(|region| text(region.interface_id.as_ref()?)));
        offer.set("port", Some(i64::from(port.id).into()));
        offer.findings.extend(self.programming.iter().cloned());
        match afu_id {
            Ok(id) => offer.set("afuID", text(id)),
            Err(finding) => offer.findings.push(finding.clone()),
        }
        self.hand_over(&mut offer, port);
        let counters = BTreeMap::from([(DeviceName::new(port_counter(port.id))?, Quantity::whole(1))]);
        offer.device.consumes = self.consumes(counters);
        Ok(Some(offer))
    }

    /// Adds the attributes and findings that everything on the card shares.
    fn describe(&self, offer: &mut OfferedDevice, function: PciAddress) {
        if let Some(function) = self.scan.functions.get(&function) {
            offer.set_function(function);
        }
        let regions = self.card.engine.as_ref().is_some_and(|engine| !engine.regions.is_empty());
        offer.set("prCapable", Some(regions.into()));
        offer.set("bitstreamID", self.bitstream_id.clone());
        offer.findings.extend(self.findings.iter().cloned());
    }

    fn hand_over(&self, offer: &mut OfferedDevice, port: &DflPort) {
        offer.hand_over(&port.node);
        offer.findings.extend(self.ports.get(&port.id).into_iter().flat_map(|state| state.findings.clone()));
    }
}

impl PortState {
    fn read(scan: &FpgaScan<'_>, port: &DflPort) -> Self {
        let file = place(&port.folder, "afu_id");
        let afu_id = match scan.tree.driver_answer(&file) {
            Ok(Some(id)) => read_id(&id).map(Ok),
            // A port of a shell whose accelerators sit elsewhere.
            Ok(None) => None,
            Err(failure) => {
                let error = failure.error();
                let busy = error.kind() == io::ErrorKind::ResourceBusy;
                let why = if busy { ", the port is released or disabled" } else { "" };
                Some(Err(HealthFinding::passing(short(&file), format!("not readable{why}: {error}"))))
            }
        };
        let errors = error_finding(scan, &place(&port.folder, "errors"), "errors");
        Self { afu_id, findings: errors.into_iter().collect() }
    }
}

fn port_counter(port: u32) -> String {
    format!("port-{port}")
}

/// Errors of the engine, and heat.
fn engine_findings(scan: &FpgaScan<'_>, engine: &ManagementEngine) -> Vec<HealthFinding> {
    let errors = place(&engine.folder, "errors");
    let fatal = nonzero(scan, &errors.join("catfatal_errors"));
    let fatal = fatal.map(|value| HealthFinding::grave(short(&errors.join("catfatal_errors")), value));
    let others = ["fme_errors", "nonfatal_errors", "pcie0_errors", "pcie1_errors"];
    let others = others.iter().filter_map(|file| error_finding(scan, &errors, file));
    let mut findings: Vec<HealthFinding> = fatal.into_iter().chain(others).collect();
    findings.extend(scan.sensors.findings(scan.tree, &engine.folder));
    findings
}

/// An error register that is not zero, with the error that came first.
fn error_finding(scan: &FpgaScan<'_>, folder: &Path, file: &str) -> Option<HealthFinding> {
    let value = nonzero(scan, &place(folder, file))?;
    let first = nonzero(scan, &place(folder, "first_error")).map(|first| format!(" (first_error {first})"));
    Some(HealthFinding::passing(short(&place(folder, file)), value + &first.unwrap_or_default()))
}

/// Value of a register, if that is a number other than zero. A register that cannot be read leads to a warning.
fn nonzero(scan: &FpgaScan<'_>, file: &Path) -> Option<String> {
    let value = scan.tree.detail(file)?;
    let digits = value.strip_prefix("0x").unwrap_or(&value);
    (u64::from_str_radix(digits, 16).ok()? != 0).then_some(value)
}

/// Path of a file, from the part of the card that it belongs to: `dfl-fme.0/errors/fme_errors`.
fn short(file: &Path) -> String {
    let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
    let from = parts.iter().position(|part| part.starts_with("dfl-")).unwrap_or(0);
    parts[from..].join("/")
}

//! DFL cards: the card itself, its regions and its programmed ports, which exclude each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use hostler_backend::{CounterSet, CounterUse, DeviceName, MAX_COUNTERS, NameError, Quantity};
use hostler_linux::pci::{PciAddress, PciFunction};

use super::{Found, Look};
use crate::{
    Target,
    dfl::{Card, Engine, Port, Region, read_id},
    health::Finding,
    offer::{Offer, name, numbered, text},
};

/// What all functions of a card that are passed on share; see [`counters`].
const FUNCTIONS: &str = "functions";

/// Takes what sits on functions that are passed on whole out of the cards, and cards without anything left.
pub(super) fn leave_out(cards: &mut Vec<Card>, functions: &BTreeSet<PciAddress>) {
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
pub(super) fn offer(look: &Look<'_>, found: &mut Found) -> Result<(), NameError> {
    for card in &look.cards {
        let whole = Whole::new(look, card)?;
        let counters = whole.counters()?;
        if !counters.is_empty() {
            found.counter_sets.push(CounterSet { name: whole.name.clone(), counters });
        }
        if let Some(engine) = &card.engine {
            found.offers.push(whole.card(engine)?);
            for region in engine.regions.iter().filter(|region| whole.counted.contains(&region.port)) {
                found.offers.push(whole.region(engine, region)?);
            }
        }
        for port in card.ports.iter().filter(|port| whole.counted.contains(&port.id)) {
            found.offers.extend(whole.afu(port)?);
        }
    }
    Ok(())
}

/// What a function that is passed on takes of the card it belongs to.
pub(super) fn use_of_function(look: &Look<'_>, function: &PciFunction) -> Result<Option<CounterUse>, NameError> {
    let card = look.cards.iter().find(|card| belongs(card, function));
    card.map(|card| {
        let counters = BTreeMap::from([(DeviceName::new(FUNCTIONS)?, Quantity::whole(1))]);
        Ok(CounterUse { set: name("card", card.address)?, counters })
    })
    .transpose()
}

/// Whether a function is a part of the card: in its slot, or a virtual one of a function there.
fn belongs(card: &Card, function: &PciFunction) -> bool {
    function.physical_function.unwrap_or(function.address).same_slot(card.address)
}

/// A card while it is being described.
struct Whole<'a> {
    look: &'a Look<'a>,
    card: &'a Card,
    name: DeviceName,
    /// Ports with a counter; sysfs of a sane card has no more of them than there can be counters.
    counted: BTreeSet<u32>,
    /// How many functions of the card are offered whole.
    passed_on: u64,
    /// What speaks against everything on the card.
    findings: Vec<Finding>,
}

impl<'a> Whole<'a> {
    fn new(look: &'a Look<'a>, card: &'a Card) -> Result<Self, NameError> {
        let regions = card.engine.iter().flat_map(|engine| &engine.regions);
        let ports: BTreeSet<u32> =
            card.ports.iter().map(|port| port.id).chain(regions.map(|region| region.port)).collect();
        let counted = ports.into_iter().take(MAX_COUNTERS - 1).collect();
        let findings = card.engine.iter().flat_map(|engine| engine_findings(look, engine)).collect();
        let passed_on = look.whole().filter(|function| belongs(card, function)).map(|_| 1).sum();
        Ok(Self { look, card, name: name("card", card.address)?, counted, passed_on, findings })
    }

    /// One counter for each port, so that whoever has the port has all that lies behind it. A function that is passed on
    /// has a port behind it too, but nothing tells which: those that are share a counter, and whoever changes what is
    /// programmed takes all of it.
    fn counters(&self) -> Result<BTreeMap<DeviceName, Quantity>, NameError> {
        let ports = self.counted.iter().map(|port| (port_counter(*port), 1));
        let functions = (self.passed_on > 0).then(|| (FUNCTIONS.to_owned(), self.passed_on));
        ports.chain(functions).map(|(name, count)| Ok((DeviceName::new(name)?, Quantity::whole(count)))).collect()
    }

    fn consumes(&self, counters: BTreeMap<DeviceName, Quantity>) -> Vec<CounterUse> {
        if counters.is_empty() { Vec::new() } else { vec![CounterUse { set: self.name.clone(), counters }] }
    }

    fn card(&self, engine: &Engine) -> Result<Offer, NameError> {
        let mut offer = Offer::new(self.name.clone(), "card", &Target::Card { card: self.card.address });
        self.describe(&mut offer, engine.function);
        offer.set("interfaceID", engine.regions.first().and_then(|region| text(region.interface_id.as_ref()?)));
        offer.set("ports", i64::try_from(self.card.ports.len()).ok().map(Into::into));
        offer.set("functions", i64::try_from(self.card.functions.len()).ok().map(Into::into));
        offer.hand_over(&engine.node);
        for port in &self.card.ports {
            offer.hand_over(&port.node);
            offer.findings.extend(port_findings(self.look, port));
        }
        offer.device.consumes = self.consumes(self.counters()?);
        Ok(offer)
    }

    fn region(&self, engine: &Engine, region: &Region) -> Result<Offer, NameError> {
        let (card, interface_id) = (self.card.address, region.interface_id.clone());
        let target = Target::Region { card, port: region.port, interface_id };
        let mut offer = Offer::new(numbered("region", card, region.port)?, "region", &target);
        self.describe(&mut offer, engine.function);
        offer.set("interfaceID", text(region.interface_id.as_deref().unwrap_or_default()));
        offer.set("port", Some(i64::from(region.port).into()));
        match self.card.port(region.port) {
            Some(port) => {
                offer.set("afuID", self.afu_id(port).ok().as_deref().and_then(read_id).as_deref().and_then(text));
                offer.hand_over(&port.node);
                offer.findings.extend(port_findings(self.look, port));
            }
            None => offer.findings.push(Finding::fact(format!(
                "port {} is not on this host: it was released, or given to a virtual function that is passed on",
                region.port
            ))),
        }
        let mut counters = self.counters()?;
        counters.retain(|name, _| [FUNCTIONS, &port_counter(region.port)].contains(&name.as_str()));
        offer.device.consumes = self.consumes(counters);
        Ok(offer)
    }

    /// A port that has an accelerator function. One that cannot say which is offered too, as not usable.
    fn afu(&self, port: &Port) -> Result<Option<Offer>, NameError> {
        let id = match self.afu_id(port) {
            Ok(id) => read_id(&id),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return self.afu_offer(port, None, Some(&error)).map(Some),
        };
        id.map(|id| self.afu_offer(port, Some(&id), None)).transpose()
    }

    fn afu_offer(&self, port: &Port, id: Option<&str>, error: Option<&io::Error>) -> Result<Offer, NameError> {
        let target = Target::Afu { card: self.card.address, port: port.id };
        let mut offer = Offer::new(numbered("afu", self.card.address, port.id)?, "afu", &target);
        self.describe(&mut offer, port.function);
        let region = self.card.region(port.id);
        offer.set("interfaceID", region.and_then(|region| text(region.interface_id.as_ref()?)));
        offer.set("afuID", id.and_then(text));
        offer.set("port", Some(i64::from(port.id).into()));
        offer.hand_over(&port.node);
        offer.findings.extend(port_findings(self.look, port));
        offer.findings.extend(error.map(|error| {
            let why =
                if error.kind() == io::ErrorKind::ResourceBusy { ", the port is released or disabled" } else { "" };
            Finding::passing(short(&port.folder.join("afu_id")), format!("not readable{why}: {error}"))
        }));
        let counters = BTreeMap::from([(DeviceName::new(port_counter(port.id))?, Quantity::whole(1))]);
        offer.device.consumes = self.consumes(counters);
        Ok(offer)
    }

    fn afu_id(&self, port: &Port) -> io::Result<String> {
        self.look.root.read_attribute(port.folder.join("afu_id"))
    }

    /// What everything on the card says of itself.
    fn describe(&self, offer: &mut Offer, function: PciAddress) {
        if let Some(function) = self.look.functions.get(&function) {
            offer.set_function(function);
        }
        if let Some(engine) = &self.card.engine {
            let id = self.look.root.attribute(engine.folder.join("bitstream_id"));
            offer.set("bitstreamID", id.as_deref().and_then(text));
        }
        let regions = self.card.engine.as_ref().is_some_and(|engine| !engine.regions.is_empty());
        offer.set("prCapable", Some(regions.into()));
        offer.findings.extend(self.findings.iter().cloned());
    }
}

fn port_counter(port: u32) -> String {
    format!("port-{port}")
}

/// Errors of the engine, trouble of what writes bitstreams, and heat.
fn engine_findings(look: &Look<'_>, engine: &Engine) -> Vec<Finding> {
    let errors = engine.folder.join("errors");
    let mut findings: Vec<Finding> = nonzero(look, &errors.join("catfatal_errors"))
        .map(|(file, value)| Finding::grave(file, value))
        .into_iter()
        .collect();
    for file in ["fme_errors", "nonfatal_errors", "pcie0_errors", "pcie1_errors"] {
        findings.extend(nonzero(look, &errors.join(file)).map(|(file, value)| {
            let first = nonzero(look, &errors.join("first_error")).map(|(_, first)| format!(" (first_error {first})"));
            Finding::passing(file, value + &first.unwrap_or_default())
        }));
    }
    findings.extend(engine.manager.iter().flat_map(|folder| super::managers::findings(look.root, folder)));
    findings.extend(look.sensors.findings(look.root, &engine.folder));
    findings
}

fn port_findings(look: &Look<'_>, port: &Port) -> Vec<Finding> {
    let errors = nonzero(look, &port.folder.join("errors/errors")).map(|(file, value)| {
        let first = nonzero(look, &port.folder.join("errors/first_error"));
        let first = first.map(|(_, first)| format!(" (first_error {first})")).unwrap_or_default();
        Finding::passing(file, value + &first)
    });
    errors.into_iter().collect()
}

/// The file and its value, if that is a number and not zero. A register that cannot be read says nothing.
fn nonzero(look: &Look<'_>, file: &Path) -> Option<(String, String)> {
    let value = look.root.attribute(file)?;
    let digits = value.strip_prefix("0x").unwrap_or(&value);
    let number = u64::from_str_radix(digits, 16).ok()?;
    (number != 0).then(|| (short(file), value))
}

/// The file from the part of the card on that it belongs to: `dfl-fme.0/errors/fme_errors`.
fn short(file: &Path) -> String {
    let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
    let from = parts.iter().position(|part| part.starts_with("dfl-")).unwrap_or(0);
    parts[from..].join("/")
}

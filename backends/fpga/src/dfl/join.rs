//! Puts the parts of one slot together.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use hostler_linux::{TreeReading, pci::PciAddress, place};

use super::{BaseRegion, DflCard, DflPort, DflRegion, ManagementEngine, read_id};

/// Engines and ports below the bases of one slot, each with the physical function that it belongs to.
#[derive(Default)]
struct SlotParts {
    engines: Vec<(PciAddress, ManagementEngine)>,
    ports: Vec<(PciAddress, DflPort)>,
}

impl SlotParts {
    fn read(tree: &TreeReading<'_>, bases: &[BaseRegion]) -> Self {
        let mut parts = Self::default();
        for base in bases {
            for name in tree.names(&base.folder) {
                if name.starts_with("dfl-fme.") {
                    parts.engines.push((base.physical, engine(tree, base, &name)));
                } else if name.starts_with("dfl-port.") {
                    parts.ports.extend(port(tree, base, &name).map(|port| (base.physical, port)));
                }
            }
        }
        parts
    }

    /// Addresses of the cards: one for each engine, or that of the first port where there is no engine.
    fn addresses(&self) -> BTreeSet<PciAddress> {
        let engines: BTreeSet<PciAddress> = self.engines.iter().map(|(physical, _)| *physical).collect();
        if engines.is_empty() {
            self.ports.first().map(|(physical, _)| *physical).into_iter().collect()
        } else {
            engines
        }
    }
}

/// The cards of one slot; more than one only where several functions have an engine of their own. A port whose
/// function has no engine belongs to the first card.
pub(super) fn cards(tree: &TreeReading<'_>, bases: &[BaseRegion]) -> Vec<DflCard> {
    let parts = SlotParts::read(tree, bases);
    let addresses = parts.addresses();
    let Some(main) = addresses.first().copied() else {
        let reason = "neither a management engine nor a port is below it; nothing of the card is offered";
        bases.iter().take(1).for_each(|base| tree.warn(&base.folder, reason));
        return Vec::new();
    };
    let card_of = |physical: PciAddress| if addresses.contains(&physical) { physical } else { main };
    let mut cards = Vec::new();
    for address in addresses.iter().copied() {
        let ports = parts.ports.iter().filter(|(physical, _)| card_of(*physical) == address);
        let ports = distinct(tree, ports.map(|(_, port)| port.clone()).collect());
        let engine = parts.engines.iter().find(|(physical, _)| *physical == address);
        let engine = engine.map(|(_, engine)| numbered(tree, engine.clone(), &ports));
        let functions =
            bases.iter().filter(|base| card_of(base.physical) == address).map(|base| base.function).collect();
        cards.push(DflCard { address, functions, engine, ports });
    }
    cards
}

fn engine(tree: &TreeReading<'_>, base: &BaseRegion, name: &str) -> ManagementEngine {
    let folder = place(&base.folder, name);
    let names = tree.names(&folder);
    let mut regions: Vec<(u32, &String)> =
        names.iter().filter_map(|name| Some((name.strip_prefix("dfl-fme-region.")?.parse().ok()?, name))).collect();
    regions.sort_unstable();
    let regions = regions.into_iter().filter_map(|(_, name)| {
        let folder = only(tree, &place(&folder, name).join("fpga_region"), "region")?;
        let interface_id = tree.attribute(place(&folder, "compat_id")).and_then(|text| read_id(&text));
        Some(DflRegion { port: 0, folder, interface_id })
    });
    let regions = regions.collect();
    let manager = names.iter().find(|name| name.starts_with("dfl-fme-mgr."));
    let manager = manager.and_then(|name| only(tree, &place(&folder, name).join("fpga_manager"), "fpga"));
    ManagementEngine { function: base.function, node: Path::new("dev").join(name), folder, manager, regions }
}

/// The first folder in a class folder of a device: there is one.
fn only(tree: &TreeReading<'_>, class: &Path, prefix: &str) -> Option<PathBuf> {
    tree.names(class).into_iter().find(|name| name.starts_with(prefix)).map(|name| class.join(name))
}

/// The engine makes one region for each port that the card has, in the order of ports; sysfs does not say which is
/// whose. A card may have holes among its ports. Then the ports that can be seen tell, if they are as many.
fn numbered(tree: &TreeReading<'_>, mut engine: ManagementEngine, ports: &[DflPort]) -> ManagementEngine {
    let count = engine.regions.len();
    let all = tree.attribute(place(&engine.folder, "ports_num")).and_then(|text| text.parse::<usize>().ok());
    let seen = all != Some(count) && ports.len() == count;
    for (index, region) in engine.regions.iter_mut().enumerate() {
        let port = ports.get(index).filter(|_| seen).map(|port| port.id);
        region.port = port.unwrap_or_else(|| u32::try_from(index).unwrap_or(u32::MAX));
    }
    engine
}

fn port(tree: &TreeReading<'_>, base: &BaseRegion, name: &str) -> Option<DflPort> {
    let folder = place(&base.folder, name);
    let text = tree.detail(place(&folder, "id"));
    let Some(id) = text.as_ref().and_then(|text| text.parse().ok()) else {
        let why = text.map_or_else(|| "it cannot be read".to_owned(), |text| format!("{text:?} is no number"));
        tree.warn(place(&folder, "id"), format!("the port's number is not known ({why}); it is not offered"));
        return None;
    };
    Some(DflPort { id, function: base.function, node: Path::new("dev").join(name), folder })
}

/// By number, each number once.
fn distinct(tree: &TreeReading<'_>, mut ports: Vec<DflPort>) -> Vec<DflPort> {
    ports.sort_by(|a, b| (a.id, a.function, &a.folder).cmp(&(b.id, b.function, &b.folder)));
    let mut kept: Vec<DflPort> = Vec::new();
    for port in ports {
        match kept.last() {
            Some(last) if last.id == port.id => {
                let reason = format!("{} has port {} too; it is not offered", last.function, port.id);
                tree.warn(&port.folder, reason);
            }
            _ => kept.push(port),
        }
    }
    kept
}

//! The table of devices behind switches, for people.

use std::collections::BTreeMap;

use hostler_api::{fabric::fabric_pool, plain_line};
use hostler_cli::{
    output::TableWidth,
    table::{TextTable, or_dash},
};

use super::{FabricAnswer, PooledDevice, PooledDomain};

/// Writes the answer in rows, one for each device, and below them what stands still.
pub(super) fn text(answer: &FabricAnswer, width: TableWidth) -> String {
    let narrow = ["POOL", "DEVICE", "KIND", "STATE", "NODE", "CLAIM", "SINCE"];
    let wide = ["CAPACITY", "IDENTITY", "ENCLOSURE", "REACHED BY"];
    let mut table = match width {
        TableWidth::Narrow => TextTable::new(&narrow),
        TableWidth::Wide => TextTable::new(&[&narrow[..], &wide[..]].concat()),
    };
    for domain in &answer.domains {
        for device in &domain.devices {
            let mut cells = cells(domain, device);
            if width == TableWidth::Wide {
                cells.extend([
                    or_dash(&amounts(&device.capacity)),
                    or_dash(&device.identity),
                    or_dash(device.enclosure.as_deref().unwrap_or_default()),
                    or_dash(&domain.nodes.join(", ")),
                ]);
            }
            table.row(cells);
        }
    }
    let devices = answer.domains.iter().flat_map(|domain| &domain.devices);
    table.to_string() + &devices.filter_map(remark).collect::<String>()
}

fn cells(domain: &PooledDomain, device: &PooledDevice) -> Vec<String> {
    let PooledDevice { name, device_kind, state, node_name, claim, since, .. } = device;
    vec![
        fabric_pool(&domain.manager, &domain.domain),
        name.clone(),
        or_dash(device_kind),
        state.clone(),
        or_dash(node_name.as_deref().unwrap_or_default()),
        or_dash(claim.as_deref().unwrap_or_default()),
        or_dash(since.as_deref().unwrap_or_default()),
    ]
}

fn amounts(capacity: &BTreeMap<String, String>) -> String {
    capacity.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(", ")
}

/// Returns the line below the table about a device that stands still, waits or holds data; `None` for all other devices.
fn remark(device: &PooledDevice) -> Option<String> {
    let until = device.deadline.as_ref().map(|deadline| format!("until {deadline}"));
    let unclean = device.used && device.node_name.is_none();
    let unclean = unclean.then(|| "it may hold data of an earlier claim, and is erased before the next one".to_owned());
    let said = [Some(device.message.clone()), until, unclean].into_iter().flatten().filter(|it| !it.is_empty());
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| plain_line(&format!("{}: {}", device.name, said.join("; "))).into_owned() + "\n")
}

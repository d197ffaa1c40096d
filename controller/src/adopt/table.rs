//! The table of connections that are taken over, for people.

use std::collections::BTreeMap;

use hostler_api::plain_line;
use hostler_cli::{
    output::TableWidth,
    table::{TextTable, or_dash},
};

use super::{AdoptionAnswer, AdoptionRow, AdoptionState};

/// Writes a row for each device, and below them what happens next.
pub(super) fn text(answer: &AdoptionAnswer, width: TableWidth) -> String {
    if answer.devices.is_empty() {
        return "no connection is left to be taken over\n".to_owned();
    }
    let narrow = ["POOL", "DEVICE", "NODE", "CLAIM", "RESULT"];
    let wide = ["CAPACITY", "IDENTITY", "HOST"];
    let mut table = match width {
        TableWidth::Narrow => TextTable::new(&narrow),
        TableWidth::Wide => TextTable::new(&[&narrow[..], &wide[..]].concat()),
    };
    for row in &answer.devices {
        table.row(cells(row, width));
    }
    let remark = |row: &AdoptionRow| plain_line(&format!("{}: {}", row.name, row.message)).into_owned() + "\n";
    let mut text = table.to_string() + &answer.devices.iter().map(remark).collect::<String>();
    if answer.dry_run {
        text += "nothing was written (--dry-run)\n";
    }
    text
}

fn cells(row: &AdoptionRow, width: TableWidth) -> Vec<String> {
    let result = match row.state {
        AdoptionState::Adoptable => "Adoptable",
        AdoptionState::Adopted => "Adopted",
        AdoptionState::Refused => "Refused",
    };
    let mut cells = vec![
        or_dash(&row.pool),
        row.name.clone(),
        or_dash(row.node_name.as_deref().unwrap_or_default()),
        or_dash(row.claim.as_deref().unwrap_or_default()),
        result.to_owned(),
    ];
    if width == TableWidth::Wide {
        let host = row.host.as_deref().unwrap_or_default();
        cells.extend([or_dash(&amounts(&row.capacity)), or_dash(&row.identity), or_dash(host)]);
    }
    cells
}

fn amounts(capacity: &BTreeMap<String, String>) -> String {
    capacity.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(", ")
}

//! Devices in words and in tables. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hostler_api::Quantity;
use serde_json::Value;

use crate::{
    admin::types::{AdminDevice, AdminDeviceDetails, DeviceDrain, HeldAmount},
    cli::{
        output::{Listed, TableWidth},
        table::TextTable,
    },
    units::{amount, elapsed},
};

impl Listed for AdminDevice {
    const KIND: &'static str = "Device";

    fn listed_name(&self) -> String {
        format!("{}/{}", self.backend, self.name)
    }
}

/// One line per device.
pub(super) fn list(devices: &[AdminDevice], width: TableWidth, now: SystemTime) -> String {
    let headings: &[&str] = match width {
        TableWidth::Narrow => &["NAME", "STATE", "FREE", "HEALTH", "HOLDERS", "NOTE"],
        TableWidth::Wide => &["NAME", "POOL", "STATE", "FREE", "HELD", "HEALTH", "HOLDERS", "NOTE"],
    };
    let mut table = TextTable::new(headings);
    for device in devices {
        let mut cells = vec![
            device.listed_name(),
            state(device),
            free(device),
            device.health.clone(),
            device.holders.join(", "),
            note(device, now),
        ];
        if width == TableWidth::Wide {
            cells.insert(1, device.pool.clone());
            cells.insert(4, held(device));
        }
        table.row(cells);
    }
    table.to_string()
}

/// Returns how much of each capacity could still be had, and of how much: `cpus=28/32`.
fn free(device: &AdminDevice) -> String {
    let parts = device.amounts.iter();
    let parts = parts.map(|(name, it)| format!("{name}={}/{}", amount(it.free), amount(it.capacity)));
    parts.collect::<Vec<_>>().join(" ")
}

/// Returns how much of each capacity claims hold.
fn held(device: &AdminDevice) -> String {
    let parts = device.amounts.iter().filter(|(_, it)| !it.held.is_zero());
    parts.map(|(name, it)| format!("{name}={}", amount(it.held))).collect::<Vec<_>>().join(" ")
}

/// Returns the state of a device in a word, for users who want it, and whether a claim has it.
fn state(device: &AdminDevice) -> String {
    let is_held = !device.holders.is_empty();
    let word = match (&*device.health, &device.drained) {
        ("Absent", _) => "absent",
        (_, Some(_)) => "drained",
        ("Unhealthy", None) => "unhealthy",
        (_, None) if device.blocked => "blocked",
        _ if is_held && device.is_shared() => return "in use".to_owned(),
        _ if is_held => return "held".to_owned(),
        ("Healthy", None) => "free",
        _ => "unknown",
    };
    if is_held { format!("{word}, held") } else { word.to_owned() }
}

/// Returns the obstacles to its use.
fn note(device: &AdminDevice, now: SystemTime) -> String {
    let drain = device.drained.as_ref().map(|drain| drained(drain, now));
    drain.into_iter().chain(device.health_reason.clone()).collect::<Vec<_>>().join("; ")
}

fn drained(drain: &DeviceDrain, now: SystemTime) -> String {
    let since = UNIX_EPOCH + Duration::from_secs(drain.since);
    let lasts = elapsed(now.duration_since(since).unwrap_or_default());
    let evict = if drain.evict { ", evicting" } else { "" };
    let reason = drain.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("drained for {lasts}{evict}{reason}")
}

/// Everything that is known of one device.
pub(in crate::cli) fn details(shown: &AdminDeviceDetails, now: SystemTime) -> String {
    let device = &shown.device;
    let mut text = format!(
        "device   {}\npool     {}\nstate    {}\nhealth   {}\n",
        device.listed_name(),
        device.pool,
        state(device),
        device.health
    );
    let note = note(device, now);
    if !note.is_empty() {
        text.push_str(&format!("note     {note}\n"));
    }
    if let Some(sharing) = &device.sharing {
        text.push_str(&format!("sharing  {}\n", sharing.to_lowercase()));
    }
    for (index, holder) in device.holders.iter().enumerate() {
        text.push_str(&format!("{:<8} {holder}\n", if index == 0 { "held by" } else { "" }));
    }
    if !shown.capacity.is_empty() {
        text.push_str(&format!("\n{}", capacities(shown)));
    }
    if !shown.attributes.is_empty() {
        let mut table = TextTable::new(&["ATTRIBUTE", "VALUE"]);
        shown.attributes.iter().for_each(|(name, value)| table.row([name.clone(), words(value)]));
        text.push_str(&format!("\n{table}"));
    }
    text
}

/// Each capacity with what is held and free of it.
fn capacities(shown: &AdminDeviceDetails) -> TextTable {
    let mut table = TextTable::new(&["CAPACITY", "HELD", "FREE", "VALUE"]);
    for (name, value) in &shown.capacity {
        let known = shown.device.amounts.get(name);
        let part = |of: fn(&HeldAmount) -> Quantity| known.map_or_else(|| "-".to_owned(), |known| amount(of(known)));
        table.row([name.clone(), part(|it| it.held), part(|it| it.free), words(value)]);
    }
    table
}

/// A value as `hostler inventory` shows it: a text without quotes, and of a capacity its value with what a part may be.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let part = |(name, value): (&String, &Value)| match (&**name, value) {
                ("value", value) => words(value),
                ("policy", Value::Object(policy)) => {
                    let parts = policy.iter().map(|(name, value)| format!("{name} {}", words(value)));
                    format!("({})", parts.collect::<Vec<_>>().join(", "))
                }
                (name, value) => format!("{name} {}", words(value)),
            };
            // The value before the policy.
            fields.iter().rev().map(part).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn device(name: &str) -> AdminDevice {
        AdminDevice {
            name: name.to_owned(),
            backend: "fake".to_owned(),
            pool: "n1/fake".to_owned(),
            health: "Healthy".to_owned(),
            health_reason: None,
            drained: None,
            holders: Vec::new(),
            sharing: Some("Exclusive".to_owned()),
            amounts: BTreeMap::new(),
            blocked: false,
        }
    }

    fn drain() -> Option<DeviceDrain> {
        Some(DeviceDrain { since: 1000, reason: Some("fan is broken".to_owned()), evict: true })
    }

    fn units() -> BTreeMap<String, HeldAmount> {
        let [capacity, held, free] = [64, 4, 60].map(Quantity::whole);
        [("units".to_owned(), HeldAmount { capacity, held, free })].into()
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1125)
    }

    #[test]
    fn a_list_says_of_each_device_what_an_operator_needs() {
        let holders = vec!["default/a".to_owned(), "default/b".to_owned()];
        let ill =
            AdminDevice { health: "Unhealthy".to_owned(), health_reason: Some("hot".to_owned()), ..device("card-1") };
        let held = AdminDevice { drained: drain(), holders, amounts: units(), ..device("card-0") };
        let devices = [held, ill, device("card-2")];
        let expected = "\
NAME         STATE          FREE         HEALTH     HOLDERS               NOTE
fake/card-0  drained, held  units=60/64  Healthy    default/a, default/b  drained for 2m 5s, evicting: fan is broken
fake/card-1  unhealthy                   Unhealthy                        hot
fake/card-2  free                        Healthy
";
        assert_eq!(list(&devices, TableWidth::Narrow, now()), expected);
        let wide = list(&devices, TableWidth::Wide, now());
        assert!(wide.contains("fake/card-2  n1/fake  free") && wide.contains("units=60/64  units=4"), "{wide}");
    }

    #[test]
    fn every_state_has_a_word_of_its_own() {
        let holders = || vec!["default/a".to_owned()];
        let shared = |name| AdminDevice { sharing: Some("Shared".to_owned()), ..device(name) };
        for (device, word) in [
            (device("a"), "free"),
            (AdminDevice { holders: holders(), ..device("a") }, "held"),
            (shared("a"), "free"),
            (AdminDevice { holders: holders(), ..shared("a") }, "in use"),
            (AdminDevice { drained: drain(), ..device("a") }, "drained"),
            (AdminDevice { drained: drain(), holders: holders(), ..shared("a") }, "drained, held"),
            (AdminDevice { health: "Unhealthy".to_owned(), ..device("a") }, "unhealthy"),
            (AdminDevice { health: "Unknown".to_owned(), ..device("a") }, "unknown"),
            (AdminDevice { blocked: true, ..device("a") }, "blocked"),
            (AdminDevice { health: "Absent".to_owned(), holders: holders(), ..device("a") }, "absent, held"),
        ] {
            assert_eq!(state(&device), word);
        }
    }

    #[test]
    fn one_device_is_shown_with_all_that_is_known_of_it() {
        let shown = AdminDeviceDetails {
            device: AdminDevice {
                holders: vec!["default/a".to_owned()],
                drained: drain(),
                amounts: units(),
                ..device("card-0")
            },
            capacity: BTreeMap::from([("units".to_owned(), json!({"policy": {"min": "1"}, "value": "64"}))]),
            attributes: BTreeMap::from([("model".to_owned(), json!("X1")), ("slots".to_owned(), json!([1, 2]))]),
        };
        let expected = "\
device   fake/card-0
pool     n1/fake
state    drained, held
health   Healthy
note     drained for 2m 5s, evicting: fan is broken
sharing  exclusive
held by  default/a

CAPACITY  HELD  FREE  VALUE
units        4    60  64 (min 1)

ATTRIBUTE  VALUE
model      X1
slots      1, 2
";
        assert_eq!(details(&shown, now()), expected);
    }
}

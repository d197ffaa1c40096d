//! Sensors of the kernel's hardware monitoring that sit on a card. Drivers ask the hardware for each value, and do
//! not always get an answer.

use std::{
    collections::BTreeSet,
    ops::Bound,
    path::{Path, PathBuf},
};

use hostler_linux::{TreeReading, place};

use super::HealthFinding;

/// One link for each chip of the machine.
const CLASS: &str = "sys/class/hwmon";

/// A critical temperature below this, in thousandths of a degree Celsius, is no threshold: some board controllers tell
/// 17.5 °C for network modules, others 0 for what they do not know.
const LEAST_CRITICAL: i64 = 50_000;
/// A temperature above this is a reading error, such as a negative number without its sign.
const MOST_PLAUSIBLE: i64 = 250_000;

/// The sensor chips of the machine, read once for all cards.
#[derive(Clone, Debug, Default)]
pub(crate) struct HwmonSensors {
    /// Folders of the chips, sorted, so that those of one card stand together.
    chips: BTreeSet<PathBuf>,
}

impl HwmonSensors {
    /// The chips of the machine under `root`.
    pub(crate) fn read(tree: &TreeReading<'_>) -> Self {
        let chips = tree.names(CLASS).iter().filter_map(|name| tree.target(place(CLASS, name))).collect();
        Self { chips }
    }

    /// The alarms and the heat of the chips below `folder`.
    pub(crate) fn findings(&self, tree: &TreeReading<'_>, folder: &Path) -> Vec<HealthFinding> {
        let from = self.chips.range::<Path, _>((Bound::Included(folder), Bound::Unbounded));
        from.take_while(|chip| chip.starts_with(folder)).flat_map(|chip| of_chip(tree, chip)).collect()
    }
}

/// Findings of one chip. A chip that raises alarms knows best; for other chips the temperatures are compared with
/// their critical ones.
fn of_chip(tree: &TreeReading<'_>, chip: &Path) -> Vec<HealthFinding> {
    let names = tree.names(chip);
    let alarms: Vec<&String> = names.iter().filter(|name| name.ends_with("_alarm")).collect();
    if alarms.is_empty() {
        let sensors = names.iter().filter_map(|name| name.strip_suffix("_crit"));
        return sensors.filter_map(|sensor| too_hot(tree, chip, sensor)).collect();
    }
    let raised = |name: &&&String| tree.detail(place(chip, name)).is_some_and(|value| value == "1");
    let told = |name: &String| {
        let sensor = name.split('_').next().unwrap_or(name);
        let reading = tree.detail(place(chip, format!("{sensor}_input")));
        let reading = reading.map(|value| format!(" at {sensor}_input {value}")).unwrap_or_default();
        HealthFinding::passing(label(tree, chip, name), format!("1{reading}"))
    };
    alarms.iter().filter(raised).map(|name| told(name)).collect()
}

fn too_hot(tree: &TreeReading<'_>, chip: &Path, sensor: &str) -> Option<HealthFinding> {
    if !sensor.starts_with("temp") {
        return None;
    }
    let number = |suffix: &str| tree.detail(place(chip, format!("{sensor}_{suffix}")))?.parse::<i64>().ok();
    let critical = number("crit").filter(|critical| (LEAST_CRITICAL..MOST_PLAUSIBLE).contains(critical))?;
    let reading = number("input").filter(|reading| (critical..MOST_PLAUSIBLE).contains(reading))?;
    let file = label(tree, chip, &format!("{sensor}_input"));
    Some(HealthFinding::passing(file, format!("{reading}, critical at {critical}")))
}

/// Path of a file as people find it: the chip's name stands in for its number, which shifts.
fn label(tree: &TreeReading<'_>, chip: &Path, file: &str) -> String {
    let name = tree.attribute(place(chip, "name")).unwrap_or_else(|| "hwmon".to_owned());
    format!("{name}/{file}")
}

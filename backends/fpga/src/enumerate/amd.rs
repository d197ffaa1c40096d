//! AMD cards with the XRT drivers, and what the AMI driver says of its cards.

use hostler_api::NameError;
use hostler_backend::{AttributeValue, Erasure, Sharing};
use hostler_linux::{
    pci::{self, PciAddress},
    place,
};

use super::{EnumeratedDevices, FpgaScan};
use crate::{
    FpgaDevice,
    detach::NOT_FROM_HERE,
    dfl::read_id,
    health::HealthFinding,
    offer::{OfferedDevice, name, text},
    xrt::{XrtCard, XrtFunction},
};

/// The devices of all cards with the XRT drivers.
pub(super) fn offer(scan: &FpgaScan<'_>, found: &mut EnumeratedDevices) -> Result<(), NameError> {
    for card in &scan.xrt {
        found.offers.push(xrt_offer(scan, card)?);
    }
    Ok(())
}

fn xrt_offer(scan: &FpgaScan<'_>, card: &XrtCard) -> Result<OfferedDevice, NameError> {
    let (tree, user) = (scan.tree, &card.user);
    let management = card.management.as_ref().map(|function| function.address);
    let target = FpgaDevice::Xrt { user: user.address, management };
    let mut offer = OfferedDevice::new(name("xrt", user.address)?, "xrt", &target);
    offer.device.sharing = if scan.config.share_xrt { Sharing::Shared } else { Sharing::Exclusive };
    offer.device.erasure = Erasure::Impossible { reason: NOT_FROM_HERE };
    if let Some(function) = scan.functions.get(&user.address) {
        offer.set_function(function);
    }
    let read = |parts: &[&str], attribute: &str| user.text(tree, parts, attribute);
    offer.set("shell", read(&["rom"], "VBNV").as_deref().and_then(text));
    offer.set("logicID", first_id(read(&[], "logic_uuids")));
    offer.set("interfaceID", first_id(read(&[], "interface_uuids")));
    offer.set("xclbinID", first_id(read(&["icap"], "xclbinuuid")));
    offer.set("serial", read(&["xmc", "hwmon_sdm"], "serial_num").as_deref().and_then(text));
    offer.set("memoryBanks", number(read(&["rom"], "ddr_bank_count_max")));
    offer.set("linkWidth", number(read(&[], "link_width")));
    match &card.render_node {
        Some(node) => offer.hand_over(node),
        None => offer.findings.push(HealthFinding::fact("drm has no render node: programs cannot open the card")),
    }
    offer.findings.extend(user_findings(scan, user));
    for function in [Some(user), card.management.as_ref()].into_iter().flatten() {
        offer.findings.extend(firewall(scan, function));
        offer.findings.extend(scan.sensors.findings(tree, &function.folder));
    }
    Ok(offer)
}

/// Findings of the user's function on itself. The card's memory is calibrated while a design that uses memory is
/// loaded.
fn user_findings(scan: &FpgaScan<'_>, user: &XrtFunction) -> Vec<HealthFinding> {
    let read = |attribute: &str| user.text(scan.tree, &[], attribute);
    let is = |attribute: &str, bad: &str| {
        read(attribute).filter(|value| value == bad).map(|value| HealthFinding::grave(attribute, value))
    };
    let loaded = first_id(user.text(scan.tree, &["icap"], "xclbinuuid")).is_some();
    let banks = number(user.text(scan.tree, &["rom"], "ddr_bank_count_max"));
    let uses_memory = loaded && banks.is_some_and(|banks| banks != AttributeValue::Int(0));
    let calibration = read("mig_calibration").filter(|value| uses_memory && is_zero(value));
    [is("ready", "0"), is("dev_offline", "1")]
        .into_iter()
        .flatten()
        .chain(calibration.map(|value| HealthFinding::passing("mig_calibration", value)))
        .collect()
}

/// A firewall that has tripped. It keeps programs from the memory of the card until the operator resets it.
fn firewall(scan: &FpgaScan<'_>, function: &XrtFunction) -> Option<HealthFinding> {
    let folder = function.part("firewall")?;
    let level = scan.tree.detail(place(&folder, "level")).filter(|level| !is_zero(level))?;
    let status = scan.tree.detail(place(&folder, "status")).unwrap_or_default();
    let status = if status.is_empty() { status } else { format!(" (status {status})") };
    let part = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Some(HealthFinding::grave(format!("{part}/level"), level + &status))
}

/// Adds what the function with the AMI driver says of its card. Its own node is the administrator's: firmware is
/// written through it, and the card restarted.
pub(super) fn describe_ami_card(scan: &FpgaScan<'_>, management: PciAddress, offer: &mut OfferedDevice) {
    let folder = pci::folder(scan.tree, management);
    let read = |attribute: &str| scan.tree.detail(place(&folder, attribute)).filter(|text| !text.is_empty());
    offer.set("model", read("dev_name").as_deref().and_then(text));
    offer.set("logicID", first_id(read("logic_uuid")));
    offer.set("firmware", read("amc_version").as_deref().and_then(text));
    offer.set("serial", read("board_serial").as_deref().and_then(text));
    match scan.tree.driver_answer(place(&folder, "dev_state")) {
        Ok(Some(state)) if state == "READY" => {}
        // The card's controller is starting.
        Ok(Some(state)) if state == "INIT" => offer.findings.push(HealthFinding::passing("dev_state", state)),
        Ok(Some(state)) if !state.is_empty() => offer.findings.push(HealthFinding::grave("dev_state", state)),
        Ok(_) => offer.findings.push(HealthFinding::grave("dev_state", "not readable")),
        Err(failure) => {
            offer.findings.push(HealthFinding::grave("dev_state", format!("not readable: {}", failure.error())));
        }
    }
    offer.findings.extend(scan.sensors.findings(scan.tree, &folder));
}

/// The first of one or more lines with an id each.
fn first_id(lines: Option<String>) -> Option<AttributeValue> {
    lines?.lines().find_map(read_id).as_deref().and_then(text)
}

fn number(value: Option<String>) -> Option<AttributeValue> {
    value?.parse::<u32>().ok().map(|value| i64::from(value).into())
}

fn is_zero(value: &str) -> bool {
    i64::from_str_radix(value.strip_prefix("0x").unwrap_or(value), 16) == Ok(0)
}

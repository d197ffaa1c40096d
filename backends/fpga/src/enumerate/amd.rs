//! AMD cards, with the XRT drivers or with AMI.

use hostler_api::NameError;
use hostler_backend::AttributeValue;
use hostler_linux::pci::{self, PciFunction};

use super::{Found, Look};
use crate::{
    Target, ami,
    dfl::read_id,
    health::Finding,
    offer::{Offer, name, text},
    xrt::{Card, Function},
};

/// The devices of all cards.
pub(super) fn offer(look: &Look<'_>, found: &mut Found) -> Result<(), NameError> {
    for card in &look.xrt {
        found.offers.push(xrt_offer(look, card)?);
    }
    for function in look.functions.values().filter(|function| look.ami.contains(&function.address)) {
        found.offers.push(ami_offer(look, function)?);
    }
    Ok(())
}

fn xrt_offer(look: &Look<'_>, card: &Card) -> Result<Offer, NameError> {
    let (root, user) = (look.root, &card.user);
    let management = card.management.as_ref().map(|function| function.address);
    let target = Target::Xrt { user: user.address, management };
    let mut offer = Offer::new(name("xrt", user.address)?, "xrt", &target);
    if let Some(function) = look.functions.get(&user.address) {
        offer.set_function(function);
    }
    let read = |parts: &[&str], attribute: &str| user.text(root, parts, attribute);
    offer.set("shell", read(&["rom"], "VBNV").as_deref().and_then(text));
    offer.set("logicID", first_id(read(&[], "logic_uuids")));
    offer.set("interfaceID", first_id(read(&[], "interface_uuids")));
    offer.set("xclbinID", first_id(read(&["icap"], "xclbinuuid")));
    offer.set("serial", read(&["xmc", "hwmon_sdm"], "serial_num").as_deref().and_then(text));
    offer.set("memoryBanks", number(read(&["rom"], "ddr_bank_count_max")));
    offer.set("linkWidth", number(read(&[], "link_width")));
    match &card.render_node {
        Some(node) => offer.hand_over(node),
        None => offer.findings.push(Finding::fact("drm has no render node: programs cannot open the card")),
    }
    offer.findings.extend(user_findings(look, user));
    for function in [Some(user), card.management.as_ref()].into_iter().flatten() {
        offer.findings.extend(firewall(look, function));
        offer.findings.extend(look.sensors.findings(root, &function.folder));
    }
    Ok(offer)
}

/// What the user's function says of itself. Its memory is calibrated while a design that uses memory is loaded.
fn user_findings(look: &Look<'_>, user: &Function) -> Vec<Finding> {
    let read = |attribute: &str| user.text(look.root, &[], attribute);
    let is = |attribute: &str, bad: &str| {
        read(attribute).filter(|value| value == bad).map(|value| Finding::grave(attribute, value))
    };
    let loaded = first_id(user.text(look.root, &["icap"], "xclbinuuid")).is_some();
    let banks = number(user.text(look.root, &["rom"], "ddr_bank_count_max"));
    let uses_memory = loaded && banks.is_some_and(|banks| banks != AttributeValue::Int(0));
    let calibration = read("mig_calibration").filter(|value| uses_memory && is_zero(value));
    [is("ready", "0"), is("dev_offline", "1")]
        .into_iter()
        .flatten()
        .chain(calibration.map(|value| Finding::passing("mig_calibration", value)))
        .collect()
}

/// A firewall that has tripped keeps programs from the memory of the card until somebody resets it.
fn firewall(look: &Look<'_>, function: &Function) -> Option<Finding> {
    let folder = function.part("firewall")?;
    let level = look.root.attribute(folder.join("level")).filter(|level| !is_zero(level))?;
    let status = look.root.attribute(folder.join("status")).unwrap_or_default();
    let status = if status.is_empty() { status } else { format!(" (status {status})") };
    let part = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Some(Finding::grave(format!("{part}/level"), level + &status))
}

fn ami_offer(look: &Look<'_>, function: &PciFunction) -> Result<Offer, NameError> {
    let address = function.address;
    let mut offer = Offer::new(name("ami", address)?, "ami", &Target::Ami { function: address });
    offer.set_function(function);
    let folder = pci::folder(look.root, address);
    let read = |attribute: &str| look.root.attribute(folder.join(attribute)).filter(|text| !text.is_empty());
    offer.set("model", read("dev_name").as_deref().and_then(text));
    offer.set("logicID", first_id(read("logic_uuid")));
    offer.set("firmware", read("amc_version").as_deref().and_then(text));
    offer.set("serial", read("board_serial").as_deref().and_then(text));
    match ami::node(look.root, address) {
        Some(node) => offer.hand_over(&node),
        None => offer.findings.push(Finding::fact("the driver ami lists no device node for it")),
    }
    match read("dev_state") {
        Some(state) if state == "READY" => {}
        // The card's controller is starting.
        Some(state) if state == "INIT" => offer.findings.push(Finding::passing("dev_state", state)),
        Some(state) => offer.findings.push(Finding::grave("dev_state", state)),
        None => offer.findings.push(Finding::grave("dev_state", "not readable")),
    }
    offer.findings.extend(look.sensors.findings(look.root, &folder));
    Ok(offer)
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

//! What makes devices unhealthy, and what they say of it.

use std::{sync::Arc, time::Duration};

use hostler_linux::testkit::{AttributeFaults, FakeDflCard, FakeDflPort, MachineTree};
use nix::errno::Errno;

use super::*;

const CARD: &str = "card-0000-b1-00-0";
const AFU: &str = "afu-0000-b1-00-0-0";
const REGION: &str = "region-0000-b1-00-0-0";

#[test]
fn a_sound_card_is_healthy() {
    let found = after(|_, _| {});
    assert!(found.devices.iter().all(|device| device.health == Health::Healthy), "{found:?}");
}

#[test]
fn an_error_of_the_engine_concerns_everything_on_the_card() {
    let found = after(|tree, card| {
        tree.file(card.engine().join("errors/catfatal_errors"), "0x4");
    });
    for name in [CARD, AFU, REGION] {
        assert_eq!(reason(device(&found, name)), "dfl-fme.0/errors/catfatal_errors is 0x4", "{name}");
    }
    let found = after(|tree, card| {
        tree.files(card.engine().join("errors"), &[("pcie0_errors", "0x10"), ("first_error", "0x2")]);
    });
    assert_eq!(reason(device(&found, AFU)), "dfl-fme.0/errors/pcie0_errors is 0x10 (first_error 0x2)");
}

#[test]
fn an_error_of_a_port_concerns_what_lies_behind_it() {
    let (tree, ports) = (MachineTree::new(), vec![FakeDflPort::new(0), FakeDflPort::new(1)]);
    let card = FakeDflCard { ports, ..FakeDflCard::new("0000:b1:00.0") };
    card.plug(&tree);
    tree.file(card.port(1).join("errors/errors"), "0x1");
    let found = enumerated(tree.root(), FpgaBackendConfig::default());
    for name in [CARD, "afu-0000-b1-00-0-1", "region-0000-b1-00-0-1"] {
        assert_eq!(reason(device(&found, name)), "dfl-port.1/errors/errors is 0x1", "{name}");
    }
    assert_eq!(device(&found, AFU).health, Health::Healthy);
}

#[test]
fn heat_and_alarms_are_told_with_the_chip_and_the_value() {
    let alarm = after(|tree, card| {
        tree.files(card.thermal(), &[("temp1_crit_alarm", "1"), ("temp1_input", "93000")]);
    });
    assert_eq!(reason(device(&alarm, CARD)), "dfl_fme_thermal/temp1_crit_alarm is 1 at temp1_input 93000");
    let heat = after(|tree, card| {
        tree.remove(card.thermal().join("temp1_crit_alarm")).file(card.thermal().join("temp1_input"), "90000");
    });
    assert_eq!(reason(device(&heat, CARD)), "dfl_fme_thermal/temp1_input is 90000, critical at 90000");
}

#[test]
fn readings_and_limits_that_cannot_be_are_no_heat() {
    // A board controller has said so of healthy cards: a negative number without its sign, and limits of 17.5 °C and 0.
    for (input, critical) in
        [("4294711296", "105000"), ("44500", "17500"), ("30000", "0"), ("", "90000"), ("95000", "")]
    {
        let found = after(|tree, card| {
            tree.remove(card.thermal().join("temp1_crit_alarm"));
            tree.files(card.thermal(), &[("temp1_input", input), ("temp1_crit", critical)]);
        });
        assert_eq!(device(&found, CARD).health, Health::Healthy, "{input} {critical}");
    }
}

#[test]
fn a_failed_programming_speaks_against_all_but_the_region_which_can_be_programmed_again() {
    let found = after(|tree, card| {
        let status = ("status", "reconfig CRC error\nreconfig incompatible image");
        tree.files(card.manager(), &[("state", "write error"), status]);
    });
    let expected = "fpga_manager/state is write error; \
                    fpga_manager/status is reconfig CRC error, reconfig incompatible image";
    assert_eq!((reason(device(&found, AFU)), reason(device(&found, CARD))), (expected, expected));
    assert_eq!(device(&found, REGION).health, Health::Healthy);
}

#[test]
fn a_port_that_is_disabled_is_offered_as_not_usable() {
    let (tree, card) = (MachineTree::new(), FakeDflCard::new("0000:b1:00.0"));
    card.plug(&tree);
    let faults = Arc::new(AttributeFaults::default());
    let root = tree.root().tapped(faults.clone());
    faults.set(card.port(0).join("afu_id"), Errno::EBUSY);
    let found = enumerated(root.clone(), FpgaBackendConfig::default());
    let words = "dfl-port.0/afu_id is not readable, the port is released or disabled";
    assert!(reason(device(&found, AFU)).starts_with(words), "{}", reason(device(&found, AFU)));
    assert_eq!(device(&found, REGION).health, Health::Healthy);
    faults.set(card.port(0).join("afu_id"), Errno::EIO);
    let found = enumerated(root, FpgaBackendConfig::default());
    assert!(reason(device(&found, AFU)).starts_with("dfl-port.0/afu_id is not readable: "));
}

#[test]
fn a_look_after_a_removal_is_none_at_the_health_of_other_cards() {
    let (tree, card) = (MachineTree::new(), FakeDflCard::new("0000:b1:00.0"));
    card.plug(&tree);
    let backend = FpgaBackend::new(tree.root(), FpgaBackendConfig { poll: Duration::ZERO, ..Default::default() });
    let gone = ["/devices/pci0000:c0/0000:c1:00.0".to_owned()].into();
    let removals = |backend: &FpgaBackend| {
        let look = || device(&backend.enumerate_after_removal(&gone).unwrap(), CARD).health.clone();
        [look(), look(), look()]
    };
    let health = |backend: &FpgaBackend| device(&backend.enumerate().unwrap(), CARD).health.clone();
    assert_eq!(health(&backend), Health::Healthy);
    tree.file(card.thermal().join("temp1_crit_alarm"), "1");
    assert_eq!(health(&backend), Health::Healthy, "one look is no heat");
    assert_eq!(removals(&backend), [const { Health::Healthy }; 3], "and is none however often it is told");
    let hot = health(&backend);
    assert_ne!(hot, Health::Healthy, "the second look");
    tree.file(card.thermal().join("temp1_crit_alarm"), "0");
    assert_eq!(health(&backend), hot, "one look is no recovery");
    assert_eq!(removals(&backend), [hot.clone(), hot.clone(), hot]);
}

#[test]
fn one_backend_remembers_what_it_has_seen() {
    let (tree, card) = (MachineTree::new(), FakeDflCard::new("0000:b1:00.0"));
    card.plug(&tree);
    let backend = FpgaBackend::new(tree.root(), FpgaBackendConfig::default());
    let health = |backend: &FpgaBackend| device(&backend.enumerate().unwrap(), CARD).health.clone();
    assert_eq!(health(&backend), Health::Healthy);
    tree.file(card.thermal().join("temp1_crit_alarm"), "1");
    assert_eq!(health(&backend), Health::Healthy, "one look is no heat");
    tree.file(card.engine().join("errors/catfatal_errors"), "0x1");
    assert_ne!(health(&backend), Health::Healthy, "a grave error counts at once");
    tree.file(card.engine().join("errors/catfatal_errors"), "0x0");
    assert_ne!(health(&backend), Health::Healthy, "one look is no recovery");
}

//! Pages of made-up machines, golden.

use std::{fs, path::Path};

use super::{super::view::TopTable, *};
use crate::usage::testing::{MadeUpMachine, give, holder, small};

/// Compares with a file of `tests/golden`, or writes it where `UPDATE_GOLDEN=1`.
fn assert_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(actual, expected, "{name} changed; if that is right, run the test with UPDATE_GOLDEN=1");
}

fn text(usage: &MachineUsage, loads: &BTreeMap<u32, u8>, table: TopTable, width: usize) -> String {
    let view = PageView { usage, loads, table, away: None, help: false };
    page(&view, width).lines().map(|line| line.text().trim_end().to_owned() + "\n").collect()
}

/// Four nodes of 32 cores in caches of four, as large arm servers have them.
fn large() -> MachineUsage {
    let mut usage = MadeUpMachine { packages: 2, nodes: 2, caches: 8, cores: 4, threads: 1 }.usage();
    let claim = holder(&mut usage, "batch", "render");
    give(&mut usage, claim, "cpu/numa1", Some(("cpus", 16)), "32-47");
    usage
}

#[test]
fn the_pages_of_made_up_machines_are_golden_at_eighty_columns() {
    let loads: BTreeMap<u32, u8> = (0..8).map(|cpu| (cpu, u8::try_from(cpu * 14).unwrap())).collect();
    for (table, name) in [(TopTable::Claim, "claim"), (TopTable::Namespace, "namespace"), (TopTable::Node, "node")] {
        assert_golden(&format!("top-small-{name}.txt"), &text(&small(), &loads, table, 80));
    }
    assert_golden("top-large.txt", &text(&large(), &BTreeMap::new(), TopTable::Claim, 80));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [20, 40, 80, 132] {
        let page = text(&large(), &BTreeMap::new(), TopTable::Claim, width)
            + &text(&small(), &BTreeMap::new(), TopTable::Node, width);
        assert!(page.lines().all(|line| line.chars().count() <= width), "{width}: {page}");
    }
}

#[test]
fn every_cpu_is_shown_once_with_its_sign() {
    let mut usage = large();
    usage.devices.retain(|device| device.backend != "memory");
    let shown = text(&usage, &BTreeMap::new(), TopTable::Claim, 80);
    let (machine, _) = shown.split_once("CLAIM").unwrap();
    let rows = machine
        .lines()
        .filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()) && !line.contains('×'));
    let signs: String = rows.map(|line| line.trim_start().split_once(' ').unwrap().1.replace(' ', "")).collect();
    assert_eq!((signs.matches('a').count(), signs.matches('.').count(), signs.len()), (16, 112, 128), "{machine}");
}

#[test]
fn a_daemon_that_is_away_is_said_to_be() {
    let (usage, loads) = (small(), BTreeMap::new());
    let away = Some("the daemon is gone since 10:00");
    let page = page(&PageView { usage: &usage, loads: &loads, table: TopTable::Claim, away, help: false }, 80);
    assert!(page.head.iter().any(|line| line.text() == "! the daemon is gone since 10:00"));
}

#[test]
fn the_help_stands_in_place_of_the_machine_and_names_every_key_and_sign() {
    let (usage, loads) = (small(), BTreeMap::new());
    let shown = |help: bool| {
        let page = page(&PageView { usage: &usage, loads: &loads, table: TopTable::Claim, away: None, help }, 80);
        page.body.iter().map(|line| line.text() + "\n").collect::<String>()
    };
    let help = shown(true);
    assert!(!help.contains("CLAIM") && shown(false).contains("CLAIM"), "{help}");
    for key in ["c ", "n ", "u ", "Tab", "PgUp", "Home", "?", "q Esc"] {
        assert!(help.lines().any(|line| line.starts_with(key)), "{key}: {help}");
    }
    for (sign, _, _) in words::signs(&with_blocked()) {
        let is_explained = |line: &str| line.split("  ").next().is_some_and(|signs| signs.contains(sign));
        assert!(help.lines().any(is_explained), "{sign}: {help}");
    }
}

/// One device that nobody has and that cannot be had.
fn with_blocked() -> MachineUsage {
    let mut usage = MadeUpMachine { packages: 1, nodes: 1, caches: 1, cores: 4, threads: 1 }.usage();
    usage.devices.iter_mut().find(|device| device.backend == "memory").unwrap().blocked = true;
    usage
}

#[test]
fn a_blocked_device_has_a_sign_of_its_own_that_is_explained() {
    let shown = text(&with_blocked(), &BTreeMap::new(), TopTable::Claim, 100);
    let device = shown.lines().find(|line| line.contains("memory/node0")).unwrap();
    assert!(device.contains(" | ") && !device.contains(':') && device.contains("blocked"), "{device}");
    assert!(shown.lines().last().unwrap().contains("| blocked"), "{shown}");
}

#[test]
fn a_blank_stands_between_the_holders_of_a_device_and_its_amounts_however_many_hold_it() {
    for holders in 1..=12_u32 {
        let mut usage = MadeUpMachine { packages: 1, nodes: 1, caches: 1, cores: 16, threads: 1 }.usage();
        for number in 0..holders {
            let claim = holder(&mut usage, "many", &format!("claim-{number:02}"));
            give(&mut usage, claim, "cpu/numa0", Some(("cpus", 1)), &number.to_string());
        }
        let shown = text(&usage, &BTreeMap::new(), TopTable::Claim, 80);
        let device = shown.lines().find(|line| line.contains("cpu/numa0")).unwrap();
        let words: Vec<&str> = device.split_whitespace().collect();
        assert_eq!((words[0], words[2]), ("cpu/numa0", "cpus"), "{holders}: {device}");
    }
}

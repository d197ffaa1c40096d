//! Pages of made-up machines, golden.

use std::{fs, path::Path};

use super::{
    super::{filter::PageFilter, order::RowOrder, view::TopTable},
    *,
};
use crate::usage::{
    holders::MachineUsage,
    testing::{MadeUpMachine, give, holder, small},
};

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
    page(&PageView::of(usage, loads, table), width)
        .lines()
        .map(|line| line.text().trim_end().to_owned() + "\n")
        .collect()
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
    let page = page(&PageView { away, ..PageView::of(&usage, &loads, TopTable::Claim) }, 80);
    assert!(page.head.iter().any(|line| line.text() == "! the daemon is gone since 10:00"));
}

#[test]
fn the_help_stands_in_place_of_the_machine_and_names_every_key_and_sign() {
    let (usage, loads) = (small(), BTreeMap::new());
    let shown = |help: bool| {
        let page = page(&PageView { help, ..PageView::of(&usage, &loads, TopTable::Claim) }, 80);
        page.body.iter().map(|line| line.text() + "\n").collect::<String>()
    };
    let help = shown(true);
    assert!(!help.contains("CLAIM") && shown(false).contains("CLAIM"), "{help}");
    for key in ["c", "n", "u", "Tab", "/", "s", "r", "S", "j", "k", "PgUp", "Home", "?", "h", "Esc", "q", "Ctrl-C"] {
        let is_first = |line: &str| line.split("  ").next().is_some_and(|keys| keys.split(' ').any(|it| it == key));
        assert!(help.lines().any(is_first), "{key}: {help}");
    }
    assert!(help.lines().all(|line| line.chars().count() < 80), "{help}");
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

/// The page of the small machine while a text is looked for.
fn filtered(text: &str, table: TopTable) -> String {
    let (usage, loads, mut filter) = (small(), BTreeMap::new(), PageFilter::default());
    text.chars().for_each(|typed| filter.push(typed));
    let view = PageView { filter: Some(&filter), ..PageView::of(&usage, &loads, table) };
    page(&view, 80).lines().map(|line| line.text().trim_end().to_owned() + "\n").collect()
}

#[test]
fn a_filter_leaves_what_matches_and_the_head_says_how_much_that_is() {
    let shown = filtered("web", TopTable::Claim);
    assert!(shown.contains("/web  1/2 claims, 1/7 devices  Esc clears it\n"), "{shown}");
    assert!(shown.contains("web/front") && shown.contains("cpu/numa0") && shown.contains("package 0"), "{shown}");
    for other in ["ml/train", "fpga/", "memory/", "package 1", "CPUs that do not run"] {
        assert!(!shown.contains(other), "{other}: {shown}");
    }
    let shown = filtered("card-2", TopTable::Node);
    assert!(shown.contains("on no NUMA node\n") && !shown.contains("package 0"), "{shown}");
    let table = shown.split_once("NUMA NODE").unwrap().1;
    assert!(table.contains("\n  none ") && !table.contains("\n  0 "), "{table}");
    assert!(filtered("absent", TopTable::Namespace).contains("/absent  0/2 claims, 0/7 devices"));
}

#[test]
fn a_filter_takes_the_colours_of_other_holders_away() {
    let (usage, loads, mut filter) = (small(), BTreeMap::new(), PageFilter::default());
    "web".chars().for_each(|typed| filter.push(typed));
    let page = page(&PageView { filter: Some(&filter), ..PageView::of(&usage, &loads, TopTable::Claim) }, 80);
    let tone = |sign: &str| {
        let row = page.body.iter().find(|line| line.text().trim_start().starts_with("0 aa b.")).unwrap();
        row.spans.iter().find(|span| span.text == sign).unwrap().tone
    };
    assert_eq!((tone("a"), tone("b")), (Tone::Plain, Tone::Holder(1)));
}

#[test]
fn a_table_is_in_the_order_of_its_marked_column() {
    let (mut usage, loads) = (small(), BTreeMap::new());
    let third = holder(&mut usage, "zoo", "all");
    give(&mut usage, third, "cpu/numa1", Some(("cpus", 3)), "5-7");
    let names = |order: RowOrder| {
        let view = PageView { order: Some(order), ..PageView::of(&usage, &loads, TopTable::Claim) };
        let lines: Vec<String> = page(&view, 80).body.iter().map(PageLine::text).collect();
        let heading = lines.iter().position(|line| line.starts_with("  CLAIM")).unwrap();
        let names: Vec<String> =
            lines[heading + 1..].iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
        (lines[heading].clone(), names.join(" "))
    };
    let first = RowOrder::default();
    let (heading, order) = names(first);
    assert!(heading.starts_with("  CLAIM▾ ") && order == "ml/train web/front zoo/all", "{heading} {order}");
    assert_eq!(names(first.reversed()).1, "zoo/all web/front ml/train");
    let (heading, order) = names(first.next(4).next(4));
    assert!(heading.contains(" CPUS▾ ") && order == "zoo/all ml/train web/front", "{heading} {order}");
}

#[test]
fn loads_and_changes_of_the_last_minutes_are_shown_where_there_are_any() {
    let (usage, loads, changes) =
        (small(), BTreeMap::from([(0, 50)]), ["     5s ago  claim ml/train prepared".to_owned()]);
    let view = PageView { load_line: "▁▅", changes: &changes, ..PageView::of(&usage, &loads, TopTable::Claim) };
    let page = page(&view, 80);
    assert!(page.head[1].text().ends_with(" · load 50 % ▁▅"), "{:?}", page.head);
    let last: Vec<String> = page.body.iter().rev().take(2).map(PageLine::text).collect();
    assert_eq!(last, ["     5s ago  claim ml/train prepared", "  CHANGES"]);
}

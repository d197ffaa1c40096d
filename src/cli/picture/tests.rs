//! Drawings of made-up machines, golden; and that nothing in a drawing lies over anything else.

use std::{fs, path::Path};

use super::{boxes::PictureBox, drawing::machine, *};
use crate::usage::testing::{MadeUpMachine, give, holder, small};

/// Compares with a file of `tests/golden`, or writes it where `UPDATE_GOLDEN=1`.
fn assert_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // A drawing is too long to be shown.
    assert!(actual == expected, "{name} changed; if that is right, run the test with UPDATE_GOLDEN=1 and look at it");
}

/// Two packages of two nodes each with SMT, and a handful of claims.
fn two_sockets() -> MachineUsage {
    let mut usage = MadeUpMachine { packages: 2, nodes: 2, caches: 2, cores: 4, threads: 2 }.usage();
    for (name, node, cpus) in [("train", 0, "0-7"), ("eval", 1, "16-23"), ("serve", 2, "32-35")] {
        let claim = holder(&mut usage, "ml", name);
        let amount = cpus.parse::<hostler_linux::IdSet>().unwrap().len() as u64;
        give(&mut usage, claim, &format!("cpu/numa{node}"), Some(("cpus", amount)), cpus);
        give(&mut usage, claim, &format!("memory/node{node}"), Some(("memory", 8 << 30)), "");
    }
    usage
}

#[test]
fn the_drawings_of_made_up_machines_are_golden() {
    assert_golden("picture-small.svg", &svg(&small()));
    assert_golden("picture-two-sockets.svg", &svg(&two_sockets()));
}

#[test]
fn a_drawing_is_the_same_whenever_it_is_made() {
    assert_eq!(svg(&two_sockets()), svg(&two_sockets()));
}

/// Each box has room for its text, and its children are within it and beside each other.
fn assert_roomy(outer: &PictureBox) {
    let place = |(x, y, it): &(u32, u32, PictureBox)| (*x, *y, x + it.width, y + it.height);
    for (index, child) in outer.children.iter().enumerate() {
        let own = place(child);
        assert!(own.2 <= outer.width && own.3 <= outer.height, "{own:?} leaves {} × {}", outer.width, outer.height);
        for other in outer.children[index + 1..].iter().map(place) {
            assert!(own.2 < other.0 || other.2 < own.0 || own.3 < other.1 || other.3 < own.1, "{own:?} {other:?}");
        }
        assert_roomy(&child.2);
    }
    for line in &outer.lines {
        // At twelve pixels a character of the widest usual font takes 7.3.
        let mark = if line.mark.is_some() { 23.0 } else { 0.0 };
        assert!(line.text.chars().count() as f64 * 7.3 + mark <= f64::from(outer.width), "{}", line.text);
    }
}

#[test]
fn nothing_lies_over_anything_else() {
    let large = MadeUpMachine { packages: 4, nodes: 2, caches: 8, cores: 4, threads: 2 }.usage();
    let in_doubt = MachineUsage { doubts: vec!["backend fpga has not answered since yesterday".repeat(9)], ..small() };
    assert!(svg(&in_doubt).contains("! backend fpga has not"));
    for usage in [small(), two_sockets(), large, in_doubt, MachineUsage::default()] {
        assert_roomy(&machine(&usage));
    }
}

#[test]
fn what_is_named_by_others_is_text_and_nothing_else() {
    let drawn = svg(&small());
    assert!(
        drawn.contains("fan &lt;loud&gt; &amp; &quot;broken&quot;") && !drawn.contains("<loud>"),
        "the drain's reason"
    );
    // Every element that is opened is closed, and there are no others than these.
    for element in ["svg", "g", "text", "title"] {
        let opened = drawn.matches(&format!("<{element} ")).count() + drawn.matches(&format!("<{element}>")).count();
        assert_eq!(opened, drawn.matches(&format!("</{element}>")).count(), "{element}");
    }
    let names = drawn.split('<').skip(1).filter(|tag| !tag.starts_with('/'));
    let known = ["svg", "g", "rect", "text", "title"];
    for name in names.map(|tag| tag.split([' ', '>', '/']).next().unwrap()) {
        assert!(known.contains(&name), "{name}");
    }
}

#[test]
fn a_machine_with_more_holders_than_letters_is_drawn() {
    let mut usage = MadeUpMachine { packages: 1, nodes: 1, caches: 1, cores: 128, threads: 1 }.usage();
    for number in 0..128 {
        let claim = holder(&mut usage, "many", &format!("claim-{number:03}"));
        give(&mut usage, claim, "cpu/numa0", Some(("cpus", 1)), &number.to_string());
    }
    let drawn = svg(&usage);
    assert!(drawn.contains("many/claim-127") && drawn.contains(">*</text>"));
    assert_roomy(&machine(&usage));
}

#[test]
fn a_table_of_distances_keeps_its_blanks_in_every_viewer() {
    let drawn = svg(&two_sockets());
    let head = drawn.lines().next().unwrap();
    assert!(head.contains("xml:space=\"preserve\""), "{head}");
    assert!(drawn.contains(">        0    1    2    3</text>") && !drawn.contains('\u{a0}'));
}

#[test]
fn long_names_are_cut_in_the_middle_and_reasons_are_told_whole() {
    let mut usage = small();
    let name = format!("a-team-with-a-long-name-{}-17", "x".repeat(200));
    usage.holders[0].name = name.clone();
    let card = usage.devices.iter_mut().find(|device| device.health_reason.is_some()).unwrap();
    card.health_reason = Some("the link to the card trains at half of its speed since the last reset".to_owned());
    let drawn = svg(&usage);
    assert!(drawn.contains("-17  ") && !drawn.contains(&format!("{name}  ")), "the legend");
    for line in ["the link to the card trains at half of", "its speed since the last reset"] {
        assert!(drawn.contains(&format!(">{line}</text>")), "{line}");
    }
    assert_roomy(&machine(&usage));
}

#[test]
fn a_blocked_device_says_what_there_is_and_not_that_it_is_free() {
    let mut usage = small();
    let memory = usage.devices.iter_mut().find(|device| !device.amounts.is_empty() && !device.is_held()).unwrap();
    memory.blocked = true;
    let drawn = svg(&usage);
    assert!(drawn.contains(">blocked</text>") && drawn.contains("blocked · "), "the legend, and the device");
    assert!(!drawn.lines().any(|line| line.contains("blocked") && line.contains("free")));
}

#[test]
fn the_legend_is_one_row_of_columns_however_many_holders_there_are() {
    for holders in [1, 9, 10, 17, 60, 128] {
        let mut usage = MadeUpMachine { packages: 1, nodes: 1, caches: 1, cores: 128, threads: 1 }.usage();
        for number in 0..holders {
            let claim = holder(&mut usage, "many", &format!("claim-{number:03}"));
            give(&mut usage, claim, "cpu/numa0", Some(("cpus", 1)), &number.to_string());
        }
        let legend = super::drawing::legend_of(&usage);
        let columns = &legend.children[1].2.children;
        assert!(columns.iter().all(|(_, y, _)| *y == 0) && columns.len() <= 4, "{holders}");
        assert_eq!(columns.iter().map(|(_, _, column)| column.lines.len()).sum::<usize>(), holders);
    }
}

#[test]
fn a_machine_of_which_no_cpu_is_known_does_not_say_that_it_has_none() {
    let drawn = svg(&MachineUsage { node: "n1".to_owned(), ..MachineUsage::default() });
    assert!(drawn.contains("n1: nothing is known of its CPUs and memory") && !drawn.contains("0 packages"));
}

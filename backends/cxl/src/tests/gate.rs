//! The machine survives whatever happens at whatever moment, and an order that was disturbed can be given again.

use std::{fs, path::Path};

use hostler_api::Chain;
use hostler_linux::testkit::{CxlKernel, CxlMachine, Errno, NewBlocks};
use proptest::prelude::*;

use super::{
    machine::{AT_ONCE, NEIGHBOUR, card, kernels, machine},
    regions::state,
};
use crate::{
    detach::{DetachOptions, detach},
    memory, region,
};

const OUT: DetachOptions = DetachOptions { sanitize: true, overwrite: false, remove: true };

fn attach(kernel: &std::sync::Arc<CxlKernel>, serial: u64) -> Result<(), String> {
    let root = kernel.root();
    let dax = region::create(&root, &card(serial), &AT_ONCE).map_err(|error| Chain(&error).to_string())?;
    memory::bring_online(&root, &dax, &AT_ONCE).map_err(|error| Chain(&error).to_string())
}

fn order(kernel: &std::sync::Arc<CxlKernel>, order: DetachOptions) -> Result<(), String> {
    let done = detach(&kernel.root(), &card(NEIGHBOUR), order, &AT_ONCE, &mut Vec::new());
    done.map_err(|error| Chain(&error).to_string())
}

fn is_gone(kernel: &CxlKernel) -> bool {
    !kernel.tree().root().exists("sys/bus/pci/devices/0000:43:00.0").unwrap()
}

/// A machine with the memory of a card, two blocks, on a node.
fn busy(kind: CxlMachine) -> std::sync::Arc<CxlKernel> {
    let kernel = machine(kind);
    attach(&kernel, NEIGHBOUR).unwrap();
    kernel.calm();
    kernel
}

/// The heart of it: at every moment of an order, somebody brings a block of the region online. Every dangerous write comes
/// after some such moment, the last one just before it.
#[test]
fn whenever_memory_comes_online_in_the_middle_of_an_order_the_machine_lives() {
    for dax_state in [true, false] {
        let kind = CxlMachine { dax_state, ..CxlMachine::default() };
        let calm = busy(kind.clone());
        order(&calm, OUT).unwrap();
        let (accesses, _) = calm.calm();
        assert!(accesses > 30, "{accesses}");
        let (mut shut, mut stuck) = (0, 0);
        for access in 1..=accesses {
            let kernel = busy(kind.clone());
            kernel.online_before(access);
            let first = order(&kernel, OUT);
            assert_eq!(kernel.dead(), None, "access {access}, {first:?}");
            if let Err(error) = &first {
                shut += 1;
                assert!(!is_gone(&kernel), "{error}");
            }
            kernel.calm();
            if kernel.stuck() {
                // Between the last look and the driver's letting go nothing can be done; the memory is lost until the
                // next boot then, and the region stays as long.
                stuck += 1;
                let error = first.and_then(|()| order(&kernel, OUT)).unwrap_err();
                assert!(error.contains("online"), "{error}");
                assert_eq!(kernel.dead(), None);
                continue;
            }
            if first.is_err() {
                order(&kernel, OUT).unwrap_or_else(|error| panic!("access {access}, again: {error}"));
            }
            assert_eq!((is_gone(&kernel), kernel.dead()), (true, None), "access {access}");
        }
        assert!(shut > 0 || dax_state, "the gate was never shut");
        // Of two blocks one is read first.
        assert!(stuck <= 2, "{stuck}");
    }
}

#[test]
fn whichever_write_fails_or_is_ignored_the_machine_lives_and_the_order_can_be_repeated() {
    for dax_state in [true, false] {
        let kind = CxlMachine { dax_state, ..CxlMachine::default() };
        let calm = busy(kind.clone());
        order(&calm, OUT).unwrap();
        let (_, writes) = calm.calm();
        for write in 1..=writes {
            for errno in [None, Some(Errno::EBUSY)] {
                let kernel = busy(kind.clone());
                match errno {
                    Some(errno) => kernel.fail_write(write, errno),
                    None => kernel.lie_at_write(write),
                }
                let first = order(&kernel, OUT);
                assert_eq!(kernel.dead(), None, "write {write} {errno:?}: {first:?}");
                kernel.calm();
                if first.is_err() {
                    order(&kernel, OUT).unwrap_or_else(|error| panic!("write {write} {errno:?}, again: {error}"));
                }
                assert!(is_gone(&kernel) && kernel.dead().is_none() && !kernel.stuck(), "write {write} {errno:?}");
            }
        }
    }
}

#[test]
fn whichever_write_fails_while_a_region_is_made_nothing_is_left_or_the_next_try_makes_it() {
    for dax_state in [true, false] {
        let kind = CxlMachine { dax_state, new_blocks: NewBlocks::Online, ..CxlMachine::default() };
        let calm = machine(kind.clone());
        let before = state(&calm.root());
        calm.calm();
        attach(&calm, NEIGHBOUR).unwrap();
        let (_, writes) = calm.calm();
        let there = state(&calm.root());
        for write in 1..=writes {
            for errno in [None, Some(Errno::ENXIO)] {
                let kernel = machine(kind.clone());
                match errno {
                    Some(errno) => kernel.fail_write(write, errno),
                    None => kernel.lie_at_write(write),
                }
                let first = attach(&kernel, NEIGHBOUR);
                kernel.calm();
                if first.is_err() {
                    attach(&kernel, NEIGHBOUR)
                        .unwrap_or_else(|error| panic!("write {write} {errno:?}, again: {error}"));
                }
                // Names of regions go on counting.
                assert_eq!(without_names(&state(&kernel.root())), without_names(&there), "write {write} {errno:?}");
                region::take_down_all(&kernel.root(), &card(NEIGHBOUR), &AT_ONCE, &mut Vec::new()).unwrap();
                assert_eq!(state(&kernel.root()), before, "write {write} {errno:?}");
                assert_eq!(kernel.dead(), None);
            }
        }
    }
}

fn without_names(state: &str) -> String {
    state.lines().map(|line| if line.starts_with("dax") { line.split_once(' ').unwrap().1 } else { line }).collect()
}

#[derive(Clone, Copy, Debug)]
enum GateTrouble {
    Fail(usize, Errno),
    Lie(usize),
    Online(usize),
    Pin(u64),
}

fn trouble() -> impl Strategy<Value = GateTrouble> {
    prop_oneof![
        (1..20_usize, prop::sample::select(vec![Errno::EBUSY, Errno::EIO, Errno::ENXIO, Errno::EPERM]))
            .prop_map(|(write, errno)| GateTrouble::Fail(write, errno)),
        (1..20_usize).prop_map(GateTrouble::Lie),
        (1..60_usize).prop_map(GateTrouble::Online),
        (110..112_u64).prop_map(GateTrouble::Pin),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// In and out, again and again, with something going wrong each time.
    #[test]
    fn no_series_of_troubles_destroys_the_machine(
        kind in prop::sample::select(kernels().collect::<Vec<_>>()),
        troubles in prop::collection::vec((any::<bool>(), trouble()), 1..6),
    ) {
        let kernel = machine(kind);
        let stay = DetachOptions { sanitize: false, overwrite: false, remove: false };
        for (inwards, trouble) in troubles {
            match trouble {
                GateTrouble::Fail(write, errno) => kernel.fail_write(write, errno),
                GateTrouble::Lie(write) => kernel.lie_at_write(write),
                GateTrouble::Online(access) => kernel.online_before(access),
                GateTrouble::Pin(block) => kernel.pin(block),
            }
            let _ = if inwards { attach(&kernel, NEIGHBOUR) } else { order(&kernel, stay) };
            prop_assert_eq!(kernel.dead(), None);
            kernel.calm();
        }
        (110..112).for_each(|block| kernel.unpin(block));
        if !kernel.stuck() {
            let last = order(&kernel, OUT);
            prop_assert!(last.is_ok(), "{:?}", last);
            prop_assert!(is_gone(&kernel));
        }
        prop_assert_eq!(kernel.dead(), None);
    }
}

/// Who takes memory away by hand finds out what the fake kernel is for.
#[test]
fn the_fake_kernel_dies_of_what_the_real_one_dies_of() {
    let folder = |name: &str| format!("sys/bus/cxl/devices/{name}");
    let window = "sys/devices/platform/ACPI0017:00/root0/decoder0.0";
    for (path, text) in [
        (folder("region0") + "/commit", "0"),
        ("sys/bus/cxl/drivers/cxl_region/unbind".to_owned(), "region0"),
        (format!("{window}/delete_region"), "region0"),
        ("sys/bus/cxl/drivers/cxl_mem/unbind".to_owned(), "mem0"),
        ("sys/bus/pci/devices/0000:43:00.0/remove".to_owned(), "1"),
    ] {
        let kernel = machine(CxlMachine::default());
        attach(&kernel, NEIGHBOUR).unwrap();
        kernel.root().write(&path, text).unwrap();
        assert!(kernel.dead().is_some(), "{path}");
    }
}

/// What must not be written without the gate is written in its file alone.
#[test]
fn only_the_gate_names_what_destroys_the_machine() {
    let names = [
        "kmem/unbind",
        "cxl_region/unbind",
        "cxl_mem/unbind",
        "delete_region",
        "/remove\"",
        "/reset\"",
        "\"commit\"), \"0\"",
    ];
    let mut seen = Vec::new();
    look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &names, &mut seen);
    assert_eq!(seen, ["gate.rs"]);
}

fn look(folder: &Path, names: &[&str], seen: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() {
            if name != "tests" {
                look(&path, names, seen);
            }
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if names.iter().any(|name| text.contains(name)) {
            seen.push(name);
        }
    }
}

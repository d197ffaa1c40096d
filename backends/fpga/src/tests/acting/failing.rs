//! Hardware, files and people that get in the way.

use std::os::unix::fs::symlink;

use nix::errno::Errno;

use super::*;

#[test]
fn a_port_that_somebody_has_open_is_left_alone_and_they_are_named() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    machine.kernel.open(0);
    machine.tree.file("proc/812/comm", "opae").folder("proc/812/fd");
    symlink("/dev/dfl-port.0", machine.tree.path("proc/812/fd/3")).unwrap();
    let text = message(claim.prepare());
    assert_eq!(text, "device is not usable: /dev/dfl-port.0 is in use by process 812 (opae)");
    claim.unprepare().unwrap();
    assert_eq!(machine.observe(), format!("{BLANK} dirty, {BLANK} clean"));
    assert!(machine.kernel.disturbed().is_empty());
}

#[test]
fn a_tenant_that_does_not_let_go_keeps_the_device_taken() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    claim.prepare().unwrap();
    machine.kernel.open(0);
    let text = message(claim.unprepare());
    assert!(text.ends_with("/dev/dfl-port.0 is in use by a process that cannot be seen from here"), "{text}");
    assert!(message(claim.prepare()).ends_with("cannot be seen from here"));
    assert!(machine.kernel.disturbed().is_empty());
    machine.kernel.close(0);
    claim.unprepare().unwrap();
    assert_eq!(machine.observe(), format!("{BLANK} clean, {BLANK} clean"));
}

#[test]
fn what_the_hardware_says_about_an_image_is_told() {
    let machine = FpgaMachine::blanking();
    machine.add_bytes("lie", INTERFACE, NLB, &DflKernel::image(OTHER_INTERFACE, NLB));
    machine.add_bytes("noise", INTERFACE, NLB, b"noise");
    for (name, status) in [("lie", "reconfig incompatible image"), ("noise", "reconfig CRC error")] {
        let claim = machine.programming(name);
        let text = message(claim.prepare());
        let expected = format!("failed to program {name} into the region of /dev/dfl-port.0 ({status}): ");
        assert!(text.starts_with(&expected) && text.contains("Input/output error"), "{text}");
        claim.unprepare().unwrap();
        assert_eq!(machine.observe(), format!("{BLANK} clean, {BLANK} clean"));
        assert_eq!(machine.tree.text(card().manager().join("state")), "operating", "the blank image went in");
    }
}

#[test]
fn an_image_without_effect_is_noticed() {
    let machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    machine.kernel.ignore_images(true);
    let text = message(machine.programming("nlb").prepare());
    let expected = format!("AFU {NLB} should be behind /dev/dfl-port.0, and {BLANK} is");
    assert_eq!(text, format!("device is not usable: {expected}"));
}

#[test]
fn an_interface_that_has_changed_since_stops_everything() {
    let machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    machine.tree.file(card().region(0).join("compat_id"), OTHER_INTERFACE);
    machine.kernel.soil(0);
    let text = message(claim.prepare());
    assert!(text.contains(INTERFACE) && text.contains(OTHER_INTERFACE), "{text}");
    assert_eq!((machine.kernel.programmed(), machine.kernel.is_dirty(0)), (0, true));
}

#[test]
fn a_bitstream_that_has_changed_since_is_not_programmed() {
    let machine = FpgaMachine::new();
    let nlb = machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    let content = machine.config.bitstreams.join(format!("{}.bin", nlb.digest));
    fs::write(&content, DflKernel::image(INTERFACE, FFT)).unwrap();
    let text = message(claim.prepare());
    assert!(text.starts_with("failed to read bitstream nlb: ") && text.contains(" is damaged: "), "{text}");
    fs::remove_file(content).unwrap();
    assert!(message(claim.prepare()).contains("failed to open "));
    assert_eq!(machine.kernel.programmed(), 0);
}

#[test]
fn a_reset_that_fails_keeps_the_device_taken() {
    let machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    claim.prepare().unwrap();
    machine.kernel.soil(0);
    machine.kernel.fail_resets(Some(Errno::ETIMEDOUT));
    let text = message(claim.unprepare());
    assert!(text.starts_with("failed to reset /dev/dfl-port.0: "), "{text}");
    machine.kernel.fail_resets(None);
    claim.unprepare().unwrap();
    assert!(!machine.kernel.is_dirty(0));
}

#[test]
fn a_reset_that_fails_counts_although_nothing_was_programmed() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    machine.kernel.fail_resets(Some(Errno::ETIMEDOUT));
    for result in [claim.prepare().map(drop), claim.unprepare()] {
        assert!(message(result).starts_with("failed to reset /dev/dfl-port.0: "));
    }
}

#[test]
fn a_blank_image_that_does_not_go_in_keeps_the_device_taken() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    claim.prepare().unwrap();
    machine.kernel.fail_programming(Some(Errno::ETIMEDOUT));
    let text = message(claim.unprepare());
    assert!(text.starts_with("failed to program blank into the region of /dev/dfl-port.0"), "{text}");
    machine.kernel.fail_programming(None);
    claim.unprepare().unwrap();
    assert_eq!(machine.afu_id(0), BLANK);
}

#[test]
fn an_instance_that_died_after_programming_is_cleaned_up_after() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    // Programmed, and then neither read back nor recorded: what the next instance finds.
    claim.prepare().unwrap();
    machine.kernel.soil(0);
    machine.tree.file(card().port(0).join("afu_id"), FFT);
    claim.unprepare().unwrap();
    assert_eq!(machine.observe(), format!("{BLANK} clean, {BLANK} clean"));
}

#[test]
fn a_card_that_was_taken_out_needs_nothing() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let claims = [
        machine.programming("nlb"),
        machine.claim(AFU, Value::Null).planned(),
        machine.claim("card-0000-b1-00-0", Value::Null).planned(),
    ];
    card().pull(&machine.tree);
    for claim in claims {
        let name = &claim.device.name;
        assert!(message(claim.verify()).ends_with("the card 0000:b1:00.0 is gone"), "{name}");
        claim.unprepare().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_card_without_its_driver_is_not_called_clean() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let claim = machine.programming("nlb");
    claim.prepare().unwrap();
    machine.tree.remove("sys/class").remove(card().function.folder().join("fpga_region"));
    let text = message(claim.unprepare());
    assert!(text.ends_with("the card 0000:b1:00.0 is there, but no driver shows what is on it"), "{text}");
}

#[test]
fn a_plan_of_another_version_is_not_guessed_at() {
    let machine = FpgaMachine::new();
    let mut claim = machine.claim(AFU, Value::Null).planned();
    claim.plan.data = json!({ "work": "transmute" });
    assert!(message(claim.unprepare()).starts_with("failed to read the recorded plan: "));
}

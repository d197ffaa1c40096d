//! What is refused before anything is done, and in which words.

use super::*;

fn refusal(machine: &FpgaMachine, device: &str, config: Value) -> String {
    let before = machine.observe();
    let error = machine.claim(device, config).plan().unwrap_err();
    assert!(matches!(error, BackendError::Refused { .. } | BackendError::Config { .. }), "{error:?}");
    assert_eq!(machine.observe(), before);
    chain(&error)
}

#[test]
fn a_region_needs_a_bitstream() {
    let text = refusal(&FpgaMachine::new(), REGION, Value::Null);
    let expected = "is programmed for its claim, which names no bitstream: give it an FpgaConfig with one";
    assert_eq!(text, format!("{REGION} {expected}"));
}

#[test]
fn a_bitstream_that_is_unknown_is_refused_with_those_that_are_known() {
    let machine = FpgaMachine::new();
    let nlb = machine.add("nlb", NLB);
    let text = refusal(&machine, REGION, json!({ "bitstream": "nbl" }));
    assert_eq!(text, format!("\"nbl\" is no bitstream of the store: it has nlb ({})", nlb.digest.short()));
    let text = refusal(&machine, REGION, json!({ "bitstream": "/etc/shadow" }));
    assert!(text.starts_with("\"/etc/shadow\" leads out of the store of bitstreams, "), "{text}");
}

#[test]
fn a_bitstream_for_another_interface_is_refused_with_both() {
    let machine = FpgaMachine::new();
    machine.add_bytes("old", OTHER_INTERFACE, NLB, b"image");
    let text = refusal(&machine, REGION, json!({ "bitstream": "old" }));
    assert_eq!(text, format!("bitstream old is for interface id {OTHER_INTERFACE}, and {REGION} has {INTERFACE}"));
}

#[test]
fn a_region_without_an_interface_takes_no_bitstream() {
    let machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    machine.tree.remove(card().region(0).join("compat_id"));
    let text = refusal(&machine, REGION, json!({ "bitstream": "nlb" }));
    assert!(text.starts_with("the kernel does not say which interface "), "{text}");
}

#[test]
fn the_wanted_function_must_be_the_one_that_is_brought_or_there() {
    let machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    let text = refusal(&machine, REGION, json!({ "bitstream": "nlb", "afuID": FFT }));
    assert_eq!(text, format!("bitstream nlb brings AFU {NLB}, and the claim wants {FFT}"));
    let text = refusal(&machine, AFU, json!({ "afuID": FFT }));
    assert_eq!(text, format!("{AFU} is AFU {BLANK}, and the claim wants {FFT}"));
    let text = refusal(&machine, AFU, json!({ "afuID": "nlb" }));
    assert!(text.contains("parameters.afuID: \"nlb\" is not an id of 32 hexadecimal digits"), "{text}");
    let spelled = "D8424DC4-a4a3-c413-f89e-433683f9040b";
    machine.claim(REGION, json!({ "bitstream": "nlb", "afuID": spelled })).plan().unwrap();
}

#[test]
fn what_cannot_be_programmed_takes_no_bitstream() {
    let machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    for device in [AFU, "card-0000-b1-00-0"] {
        let text = refusal(&machine, device, json!({ "bitstream": "nlb" }));
        assert!(text.starts_with(device) && text.ends_with("; ask for a device of kind region"), "{text}");
    }
}

#[test]
fn administrative_access_gets_the_nodes_and_changes_nothing() {
    let machine = FpgaMachine::blanking();
    machine.add("nlb", NLB);
    let mut claim = machine.claim(REGION, json!({ "bitstream": "nlb" }));
    claim.grant.access = Access::Admin;
    assert_eq!(message(claim.plan()), "administrative access changes nothing");
    claim.grant.config.clear();
    let claim = claim.planned();
    machine.kernel.open(0);
    assert_eq!(paths(&claim.prepare().unwrap()), ["/dev/dfl-port.0"]);
    claim.verify().unwrap();
    claim.unprepare().unwrap();
    assert_eq!(machine.observe(), format!("{BLANK} dirty, {BLANK} clean"));
}

#[test]
fn a_blank_image_that_cannot_be_used_is_found_out_first() {
    let mut machine = FpgaMachine::new();
    machine.add("nlb", NLB);
    machine.config.blank.insert(INTERFACE.to_owned(), "blank".to_owned());
    let text = refusal(&machine, REGION, json!({ "bitstream": "nlb" }));
    assert!(text.starts_with("the configured blank image cannot be used: \"blank\" is no bitstream"), "{text}");
    machine.add_bytes("blank", OTHER_INTERFACE, BLANK, b"image");
    let text = refusal(&machine, REGION, json!({ "bitstream": "nlb" }));
    assert!(text.starts_with("bitstream blank is for interface id "), "{text}");
}

#[test]
fn the_plan_names_hardware_by_what_outlives_reboots() {
    let machine = FpgaMachine::blanking();
    let nlb = machine.add("nlb", NLB);
    let plan = machine.programming("nlb").plan;
    assert_eq!(plan.data["work"], "program");
    assert_eq!((&plan.data["card"], &plan.data["port"]), (&CARD.into(), &0.into()));
    assert_eq!(plan.data["image"]["digest"], nlb.digest.as_str());
    assert_eq!((&plan.data["blank"]["afuID"], &plan.data["before"]), (&BLANK.into(), &BLANK.into()));
}

//! What a script may say, and what a wrong one is told.

use std::path::Path;

use hostler_api::Quantity;
use hostler_backend::{AttributeValue, Health, NodeAllocatable, Sharing};
use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<FakeScript, String> {
    FakeScript::parse(Path::new("/s.toml"), text).map_err(|error| error.to_string())
}

fn attribute(device: &Device, name: &str) -> Option<AttributeValue> {
    device.attributes.get(name).cloned()
}

#[test]
fn an_empty_script_has_no_devices() {
    let script = parse("").unwrap();
    assert!(script.devices.is_empty() && script.faults.is_empty());
    assert_eq!(script.latency(BackendMethod::Prepare), Duration::ZERO);
}

#[test]
fn a_device_has_what_the_script_says() {
    let script = parse(
        r#"
        [[device]]
        name = "gpu"
        sharing = "shared"
        numa_node = 1
        pci_root = "pci0000:16"
        pci_bus_id = "0000:16:00.0"
        attributes = { model = "x100", cores = 64, ecc = true, firmware = { version = "1.2.3" } }
        capacity.memory = { value = "16Gi", step = "1Gi", default = "2Gi" }
        capacity.engines = 4
        health = "unknown"
        reason = "nobody asked it"
        edits = { env = ["GPU=1"], deviceNodes = [{ path = "/dev/null" }] }
        "#,
    )
    .unwrap();
    let device = &script.devices[0].device;
    assert_eq!((device.name.as_str(), device.sharing), ("gpu", Sharing::Shared));
    assert_eq!(attribute(device, "resource.kubernetes.io/numaNode"), Some(1.into()));
    assert_eq!(attribute(device, "resource.kubernetes.io/pcieRoot"), Some("pci0000:16".into()));
    assert_eq!(attribute(device, "resource.kubernetes.io/pciBusID"), Some("0000:16:00.0".into()));
    assert_eq!(attribute(device, "model"), Some("x100".into()));
    assert_eq!(attribute(device, "cores"), Some(64.into()));
    assert_eq!(attribute(device, "ecc"), Some(true.into()));
    assert_eq!(attribute(device, "firmware"), Some(AttributeValue::Version("1.2.3".into())));
    let gi = |count: u64| Quantity::whole(count << 30);
    let memory = device.capacity["memory"];
    let policy = memory.policy.unwrap();
    assert_eq!((memory.value, policy.default, policy.min, policy.step), (gi(16), gi(2), gi(1), gi(1)));
    assert_eq!((device.capacity["engines"].value, device.capacity["engines"].policy), (Quantity::whole(4), None));
    assert_eq!(device.health, Health::Unknown { reason: "nobody asked it".to_owned() });
    assert_eq!(device.edits.env, ["GPU=1"]);
    assert_eq!(device.edits.device_nodes[0].path, "/dev/null");
}

#[test]
fn a_count_numbers_every_text_of_the_device() {
    let script = parse(
        r#"
        [[device]]
        name = "gpu"
        count = 12
        pci_bus_id = "0000:{x}:00.0"
        attributes = { serial = "s{n}", cores = 1 }
        health = "unhealthy"
        reason = "slot {n} has no power"
        edits = { env = ["GPU={n}"], mounts = [{ hostPath = "/run/{n}", containerPath = "/gpu" }] }
        [[device]]
        name = "port{n}of2"
        count = 2
        "#,
    )
    .unwrap();
    assert_eq!(script.devices.len(), 14);
    let last = &script.devices[11].device;
    assert_eq!(last.name.as_str(), "gpu-11");
    assert_eq!(attribute(last, "resource.kubernetes.io/pciBusID"), Some("0000:0b:00.0".into()));
    assert_eq!(attribute(last, "serial"), Some("s11".into()));
    assert_eq!(last.health, Health::Unhealthy { reason: "slot 11 has no power".to_owned() });
    assert_eq!((&*last.edits.env[0], &*last.edits.mounts[0].host_path), ("GPU=11", "/run/11"));
    assert_eq!(script.devices[13].device.name.as_str(), "port1of2");
}

#[test]
fn the_script_in_the_documentation_is_a_script() {
    let docs = include_str!("../lib.rs").lines().filter_map(|line| line.strip_prefix("//!"));
    let script: Vec<&str> =
        docs.skip_while(|line| line.trim() != "```toml").skip(1).take_while(|line| line.trim() != "```").collect();
    let script = parse(&script.join("\n")).unwrap();
    assert_eq!((script.devices.len(), script.faults.len(), script.warnings.len()), (6, 1, 1));
}

#[test]
fn a_mistake_is_told_with_file_line_field_and_fix() {
    for (text, message) in [
        ("seed = ", "script /s.toml, line 1: "),
        ("\n\n[[device]]\nnaem = \"a\"", "line 4, device[0].naem: unknown field `naem`, expected one of `name`"),
        ("[[device]]\ncount = 2", "line 1, device[0]: missing field `name`"),
        (
            "[[device]]\nname = \"a\"\nnuma_node = \"0\"",
            "line 3, device[0].numa_node: invalid type: string \"0\", expected i64",
        ),
        ("[[device]]\nname = \"A\"", "line 2, device[0].name: device name \"A\" is not valid: 1 to 63 characters"),
        ("[[device]]\nname = \"a\"\n[[device]]\nname = \"a\"", "line 4, device[1].name: a is taken"),
        ("[[device]]\nname = \"a\"\ncount = 0", "line 3, device[0].count: write a number from 1"),
        ("[[device]]\nname = \"a\"\nnuma_node = -1", "line 3, device[0].numa_node: -1 does not fit"),
        ("[[device]]\nname = \"a\"\npci_bus_id = \"x\"", "line 3, device[0].pci_bus_id: x does not fit"),
        (
            "[[device]]\nname = \"a\"\n[device.attributes]\nb = { versoin = \"1.0.0\" }",
            "line 4, device[0].attributes.b",
        ),
        (
            "[[device]]\nname = \"a\"\n[device.attributes]\nb = { version = \"1\" }",
            "line 4, device[0].attributes.b: \"1\" is no",
        ),
        ("[[device]]\nname = \"a\"\n[device.attributes]\n\"b-c\" = 1", "line 4, device[0].attributes"),
        (
            "[[device]]\nname = \"a\"\n[device.attributes]\nb = [1,\n1979-05-27]",
            "line 5, device[0].attributes.b[1]: 1979-05-27 is a date",
        ),
        ("[[device]]\nname = \"a\"\ncapacity.m = \"1Qi\"", "line 3, device[0].capacity.m: \"1Qi\" is not a quantity"),
        ("[[device]]\nname = \"a\"\ncapacity.m = -1", "line 3, device[0].capacity.m: -1 is negative"),
        (
            "[[device]]\nname = \"a\"\nsharing = \"shared\"\ncapacity.m = { value = 3, step = 2 }",
            "line 4, device[0].capacity.m: the value (3) cannot be requested",
        ),
        ("[[device]]\nname = \"a\"\nhealth = \"unhealthy\"", "line 3, device[0].health: say why"),
        ("[[device]]\nname = \"a\"\nreason = \"x\"", "line 3, device[0].reason: a healthy device needs no reason"),
        ("[[device]]\nname = \"a\"\n[device.edits]\nenv = [\"a\"]", "line 4, device[0].edits.env"),
        ("[[fault]]\nstep = \"preapre\"", "line 2, fault[0].step: unknown variant `preapre`, expected one of"),
        ("[[fault]]\nstep = \"plan\"\nuntil = \"go\"", "line 3, fault[0].until: write the absolute path"),
        ("[[fault]]\nstep = \"plan\"", "line 1, fault[0]: a fault does something"),
        (
            "[[fault]]\nstep = \"plan\"\nkill = true\nerror = \"x\"",
            "line 3, fault[0].kill: a fault ends the process or",
        ),
        ("[[fault]]\nstep = \"plan\"\nkill = true\ntimes = 0", "line 4, fault[0].times: 0 strikes are none"),
        ("[[fault]]\nstep = \"plan\"\nkill = true\nprobability = 1.5", "line 4, fault[0].probability: write a number"),
        (
            "[[fault]]\nstep = \"enumerate\"\nkill = true\ndevice = \"a\"",
            "line 4, fault[0].device: enumerate concerns all",
        ),
    ] {
        let error = parse(text).expect_err(text);
        assert!(error.starts_with("script /s.toml, line ") && error.contains(message), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn health_changes_come_in_order() {
    let script = |second: u64| {
        format!(
            "[[device]]\nname = \"a\"\nhealth_change = [\n{{ enumerations = 2, health = \"unhealthy\", reason = \"hot\" \
             }},\n{{ enumerations = {second}, health = \"healthy\" }}]"
        )
    };
    let hot = Health::Unhealthy { reason: "hot".to_owned() };
    assert_eq!(parse(&script(5)).unwrap().devices[0].changes, [(2, hot), (5, Health::Healthy)]);
    let error = parse(&script(2)).unwrap_err();
    assert!(error.contains("line 5, device[0].health_change[1].enumerations: 2 does not come after 2"), "{error}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = parse(&text);
    }

    #[test]
    fn no_device_panics(key in "[a-z_]{1,12}", value in "(-?[0-9]{1,4}|\"[a-z{}]{0,5}\"|\\{ [a-z]{1,7} = [0-9] \\}|\\[\\])") {
        let _ = parse(&format!("[[device]]\nname = \"a\"\n{key} = {value}"));
    }
}

/// A card, wholly, as halves or as quarters.
const CARDS: &str = r#"
    [[counter_set]]
    name = "card"
    count = 2
    counters = { slots = 4, memory = "16Gi" }

    [[device]]
    name = "whole"
    count = 2
    consumes = [{ set = "card-{n}", counters = { slots = 4, memory = "16Gi" } }]

    [[device]]
    name = "half"
    consumes = [{ set = "card-1", counters = { slots = 2 } }]
    attributes = { models = ["a", "b"], nodes = [0, 1] }
    capacity.cpus = 8
    node_allocatable = { cpu = { capacity = "cpus" }, memory = { device = "1Gi" } }
    binding = { binds_to_node = true, conditions = ["example.com/Attached"], failure_conditions = ["Failed"] }
"#;

#[test]
fn devices_share_counters_and_tell_the_scheduler_more() {
    let script = parse(CARDS).unwrap();
    let sets: Vec<&str> = script.counter_sets.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(sets, ["card-0", "card-1"]);
    assert_eq!(script.counter_sets[0].counters["memory"], Quantity::whole(16 << 30));
    let taken = |device: usize| &script.devices[device].device.consumes[0];
    assert_eq!((taken(1).set.as_str(), taken(1).counters["slots"]), ("card-1", Quantity::whole(4)));
    let half = &script.devices[2].device;
    assert_eq!(attribute(half, "nodes"), Some(AttributeValue::Ints(vec![0, 1])));
    assert_eq!(attribute(half, "models"), Some(AttributeValue::Strings(vec!["a".to_owned(), "b".to_owned()])));
    let per_cpu = NodeAllocatable::PerCapacity {
        capacity: hostler_api::QualifiedName::new("cpus").unwrap(),
        factor: Quantity::whole(1),
    };
    assert_eq!(half.node_allocatable["cpu"], per_cpu);
    assert_eq!(half.node_allocatable["memory"], NodeAllocatable::PerDevice(Quantity::whole(1 << 30)));
    let binding = half.binding.clone().unwrap();
    assert!(binding.binds_to_node && binding.conditions == ["example.com/Attached"]);
    assert_eq!(binding.failure_conditions, ["Failed"]);
}

#[test]
fn what_makes_no_sense_of_all_this_is_named_with_its_place() {
    for (from, to, place) in [
        ("slots = 4, memory = \"16Gi\" }\n", "slots = -4 }\n", "counter_set[0].counters"),
        ("card-{n}", "crad", "device[0].consumes[0].set"),
        ("{ slots = 2 }", "{ slot = 2 }", "device[1].consumes[0].counters.slot"),
        ("{ slots = 2 }", "{ slots = 5 }", "device[1].consumes[0].counters.slots"),
        ("{ slots = 2 }", "{ }", "device[1].consumes[0].counters"),
        ("[0, 1]", "[0, \"b\"]", "device[1].attributes"),
        ("[0, 1]", "[]", "device[1].attributes.nodes"),
        ("[\"Failed\"]", "[]", "device[1].binding.failure_conditions"),
        ("[\"Failed\"]", "[\"not so\"]", "device[1].binding.failure_conditions[0]"),
        ("cpu = {", "gpu = {", "device[1].node_allocatable.gpu"),
        ("{ capacity = \"cpus\" }", "{ capacity = \"cores\" }", "device[1].node_allocatable.cpu"),
        ("{ capacity = \"cpus\" }", "{ factor = 2 }", "device[1].node_allocatable.cpu"),
        ("count = 2\n    counters", "count = 0\n    counters", "counter_set[0].count"),
    ] {
        let text = CARDS.replacen(from, to, 1);
        assert_ne!(text, CARDS, "{from}");
        let error = parse(&text).unwrap_err();
        assert!(error.contains(&format!(", {place}")), "{to}: {error}");
    }
}

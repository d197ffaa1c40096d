//! What breaks a limit, and what just keeps it.

use hostler_api::{DeviceName, QualifiedName};

use super::*;
use crate::{BindingConditions, CounterSet, CounterUse, NodeAllocatable};

const GI: u64 = 1 << 30;

fn device() -> Device {
    Device::new(DeviceName::new("disk-0").unwrap())
}

fn with_attribute(name: &str, value: impl Into<AttributeValue>) -> Vec<DeviceProblem> {
    let mut device = device();
    device.attributes.insert(QualifiedName::new(name).unwrap(), value.into());
    device.problems()
}

fn with_policy(value: u64, default: u64, min: u64, step: u64) -> Vec<DeviceProblem> {
    let [value, default, min, step] = [value, default, min, step].map(Quantity::whole);
    let mut device = device();
    device.sharing = Sharing::Shared;
    let capacity = Capacity { value, policy: Some(RequestPolicy { default, min, step }) };
    device.capacity.insert(QualifiedName::new("memory").unwrap(), capacity);
    device.problems()
}

#[test]
fn a_plain_device_breaks_no_limit() {
    assert_eq!(device().problems(), []);
}

#[test]
fn attributes_and_capacities_are_counted_together() {
    let mut device = device();
    for index in 0..32 {
        device.attributes.insert(QualifiedName::new(format!("a{index}")).unwrap(), AttributeValue::Int(index));
    }
    assert_eq!(device.problems(), []);
    let capacity = Capacity { value: Quantity::whole(1), policy: None };
    device.capacity.insert(QualifiedName::new("c").unwrap(), capacity);
    assert_eq!(device.problems()[0].field, "attributes");
}

#[test]
fn long_strings_and_malformed_versions_are_found() {
    assert_eq!(with_attribute("model", &*"x".repeat(64)), []);
    assert_eq!(with_attribute("model", &*"x".repeat(65))[0].field, "attributes.model");
    for good in ["0.0.0", "1.2.3", "1.2.3-rc.1+build.007", "1.0.0-0A", "1.0.0--"] {
        assert_eq!(with_attribute("firmware", AttributeValue::Version(good.into())), [], "{good}");
    }
    for bad in ["", "1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "1.2.x"] {
        assert_eq!(with_attribute("firmware", AttributeValue::Version(bad.into())).len(), 1, "{bad}");
    }
}

#[test]
fn standard_attributes_are_exact() {
    assert_eq!(with_attribute("resource.kubernetes.io/numaNode", 0), []);
    assert_eq!(with_attribute("resource.kubernetes.io/pciBusID", "0000:3b:00.0"), []);
    assert_eq!(with_attribute("resource.kubernetes.io/pcieRoot", "pci0000:16"), []);
    assert_eq!(with_attribute("resource.kubernetes.io/numaNode", -1).len(), 1);
    assert_eq!(with_attribute("resource.kubernetes.io/numaNode", "0").len(), 1);
    for bad in ["0000:3B:00.0", "10000:3b:00.0", "3b:00.0", "0000-3b-00-0"] {
        assert_eq!(with_attribute("resource.kubernetes.io/pciBusID", bad).len(), 1, "{bad}");
    }
    for bad in ["0000:16", "pci:16", "pci0000:1", "pci0000"] {
        assert_eq!(with_attribute("resource.kubernetes.io/pcieRoot", bad).len(), 1, "{bad}");
    }
    assert_eq!(with_attribute("resource.kubernetes.io/numanode", 0).len(), 1);
}

#[test]
fn request_policies_are_checked_as_the_api_server_does() {
    assert_eq!(with_policy(16 * GI, GI, GI, GI), []);
    assert_eq!(with_policy(2, 2, 2, 2), []);
    for (value, default, min, step, part) in [
        (16, 4, 4, 0, "step is 0"),
        (16, 2, 4, 4, "default is 2"),
        (16, 20, 4, 4, "default is 20"),
        (16, 6, 4, 4, "default (6)"),
        (15, 4, 4, 4, "the value (15)"),
    ] {
        let problems = with_policy(value, default, min, step);
        assert!(problems.len() == 1 && problems[0].reason.contains(part), "{part}: {problems:?}");
    }
}

#[test]
fn an_exclusive_device_has_no_request_policy() {
    let one = Quantity::whole(1);
    let mut device = device();
    let capacity = Capacity { value: one, policy: Some(RequestPolicy { default: one, min: one, step: one }) };
    device.capacity.insert(QualifiedName::new("cpus").unwrap(), capacity);
    assert_eq!(device.problems()[0].reason, "only a shared device can have a request policy");
}

#[test]
fn edits_that_a_runtime_refuses_are_found() {
    let mut device = device();
    device.edits.env.push("GOOD=1".to_owned());
    assert_eq!(device.problems(), []);
    device.edits.env.push("bad".to_owned());
    let problems = device.problems();
    assert!(problems.len() == 1 && problems[0].field.starts_with("edits.env[1]"), "{problems:?}");
}

#[test]
fn a_device_that_is_not_healthy_says_why() {
    let mut device = device();
    device.health = Health::Unhealthy { reason: " ".to_owned() };
    assert_eq!(device.problems()[0].to_string(), "health: say why the device is not healthy");
}

#[test]
fn elements_of_lists_count_as_values() {
    let mut device = device();
    let list = |count: i64| AttributeValue::Ints((0..count).collect());
    device.attributes.insert(QualifiedName::new("nodes").unwrap(), list(47));
    device.attributes.insert(QualifiedName::new("model").unwrap(), "x".into());
    assert_eq!(device.problems(), []);
    device.attributes.insert(QualifiedName::new("nodes").unwrap(), list(48));
    assert_eq!(
        device.problems()[0].to_string(),
        "attributes: 49 values, those of lists included; a device has 48 at most"
    );
}

#[test]
fn lists_have_elements_and_each_keeps_the_limits_of_one() {
    let texts = |texts: &[&str]| AttributeValue::Strings(texts.iter().map(|text| (*text).to_owned()).collect());
    assert_eq!(with_attribute("models", texts(&["a", "b"])), []);
    assert_eq!(with_attribute("models", texts(&["a", &"x".repeat(65)])).len(), 1);
    assert_eq!(with_attribute("models", texts(&[])).len(), 1);
    assert_eq!(with_attribute("nodes", AttributeValue::Ints(Vec::new())).len(), 1);
    let nodes = |nodes: &[i64]| with_attribute("resource.kubernetes.io/numaNode", AttributeValue::Ints(nodes.to_vec()));
    assert_eq!(nodes(&[0, 1023]), []);
    assert_eq!(nodes(&[0, 1024]).len(), 1);
    assert_eq!(nodes(&[]).len(), 1);
}

fn name(text: &str) -> DeviceName {
    DeviceName::new(text).unwrap()
}

fn amounts(amounts: &[(&str, &str)]) -> std::collections::BTreeMap<DeviceName, Quantity> {
    amounts.iter().map(|(counter, amount)| (name(counter), amount.parse().unwrap())).collect()
}

fn set(counters: &[(&str, &str)]) -> CounterSet {
    CounterSet { name: name("card"), counters: amounts(counters) }
}

fn taking(uses: &[(&str, &[(&str, &str)])]) -> Device {
    let consumes = uses.iter().map(|(set, taken)| CounterUse { set: name(set), counters: amounts(taken) }).collect();
    Device { consumes, ..device() }
}

fn fields(problems: &[DeviceProblem]) -> Vec<&str> {
    problems.iter().map(|problem| problem.field.as_str()).collect()
}

#[test]
fn counters_are_few() {
    let many: Vec<String> = (0..33).map(|index| format!("c{index}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|counter| (counter.as_str(), "1")).collect();
    assert_eq!(set(&many[..32]).problems(), []);
    assert_eq!(fields(&set(&many).problems()), ["counters"]);
    assert_eq!(fields(&set(&[]).problems()), ["counters"]);
    assert_eq!(taking(&[("a", &many[..32]), ("b", &[("slots", "1")])]).problems(), []);
    let wrong = taking(&[("a", &many), ("a", &[("slots", "1")]), ("c", &[])]).problems();
    assert_eq!(fields(&wrong), ["consumes", "consumes[0].counters", "consumes[1].set", "consumes[2].counters"]);
}

#[test]
fn counters_that_a_device_takes_are_there() {
    let sets = [set(&[("slots", "4")])];
    assert_eq!(taking(&[("card", &[("slots", "4")])]).counter_problems(&sets), []);
    for (device, problem) in [
        (taking(&[("crad", &[("slots", "4")])]), "consumes[0].set: there is no counter set crad; there are card"),
        (
            taking(&[("card", &[("slot", "4")])]),
            "consumes[0].counters.slot: set card has no such counter; it has slots",
        ),
        (
            taking(&[("card", &[("slots", "5")])]),
            "consumes[0].counters.slots: 5 is more than the 4 that there are in set card",
        ),
    ] {
        let problems = device.counter_problems(&sets);
        assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [problem]);
    }
}

fn binding(conditions: &[&str], failure_conditions: &[&str]) -> Vec<DeviceProblem> {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let binding = BindingConditions {
        binds_to_node: true,
        conditions: owned(conditions),
        failure_conditions: owned(failure_conditions),
    };
    Device { binding: Some(binding), ..device() }.problems()
}

#[test]
fn binding_conditions_come_in_both_kinds_and_mean_one_thing() {
    assert_eq!(binding(&["example.com/Attached", "b", "c", "d"], &["example.com/Failed"]), []);
    assert_eq!(fields(&binding(&["a"], &[])), ["binding.failure_conditions"]);
    assert_eq!(fields(&binding(&[], &["a"])), ["binding.conditions"]);
    assert_eq!(fields(&binding(&["a", "b", "c", "d", "e"], &["f"])), ["binding.conditions"]);
    assert_eq!(fields(&binding(&["a", "a"], &["f"])), ["binding.conditions[1]"]);
    assert_eq!(fields(&binding(&["a"], &["b", "a"])), ["binding.failure_conditions[1]"]);
    for bad in ["", "-a", "a b", "/a", "a/", "a/b/c", "Upper.io/a", &"x".repeat(64)] {
        assert_eq!(fields(&binding(&[bad], &["f"])), ["binding.conditions[0]"], "{bad:?}");
    }
}

#[test]
fn what_a_device_stands_for_is_the_nodes_and_is_something() {
    let per = |name: &str, amount: NodeAllocatable| {
        let mut device = device();
        device
            .capacity
            .insert(QualifiedName::new("cpus").unwrap(), Capacity { value: Quantity::whole(8), policy: None });
        device.node_allocatable.insert(name.to_owned(), amount);
        device.problems()
    };
    let whole = |amount| NodeAllocatable::PerDevice(Quantity::whole(amount));
    let capacity = |name: &str| NodeAllocatable::PerCapacity {
        capacity: QualifiedName::new(name).unwrap(),
        factor: Quantity::whole(1),
    };
    for good in ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi"] {
        assert_eq!(per(good, whole(2)), [], "{good}");
    }
    assert_eq!(per("cpu", capacity("cpus")), []);
    for (name, amount, part) in [
        ("cpus", whole(1), "no node accounts for it"),
        ("example.com/gpu", whole(1), "no node accounts for it"),
        ("hugepages-", whole(1), "no node accounts for it"),
        ("cpu", whole(0), "0 stands for nothing"),
        ("cpu", capacity("cores"), "the device has no capacity cores"),
    ] {
        let problems = per(name, amount);
        assert!(problems.len() == 1 && problems[0].reason.contains(part), "{name}: {problems:?}");
        assert_eq!(problems[0].field, format!("node_allocatable.{name}"));
    }
}

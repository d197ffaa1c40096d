//! Claims on cards, nodes and dax devices, and orders beside them, on a fake kernel.

use hostler_api::{Access, ClaimUid, Grant};
use hostler_backend::{
    Backend, Device, DeviceOperation, DevicePlan, HeldDevice, OperateWork, PlanWork, PrepareWork, UnprepareWork,
    VerifyWork,
    testkit::{Effect, Samples, conformance},
};
use hostler_linux::{
    SysRoot,
    testkit::{CxlKernel, CxlMachine},
};
use serde_json::{Value, json};

use super::{
    device,
    machine::{AT_ONCE, machine},
    regions::state,
};
use crate::{CxlBackend, CxlBackendConfig};

const DETACH: DeviceOperation = DeviceOperation::Detach { sanitize: false, overwrite: false, remove: false };

fn backend(root: &SysRoot) -> CxlBackend {
    CxlBackend { waits: AT_ONCE, ..CxlBackend::new(root.clone(), CxlBackendConfig::default()) }
}

fn config(fields: &Value) -> Vec<Value> {
    let mut config = json!({"apiVersion": "hostler.dev/v1alpha1", "kind": "CxlConfig"});
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    vec![config]
}

fn grant(device: &Device, config: Vec<Value>) -> Grant {
    Grant {
        request: "memory".to_owned(),
        pool: "host/cxl".to_owned(),
        device: device.name.clone(),
        share_id: None,
        access: Access::Use,
        consumed: Default::default(),
        config,
    }
}

fn found(backend: &CxlBackend, name: &str) -> Device {
    device(&backend.enumerate().unwrap().devices, name).clone()
}

fn plan(
    backend: &CxlBackend,
    name: &str,
    config: Vec<Value>,
    held: &[HeldDevice<'_>],
) -> Result<(Grant, DevicePlan), String> {
    let device = found(backend, name);
    let (claim, grant) = (ClaimUid::new("a").unwrap(), grant(&device, config));
    let work = PlanWork { claim: &claim, claim_name: "default/a", grant: &grant, device: &device, held, within: None };
    let plan = backend.plan(&work).map_err(|error| error.to_string())?;
    Ok((grant, plan))
}

fn operate(
    backend: &CxlBackend,
    name: &str,
    operation: DeviceOperation,
    held: &[HeldDevice<'_>],
) -> Result<String, String> {
    let device = found(backend, name);
    let answer = backend.operate(&OperateWork { device: &device, operation, held });
    answer.map(|outcome| outcome.to_string()).map_err(|error| error.to_string())
}

fn other() -> (ClaimUid, &'static str) {
    (ClaimUid::new("b").unwrap(), "default/b")
}

#[test]
fn cards_keep_the_promises_of_a_backend() {
    for dax_state in [true, false] {
        let kernel = machine(CxlMachine { dax_state, ..CxlMachine::default() });
        let root = kernel.root();
        let restart = || -> Box<dyn Backend> { Box::new(backend(&root)) };
        let observe = || state(&root);
        let configs = vec![
            Vec::new(),
            config(&json!({"useAs": "systemRam"})),
            config(&json!({"useAs": "devDax", "sanitize": true})),
        ];
        let samples = Samples { configs, effect: Effect::Visible, observe: Some(&observe), restart: Some(&restart) };
        conformance(&backend(&root), &samples);
        assert_eq!((kernel.dead(), kernel.stuck()), (None, false));
        assert!(!kernel.sanitized().is_empty());
    }
}

#[test]
fn a_claim_gets_the_node_that_its_card_becomes_or_the_dax_device() {
    let kernel = machine(CxlMachine::default());
    let backend = backend(&kernel.root());
    for (use_as, mems, nodes) in [("systemRam", vec![5], 0), ("devDax", vec![], 1)] {
        let device = found(&backend, "memory-1001");
        let (grant, plan) = plan(&backend, "memory-1001", config(&json!({ "useAs": use_as })), &[]).unwrap();
        let claim = ClaimUid::new("a").unwrap();
        let work = PrepareWork { claim: &claim, grant: &grant, device: &device, plan: &plan };
        let prepared = backend.prepare(&work).unwrap();
        let bound = prepared.pinning.map(|pinning| pinning.mems.into_iter().collect()).unwrap_or_default();
        assert_eq!((bound, prepared.edits.device_nodes.len()), (mems, nodes));
        backend.verify(&VerifyWork { claim: &claim, grant: &grant, plan: &plan }).unwrap();
        // The card's other devices are there now, and its holder has them.
        let (other_claim, _) = other();
        let held = [HeldDevice { claim: &claim, claim_name: "default/a", grant: &grant, plan: &plan }];
        let names: Vec<String> =
            backend.enumerate().unwrap().devices.iter().map(|device| device.name.to_string()).collect();
        let twin = names.iter().find(|name| name.starts_with("node") || name.starts_with("dax-")).unwrap();
        let refused = self::plan(&backend, twin, Vec::new(), &held).unwrap_err();
        assert!(refused.contains("default/a"), "{refused}");
        let refused = operate(&backend, "memory-1001", DETACH, &held).unwrap_err();
        assert_eq!(refused, "memory-1001 cannot be detached: it is held by default/a (claim memory-1001)");
        backend.unprepare(&UnprepareWork { claim: &other_claim, grant: &grant, plan: &plan }).unwrap();
    }
    assert_eq!(kernel.dead(), None);
}

#[test]
fn an_operator_attaches_a_card_for_everybody_and_detaches_it_when_nobody_uses_it() {
    let kernel = machine(CxlMachine::default());
    let backend = backend(&kernel.root());
    let done = operate(&backend, "memory-1001", DeviceOperation::Attach, &[]).unwrap();
    assert_eq!(done, "memory 0x370000000-0x38fffffff of card 0x1001 at 0000:41:00.0 is online on node 5, movable");
    assert_eq!(operate(&backend, "memory-1001", DeviceOperation::Attach, &[]).unwrap(), "nothing was left to do");
    let refused = plan(&backend, "memory-1001", Vec::new(), &[]).unwrap_err();
    assert_eq!(
        refused,
        "memory-1001 is memory of the system on node 5, no claim holds it; `hostler device detach cxl/memory-1001` frees it"
    );
    // A claim on a part of the node holds the card.
    let (grant, plan) = plan(&backend, "node5", Vec::new(), &[]).unwrap();
    assert_eq!(plan.pinning.mems, [5].into());
    let (uid, name) = other();
    let held = [HeldDevice { claim: &uid, claim_name: name, grant: &grant, plan: &plan }];
    let refused = operate(&backend, "memory-1001", DETACH, &held).unwrap_err();
    assert_eq!(refused, "memory-1001 cannot be detached: it is held by default/b (claim node5)");
    let refused = operate(&backend, "node5", DETACH, &[]).unwrap_err();
    assert_eq!(refused, "node5 cannot be detached: orders are for whole cards");
    let done = operate(
        &backend,
        "memory-1001",
        DeviceOperation::Detach { sanitize: true, overwrite: false, remove: true },
        &[],
    )
    .unwrap();
    assert!(done.contains("of node 5 taken out") && done.contains("erased") && done.contains("removed"), "{done}");
    assert_eq!(kernel.sanitized(), ["0x1001"]);
    assert!(backend.enumerate().unwrap().devices.iter().all(|device| device.name.as_str() != "memory-1001"));
    assert_eq!(kernel.dead(), None);
}

#[test]
fn a_rehearsed_order_says_what_would_be_done_and_writes_nothing() {
    let kernel = machine(CxlMachine::default());
    let backend = backend(&kernel.root());
    let rehearse = |name: &str, operation, held: &[HeldDevice<'_>]| {
        let device = found(&backend, name);
        let before = state(&kernel.root());
        let answer = backend.rehearse(&OperateWork { device: &device, operation, held });
        assert_eq!(state(&kernel.root()), before);
        answer.map(|outcome| outcome.to_string()).map_err(|error| error.to_string())
    };
    let all = DeviceOperation::Detach { sanitize: true, overwrite: false, remove: true };
    let would = rehearse("memory-1001", DeviceOperation::Attach, &[]).unwrap();
    assert_eq!(would, "memory of card 0x1001 at 0000:41:00.0 is online on a node, movable");
    operate(&backend, "memory-1001", DeviceOperation::Attach, &[]).unwrap();
    assert_eq!(rehearse("memory-1001", DeviceOperation::Attach, &[]).unwrap(), "nothing was left to do");
    let (grant, plan) = plan(&backend, "node5", Vec::new(), &[]).unwrap();
    let (uid, name) = other();
    let held = [HeldDevice { claim: &uid, claim_name: name, grant: &grant, plan: &plan }];
    for operation in [DETACH, all] {
        let said = rehearse("memory-1001", operation, &held).unwrap_err();
        assert_eq!(said, operate(&backend, "memory-1001", operation, &held).unwrap_err(), "the refusal of the order");
    }
    assert!(rehearse("node5", DETACH, &[]).unwrap_err().contains("orders are for whole cards"));
    let would = rehearse("memory-1001", all, &[]).unwrap();
    assert_eq!(operate(&backend, "memory-1001", all, &[]).unwrap(), would, "what is done is what was said");
}

#[test]
fn a_card_that_cannot_erase_itself_is_overwritten_and_stays_where_that_fails() {
    for maps_devices in [true, false] {
        let kernel = machine(CxlMachine { maps_devices, ..CxlMachine::default() });
        let backend = backend(&kernel.root());
        operate(&backend, "memory-3001", DeviceOperation::Attach, &[]).unwrap();
        let order = DeviceOperation::Detach { sanitize: false, overwrite: true, remove: true };
        let done = operate(&backend, "memory-3001", order, &[]);
        let is_there = backend.enumerate().unwrap().devices.iter().any(|device| device.name.as_str() == "memory-3001");
        if maps_devices {
            let done = done.unwrap();
            assert!(done.contains("; memory of card 0x3001 at 0000:43:00.0 overwritten; mem0 disabled"), "{done}");
            assert!(!is_there);
        } else {
            let refused = done.unwrap_err();
            assert!(
                refused.contains("failed to overwrite the memory of dax0.0: failed to overwrite memory at 0"),
                "{refused}"
            );
            assert!(is_there && !refused.contains("removed"), "{refused}");
            let card = found(&backend, "memory-3001");
            let used = card.attributes["use"].clone();
            assert_eq!(used, hostler_backend::AttributeValue::String("none".into()), "no region of it is left");
        }
        assert_eq!((kernel.dead(), kernel.sanitized().len()), (None, 0));
    }
}

/// A process with pages on node 5 and a pool of huge pages there.
fn use_node(kernel: &CxlKernel) {
    kernel.tree().file("proc/42/comm", "database");
    kernel.tree().file("proc/42/numa_maps", "7f00 default anon=9 N5=9 kernelpagesize_kB=4");
    let pool = "sys/devices/system/node/node5/hugepages/hugepages-2048kB";
    kernel.tree().files(pool, &[("nr_hugepages", "8"), ("free_hugepages", "5")]);
}

#[test]
fn a_refusal_names_the_blocks_the_processes_and_the_huge_pages() {
    for dax_state in [true, false] {
        let kernel = machine(CxlMachine { dax_state, ..CxlMachine::default() });
        let backend = backend(&kernel.root());
        operate(&backend, "memory-1001", DeviceOperation::Attach, &[]).unwrap();
        use_node(&kernel);
        kernel.pin(112);
        let refused = operate(&backend, "memory-1001", DETACH, &[]).unwrap_err();
        for said in [
            "memory-1001 cannot be detached: memory11",
            "-113 cannot be taken offline",
            "node 5 is used by process 42 (database) with 36 kB, 8 huge pages of 2048 kB, 5 of them free",
            "nothing is changed",
        ] {
            assert!(refused.contains(said), "{refused}");
        }
        kernel.unpin(112);
        operate(&backend, "memory-1001", DETACH, &[]).unwrap();
        assert_eq!(kernel.dead(), None);
    }
}

#[test]
fn what_would_erase_persistent_memory_is_refused_for_a_claim() {
    let kernel = machine(CxlMachine::default());
    kernel.tree().file("sys/devices/pci0000:40/0000:41:00.0/mem1/pmem/size", "0x10000000");
    let backend = backend(&kernel.root());
    let refused = plan(&backend, "memory-1001", config(&json!({"sanitize": true})), &[]).unwrap_err();
    assert!(refused.contains("persistent memory too"), "{refused}");
    plan(&backend, "memory-1001", Vec::new(), &[]).unwrap();
    kernel.tree().remove("sys/devices/pci0000:40/0000:43:00.0/mem0/security/sanitize");
    let device = found(&backend, "memory-3001");
    let (grant, plan) = plan(&backend, "memory-3001", config(&json!({"sanitize": true})), &[]).unwrap();
    let claim = ClaimUid::new("a").unwrap();
    let work = PrepareWork { claim: &claim, grant: &grant, device: &device, plan: &plan };
    assert!(backend.prepare(&work).unwrap_err().to_string().contains("cannot erase its memory"));
}
